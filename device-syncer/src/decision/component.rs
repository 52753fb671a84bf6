//! A component as a runtime gets it: plain data, made by [`desired`](crate::decision::desired).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repo_model::envelope::Lock;
use repo_model::margo::ProfileType;
use repo_model::margo::helm_values::HelmValues;
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest};

/// One component as it shall run: plain data, made by the core.
#[derive(Clone, PartialEq, Eq)]
pub struct Component {
    /// Margo's `deploymentId`.
    pub deployment: DeploymentId,
    /// The operator's id of the deployment, for messages.
    pub deployment_name: DeploymentName,
    pub component: ComponentName,
    /// The compose project or helm release: `DeploymentId::runtime_name` of the component.
    pub project: String,
    /// Where its archive or chart is: `oci://host[:port]/path`, or a URL.
    pub repository: String,
    /// The tag of its archive, or its chart's version.
    pub revision: String,
    /// What the tag meant when it was published; other bytes are refused.
    pub lock: Option<Lock>,
    pub images: ImageLocks,
    /// What only one type of runtime knows.
    pub kind: Kind,
    /// Keys the apply; remembered in the project's marker, or the release's description, once the apply is complete.
    pub input_digest: Digest,
    /// The same, but by their names for what files of the device hold: what the fleet says of it.
    pub fleet_digest: Digest,
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
    Compose {
        /// Environment variable → text, exactly as the container shall see it.
        parameters: BTreeMap<String, String>,
        /// Names in `parameters` whose values stay on the device: never in an error, a log or an argument.
        secrets: BTreeSet<String>,
    },
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
    /// Which runtime runs it, by the type of its source.
    pub fn profile_type(&self) -> ProfileType {
        match self.kind {
            Kind::Compose { .. } => ProfileType::Compose,
            Kind::Helm { .. } => ProfileType::Helm,
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
