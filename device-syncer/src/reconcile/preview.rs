//! What the next pass would do, without doing it.

use jiff::Timestamp;
use repo_model::desired::Desired;
use repo_model::report::{CAPABILITIES, Condition, ConditionType, Reason};

use crate::config::Device;
use crate::decision::closed::fetched_before;
use crate::decision::conditions;
use crate::decision::device_state::DeviceState;
use crate::decision::drift;
use crate::decision::gates::Gates;
use crate::decision::observation::Observation;
use crate::decision::plan::Plan;
use crate::decision::restarting;
use crate::decision::status::Report;
use crate::host::connectivity;
use crate::host::fetch::{FetchOutcome, Fetcher};
use crate::host::refs::RemoteRefs;
use crate::host::verify::Adoption;
use crate::reconcile::accept::is_behind;
use crate::reconcile::lost::lost;
use crate::reconcile::pass::{DeviceSide, Syncer};
use crate::reconcile::reconciler::{Reconciler, capabilities, gates};
use crate::runtimes::RuntimeError;
use crate::runtimes::capabilities::Probe;
use crate::state::accepted::{self, Unreadable};
use crate::state::hold::Holds;
use crate::state::local_condition::{self, LocalCondition};
use crate::state::rekey;
use crate::state::requests::Requests;
use crate::state::restart_requests;

/// What the next pass would do.
#[derive(Debug)]
pub struct Preview {
    pub plan: Plan,
    /// The gates that it was made with.
    pub gates: Gates,
    /// What of the runtimes it was made with.
    pub observation: Observation,
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
    let DeviceSide { device, state, floor, reconciler, .. } = &syncer.here;
    let host = &syncer.host.client;
    let view = &state.view();
    let requests = Requests::read(&device.home);
    let accepted_history = requests.accept_history.filter(|commit| !accepted::is_in_force(view, *commit));
    let (mut in_the_way, mut adoption) = (Vec::new(), None);
    let outcome = match RemoteRefs::poll(host.remote()) {
        Ok(refs) => Fetcher { connection: &host.connection, device, view, floor }.outcome(&refs, accepted_history),
        Err(error) => FetchOutcome::Unreachable(Box::new(error)),
    };
    let is_listed_by_tip = outcome.lists_us();
    match outcome {
        FetchOutcome::Adoption(found) => adoption = Some(found),
        FetchOutcome::Refused(condition) | FetchOutcome::Unfetched(condition) => in_the_way.push(condition),
        FetchOutcome::Unreachable(error) => in_the_way.push(connectivity::condition(&error)),
        FetchOutcome::Unchanged | FetchOutcome::Unlisted => {}
    }
    let mut device_state = view.device_state.clone();
    let accepted = if adoption.is_none() { accepted::read(view, &device_state)? } else { None };
    if adoption.is_none() {
        in_the_way.extend(lost(&device_state, accepted.as_ref()));
    }
    let desired = adoption.as_ref().map(|adoption| &adoption.desired).or(accepted.as_ref());
    // The key that the pass would go over to.
    let is_next = desired.is_some_and(|desired| rekey::listed(&device.home, desired).is_some());
    let not_listed = || device.not_listed(is_listed_by_tip, desired, &view.device_state);
    let waiting = if is_next { None } else { not_listed() };
    let runtimes = &reconciler.runtimes;
    let facts = || Some((runtimes.versions()?, runtimes.data_root()));
    let capabilities = capabilities(&mut Probe::default(), device, &runtimes.types(), facts);
    device_state.status.extend(capabilities.map(|bytes| (CAPABILITIES.to_owned(), bytes)));
    let basis = Basis { device, reconciler, device_state, desired, waiting, clock_is_behind: is_behind(floor) };
    let preview = basis.preview(&requests.retry, in_the_way)?;
    Ok(Preview { adoption, ..preview })
}

/// Plans as the next pass would if the host shows nothing new: for the state that was accepted last, as it was read without
/// a lock, beside a syncer that may be at work. Nothing is asked but the runtimes, and nothing written.
pub fn preview_accepted(
    device: &Device,
    reconciler: &Reconciler,
    (device_state, desired): (DeviceState, Option<Desired>),
    clock_is_behind: bool,
) -> Result<Preview, PlanError> {
    let reported = conditions::all(&device_state.status);
    let mut in_the_way: Vec<_> = reported.into_iter().filter(is_of_the_host).collect();
    in_the_way.extend(lost(&device_state, desired.as_ref()));
    let troubles = [device.home.failure(), device.home.contact()].map(|path| local_condition::read(&path));
    let as_condition =
        |LocalCondition { kind, reason, message, .. }: LocalCondition| conditions::condition(kind, reason, message);
    in_the_way.extend(troubles.into_iter().flatten().map(as_condition));
    let (desired, waiting) = (desired.as_ref(), device_state.waiting.clone());
    let basis = Basis { device, reconciler, device_state, desired, waiting, clock_is_behind };
    let retry = Requests::read(&device.home).retry;
    basis.preview(&retry, in_the_way)
}

