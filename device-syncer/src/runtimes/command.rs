//! Runs one child process: closed or given input, chosen environment, bounded output, a time limit, its own process group.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::redact::Redactor;

/// How long a group may take to end after TERM.
const GRACE: Duration = Duration::from_secs(10);
/// How long the output of a child that has ended may take to end.
const DRAIN: Duration = Duration::from_secs(20);
/// How much of standard error is kept: its end.
const STDERR_LIMIT: usize = 8 * 1024;
/// How often `cancel` is asked while the child runs.
const TICK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct Spec {
    pub program: PathBuf,
    /// Never a secret: other users of the machine can read them.
    pub args: Vec<OsString>,
    /// The whole environment: nothing of this process's is passed on.
    pub env: Vec<(OsString, OsString)>,
    /// The longest that it may run; then its group is killed.
    pub timeout: Duration,
    /// Limit of standard output in bytes; more is an error.
    pub stdout_limit: usize,
    /// Takes secrets out of standard error.
    pub redactor: Redactor,
}

/// What came of a run that ended by itself.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    /// The end of standard error, without secrets.
    pub stderr: String,
}

/// A run that didn't end by itself.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("can't start `{program}`")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    /// It took too long and was ended.
    #[error("`{command}` took longer than {seconds} s: {stderr}")]
    TimedOut {
        command: String,
        seconds: u64,
        /// The end of standard error.
        stderr: String,
    },
    /// The caller asked to stop, and it was ended.
    #[error("`{command}` was stopped on request")]
    Cancelled { command: String },
    /// It wrote more to standard output than `stdout_limit`.
    #[error("`{command}` wrote more than {limit} bytes")]
    TooMuch { command: String, limit: usize },
    #[error("can't wait for `{command}`")]
    Wait {
        command: String,
        #[source]
        source: io::Error,
    },
}

/// Lets every child inherit this descriptor, so that a lock on it is held for as long as one of them lives.
pub fn inherit(lock: impl AsFd) -> io::Result<()> {
    let flags = rustix::io::fcntl_getfd(&lock)?;
    Ok(rustix::io::fcntl_setfd(&lock, flags - rustix::io::FdFlags::CLOEXEC)?)
}

/// Runs it to its end, its time limit, or `cancel`, whichever is first; what is ended early is ended as a group, and what is
/// cancelled before it began isn't begun.
pub fn run(spec: &Spec, cancel: &dyn Fn() -> bool) -> Result<Output, CommandError> {
    run_child(start(spec, Stdio::null(), cancel)?, spec, cancel)
}

/// The same, with this on its input, whether it reads that or not.
pub fn run_with_input(spec: &Spec, input: Vec<u8>, cancel: &dyn Fn() -> bool) -> Result<Output, CommandError> {
    let mut child = start(spec, Stdio::piped(), cancel)?;
    if let Some(mut pipe) = child.stdin.take() {
        // A child that ends without having read it is no error.
        thread::spawn(move || pipe.write_all(&input));
    }
    run_child(child, spec, cancel)
}

fn run_child(mut child: Child, spec: &Spec, cancel: &dyn Fn() -> bool) -> Result<Output, CommandError> {
    let stdout = collect(child.stdout.take(), spec.stdout_limit + 1, Keep::Head);
    let stderr = collect(child.stderr.take(), STDERR_LIMIT, Keep::Tail);
    let end = wait(&mut child, Instant::now() + spec.timeout, cancel);
    if !matches!(end, Ok(End::Exited(_))) {
        end_group(&mut child);
    }
    let until = Instant::now() + DRAIN;
    let stderr = spec.redactor.clean(&whole_lines(&received(&stderr, until).unwrap_or_default()));
    let status = match end.map_err(|source| CommandError::Wait { command: spec.to_string(), source })? {
        End::Exited(status) => status,
        End::Cancelled => return Err(CommandError::Cancelled { command: spec.to_string() }),
        End::TimedOut => {
            let seconds = spec.timeout.as_secs();
            return Err(CommandError::TimedOut { command: spec.to_string(), seconds, stderr });
        }
    };
    let unfinished = || io::Error::new(io::ErrorKind::TimedOut, "its output has no end: another process keeps it open");
    let stdout = received(&stdout, until)
        .ok_or_else(|| CommandError::Wait { command: spec.to_string(), source: unfinished() })?;
    if stdout.len() > spec.stdout_limit {
        return Err(CommandError::TooMuch { command: spec.to_string(), limit: spec.stdout_limit });
    }
    Ok(Output { status, stdout, stderr })
}

