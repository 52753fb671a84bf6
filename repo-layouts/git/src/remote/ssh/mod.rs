//! Hosts that are reached by SSH: one kept session for each, in a thread of its own, over libssh2.
//!
//! Whoever asks a host ([`Client`]) puts a command into the mailbox of that client's thread (`worker`) and holds one end of
//! a `pipe`; the thread opens a `session` where there is none, has the host run the command on a `channel` of it, and
//! carries the bytes. It alone calls libssh2, which never blocks. A session that died unnoticed is replaced within the same
//! call. A `talk` is one Git conversation; a host of ours answers many requests in one that is `kept`.

mod agent;
mod algorithms;
mod channel;
mod client;
mod error;
mod files;
mod host;
mod host_keys;
mod identity;
mod kept;
mod known_hosts;
mod mailbox;
mod pipe;
mod session;
mod settings;
mod talk;
mod wire;
mod worker;

pub use client::Client;
pub use error::{Answer, Problem, SettingsError, SshError};
pub use repo_model::SshUrl as Url;
pub use settings::{HostKeys, Identity, Settings};

pub(super) use host::Host;
pub(super) use talk::Talk;

/// Bytes in the place of a file with known hosts (its first line is the host), and of a host's first words.
#[cfg(feature = "fuzz")]
pub(super) fn fuzz(bytes: &[u8]) {
    algorithms::fuzz(bytes);
    let text = String::from_utf8_lossy(bytes);
    if let Some((host, text)) = text.split_once('\n') {
        host_keys::fuzz(text, host);
    }
}
