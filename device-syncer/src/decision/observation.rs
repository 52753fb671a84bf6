//! What was seen of the runtimes in one go.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::margo::ProfileType;
use repo_model::{ComponentName, DeploymentId, Digest, IntoSet};

use super::failure::Failure;

/// What all of a device's runtimes run of ours.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Projects and releases with our labels; what others run here is never in it.
    pub found: Vec<Observed>,
    /// The runtimes that don't answer, so that nothing is known of theirs, and why not.
    pub unreachable: BTreeMap<ProfileType, Failure>,
    /// Those of them that are still being asked, and may answer yet.
    pub unanswered: BTreeSet<ProfileType>,
}

impl Observation {
    /// Adds what a runtime shows, or why it doesn't answer.
    pub fn add(&mut self, kind: ProfileType, answer: Result<Vec<Observed>, Failure>) {
        match answer {
            Ok(found) => self.found.extend(found),
            Err(failure) => _ = self.unreachable.insert(kind, failure),
        }
    }

    /// The types of the runtimes that don't answer.
    pub fn unreachable_types(&self) -> BTreeSet<ProfileType> {
        self.unreachable.keys().copied().into_set()
    }
}

/// One project or release of ours as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
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
    /// What of it the site's policy doesn't admit, or not any more, as far as a look can tell.
    pub violation: Option<String>,
    /// Every service that the marker lists or that has a container; none of a release.
    pub services: BTreeMap<String, ServiceState>,
}

/// How a service or a project is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Running and healthy, or a one-shot job that ended well.
    Running,
    /// Not yet healthy, and nothing says that it won't be.
    Starting,
    /// Unhealthy or not available; the text says which service or object, and how.
    Degraded(String),
    /// What ends again and again is started again and again; the text says which service or pod, and how.
    CrashLooping(String),
    /// A service ended or is paused, and neither docker nor its restart policy starts it again; the text says which one
    /// and how.
    Stopped(String),
    /// A container or release of it can't be observed; the text says which one and why.
    Unknown(String),
    /// At least one service has no container, or an object of a release is gone.
    Missing,
    /// Somebody changed an object of a release; the text says which one and what.
    Edited(String),
}

impl Condition {
    /// Whether something that was applied doesn't run any more, so that it is restored.
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
            | Condition::CrashLooping(what)
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
    pub condition: Condition,
}
