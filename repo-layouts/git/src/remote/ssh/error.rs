//! What went wrong between here and a host that is reached by SSH, and what that means for whoever asked.

use std::path::PathBuf;
use std::time::Duration;

use repo_http::Phase;

use crate::Cause;

/// A conversation that failed. Neither its text nor its causes hold a secret.
#[derive(Debug, thiserror::Error)]
#[error("`{url}` {problem}")]
pub struct SshError {
    /// The URL that was asked, without anything secret.
    pub url: String,
    pub problem: Problem,
    #[source]
    pub source: Option<Cause>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The name means nothing here and now.
    #[error("can't be found: its name doesn't resolve")]
    NameUnknown,
    #[error("refuses connections")]
    Refused,
    /// The network doesn't lead there, or anything else under TCP.
    #[error("can't be reached")]
    Network,
    /// A limit in time passed.
    #[error("{phase} within {} s", limit.as_secs_f64())]
    Slow { phase: Phase, limit: Duration },
    /// The connection ended in the middle.
    #[error("broke the connection off")]
    Cut,
    /// What answers doesn't speak SSH.
    #[error("doesn't speak SSH: another server answers in its place")]
    NotSsh,
    /// Nothing here says which key the host has.
    #[error(
        "shows the key {found}, and nothing here says which key it has: compare it with what the host's operator \
         tells, and add it to the host's keys or known_hosts"
    )]
    HostKeyUnknown {
        /// Type and fingerprint of the key that the host showed.
        found: String,
    },
    /// The host has another key than the one that is known.
    #[error(
        "shows the key {found}, not one of those that are known ({known}): either the host got a new key, which its \
         operator can confirm, or somebody stands between here and the host"
    )]
    HostKeyChanged {
        /// Type and fingerprint of the key that the host showed.
        found: String,
        /// Type and fingerprint of each key that it may have.
        known: String,
    },
    /// The host's key is one that must not be used any more.
    #[error("shows the key {found}, which `{}` marks as revoked", file.display())]
    HostKeyRevoked {
        /// Type and fingerprint of the key that the host showed.
        found: String,
        file: PathBuf,
    },
    /// A file with known hosts can't be read.
    #[error("isn't asked: the known hosts in `{}` can't be used: {why}", file.display())]
    KnownHosts {
        file: PathBuf,
        /// What to do about it.
        why: String,
    },
    /// The host knows none of the keys that were offered.
    #[error("doesn't let `{user}` in with {offered}: tell the host's operator this key")]
    KeyRefused {
        user: String,
        /// Kind and fingerprint of each key that was offered.
        offered: String,
        /// How long to leave the host alone: 1 to 2 min, then twice as long each time, up to 15 min; others in the same
        /// place are told another time.
        retry_after: Duration,
    },
    /// Both sides can do nothing in common.
    #[error("has no {what} in common with this client: it offers {theirs}; this client has {ours}")]
    NoCommonAlgorithm {
        /// What they would have to agree on, e.g. `key exchange`.
        what: &'static str,
        /// What this client can do, separated by commas.
        ours: String,
        /// What the host can do.
        theirs: String,
    },
    /// The own key can't be read.
    #[error("isn't asked: the key `{}` can't be used: {why}", file.display())]
    KeyUnreadable {
        file: PathBuf,
        /// What to do about it.
        why: String,
    },
    /// The agent doesn't answer, or has no key.
    #[error("isn't asked: the ssh-agent at `{}` {why}", socket.display())]
    Agent { socket: PathBuf, why: String },
    /// The settings are for another host.
    #[error("isn't asked: the client's settings are for another host")]
    Settings,
    /// The host refuses what was asked, in its own words.
    #[error("{answer}{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    Answer {
        answer: Answer,
        /// One line of what the host said.
        said: String,
        /// How long the host wants to be left alone.
        retry_after: Option<Duration>,
    },
    #[error("sends more than the {limit} bytes allowed")]
    TooLarge { limit: u64 },
    /// It doesn't speak SSH, or Git over it, as it must.
    #[error("breaks the SSH protocol")]
    Protocol,
}

