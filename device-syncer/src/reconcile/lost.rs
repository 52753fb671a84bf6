//! What is done while the accepted state can't be read, until the host shows it again.

use repo_model::desired::Desired;
use repo_model::envelope::DriftPolicy;
use repo_model::report::{Condition, ConditionType, Reason};

use crate::decision::component::Component;
use crate::decision::conditions::condition;
use crate::decision::device_state::DeviceState;
use crate::decision::gates::{Change, Gates, Subject};
use crate::decision::observation::Observed;
use crate::decision::plan::{applied, is_restored};
use crate::reconcile::job::Work;
use crate::reconcile::jobs::AtWork;
use crate::state::shared::Transaction;

/// What `syncer.json` reports where a state was accepted and can't be read.
pub(super) fn lost(device_state: &DeviceState, found: Option<&Desired>) -> Option<Condition> {
    let accepted = device_state.accepted.as_ref().filter(|_| found.is_none())?;
    let text = format!(
        "serial {} ({}), which was accepted, can't be read on this device any more; it is fetched anew as soon as the host \
         shows it, and until then nothing is done but to put back what was applied where it doesn't run",
        accepted.serial, accepted.commit
    );
    Some(condition(ConditionType::Stalled, Reason::AcceptedLost, text))
}

/// Restores what was applied and doesn't run, but for what is suspended, held or left as it drifted: of that only the runtime's own copy is needed.
pub(super) fn restores(state: &Transaction<'_>, found: &[Observed], gates: &Gates, at_work: &AtWork) -> Vec<Work> {
    let is_closed = |component: &Component| {
        let (id, name) = (component.deployment, &component.deployment_name);
        let inputs = state.next.deployments.get(&id).map(|applied| &applied.inputs);
        let (said, is_suspended) = inputs.map(|inputs| (inputs.drift, inputs.suspended)).unwrap_or_default();
        let anyway = state.next.is_put_back_anyway(&component.project);
        let drift = if anyway { DriftPolicy::Heal } else { said.max(gates.drift) };
        let subject = Subject { deployment: Some(id), name: Some(name), is_suspended, drift, change: None };
        gates.closed(Change::Restore, subject).is_some()
    };
    let is_gone = |component: &Component| {
        let is_of = |one: &Observed| one.project == component.project && one.violation.is_none();
        found.iter().any(|one| is_of(one) && is_restored(one, component))
    };
    let may_begin = |component: &Component| {
        !at_work.is_taken(&component.project) && !state.state.restores.is_waiting(&component.project)
    };
    let gone = applied(&state.next).filter(|one| is_gone(one) && !is_closed(one) && may_begin(one));
    gone.map(|component| Work::Lost(Box::new(component))).collect()
}
