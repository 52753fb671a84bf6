//! Hosts that are reached by the machine's own `ssh`, with all that its owner configured for it.
//!
//! It is started for each conversation, as stock Git does, and nobody is asked anything: keys come from files or an agent,
//! and a host whose key isn't known is refused unless the owner's configuration says otherwise. Of the environment it gets
//! `HOME`, `PATH`, `SSH_AUTH_SOCK` and the protocol version. Nothing of a person's session is forwarded to the host.

mod address;
mod error;

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub use address::{InvalidSshAddress, SshAddress};
pub use error::{SshProblem, SshProgramError};

use repo_http::Timeouts;

use super::RemoteError;
use super::process::{self, Process, Stage};
use super::said::clean;
use crate::Cause;

/// How long `ssh` may take to say why it ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// What holds for every connection, over the owner's configuration: ssh takes the first value of an option. A forwarded
/// agent or port would let the host into the owner's session.
const OPTIONS: [&str; 6] = [
    "BatchMode=yes",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "SendEnv=GIT_PROTOCOL",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshProgram {
    /// The program and its first arguments; it must understand OpenSSH's options. No shell reads them.
    pub command: Vec<String>,
    /// The private key to log in with, and no other one.
    pub identity: Option<PathBuf>,
    /// `connect` until the host is reached; `stall` until a network that is gone is noticed; `answer` without a byte
    /// either way; `total` for a conversation that has no limit of its own.
    pub timeouts: Timeouts,
}

/// A repository, and the program that leads to it.
#[derive(Debug)]
pub(super) struct SshProgramRemote {
    pub(super) address: SshAddress,
    pub(super) program: SshProgram,
}

impl SshProgram {
    /// What the host answers to a command of its own, which is no service of Git's: at most so many bytes, within so long.
    pub fn ask(&self, address: &SshAddress, command: &str, most: u64, limit: Duration) -> Result<Vec<u8>, RemoteError> {
        let remote = SshProgramRemote { address: address.clone(), program: self.clone() };
        let mut process = remote.spawn(remote.command_of(command), limit)?;
        let mut said = Vec::new();
        let read = process.pipes().and_then(|(read, write)| {
            drop(write);
            read.take(most.saturating_add(1)).read_to_end(&mut said)
        });
        // Our host's refusals, in whatever it was asked for.
        let refused = said.get(4..).and_then(|rest| rest.strip_prefix(b"ERR "));
        let problem = match (&read, refused) {
            (Ok(_), Some(why)) => SshProblem::Answer { said: clean(why) },
            (Ok(_), None) if said.is_empty() => {
                let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(remote.failed(process, limit, source.into(), Stage::Greeting));
            }
            (Ok(_), None) if said.len() as u64 <= most => {
                process.wait();
                return Ok(said);
            }
            (Ok(_), None) => SshProblem::Answer { said: format!("more than {most} bytes") },
            (Err(_), _) => {
                let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(remote.failed(process, limit, source.into(), Stage::Talking));
            }
        };
        Err(remote.error(problem, None))
    }
}

impl SshProgramRemote {
    /// Starts `ssh … <service> <path>`; it is killed after `limit`.
    pub(super) fn start(&self, service: &str, protocol: Option<&str>, limit: Duration) -> Result<Process, RemoteError> {
        let mut command = self.command(service);
        command.envs(protocol.map(|version| ("GIT_PROTOCOL", version)));
        self.spawn(command, limit)
    }

    fn spawn(&self, command: Command, limit: Duration) -> Result<Process, RemoteError> {
        Process::start(command, limit, Some(self.program.timeouts.answer)).map_err(|error| {
            let program = self.program.command.first().cloned().unwrap_or_default();
            let problem = match error.kind() {
                io::ErrorKind::NotFound => SshProblem::NoProgram { program },
                _ => SshProblem::NotStarted { program },
            };
            self.error(problem, Some(error.into()))
        })
    }

    fn command(&self, service: &str) -> Command {
        self.command_of(&format!("git-{service} {}", quoted(&self.address.path)))
    }

    /// The same for any command at the host.
    fn command_of(&self, asked: &str) -> Command {
        let SshProgram { command, identity, timeouts } = &self.program;
        let (program, first) = command.split_first().map_or(("ssh", &[][..]), |(program, first)| (program, first));
        let mut command = process::command(program, &["HOME", "PATH", "SSH_AUTH_SOCK"]);
        command.args(first).arg("-T");
        let seconds = |limit: Duration| limit.as_secs().max(1);
        let alive = [
            format!("ConnectTimeout={}", seconds(timeouts.connect)),
            // Three of them unanswered, and the way there is gone.
            format!("ServerAliveInterval={}", seconds(timeouts.stall / 3)),
            "ServerAliveCountMax=3".to_owned(),
        ];
        OPTIONS.iter().map(ToString::to_string).chain(alive).for_each(|option| {
            command.arg("-o").arg(option);
        });
        if let Some(file) = identity {
            command.arg("-i").arg(file).args(["-o", "IdentitiesOnly=yes"]);
        }
        command.args(self.address.port.map(|port| format!("-p{port}")));
        command.args(self.address.user.as_ref().map(|user| format!("-l{user}")));
        // Nothing behind the dashes is an option, whatever it looks like.
        command.arg("--").arg(&self.address.host).arg(asked);
        command
    }

    /// Ends the process and judges what happened.
    pub(super) fn failed(&self, process: Process, limit: Duration, source: Cause, stage: Stage) -> RemoteError {
        let ended = process.end(PATIENCE);
        let said = clean(ended.said.as_bytes());
        let url = self.address.to_string();
        if ended.was_silent {
            return self.error(SshProblem::Silent { limit: self.program.timeouts.answer }, Some(source));
        }
        if ended.has_passed {
            return RemoteError::Timeout { url, limit };
        }
        match (error::of_ssh(&ended.said, ended.code), stage) {
            (Some(problem), _) => self.error(problem, Some(source)),
            (None, Stage::Greeting) if !said.is_empty() => self.error(SshProblem::Answer { said }, Some(source)),
            (None, Stage::Greeting) => self.error(SshProblem::Cut { said }, Some(source)),
            (None, Stage::Talking) => RemoteError::Protocol { url, detail: said, source },
        }
    }

    fn error(&self, problem: SshProblem, source: Option<Cause>) -> RemoteError {
        SshProgramError { url: self.address.to_string(), problem, source }.into()
    }
}

/// The path as one word for the shell at the host, in the way in which stock Git quotes it.
fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''").replace('!', r"'\!'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(address: &str, identity: Option<&str>) -> Vec<String> {
        let command = vec!["ssh".to_owned(), "-F".to_owned(), "config".to_owned()];
        let program = SshProgram { command, identity: identity.map(PathBuf::from), timeouts: Timeouts::default() };
        let remote = SshProgramRemote { address: SshAddress::parse(address).expect(address), program };
        let command = remote.command("upload-pack");
        command.get_args().map(|word| word.to_str().expect("text").to_owned()).collect()
    }

    #[test]
    fn the_command_line_asks_nobody_forwards_nothing_and_ends_its_options() {
        let words = words("ssh://git@git.example:2222/fleet/press-01.git", Some("/key"));
        let line = words.join(" ");
        assert!(
            line.starts_with("-F config -T -o BatchMode=yes -o ClearAllForwardings=yes -o ForwardAgent=no"),
            "{line}"
        );
        let end = "-i /key -o IdentitiesOnly=yes -p2222 -lgit -- git.example git-upload-pack '/fleet/press-01.git'";
        assert!(line.ends_with(end), "{line}");
        assert!(line.contains("-o SendEnv=GIT_PROTOCOL"), "{line}");
    }

    #[test]
    fn the_path_is_one_word_for_the_shell_at_the_host() {
        let line = words("host:it's a; touch /tmp/x!", None).pop().expect("a word");
        assert_eq!(line, r"git-upload-pack 'it'\''s a; touch /tmp/x'\!''");
    }
}