/// What the accepted state would have changed here, were every gate open; beside a syncer that may be at work.
pub fn changes(
    device: &Device,
    reconciler: &Reconciler,
    device_state: &DeviceState,
    desired: &Desired,
) -> Result<Plan, PlanError> {
    let wanted = reconciler.resolve(device, desired, device_state.status.get(CAPABILITIES));
    reconciler.runtimes.ignore_drift(drift::ignored(desired));
    let observation = reconciler.runtimes.observe_any()?;
    let unreachable = observation.unreachable_types();
    Ok(Plan::make(Some(&wanted), device_state, &observation.found, &unreachable, &Gates::default()))
}

/// The serial that the host shows, if this device would follow it; or why it wouldn't.
pub fn believed_at_host(syncer: &Syncer) -> Result<u64, Condition> {
    let DeviceSide { device, state, floor, .. } = &syncer.here;
    let host = &syncer.host.client;
    let view = &state.view();
    let refs = RemoteRefs::poll(host.remote()).map_err(|error| connectivity::condition(&error))?;
    let accepted = view.device_state.accepted.as_ref().map_or(0, |accepted| accepted.serial);
    match (Fetcher { connection: &host.connection, device, view, floor }).outcome(&refs, None) {
        FetchOutcome::Adoption(found) => Ok(found.desired.envelope.serial),
        FetchOutcome::Unchanged => Ok(accepted),
        FetchOutcome::Refused(condition) | FetchOutcome::Unfetched(condition) => Err(condition),
        FetchOutcome::Unreachable(error) => Err(connectivity::condition(&error)),
        FetchOutcome::Unlisted => {
            let text = "it shows a state that doesn't list this device's key";
            Err(conditions::condition(ConditionType::Waiting, Reason::NotListed, text))
        }
    }
}

/// Whether a condition that the device reported is about the host's state. How the runtimes are is observed anew.
fn is_of_the_host(condition: &Condition) -> bool {
    conditions::is_in_the_way(condition) && condition.kind != ConditionType::RuntimeUnavailable
}

/// What a plan is made from.
struct Basis<'a> {
    device: &'a Device,
    reconciler: &'a Reconciler,
    device_state: DeviceState,
    desired: Option<&'a Desired>,
    /// What the device waits for, where the fleet doesn't list it.
    waiting: Option<Condition>,
    clock_is_behind: bool,
}

impl Basis<'_> {
    /// Plans for what runs now, with what else stands in the way; it adopts nothing. What a person asked to retry is forgotten
    /// first.
    fn preview(mut self, retries: &[String], mut conditions: Vec<Condition>) -> Result<Preview, PlanError> {
        let Self { device, reconciler, desired, .. } = self;
        let capabilities = self.device_state.status.get(CAPABILITIES);
        let mut wanted = desired.map(|desired| reconciler.resolve(device, desired, capabilities));
        for retry in retries {
            let named = wanted.iter().flatten().filter(|wanted| retry.is_empty() || wanted.name.as_str() == retry);
            named.for_each(|wanted| {
                self.device_state.forget_failures(wanted, &device.boot_id);
                self.device_state.forget_drift(wanted);
            });
        }
        if let Some(wanted) = &mut wanted {
            let capabilities = self.device_state.status.get(CAPABILITIES).cloned();
            self.device_state.forget_sets(wanted);
            reconciler.put_last_good(device, capabilities.as_ref(), &mut self.device_state, wanted);
        }
        reconciler.runtimes.ignore_drift(desired.map(drift::ignored).unwrap_or_default());
        let observation = reconciler.runtimes.observe_any()?;
        conditions.extend(conditions::unreachable(&observation, &[]));
        conditions.extend(conditions::violations(&observation));
        self.device_state.note_whole(&observation, &device.boot_id, |_| false);
        let mut gates = gates(
            &mut Holds::default(),
            device,
            (&self.device_state, desired),
            self.waiting.is_some(),
            self.clock_is_behind,
        );
        gates.know(|| self.device_state.names());
        let report = Report::read(&self.device_state.status);
        let fetched =
            wanted.as_ref().map(|wanted| fetched_before(&report, wanted, Timestamp::now())).unwrap_or_default();
        let gates = Gates { fetched, ..gates };
        if let Some(wanted) = &mut wanted {
            let asked = restart_requests::read(&device.home);
            restarting::ask(&asked, wanted, &self.device_state, &gates, Timestamp::now());
        }
        let unreachable = observation.unreachable_types();
        let plan = Plan::make(wanted.as_deref(), &self.device_state, &observation.found, &unreachable, &gates);
        conditions.extend(self.waiting);
        Ok(Preview { plan, gates, observation, adoption: None, conditions })
    }
}