/// A host's answer that is no success, by what it comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Answer {
    #[error("doesn't know this account any more")]
    Unauthorized,
    /// The account ended because the device is retired.
    #[error("says that this device is retired")]
    Retired,
    /// The account may not do this.
    #[error("forbids it")]
    Forbidden,
    /// There is nothing, or nothing that this account may see.
    #[error("has nothing there")]
    NotFound,
    /// It has too much to do.
    #[error("is busy")]
    Busy,
    /// It fails, or is being stopped.
    #[error("failed")]
    Failed,
    /// It doesn't understand what was asked.
    #[error("doesn't do what was asked")]
    BadRequest,
}

/// A client can't be made of these settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Nothing says which key the host has.
    #[error("nothing says which key the host has: neither a host key, nor a fingerprint, nor a file of known hosts")]
    NoHostKey,
    /// There is no key to be let in with.
    #[error("there is neither a key nor an ssh-agent to be let in with")]
    NoIdentity,
    /// A line isn't a public key.
    #[error("`{line}` isn't a host key: it must be a line like `ssh-ed25519 AAAA…`")]
    HostKey { line: String },
    /// A text isn't a fingerprint.
    #[error("`{text}` isn't a fingerprint of a host key: it must be like `SHA256:…` with 43 letters and digits")]
    Fingerprint { text: String },
    /// The thread or its parts can't be made.
    #[error("the session's thread can't be started")]
    Thread(#[source] std::io::Error),
}

impl SshError {
    pub(super) fn new(url: impl ToString, problem: Problem, source: Option<Cause>) -> Self {
        Self { url: url.to_string(), problem, source }
    }

    /// How long the host wants to be left alone, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.problem {
            Problem::Answer { retry_after, .. } => retry_after,
            Problem::KeyRefused { retry_after, .. } => Some(retry_after),
            _ => None,
        }
    }

    /// Whether somebody has to do something before this can work again. Anything else may pass by itself.
    pub fn needs_a_person(&self) -> bool {
        match &self.problem {
            Problem::Answer { answer, .. } => {
                matches!(answer, Answer::Unauthorized | Answer::Retired | Answer::Forbidden | Answer::NotFound)
            }
            Problem::HostKeyUnknown { .. }
            | Problem::HostKeyChanged { .. }
            | Problem::HostKeyRevoked { .. }
            | Problem::KnownHosts { .. }
            | Problem::KeyRefused { .. }
            | Problem::NoCommonAlgorithm { .. }
            | Problem::KeyUnreadable { .. }
            | Problem::Agent { .. }
            | Problem::Settings => true,
            _ => false,
        }
    }

    /// A stable name of the problem, in PascalCase as the reason of a condition. The same as over HTTPS where it is the
    /// same problem.
    pub fn reason(&self) -> &'static str {
        match &self.problem {
            Problem::NameUnknown => "NameUnknown",
            Problem::Refused => "ConnectionRefused",
            Problem::Network => "NetworkUnreachable",
            Problem::Slow { phase, .. } => phase.reason(),
            Problem::Cut => "ConnectionCut",
            Problem::NotSsh => "NotTheHost",
            Problem::HostKeyUnknown { .. } => "SshHostKeyUnknown",
            Problem::HostKeyChanged { .. } => "SshHostKeyChanged",
            Problem::HostKeyRevoked { .. } => "SshHostKeyRevoked",
            Problem::KnownHosts { .. } => "SshKnownHostsUnreadable",
            Problem::KeyRefused { .. } => "SshKeyRefused",
            Problem::NoCommonAlgorithm { .. } => "SshNoCommonAlgorithm",
            Problem::KeyUnreadable { .. } => "SshKeyUnreadable",
            Problem::Agent { .. } => "SshAgentUnavailable",
            Problem::Settings => "SettingsUnusable",
            Problem::Answer { answer, .. } => match answer {
                Answer::Unauthorized => "Unauthorized",
                Answer::Retired => "Retired",
                Answer::Forbidden => "Forbidden",
                Answer::NotFound => "NotFound",
                Answer::Busy => "TooManyRequests",
                Answer::Failed => "HostError",
                Answer::BadRequest => "RequestRefused",
            },
            Problem::TooLarge { .. } => "TooLarge",
            Problem::Protocol => "ProtocolBroken",
        }
    }
}
