//! What runs components: one trait, one directory per tool that does it, and all of a device's tools together.
//!
//! Only this module and what is below it names `docker` or `helm`. Everything blocks; time is used only to wait.

mod all;
pub mod capabilities;
mod client;
pub mod command;
pub mod compose;
mod error;
pub mod helm;
mod labels;
pub mod policy;
mod redact;
pub mod sandbox;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repo_model::envelope::Lock;
use repo_model::margo::ProfileType;
use repo_model::margo::helm_values::HelmValues;
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest};

pub use all::{Ready, Runtimes, Sight};
pub use compose::{ComposeRuntime, ComposeSettings};
pub use error::RuntimeError;
pub use helm::{HelmRuntime, HelmSettings};
pub use policy::SitePolicy;
pub use redact::Redactor;
pub use repo_model::report::LockedImage;
pub use sandbox::SandboxSettings;

/// One component as it shall run: plain data, made by the core.
#[derive(Clone, PartialEq, Eq)]
pub struct Component {
    /// Margo's `deploymentId`.
    pub deployment: DeploymentId,
    /// The operator's id of the deployment, for messages.
    pub deployment_name: DeploymentName,
    /// The component's name.
    pub component: ComponentName,
    /// The compose project or helm release: `DeploymentId::runtime_name` of the component.
    pub project: String,
    /// Where its archive or chart is: `oci://host[:port]/path`, or a URL.
    pub repository: String,
    /// The tag of its archive, or its chart's version.
    pub revision: String,
    /// What the tag meant when it was published; other bytes are refused.
    pub lock: Option<Lock>,
    /// What its images are locked to.
    pub images: ImageLocks,
    /// What only one type of runtime knows.
    pub kind: Kind,
    /// Keys the apply; remembered in the project's marker, or the release's description, once the apply is complete.
    pub input_digest: Digest,
    /// Whether `apply` waits for health.
    pub wait: bool,
    /// Limit of the whole apply, the waiting for health included.
    pub timeout: Duration,
}

/// The digests that the images of a compose component are locked to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageLocks {
    /// By the publisher: name, as the compose file gives it with its variables filled → digest.
    pub published: BTreeMap<String, Digest>,
    /// By this device, when it first used them for this input: service → digest.
    pub first_use: BTreeMap<String, Digest>,
}

/// What a component gets, by the type of its runtime.
#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    /// A compose project.
    Compose {
        /// Environment variable → text, exactly as the container shall see it.
        parameters: BTreeMap<String, String>,
        /// Names in `parameters` whose values stay on the device: never in an error, a log or an argument.
        secrets: BTreeSet<String>,
    },
    /// A helm release.
    Helm {
        /// Made if it is missing.
        namespace: String,
        /// What is set of the chart's values.
        values: HelmValues,
        /// Those of the values that stay on the device: never in an error, a log or an argument.
        secrets: Vec<String>,
    },
}

impl std::fmt::Debug for Kind {
    /// Leaves the values out: some are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Compose { parameters, .. } => f.debug_tuple("Compose").field(&parameters.keys()).finish(),
            Self::Helm { namespace, .. } => f.debug_tuple("Helm").field(namespace).finish(),
        }
    }
}

impl Component {
    /// What runs it.
    pub fn profile_type(&self) -> ProfileType {
        match self.kind {
            Kind::Compose { .. } => ProfileType::Compose,
            Kind::Helm { .. } => ProfileType::Helm,
        }
    }

    /// Knows the values that must never be seen.
    pub fn redactor(&self) -> Redactor {
        match &self.kind {
            Kind::Compose { parameters, secrets } => {
                Redactor::new(secrets.iter().filter_map(|name| parameters.get(name)).map(String::as_str))
            }
            Kind::Helm { secrets, .. } => Redactor::new(secrets.iter().map(String::as_str)),
        }
    }
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Component")
            .field("project", &self.project)
            .field("kind", &self.kind)
            .field("repository", &self.repository)
            .field("revision", &self.revision)
            .field("input_digest", &self.input_digest)
            .finish_non_exhaustive()
    }
}

/// A tool that runs components of one type.
pub trait Runtime: Send {
    /// A component that is checked and ready to be applied.
    type Prepared;

    /// Finds what is ours by the labels of this fleet and device, and by what is noted on the device.
    ///
    /// Few calls of the tool, however much there is.
    fn observe(&self) -> Result<Vec<Observed>, RuntimeError>;

    /// Makes everything ready that needs the network, and checks it: archive or chart, rules, policy, images.
    ///
    /// Changes nothing that runs; idempotent, and quick when all is cached.
    fn prefetch(&self, component: &Component, cancel: &dyn Fn() -> bool) -> Result<Self::Prepared, RuntimeError>;

    /// Makes it run, waits for its health, and notes the input. A second apply of the same input touches nothing that
    /// runs.
    fn apply(&self, prepared: &Self::Prepared, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError>;

    /// Ends and removes what `apply` made; volumes and the application's own files stay. Idempotent.
    fn remove(&self, project: &str, timeout: Duration, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError>;
}

/// One project or release of ours as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// What runs it.
    pub kind: ProfileType,
    /// The compose project or helm release.
    pub project: String,
    /// From the marker, else from labels.
    pub deployment: Option<DeploymentId>,
    /// From the marker, else from labels (absent if the name didn't fit into a label).
    pub component: Option<ComponentName>,
    /// Of the last apply, if it completed and nothing was begun since. Absent: half made.
    pub input_digest: Option<Digest>,
    /// All services in one word.
    pub condition: Condition,
    /// Every service that the marker lists or that has a container; none of a release.
    pub services: BTreeMap<String, ServiceState>,
}

/// How a service or a project is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Running and healthy, or a one-shot job that ended well.
    Running,
    /// Not yet healthy.
    Starting,
    /// Restarting, unhealthy or not available; the text says which service or object, and how.
    Degraded(String),
    /// A service ended or is paused, and neither docker nor its restart policy starts it again; the text says which one
    /// and how.
    Stopped(String),
    /// A container or release of it can't be looked at; the text says which one and why.
    Unknown(String),
    /// At least one service has no container, or an object of a release is gone.
    Missing,
    /// Somebody changed an object of a release; the text says which one and what.
    Edited(String),
}

impl Condition {
    /// Whether something that was applied doesn't run any more, so that it is put back.
    pub fn is_drift(&self) -> bool {
        matches!(self, Self::Missing | Self::Stopped(_))
    }
}

impl Observed {
    /// What of it isn't as it should be, in a few words; nothing if it runs well, or may soon.
    pub fn trouble(&self) -> Option<String> {
        let is_missing = |(_, state): &(&String, &ServiceState)| state.condition == Condition::Missing;
        match &self.condition {
            Condition::Running | Condition::Starting => None,
            Condition::Degraded(what)
            | Condition::Stopped(what)
            | Condition::Unknown(what)
            | Condition::Edited(what) => Some(what.clone()),
            Condition::Missing => Some(match self.services.iter().find(is_missing) {
                Some((service, _)) => format!("service `{service}` has no container"),
                None => "something of it is missing".to_owned(),
            }),
        }
    }
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

/// A file of ours can't be read or written: the disk is full, or something else.
fn files_failed(doing: &'static str, path: &std::path::Path) -> impl Fn(std::io::Error) -> RuntimeError + use<> {
    let path = path.to_owned();
    move |source| match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            RuntimeError::DiskFull { reason: format!("can't {doing} `{}`", path.display()) }
        }
        _ => RuntimeError::Files { doing, path: path.clone(), source },
    }
}
