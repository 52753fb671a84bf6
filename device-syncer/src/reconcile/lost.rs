//! What is done while the accepted state can't be read, until the host shows it again.

use std::time::Duration;

use repo_model::desired::Desired;
use repo_model::report::Condition as Told;
use repo_model::report::{ConditionType, Reason};

use crate::decision::component::{Component, ImageLocks, Kind};
use crate::decision::conditions::condition;
use crate::decision::device_state::DeviceState;
use crate::decision::observation::Observed;
use crate::decision::plan::is_restored;
use crate::reconcile::restores::Restores;
use crate::runtimes::Runtimes;

/// Limit of restoring one project: what its document says is lost, too.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What is to be said where there was a state and it can't be read.
pub(super) fn lost(device_state: &DeviceState, found: Option<&Desired>) -> Option<Told> {
    let accepted = device_state.accepted.as_ref().filter(|_| found.is_none())?;
    let text = format!(
        "serial {} ({}), which was accepted, can't be read on this device any more; it is fetched anew as soon as the host \
         shows it, and until then nothing is done but to put back what was applied where it doesn't run",
        accepted.serial, accepted.commit
    );
    Some(condition(ConditionType::Stalled, Reason::AcceptedLost, text))
}

/// Restores what was applied and doesn't run, but for what is suspended: of that only the runtime's own copy is needed.
/// `status` keeps what it says of it, as the documents that it speaks of are lost. Returns whether anything was done.
pub(super) fn restore_applied(
    device_state: &DeviceState,
    found: &[Observed],
    runtimes: &impl Runtimes,
    restores: &mut Restores,
    cancel: &dyn Fn() -> bool,
) -> bool {
    let mut acted = false;
    for component in applied(device_state) {
        let project = &component.project;
        let is_gone = found.iter().any(|one| one.project == *project && is_restored(one, &component));
        if !is_gone || restores.is_waiting(project) || cancel() {
            continue;
        }
        tracing::warn!(project, "putting back what doesn't run");
        acted = true;
        restores.note(project);
        if let Err(error) = runtimes.restore(&component, cancel) {
            // Its words could hold a secret: which of the values are secret is lost.
            tracing::warn!(project, code = error.code().as_str(), "not put back");
        }
    }
    acted
}

/// Every component that was applied whole, as far as it is known without its document.
fn applied(device_state: &DeviceState) -> impl Iterator<Item = Component> {
    let all = device_state.deployments.iter().filter(|(_, applied)| !applied.inputs.suspended);
    all.flat_map(|(id, applied)| {
        applied.inputs.components.iter().filter_map(|component| {
            Some(Component {
                deployment: *id,
                deployment_name: applied.inputs.id.clone(),
                component: component.name.clone(),
                project: component.project.clone(),
                repository: String::new(),
                revision: String::new(),
                lock: None,
                images: ImageLocks::default(),
                kind: Kind::Compose { parameters: Default::default(), secrets: Default::default() },
                input_digest: component.input_digest?,
                wait: false,
                timeout: TIMEOUT,
            })
        })
    })
}
