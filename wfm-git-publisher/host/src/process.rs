//! Stock git, spawned: in a clean environment, few at a time, with limits of time, memory and output. And what else answers a
//! request as a process of its own.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit, setpriority_pgrp};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::answer::Refusal;
use crate::limits::Limits;
use crate::lock::lock;
use crate::wire::path::Service;

/// What git and its children may use of memory, each: enough for any pack that is accepted, too little for a bomb.
const MEMORY: u64 = 1 << 30;

/// Seconds of processor time for each process.
const CPU: u64 = 120;

/// What is kept of what a process says on its standard error.
const STDERR: u64 = 8 << 10;

/// How long a process that was told to end may clean up.
const GRACE: Duration = Duration::from_secs(2);

/// What every git here is told. No configuration of user or machine is read; a repository's own is the publisher's.
const CONFIG: &[&str] = &[
    "safe.directory=*",
    "core.fsync=all",
    "core.fsyncMethod=fsync",
    "core.bigFileThreshold=1m",
    "core.logAllRefUpdates=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.threads=1",
    "pack.windowMemory=64m",
    "receive.autogc=false",
    "receive.unpackLimit=1",
    "receive.denyCurrentBranch=ignore",
    "receive.advertisePushOptions=false",
    "transfer.fsckObjects=true",
    "transfer.unpackLimit=1",
    "uploadpack.allowAnySHA1InWant=false",
    "uploadpack.allowFilter=false",
];

/// A gate that lets a few through, of one account no more than its share. The others wait in a bounded queue, in which
/// accounts take turns, however much each of them asks for.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Mutex<Turns>>);

#[derive(Debug)]
struct Turns {
    free: usize,
    /// How many processes of one account run at most.
    share: usize,
    /// How many requests wait for a process at most.
    queue: usize,
    running: HashMap<String, usize>,
    /// Who waits, by account; the first one's turn is next.
    waiting: VecDeque<(String, VecDeque<oneshot::Sender<Slot>>)>,
}

/// The right to run one process, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    gate: Gate,
    account: String,
}

impl Gate {
    pub(crate) fn new(slots: usize, share: usize, queue: usize) -> Self {
        let (running, waiting) = (HashMap::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(Turns { free: slots, share, queue, running, waiting })))
    }

    /// Waits for a slot, unless too many wait already, or for too long.
    pub(crate) async fn enter(&self, account: &str) -> Result<Slot, Refusal> {
        self.enter_within(account, Limits::QUEUE).await
    }

    /// Waits for a slot no longer than this, unless too many wait already.
    pub(crate) async fn enter_within(&self, account: &str, longest: Duration) -> Result<Slot, Refusal> {
        let turn = {
            let mut turns = lock(&self.0);
            if turns.take(account) {
                return Ok(self.slot(account.to_owned()));
            }
            turns.wait(account)?
        };
        timeout(longest, turn).await.ok().and_then(Result::ok).ok_or(Refusal::Busy)
    }

    fn slot(&self, account: String) -> Slot {
        Slot { gate: self.clone(), account }
    }
}

impl Turns {
    /// Takes a slot for an account, if there is one for it. Where one is free nobody waits who might have it.
    fn take(&mut self, account: &str) -> bool {
        let running = self.running.get(account).copied().unwrap_or(0);
        let may = self.free > 0 && running < self.share;
        if may {
            self.free -= 1;
            self.running.insert(account.to_owned(), running + 1);
        }
        may
    }

    fn wait(&mut self, account: &str) -> Result<oneshot::Receiver<Slot>, Refusal> {
        self.forget_gone();
        if self.waiting.iter().map(|(_, waiting)| waiting.len()).sum::<usize>() >= self.queue {
            return Err(Refusal::Busy);
        }
        let (sender, turn) = oneshot::channel();
        match self.waiting.iter_mut().find(|(one, _)| one == account) {
            Some((_, waiting)) => waiting.push_back(sender),
            None => self.waiting.push_back((account.to_owned(), [sender].into())),
        }
        Ok(turn)
    }

    /// Gives up the places of those who don't wait any more.
    fn forget_gone(&mut self) {
        self.waiting.iter_mut().for_each(|(_, waiting)| waiting.retain(|turn| !turn.is_closed()));
        self.waiting.retain(|(_, waiting)| !waiting.is_empty());
    }

