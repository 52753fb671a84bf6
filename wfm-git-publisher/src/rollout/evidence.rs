//! What a device verifiably says of the deployments of one rollout.

use jiff::Timestamp;
use repo_model::margo::State;
use repo_model::{ComponentName, DeploymentName};

use super::meaning::Meaning;

/// What is known of a device from its verified branches alone. The default is that nothing is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// For how many seconds neither `status` nor `heartbeat` moved here, by our clock, while it could be heard; 0 if it isn't
    /// known since when.
    pub silent_for: u64,
    /// Absent if the device said nothing that is believed.
    pub status: Option<Report>,
    pub heartbeat: Beat,
}

/// What its newest `status` says. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The reason of its condition `Stalled`.
    pub stalled: Option<String>,
    pub runtime_unavailable: bool,
    /// Absent before the first adoption, and where that is in doubt.
    pub adopted: Option<Adoption>,
    /// Of all deployments of the rollout that the adopted state has, or the device still speaks of.
    pub components: Vec<Component>,
    /// When it made the commit since which it says that all is as it adopted it, in Unix seconds by its own clock. Absent if
    /// it doesn't say so.
    pub done_since: Option<i64>,
    /// When what it says of the rollout's deployments was another the last time, in Unix seconds by its own clock.
    pub moved: i64,
    /// When `status` moved here last, by our clock; absent if that isn't known.
    pub moved_here: Option<Timestamp>,
}

/// What a device adopted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    pub serial: u64,
    /// What the rollout's deployments mean in that commit of `desired`; absent: none of them is in it.
    pub meaning: Option<Meaning>,
}

/// A component, as `status` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    pub deployment: DeploymentName,
    pub name: ComponentName,
    /// Whether the adopted state has its deployment; else it goes.
    pub wanted: bool,
    pub state: State,
    pub code: Option<String>,
    /// Whether its deployment depends on one outside the rollout that isn't installed.
    pub waits_outside: bool,
}

/// What its `heartbeat` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Beat {
    /// There never was one.
    #[default]
    Absent,
    /// There is one, and it isn't believed.
    Unbelieved,
    Seen {
        /// In Unix seconds, by the device's own clock.
        time: i64,
        /// The serial that is adopted.
        serial: u64,
        /// Whether each component of the rollout's deployments that are adopted runs with its input and is `healthy`.
        healthy: bool,
    },
}

impl Component {
    /// Whether it is as the adopted state wants it.
    pub fn is_done(&self) -> bool {
        self.state == if self.wanted { State::Installed } else { State::Removed }
    }
}
