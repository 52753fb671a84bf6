//! A program of the operator's that is told something: as JSON on its standard input, and for shell scripts as variables.
//!
//! It gets a time limit, and of the environment `HOME`, `PATH` and `SSH_AUTH_SOCK`.

use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How much of the end of what it says is kept, in bytes.
const TAIL: usize = 4096;

/// How long what it says may still come after its end, where something that it started holds the pipe.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The program didn't do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error("`{program}` can't be started: {text}")]
    Start { program: String, text: String },
    /// It ended with a failure.
    #[error("failed ({status}): {tail}")]
    Failed {
        status: String,
        /// The end of what it said, on one line.
        tail: String,
    },
    /// It took too long, and was killed with all that it started.
    #[error("took longer than {} s: {tail}", limit.as_secs())]
    Slow {
        limit: Duration,
        /// The end of what it said, on one line.
        tail: String,
    },
}

/// Runs a program with its first arguments and waits for its end; the end of what it said, on one line. No shell reads `command`.
pub(crate) fn run(
    command: &[String],
    limit: Duration,
    variables: impl IntoIterator<Item = (&'static str, String)>,
    input: Vec<u8>,
) -> Result<String, ProgramError> {
    let program = command.first().cloned().unwrap_or_default();
    let failed = |error: io::Error| ProgramError::Start { program: program.clone(), text: error.to_string() };
    let (mut child, said) = start(command, variables, input).map_err(failed)?;
    let status = wait(&mut child, limit);
    let said = said.recv_timeout(LAST_WORDS).unwrap_or_default();
    let tail = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" / ");
    let tail = repo_model::text::line(&tail);
    match status.map_err(failed)? {
        None => Err(ProgramError::Slow { limit, tail }),
        Some(status) if !status.success() => Err(ProgramError::Failed { status: status.to_string(), tail }),
        Some(_) => Ok(tail),
    }
}

fn start(
    command: &[String],
    variables: impl IntoIterator<Item = (&'static str, String)>,
    input: Vec<u8>,
) -> io::Result<(Child, Receiver<String>)> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let (read, write) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().process_group(0);
    command.envs(["HOME", "PATH", "SSH_AUTH_SOCK"].iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(variables);
    command.stdin(Stdio::piped()).stdout(write.try_clone()?).stderr(write);
    let mut child = command.spawn()?;
    // The command's ends of the pipe are its own from here on.
    drop(command);
    let to = child.stdin.take();
    thread::spawn(move || {
        // A program that goes by the variables needn't read it.
        to.map(|mut to| to.write_all(&input))
    });
    let (tell, said) = mpsc::channel();
    thread::spawn(move || tell.send(tail(read)));
    Ok((child, said))
}

/// Waits for the end, or kills the program and what it started; `None` if it took too long.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(10));
    }
    // Not waited for yet, so the number is still its own.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    child.wait()?;
    Ok(None)
}

/// Reads all and keeps the end.
fn tail(mut pipe: PipeReader) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        kept.extend(&buffer[..count]);
        let surplus = kept.len().saturating_sub(TAIL);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