/// The end of a text, in whole lines where they fit.
pub fn last_lines(text: &str, limit: usize) -> String {
    let text = text.trim();
    let Some(cut) = text.len().checked_sub(limit).filter(|cut| *cut > 0) else { return text.to_owned() };
    let cut = (cut..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let tail = &text[cut..];
    tail.split_once('\n').map_or(tail, |(_, whole)| whole).to_owned()
}

impl std::fmt::Display for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.program.display())?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.to_string_lossy()))
    }
}

fn start(spec: &Spec, input: Stdio, cancel: &dyn Fn() -> bool) -> Result<Child, CommandError> {
    if cancel() {
        return Err(CommandError::Cancelled { command: spec.to_string() });
    }
    Command::new(&spec.program)
        .args(&spec.args)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        // `docker compose` looks for files in the current directory and above it.
        .current_dir("/")
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|source| CommandError::Start { program: spec.program.display().to_string(), source })
}

enum End {
    Exited(ExitStatus),
    TimedOut,
    Cancelled,
}

fn wait(child: &mut Child, until: Instant, cancel: &dyn Fn() -> bool) -> io::Result<End> {
    let rest = rest(child);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::Exited(status));
        }
        if cancel() {
            return Ok(End::Cancelled);
        }
        if Instant::now() >= until {
            return Ok(End::TimedOut);
        }
        rest();
    }
}

/// Rests until the child ends, and no longer than a tick. A kernel before Linux 5.3 doesn't tell when a child ends.
fn rest(child: &Child) -> impl Fn() + use<> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let end = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    move || {
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        let polled = end.as_ref().map(|end| poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&tick)));
        if !matches!(polled, Some(Ok(_))) {
            thread::sleep(TICK);
        }
    }
}

/// TERM to the whole group, and KILL to what is left of it after the grace.
fn end_group(child: &mut Child) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let _ = kill_process_group(group, Signal::TERM);
    let _ = wait(child, Instant::now() + GRACE, &|| false);
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

#[derive(Clone, Copy)]
enum Keep {
    Head,
    Tail,
}

/// Reads a pipe to its end on a thread of its own, so that the child never blocks on it.
fn collect(pipe: Option<impl Read + Send + 'static>, limit: usize, keep: Keep) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        let mut chunk = [0; 16 * 1024];
        let Some(mut pipe) = pipe else { return };
        while let Ok(count @ 1..) = pipe.read(&mut chunk) {
            match keep {
                Keep::Head => kept.extend_from_slice(&chunk[..count.min(limit - kept.len().min(limit))]),
                Keep::Tail => {
                    kept.extend_from_slice(&chunk[..count]);
                    kept.drain(..kept.len().saturating_sub(limit));
                }
            }
        }
        let _ = send.send(kept);
    });
    receive
}

/// Text without a first line that was cut: half a secret isn't recognised.
fn whole_lines(tail: &[u8]) -> String {
    let cut = tail.len() >= STDERR_LIMIT;
    let start = if cut { tail.iter().position(|&c| c == b'\n').map_or(tail.len(), |at| at + 1) } else { 0 };
    String::from_utf8_lossy(&tail[start..]).trim_end().to_owned()
}

