//! What was applied and doesn't run is put back for as long as something else is wanted of it: whatever that waits for, what
//! runs goes on.

use std::time::Duration;

use repo_model::envelope::DriftPolicy;
use repo_model::margo::ProfileType;
use serde::{Serialize, Serializer};

use super::{Actual, is_restored};
use crate::decision::component::{Component, ImageLocks, Kind};
use crate::decision::device_state::DeviceState;
use crate::decision::gates::{Change, Gates, Subject};

/// Limit of restoring one project: what its document says isn't known any more.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What was applied of a component and doesn't run, where another input is wanted by now, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBack {
    /// What of it doesn't run, in the runtime's words.
    pub reason: String,
    /// What was applied, as far as it is known without its document.
    pub input: Box<Component>,
}

impl Serialize for PutBack {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.reason)
    }
}

impl Actual<'_> {
    /// What of a component is put back at once, as far as gates are open for that, and it isn't `wanted` itself.
    pub(super) fn put_back(
        &self,
        project: &str,
        wanted: Option<&Component>,
        said: DriftPolicy,
        (of, gates): (Subject<'_>, &Gates),
    ) -> Option<PutBack> {
        let found = self.observed.get(&(ProfileType::Compose, project)).filter(|found| found.condition.is_drift())?;
        let input = applied(self.device_state).find(|one| one.project == project)?;
        if found.violation.is_some() || !is_restored(found, &input) {
            return None;
        }
        let drift = self.drift_of(project, said.max(gates.drift));
        let is_wanted = wanted.is_some_and(|wanted| wanted.input_digest == input.input_digest);
        let is_open = gates.closed(Change::Restore, Subject { drift, ..of }).is_none();
        let put_back = || PutBack { reason: found.trouble().unwrap_or_default(), input: Box::new(input.clone()) };
        (!is_wanted && is_open).then(put_back)
    }
}

/// Every component that was applied whole, as far as it is known without its document.
pub(crate) fn applied(device_state: &DeviceState) -> impl Iterator<Item = Component> {
    let all = device_state.applied_components();
    all.filter_map(|(deployment, inputs, component)| {
        Some(Component {
            deployment,
            deployment_name: inputs.id.clone(),
            component: component.name.clone(),
            project: component.project.clone(),
            repository: String::new(),
            revision: String::new(),
            lock: None,
            images: ImageLocks::default(),
            kind: Kind::Compose { parameters: Default::default(), secrets: Default::default() },
            input_digest: component.input_digest?,
            fleet_digest: component.input_digest?,
            wait: false,
            timeout: TIMEOUT,
        })
    })
}
