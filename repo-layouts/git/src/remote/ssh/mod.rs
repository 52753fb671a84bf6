//! Hosts that are reached by SSH: one kept session for each, in a thread of its own, over libssh2.

mod client;
mod error;
mod host;
mod host_keys;
mod known_hosts;
mod settings;

pub(super) use self::host::Host;
pub use client::Client;
pub use error::{Answer, Problem, SettingsError, SshError};
pub use repo_model::SshUrl as Url;
pub use settings::{HostKeys, Identity, Settings};
