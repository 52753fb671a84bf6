//! One process that speaks Git's protocol: a clean environment, limits in time, and no survivors.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::deadline::{Activity, Deadline};

/// How much of the end of stderr is kept.
const STDERR_TAIL: usize = 2048;

/// How long the last words of a process that ended may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A running `git upload-pack` or `git receive-pack`, or the `ssh` that leads to one. Dropping it kills it and what it
/// started.
pub(super) struct Process {
    child: Child,
    group: Group,
    stderr: Option<Receiver<String>>,
    activity: Activity,
    /// When it passes, the process is killed.
    pub(super) deadline: Deadline,
}

pub(super) struct Ended {
    /// It was ended because its time was up.
    pub(super) has_passed: bool,
    /// Its time was up because no byte went either way for too long.
    pub(super) was_silent: bool,
    /// Its exit status, if it ended by itself.
    pub(super) code: Option<i32>,
    /// The end of what it wrote to standard error.
    pub(super) said: String,
}

/// Where a conversation broke off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Greeting,
    Talking,
}

/// One end of the conversation, which notes when a byte goes through.
pub(super) struct Pipe<T> {
    inner: T,
    activity: Activity,
}

impl<R: Read> Read for Pipe<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.activity.note();
        Ok(count)
    }
}

impl<W: Write> Write for Pipe<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.activity.note();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
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
    /// Starts a command that [`command`] made; it is killed after `limit`, or when no byte went either way for `silence`.
    pub(super) fn start(mut command: Command, limit: Duration, silence: Option<Duration>) -> io::Result<Self> {
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let group = Group(Arc::new(Mutex::new(Pid::from_raw(child.id() as i32))));
        let watched = group.clone();
        let activity = Activity::now();
        let silence = silence.map(|longest| (longest, activity.clone()));
        let deadline = Deadline::watching(limit, silence, move || watched.kill());
        let stderr = child.stderr.take().map(|pipe| {
            let (tell, told) = mpsc::channel();
            thread::spawn(move || tell.send(tail(pipe)));
            told
        });
        Ok(Self { child, group, stderr, activity, deadline })
    }

    /// Both ends of the conversation; once only.
    pub(super) fn pipes(&mut self) -> io::Result<(Pipe<ChildStdout>, Pipe<ChildStdin>)> {
        let pipes = self.child.stdout.take().zip(self.child.stdin.take());
        let (read, write) = pipes.ok_or_else(|| io::Error::other("the pipes are in use"))?;
        let activity = || self.activity.clone();
        Ok((Pipe { inner: read, activity: activity() }, Pipe { inner: write, activity: activity() }))
    }

    /// Ends the process, after `patience` for it to end by itself.
    pub(super) fn end(mut self, patience: Duration) -> Ended {
        let begin = Instant::now();
        while begin.elapsed() < patience && !self.deadline.has_passed() && !self.has_exited() {
            thread::sleep(Duration::from_millis(5));
        }
        let code = self.reap();
        // What left the group, such as an ssh that is kept for the next one, may hold the pipe open.
        let said = self.stderr.take().and_then(|told| told.recv_timeout(LAST_WORDS).ok()).unwrap_or_default();
        let (has_passed, was_silent) = (self.deadline.has_passed(), self.deadline.was_silent());
        Ended { has_passed, was_silent, code, said }
    }

    /// Waits for the process to end by itself, within its limit.
    pub(super) fn wait(self) {
        self.wait_for_exit();
        self.end(Duration::ZERO);
    }

    // Left as a zombie, so that the watcher can't meet a reused number.
    fn wait_for_exit(&self) {
        if let Some(pid) = self.pid() {
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        }
    }

    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        self.pid().is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
    }

    fn pid(&self) -> Option<Pid> {
        *self.group.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reap(&mut self) -> Option<i32> {
        self.group.kill();
        self.wait_for_exit();
        self.group.forget();
        self.child.wait().ok().and_then(|status| status.code())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.reap();
    }
}

/// `git <service> <repository>` with only `PATH`: no user's or machine's configuration, no hooks of the environment,
/// whoever owns the repository.
pub(super) fn git(service: &str, repository: &Path) -> Command {
    let mut command = command("git", &["PATH"]);
    command.arg(service).arg("--").arg(repository);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
    command
}

/// A command with nothing of the environment but these variables.
pub(super) fn command(program: &str, variables: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C");
    command.envs(variables.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
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
