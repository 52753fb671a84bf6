//! What the site allows an application beyond an ordinary container.

use std::collections::BTreeSet;
use std::path::PathBuf;

use repo_model::margo::capabilities::bytes_of;
use serde::Deserialize;

use crate::decision::admission::Admission;
use crate::decision::kubernetes::{KubernetesPolicy, ObjectPolicy};
use crate::decision::pattern::Pattern;

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
    /// The images that services and pods may run: names as compose file or chart give them, without tag and digest; all
    /// without.
    pub images: Option<Vec<Pattern>>,
    /// Where compose archives may come from, as documents name them; from anywhere without.
    pub archives: Option<Vec<Pattern>>,
    /// The same of charts.
    pub charts: Option<Vec<Pattern>>,
    /// What a service or pod may use at most; one without a limit is over it.
    pub ceilings: Ceilings,
    /// What objects of charts may be and do; anything without.
    pub kubernetes: Option<KubernetesPolicy>,
}

impl SitePolicy {
    /// Where the site lets packages come from.
    pub fn admission(&self) -> Admission {
        Admission { archives: self.archives.clone(), charts: self.charts.clone() }
    }

    /// What it says of the objects that charts render to.
    pub fn objects(&self) -> ObjectPolicy {
        let Ceilings { memory, milli_cpus } = self.ceilings;
        ObjectPolicy { images: self.images.clone(), memory, milli_cpus, kubernetes: self.kubernetes.clone() }
    }
}

/// What a service or pod may use at most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "CeilingsFragment")]
pub struct Ceilings {
    /// Bytes; absent: no limit of the site's.
    pub memory: Option<u64>,
    /// Thousandths of a processor.
    pub milli_cpus: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CeilingsFragment {
    memory: Option<String>,
    cpus: Option<f64>,
}

impl TryFrom<CeilingsFragment> for Ceilings {
    type Error = String;

    fn try_from(CeilingsFragment { memory, cpus }: CeilingsFragment) -> Result<Self, Self::Error> {
        let bytes = |text: String| {
            let bytes = bytes_of(&text).filter(|bytes| *bytes > 0);
            bytes.ok_or_else(|| format!("`policy.ceilings.memory: {text}` is no amount such as 512Mi"))
        };
        let milli = |cpus: f64| {
            let problem = || format!("`policy.ceilings.cpus: {cpus}` is no number such as 0.5");
            milli_cpus(cpus).filter(|milli| *milli > 0).ok_or_else(problem)
        };
        Ok(Self { memory: memory.map(bytes).transpose()?, milli_cpus: cpus.map(milli).transpose()? })
    }
}

/// Thousandths, rounded up; `None` if it is no number of processors.
pub fn milli_cpus(cpus: f64) -> Option<u64> {
    let milli = (cpus * 1000.0).ceil();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within these bounds")]
    (0.0..=1e9).contains(&milli).then_some(milli as u64)
}

/// A path on the host that may be mounted, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostPath {
    /// Absolute, and as the host has it once links are followed.
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
