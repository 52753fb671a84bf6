//! One stock Git process of the other side: a clean environment, a time limit, and no survivors.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::deadline::Deadline;

/// How much of the end of stderr is kept.
const STDERR_TAIL: usize = 2048;

/// A running `git upload-pack` or `git receive-pack`. Dropping it kills it and what it started.
pub(super) struct Process {
    child: Child,
    group: Group,
    stderr: Option<JoinHandle<String>>,
    /// When it passes, the process is killed.
    pub(super) deadline: Deadline,
}

/// The process group to kill; `None` once its leader has been waited for, because the number may be reused.
#[derive(Clone)]
struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    fn kill(&self) {
        if let Some(pid) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Process {
    /// Runs `git <service> <repository>`; it is killed after `limit`.
    pub(super) fn spawn(service: &str, repository: &Path, protocol: Option<&str>, limit: Duration) -> io::Result<Self> {
        let mut command = Command::new("git");
        command.arg(service).arg("--").arg(repository).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        clean_environment(&mut command);
        command.envs(protocol.map(|version| ("GIT_PROTOCOL", version)));
        let mut child = command.spawn()?;
        let group = Group(Arc::new(Mutex::new(Pid::from_raw(child.id() as i32))));
        let watched = group.clone();
        let deadline = Deadline::after(limit, move || watched.kill());
        let stderr = child.stderr.take().map(|pipe| thread::spawn(move || tail(pipe)));
        Ok(Self { child, group, stderr, deadline })
    }

    /// Both ends of the conversation; once only.
    pub(super) fn pipes(&mut self) -> io::Result<(ChildStdout, ChildStdin)> {
        let pipes = self.child.stdout.take().zip(self.child.stdin.take());
        pipes.ok_or_else(|| io::Error::other("the pipes are in use"))
    }

    /// Kills the process if it still runs. Tells whether its time was up, and what it said last on stderr.
    pub(super) fn end(mut self) -> (bool, String) {
        self.reap();
        let said = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        (self.deadline.has_passed(), said)
    }

    /// Waits for the process to end by itself, within its limit.
    pub(super) fn wait(self) {
        self.wait_for_exit();
        self.end();
    }

    fn wait_for_exit(&self) {
        let pid = *self.group.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pid) = pid {
            // Left as a zombie, so that the watcher can't meet a reused number.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        }
    }

    fn reap(&mut self) {
        self.group.kill();
        self.wait_for_exit();
        self.group.forget();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Only `PATH`: no user's or machine's configuration, no hooks of the environment, whoever owns the repository.
fn clean_environment(command: &mut Command) {
    command.env_clear();
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C");
    command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
}

/// Reads all and keeps the end.
fn tail(mut pipe: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        kept.extend(&buffer[..count]);
        let surplus = kept.len().saturating_sub(STDERR_TAIL);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
