//! What can be wrong between here and the other host.

use repo_git::remote::SshProblem;
use repo_git::{CommitId, RemoteError};
use repo_http::{Phase, Problem};
use repo_model::DeviceId;

use crate::repos::{DeviceRepoError, ProvisionError, RemoteRepoError};

/// A tip of `desired` that nobody of this fleet signed.
#[derive(Debug, thiserror::Error)]
#[error("the tip of `desired` at `{url}` is not of this fleet's publisher, and is left as it is: {what}")]
pub struct ForeignTip {
    pub url: String,
    pub commit: CommitId,
    /// Its name, subject and author, as the commit says.
    pub what: String,
    /// Why it isn't believed, and who signed it.
    pub source: DeviceRepoError,
}

/// A device's repository at the other host isn't as it is here.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The host's repository can't be used.
    #[error("cannot use its repository at `{url}`")]
    Remote {
        url: String,
        #[source]
        source: RemoteRepoError,
    },
    /// The host failed for another device already.
    #[error("its repository at the remote host was not looked at, because the host failed for `{first}`")]
    HostDown {
        /// The device whose error says why.
        first: DeviceId,
    },
    /// The program was told to stop.
    #[error("its repository at the remote host was not looked at, because this program was told to stop")]
    Stopped,
    /// The repository here can't be used.
    #[error(transparent)]
    Local(#[from] DeviceRepoError),
    /// Someone else wrote `desired` there.
    #[error(transparent)]
    Foreign(Box<ForeignTip>),
    /// Another publisher was quicker.
    #[error("another publisher moved a branch at `{url}` meanwhile: {text}")]
    Raced {
        url: String,
        /// Which one, and where it is now.
        text: String,
    },
    /// What makes its repository, or lets the device in, failed.
    #[error("its repository at the remote host may not be as it shall be")]
    Provision(#[source] ProvisionError),
    /// The host doesn't allow it.
    #[error("`{url}` refuses to move `{branch}`: {text}")]
    Refused {
        url: String,
        branch: String,
        /// One line of what the host said.
        text: String,
    },
}

/// Who is to blame for what went wrong with one device's repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The host: every device would meet the same.
    Host,
    /// The host, if others meet the same; it may be just this repository.
    Perhaps,
    /// This repository alone: the others are gone on with.
    Repository,
}

impl MirrorError {
    /// Whether the others need to be tried.
    pub fn blame(&self) -> Blame {
        let Self::Remote { source, .. } = self else { return Blame::Repository };
        match (source.http(), source.remote()) {
            (Some(error), _) => over_https(&error.problem),
            (_, Some(RemoteError::SshProgram(error))) => over_ssh(&error.problem),
            (_, Some(RemoteError::Timeout { .. })) => Blame::Perhaps,
            _ => Blame::Repository,
        }
    }
}

fn over_https(problem: &Problem) -> Blame {
    match problem {
        Problem::NameUnknown | Problem::Refused | Problem::Network | Problem::Proxy { .. } => Blame::Host,
        Problem::Certificate(_) | Problem::ClientCertificate | Problem::Tls => Blame::Host,
        Problem::Settings | Problem::Credential | Problem::ContentType { .. } => Blame::Host,
        Problem::Slow { phase: Phase::Connect, .. } | Problem::Status { status: 401 | 429, .. } => Blame::Host,
        Problem::Slow { .. } | Problem::Status { status: 502..=504, .. } => Blame::Perhaps,
        _ => Blame::Repository,
    }
}

fn over_ssh(problem: &SshProblem) -> Blame {
    match problem {
        SshProblem::Answer { .. } => Blame::Repository,
        // A busy sshd drops connections at random, and a network breaks in the middle.
        SshProblem::Silent { .. } | SshProblem::Cut { .. } => Blame::Perhaps,
        _ => Blame::Host,
    }
}
