//! What the next pass would do, without doing it.

use repo_model::report::Condition;

use crate::decision::conditions;
use crate::decision::plan::Plan;
use crate::host::connectivity;
use crate::host::fetch::{FetchOutcome, Fetcher};
use crate::host::refs::RemoteRefs;
use crate::host::verify::Adoption;
use crate::reconcile::lost::lost;
use crate::reconcile::pass::Syncer;
use crate::reconcile::reconciler::{make_plan, report_capabilities};
use crate::runtimes::RuntimeError;
use crate::runtimes::capabilities::Probe;
use crate::state::accepted::{self, Unreadable};
use crate::state::requests::Requests;

/// What the next pass would do.
#[derive(Debug)]
pub struct Preview {
    pub plan: Plan,
    /// The state that it would adopt first.
    pub adoption: Option<Box<Adoption>>,
    /// Why it can't adopt what the host shows, and what else stands in the way.
    pub conditions: Vec<Condition>,
}

/// A plan couldn't be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The accepted state can't be read.
    #[error(transparent)]
    Accepted(#[from] Unreadable),
    /// No runtime answers.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Plans as the next pass would, for what the host shows now, and changes nothing.
pub fn preview(syncer: &Syncer) -> Result<Preview, PlanError> {
    let Syncer { device, host, store, floor, reconciler, .. } = syncer;
    let requests = Requests::read(&device.home);
    let accepted_history = requests.accept_history.filter(|commit| !accepted::is_in_force(store, *commit));
    let (mut in_the_way, mut adoption) = (Vec::new(), None);
    let outcome = match RemoteRefs::poll(host.remote()) {
        Ok(refs) => Fetcher { connection: &host.connection, device, store, floor }.outcome(&refs, accepted_history),
        Err(error) => FetchOutcome::Unreachable(Box::new(error)),
    };
    let is_listed_by_tip = outcome.lists_us();
    match outcome {
        FetchOutcome::Adoption(found) => adoption = Some(found),
        FetchOutcome::Refused(condition) | FetchOutcome::Unfetched(condition) => in_the_way.push(condition),
        FetchOutcome::Unreachable(error) => in_the_way.push(connectivity::condition(&error)),
        FetchOutcome::Unchanged | FetchOutcome::Unlisted => {}
    }
    let mut device_state = store.device_state.clone();
    let accepted = if adoption.is_none() { accepted::read(store, &device_state)? } else { None };
    if adoption.is_none() {
        in_the_way.extend(lost(&device_state, accepted.as_ref()));
    }
    let desired = adoption.as_ref().map(|adoption| &adoption.desired).or(accepted.as_ref());
    let waiting = device.not_listed(is_listed_by_tip, desired, &store.device_state);
    report_capabilities(&mut Probe::default(), &reconciler.runtimes, device, &mut device_state);
    let wanted = desired.map(|desired| reconciler.resolve(device, desired, &device_state));
    if let Some(retry) = requests.retry {
        let named = wanted.iter().flatten().filter(|wanted| retry.is_empty() || wanted.name.as_str() == retry);
        named.for_each(|wanted| device_state.forget_failures(wanted));
    }
    let observation = reconciler.runtimes.observe_any()?;
    in_the_way.extend(conditions::unreachable(&observation, &[]));
    let plan = make_plan(wanted.as_deref(), desired, waiting.is_some(), &device_state, &observation);
    in_the_way.extend(waiting);
    Ok(Preview { plan, adoption, conditions: in_the_way })
}
