//! What the site allows an application beyond an ordinary container.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;

/// The site's policy, from the device's own configuration. The default allows nothing.
///
/// Always allowed without an entry: bind mounts of the archive's own files, and ports from 1024 up that are
/// published on a loopback address. Never allowed: a source strictly below something that a container may write, such as
/// `./conf` beside `./` for writing, or one that is reached over a link (`compose/mounts.rs`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SitePolicy {
    /// `privileged: true`, and `security_opt` that lowers confinement.
    pub privileged: bool,
    /// `network_mode`, `pid`, `ipc`, `uts`, `userns_mode` or `cgroup` of the host, and network drivers other than `bridge`.
    pub host_namespaces: bool,
    /// What `cap_add` may name, without `CAP_`; `ALL` allows all.
    pub capabilities: BTreeSet<String>,
    /// What `devices` may name: a path on the host, or a prefix that ends in `*`.
    pub devices: BTreeSet<String>,
    /// Bind mounts outside the project's own files.
    pub host_paths: Vec<HostPath>,
    /// Ports that may be published on any address.
    pub ports: PortPolicy,
    /// External networks and volumes that an application may join, by name.
    pub external: BTreeSet<String>,
}

/// A path on the host that may be mounted, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostPath {
    /// Absolute.
    pub path: PathBuf,
    /// Whether the container may write there.
    #[serde(default)]
    pub writable: bool,
}

/// Ports that may be published on any address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortPolicy {
    /// Every port, also one that Docker chooses.
    Any,
    /// First and last of each range.
    #[serde(untagged)]
    Ranges(Vec<(u16, u16)>),
}

impl Default for PortPolicy {
    fn default() -> Self {
        Self::Ranges(Vec::new())
    }
}