    /// Whose turn it is; that account's next one comes after all others.
    fn next(&mut self) -> Option<(String, oneshot::Sender<Slot>)> {
        self.forget_gone();
        let may = |turns: &mut Self, at: usize| turns.take(&turns.waiting[at].0.clone());
        let at = (0..self.waiting.len()).find(|at| may(self, *at))?;
        let (account, mut waiting) = self.waiting.remove(at)?;
        let turn = waiting.pop_front()?;
        if !waiting.is_empty() {
            self.waiting.push_back((account.clone(), waiting));
        }
        Some((account, turn))
    }

    fn leave(&mut self, account: &str) {
        self.free += 1;
        match self.running.get_mut(account) {
            Some(running) if *running > 1 => *running -= 1,
            _ => _ = self.running.remove(account),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.gate.0).leave(&self.account);
        loop {
            let next = lock(&self.gate.0).next();
            let Some((account, turn)) = next else { return };
            // Who doesn't wait any more gives it back.
            drop(turn.send(self.gate.slot(account)));
        }
    }
}

/// One conversation with stock git.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    /// `PATH` of the process.
    path: std::ffi::OsString,
    service: Service,
    repository: PathBuf,
    arguments: Vec<&'static str>,
    config: Vec<String>,
    environment: Vec<(&'static str, std::ffi::OsString)>,
}

impl Git {
    /// `git <service> --stateless-rpc <repository>`
    pub(crate) fn new(path: &std::ffi::OsStr, service: Service, repository: &Path) -> Self {
        Self {
            path: path.to_owned(),
            service,
            repository: repository.to_owned(),
            arguments: vec!["--stateless-rpc"],
            config: Vec::new(),
            environment: Vec::new(),
        }
    }

    pub(crate) fn argument(mut self, argument: &'static str) -> Self {
        self.arguments.push(argument);
        self
    }

    /// With `-c key=value`.
    pub(crate) fn config(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.config.push(format!("{key}={value}"));
        self
    }