/// What was read; nothing if the pipe doesn't end, so that a process that left the group and keeps it open doesn't hold us
/// up for good.
fn received(pipe: &Receiver<Vec<u8>>, until: Instant) -> Option<Vec<u8>> {
    pipe.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shell(script: &str) -> Spec {
        Spec {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("SECRET".into(), "hunter2".into())],
            timeout: Duration::from_secs(20),
            stdout_limit: 1000,
            redactor: Redactor::new(["hunter2"]),
        }
    }

    #[test]
    fn a_child_has_closed_input_the_given_environment_and_a_group_of_its_own() {
        let output = run(&shell("cat; env | sort; echo \"token $SECRET\" >&2; exit 3"), &|| false).unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let names: Vec<_> = stdout.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        assert_eq!(names, ["PATH", "PWD", "SECRET"]);
        assert_eq!((output.status.code(), output.stderr.as_str()), (Some(3), "token ***"));
    }

    #[test]
    fn a_child_gets_its_input_whole_and_need_not_read_it() {
        let long = vec![b'x'; 1 << 20];
        let counted = run_with_input(&shell("wc -c"), long.clone(), &|| false).unwrap();
        assert_eq!(String::from_utf8(counted.stdout).unwrap().trim(), "1048576");
        let unread = run_with_input(&shell("echo done"), long, &|| false).unwrap();
        assert_eq!(unread.stdout, b"done\n");
    }

    #[test]
    fn output_is_bounded_and_only_its_end_is_kept() {
        let loud = run(&shell("yes out | head -c 100000"), &|| false);
        assert!(matches!(loud, Err(CommandError::TooMuch { limit: 1000, .. })), "{loud:?}");
        let output = run(&shell("yes hunter2 | head -c 100000 >&2; echo end >&2"), &|| false).unwrap();
        assert!(output.stderr.len() <= STDERR_LIMIT && output.stderr.ends_with("***\nend"));
        assert!(!output.stderr.contains("unter2"), "not even a part that was cut");
    }

    #[test]
    fn an_output_that_another_process_keeps_open_is_not_taken_for_an_empty_one() {
        let kept = run(&shell("setsid sleep 60 & echo out"), &|| false).unwrap_err();
        assert!(matches!(kept, CommandError::Wait { .. }), "{kept:?}");
        let quiet = run(&shell("setsid sleep 1 >/dev/null 2>&1 & echo out"), &|| false).unwrap();
        assert_eq!(quiet.stdout, b"out\n");
    }

    #[test]
    fn a_whole_group_is_ended_at_the_limit_and_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("(sleep 1000 & echo $! > {}/pid; wait) & wait", dir.path().display());
        // The grandchild may need more time than the first of these.
        let pid = [300, 3_000, 30_000].into_iter().find_map(|limit| {
            let slow = Spec { timeout: Duration::from_millis(limit), ..shell(&script) };
            assert!(matches!(run(&slow, &|| false), Err(CommandError::TimedOut { .. })));
            std::fs::read_to_string(dir.path().join("pid")).ok().filter(|pid| pid.ends_with('\n'))
        });
        let pid = pid.expect("it began");
        let gone = || !Path::new("/proc").join(pid.trim()).exists();
        let until = Instant::now() + Duration::from_secs(60);
        while !gone() && Instant::now() < until {
            thread::sleep(TICK);
        }
        assert!(gone(), "the grandchild is gone too");
        let (began, stubborn) =
            (Instant::now(), shell(&format!("trap '' TERM; touch {0}/up; sleep 1000", dir.path().display())));
        let is_up = || dir.path().join("up").exists();
        assert!(matches!(run(&stubborn, &is_up), Err(CommandError::Cancelled { .. })));
        assert!(began.elapsed() < GRACE + Duration::from_secs(60));
    }

    #[test]
    fn what_is_cancelled_before_it_began_is_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        let quick = Spec { program: "touch".into(), args: vec![dir.path().join("begun").into()], ..shell("") };
        assert!(matches!(run(&quick, &|| true), Err(CommandError::Cancelled { .. })));
        assert!(matches!(run_with_input(&quick, Vec::new(), &|| true), Err(CommandError::Cancelled { .. })));
        assert!(!dir.path().join("begun").exists());
        run(&quick, &|| false).unwrap();
        assert!(dir.path().join("begun").exists());
    }

    #[test]
    fn the_end_of_a_text_is_cut_at_a_line() {
        assert_eq!(last_lines("short\n", 100), "short");
        assert_eq!(last_lines("first\nsecond\nthird", 14), "second\nthird");
        assert_eq!(last_lines("äöüäöü", 5), "öü");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&Spec { program: "/nowhere/docker".into(), ..shell("") }, &|| false).unwrap_err();
        assert!(error.to_string().contains("/nowhere/docker"), "{error}");
    }
}
