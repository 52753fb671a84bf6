//! What runs components: one trait, and one directory per tool that does it.
//!
//! Only this module and what is below it names `docker`. Everything blocks; time is used only to wait.

pub mod command;
pub mod compose;
mod error;
pub mod policy;
mod redact;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repo_model::envelope::Lock;
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest};

pub use compose::{ComposeRuntime, ComposeSettings, Prepared};
pub use error::RuntimeError;
pub use policy::SitePolicy;
pub use redact::Redactor;

/// One component as it shall run: plain data, made by the core.
#[derive(Clone, PartialEq, Eq)]
pub struct Component {
    /// Margo's `deploymentId`.
    pub deployment: DeploymentId,
    /// The operator's id of the deployment, for messages.
    pub deployment_name: DeploymentName,
    /// The component's name.
    pub component: ComponentName,
    /// The compose project: `DeploymentId::runtime_name` of the component.
    pub project: String,
    /// Where its archive is: `oci://host[:port]/path`.
    pub repository: String,
    /// The tag of its archive.
    pub revision: String,
    /// What the tag meant when it was published; other bytes are refused.
    pub lock: Option<Lock>,
    /// Environment variable → text, exactly as the container shall see it.
    pub parameters: BTreeMap<String, String>,
    /// Names in `parameters` whose values stay on the device: never in an error, a log or an argument.
    pub secrets: BTreeSet<String>,
    /// Keys the apply; remembered in the project's marker once the apply is complete.
    pub input_digest: Digest,
    /// Whether `apply` waits for health.
    pub wait: bool,
    /// Limit of the whole apply, the waiting for health included.
    pub timeout: Duration,
}

impl Component {
    /// The values that must never be seen.
    pub fn secret_values(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().filter_map(|name| self.parameters.get(name)).map(String::as_str)
    }
}

impl std::fmt::Debug for Component {
    /// Leaves the parameters' values out: some are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Component")
            .field("project", &self.project)
            .field("repository", &self.repository)
            .field("revision", &self.revision)
            .field("input_digest", &self.input_digest)
            .finish_non_exhaustive()
    }
}

/// A tool that runs components.
pub trait Runtime: Send {
    /// Finds what is ours: containers with the labels of this fleet and device, and projects with a marker.
    ///
    /// Two calls of the tool, however many projects there are.
    fn observe(&self) -> Result<Vec<Observed>, RuntimeError>;

    /// Makes everything ready that needs the network, and checks it: archive, rules, policy, images.
    ///
    /// Changes nothing that runs; idempotent, and quick when all is cached.
    fn prefetch(&self, component: &Component, cancel: &dyn Fn() -> bool) -> Result<Prepared, RuntimeError>;

    /// Files, then containers, then health, then the marker. A second apply of the same input changes nothing.
    fn apply(&self, prepared: &Prepared, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError>;

    /// Ends and removes a project's containers and networks, then our files; volumes and the application's own
    /// files stay. Idempotent.
    fn remove(&self, project: &str, timeout: Duration, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError>;
}

/// One project of ours as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The compose project.
    pub project: String,
    /// From the marker, else from the containers' labels.
    pub deployment: Option<DeploymentId>,
    /// From the marker, else from the containers' labels (absent if the name didn't fit into a label).
    pub component: Option<ComponentName>,
    /// Of the last apply, if it completed and nothing was begun since. Absent: half made.
    pub input_digest: Option<Digest>,
    /// All services in one word.
    pub condition: Condition,
    /// Every service that the marker lists or that has a container.
    pub services: BTreeMap<String, ServiceState>,
}

/// How a service or a project is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Running and healthy, or a one-shot job that ended well.
    Running,
    /// Not yet healthy.
    Starting,
    /// Ended, restarting or unhealthy; the text says which service and how.
    Degraded(String),
    /// At least one service has no container.
    Missing,
}

/// The container of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceState {
    /// The container's full id; empty if there is none.
    pub container: String,
    /// The image's id, `sha256:…`; empty if there is no container.
    pub image: String,
    /// The tool's word: `running`, `exited`, …; `missing` if there is no container.
    pub state: String,
    /// `healthy`, `unhealthy` or `starting`, if the service has a health check.
    pub health: Option<String>,
    /// RFC 3339, as the tool gives it.
    pub started_at: String,
    /// How it is.
    pub condition: Condition,
}
