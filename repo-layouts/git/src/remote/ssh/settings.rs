//! What a client is made with: which key the host has, and with which keys it is asked.

use std::path::PathBuf;
use std::time::Duration;

use repo_http::{Source, Timeouts};

/// Whom a client trusts, who it is, and how long it waits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which key the host must have.
    pub host_keys: HostKeys,
    /// The keys to be let in with, tried in this order.
    pub identities: Vec<Identity>,
    /// How long each step may take: `connect` until the host let us in, `answer` until the first byte of an answer,
    /// `stall` without a single byte, `total` for a conversation that has no limit of its own.
    pub timeouts: Timeouts,
    /// How long a kept session may be silent before the host is asked whether it is still there; at least 3 s.
    pub keepalive: Duration,
}

/// Which keys the host may have. One that matches is enough; where nothing does, it isn't asked: a key is never learnt
/// from the host itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostKeys {
    /// Public keys as one line each, like `ssh-ed25519 AAAA…` (a join file has them).
    pub keys: Vec<String>,
    /// Fingerprints as `ssh-keygen -l` prints them: `SHA256:` and 43 letters.
    pub fingerprints: Vec<String>,
    /// Files in OpenSSH's format, read for each session. What they mark as `@revoked` is never accepted;
    /// `@cert-authority` lines aren't used. One that doesn't exist counts as empty.
    pub known_hosts: Vec<PathBuf>,
}

/// A key to be let in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A private key in OpenSSH's format, in a file that is its owner's alone. Read for each session.
    KeyFile {
        path: PathBuf,
        /// Where its passphrase is, if it has one.
        passphrase: Option<Source>,
    },
    /// All keys that an ssh-agent has.
    Agent { socket: PathBuf },
}

/// How long a session may be silent, unless told: shorter than what a home router or a mobile network forgets.
const KEEPALIVE: Duration = Duration::from_secs(60);

impl Default for Settings {
    fn default() -> Self {
        let (host_keys, identities) = (HostKeys::default(), Vec::new());
        Self { host_keys, identities, timeouts: Timeouts::default(), keepalive: KEEPALIVE }
    }
}