    pub(crate) fn environment(mut self, name: &'static str, value: impl Into<std::ffi::OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Starts it in a process group of its own. It can't do anything before it is spoken to, so the limits hold for all
    /// that it does.
    pub(crate) fn spawn(&self) -> io::Result<Running> {
        let mut command = Command::new("git");
        command.env_clear().envs([("LC_ALL", "C"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")]);
        command.env("PATH", &self.path).env("HOME", "/nonexistent").env("GIT_TERMINAL_PROMPT", "0");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        #[cfg(feature = "cut-points")]
        command.envs(cuts());
        for setting in CONFIG.iter().copied().chain(self.config.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.arg(self.service.name()).args(&self.arguments).arg(&self.repository).stdin(Stdio::piped());
        Running::start(command, MEMORY)
    }
}

/// Where the crash tests cut the hooks of this git; this program itself is cut elsewhere.
#[cfg(feature = "cut-points")]
fn cuts() -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
    let variables = std::env::vars_os().filter(|(name, _)| name != "SYNC_CUT");
    variables.filter_map(|(name, value)| match name.to_str()? {
        "SYNC_HOOK_CUT" => Some(("SYNC_CUT".into(), value)),
        known if known.starts_with("SYNC_") => Some((name, value)),
        _ => None,
    })
}

fn limit(process: Pid, memory: u64) -> io::Result<()> {
    let at_most = |amount| Rlimit { current: Some(amount), maximum: Some(amount) };
    // It may have failed and gone already; what it said tells why.
    for (resource, amount) in [(Resource::As, memory), (Resource::Cpu, CPU), (Resource::Core, 0)] {
        match prlimit(Some(process), resource, at_most(amount)) {
            Err(rustix::io::Errno::SRCH) | Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads all and keeps the beginning.
async fn tail(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut from) = from {
        let _ = (&mut from).take(STDERR).read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// A process that runs, killed with all its children when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    group: Option<Pid>,
    input: Option<ChildStdin>,
    pub(crate) output: Option<ChildStdout>,
    said: tokio::task::JoinHandle<String>,
}

/// A process that has ended, well or not.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The beginning of what it said on its standard error.
    pub(crate) said: String,
}

impl Running {
    /// Starts a process in a group of its own, which may use so many bytes of memory.
    pub(crate) fn start(mut command: Command, memory: u64) -> io::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = group {
            limit(group, memory)?;
        }
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let said = tokio::spawn(tail(child.stderr.take()));
        Ok(Self { child, group, input, output, said })
    }

    /// Lets it step back for other processes (`nice`).
    pub(crate) fn step_back(&self, niceness: i32) {
        // One that has ended already needs none of it.
        let _ = self.group.map(|group| setpriority_pgrp(Some(group), niceness));
    }

    /// The number of its process group.
    pub(crate) fn group(&self) -> Option<u32> {
        self.group.and_then(|group| group.as_raw_nonzero().get().try_into().ok())
    }

    /// Feeds it in the background. That it stops listening is no error: what it says tells why.
    pub(crate) fn feed(&mut self, head: Vec<u8>, rest: Option<File>) {
        let Some(mut input) = self.input.take() else { return };
        tokio::spawn(async move {
            let _ = input.write_all(&head).await;
            if let Some(rest) = rest {
                let _ = tokio::io::copy(&mut tokio::fs::File::from_std(rest), &mut input).await;
            }
            let _ = input.shutdown().await;
        });
    }

    /// Waits until it has ended, however that is.
    pub(crate) async fn end(&mut self) -> io::Result<Ended> {
        let status = self.child.wait().await?;
        self.group = None;
        let said = timeout(GRACE, &mut self.said).await.ok().and_then(Result::ok).unwrap_or_default();
        Ok(Ended { status, said })
    }

    /// Reads all of its output, at most `limit` bytes, and waits for its end.
    pub(crate) async fn finish(&mut self, limit: u64) -> io::Result<(Vec<u8>, Ended)> {
        let mut output = Vec::new();
        if let Some(from) = self.output.take() {
            from.take(limit).read_to_end(&mut output).await?;
        }
        Ok((output, self.end().await?))
    }

    /// Ends it with all its children, and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        let Some(group) = self.group.take() else { return };
        // Asked first: git then removes its lock and temporary files.
        let _ = kill_process_group(group, Signal::TERM);
        let _ = timeout(GRACE, self.child.wait()).await;
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(group) = self.group.take() else { return };
        let _ = kill_process_group(group, Signal::TERM);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            tokio::time::sleep(GRACE).await;
            let _ = kill_process_group(group, Signal::KILL);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_gate_lets_few_in_queues_some_and_turns_the_rest_away() {
        let gate = Gate::new(1, 1, 1);
        let first = gate.enter("a").await.unwrap();
        let waiting = gate.enter("a");
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("there is no room"),
            third = gate.enter("b") => assert!(matches!(third, Err(Refusal::Busy))),
        }
        drop(first);
        let second = waiting.await.unwrap();
        // Whoever waits too long is turned away, too; its place in the queue is free again.
        for _ in 0..3 {
            assert!(matches!(gate.enter("b").await, Err(Refusal::Busy)));
        }
        drop(second);
        assert!(gate.enter("b").await.is_ok());
        assert!(lock(&gate.0).running.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_account_has_its_share_and_accounts_take_turns_however_much_they_ask_for() {
        let (gate, order) = (Gate::new(2, 1, 100), Arc::new(Mutex::new(Vec::new())));
        let held = (gate.enter("greedy").await.unwrap(), gate.enter("other").await.unwrap());
        let mut tasks = Vec::new();
        for account in ["greedy", "greedy", "greedy", "a", "b", "a"] {
            let (gate, order) = (gate.clone(), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _slot = gate.enter(account).await.unwrap();
                lock(&order).push(account);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }));
            tokio::task::yield_now().await;
        }
        // A slot is free that the greedy one may not have, because it runs one already.
        drop(held.1);
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert_eq!(*lock(&order), ["a", "b", "a"]);
        drop(held.0);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(lock(&order).len(), 6);
    }

    #[tokio::test]
    async fn a_git_that_is_given_up_ends_and_one_that_fails_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let git = Git::new(&path, Service::UploadPack, dir.path());
        let (output, ended) = git.spawn().unwrap().finish(1000).await.unwrap();
        assert!(output.is_empty() && !ended.status.success());
        assert!(ended.said.contains("not appear to be a git repository"), "{}", ended.said);
        repo_git::Repo::create(dir.path(), "desired").unwrap();
        // It waits for a request that never comes.
        let running = git.spawn().unwrap();
        let process = running.group.unwrap();
        drop(running);
        for _ in 0..3000 {
            if rustix::process::test_kill_process(process).is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it still runs");
    }
}
