//! Which sets ran well for long enough, and which failed, of deployments whose last good set is put back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use repo_model::desired::Desired;
use repo_model::envelope::OnFailure;
use repo_model::{DeploymentId, ErrorCode, IntoMap, error_chain};

use crate::config::Device;
use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::device_state::DeviceState;
use crate::decision::failure::{Failure, shown};
use crate::decision::observation::Observation;
use crate::decision::plan::{Action, Plan};
use crate::decision::rollback::{SetHealth, UNHEALTHY};
use crate::reconcile::begun::Answer;
use crate::reconcile::reconciler::Reconciler;
use crate::runtimes::DeviceRuntimes;
use crate::state::shared::{Shared, State, Transaction};
use crate::state::stability::Stability;

/// A device that stays up for so long with something doesn't go down with it: it may be switched off each evening.
const LONG: Duration = Duration::from_secs(3600);

/// Why a set failed since the pass before, where it isn't rolled back yet.
#[derive(Debug)]
pub(super) struct FailedSet {
    why: Failure,
    /// What speaks against putting back what was good.
    against: Option<String>,
}

impl Reconciler {
    /// The sets that failed and of which it can be decided now what is done instead. The runtimes are asked here, where nothing is
    /// locked.
    pub(super) fn failed_sets(
        &mut self,
        state: &Shared,
        wanted: &[DesiredDeployment],
        observation: &Observation,
    ) -> BTreeMap<DeploymentId, FailedSet> {
        let failed = failed(&mut state.lock(), wanted, observation);
        let is_asked = |one: &DesiredDeployment| one.on_failure != OnFailure::LastGoodAnyway;
        let asked: Vec<_> = failed.iter().map(|(one, _)| *one).filter(|one| is_asked(one)).collect();
        let runtimes = Arc::clone(&self.runtimes);
        let known = self.begun.ask(&asked, move |one| begun_once(one, &runtimes), Instant::now());
        let decided = failed.into_iter().filter_map(|(one, why)| {
            let against = if is_asked(one) { against(known.get(&one.id)?) } else { None };
            Some((one.id, FailedSet { why, against }))
        });
        decided.into_map()
    }

    /// Says of what failed that it isn't known yet whether something is put back instead.
    pub(super) fn explain_unknown(&self, plan: &mut Plan) {
        for (id, why) in self.begun.unknown() {
            let parts = plan.deployments.iter_mut().filter(|one| one.id == id).flat_map(|one| &mut one.components);
            for part in parts {
                if let Action::Fail(failure) = &mut part.action {
                    failure.message += "; whether what ran before is put back isn't known yet: ";
                    failure.message += why;
                }
            }
        }
    }

    /// Puts the last good sets into the place of those that failed.
    pub(super) fn put_last_good(
        &self,
        device: &Device,
        capabilities: Option<&Vec<u8>>,
        device_state: &mut DeviceState,
        wanted: &mut [DesiredDeployment],
    ) {
        if !device_state.rollbacks.is_empty() {
            self.with_values(device, capabilities, |values| device_state.with_last_good(wanted, values));
        }
    }
}

/// The sets that nothing was decided of yet, with why each failed.
fn failed<'a>(
    state: &mut State,
    wanted: &'a [DesiredDeployment],
    observation: &Observation,
) -> Vec<(&'a DesiredDeployment, Failure)> {
    let State { store, stability, down, .. } = state;
    // Nothing is decided while what runs it is still being asked, and of what is down.
    let is_judged = |one: &DesiredDeployment| !is_asked_still(one, observation) && !down.contains(&one.id);
    let on_trial = wanted.iter().filter(|one| store.device_state.is_on_trial(one) && is_judged(one));
    on_trial.filter_map(|one| Some((one, why(one, observation, &store.device_state, stability)?))).collect()
}

/// Whether a runtime of one of its components hasn't answered yet.
fn is_asked_still(one: &DesiredDeployment, observation: &Observation) -> bool {
    let inputs = one.components.iter().filter_map(|component| component.input.as_ref().ok());
    inputs.map(Component::profile_type).any(|kind| observation.unanswered.contains(&kind))
}

/// Why a set is bad, if it is.
fn why(
    one: &DesiredDeployment,
    observation: &Observation,
    known: &DeviceState,
    stability: &mut Stability,
) -> Option<Failure> {
    if let Some(failure) = known.set_failure(one) {
        return Some(failure);
    }
    let SetHealth::Unhealthy(what) = SetHealth::of(one, observation) else { return None };
    let unhealthy_for = stability.note(one.id, one.set(), false);
    let text = || format!("it was unhealthy before it had run well for {} s: {what}", one.stabilise.as_secs());
    (unhealthy_for >= UNHEALTHY.min(one.stabilise)).then(|| Failure::new(ErrorCode::HealthTimeout, shown(&text())))
}

/// What of it runs only once and has begun. What is known of one component is enough.
fn begun_once(one: &DesiredDeployment, runtimes: &DeviceRuntimes) -> Answer {
    let (mut begun, mut unknown) = (BTreeSet::new(), None);
    for input in one.components.iter().filter_map(|one| one.input.as_ref().ok()) {
        match runtimes.begun_once(input) {
            Ok(found) => begun.extend(found.into_iter().map(|what| format!("`{}` of `{}`", what, input.component))),
            Err(error) => unknown = Some(shown(&error_chain(&error))),
        }
    }
    match unknown {
        Some(why) if begun.is_empty() => Err(why),
        _ => Ok(begun),
    }
}

/// What speaks against putting back what was good: something that runs once, and may have changed the application's data.
fn against(begun: &BTreeSet<String>) -> Option<String> {
    let names = || begun.iter().cloned().collect::<Vec<_>>().join(", ");
    let text = || {
        format!("{} runs only once and has begun (`onFailure: last-good-anyway` puts it back all the same)", names())
    };
    (!begun.is_empty()).then(text)
}

impl Transaction<'_> {
    /// Notes what failed, and what has run well for long enough.
    pub(super) fn note_sets(
        &mut self,
        wanted: &[DesiredDeployment],
        mut failed: BTreeMap<DeploymentId, FailedSet>,
        observation: &Observation,
        desired: Option<&Desired>,
    ) {
        for one in wanted {
            if let Some(FailedSet { why, against }) = failed.remove(&one.id) {
                tracing::warn!(deployment = %one.name, why = why.message, against, "its set failed");
                self.next.note_bad(one, why, against);
            }
            self.end_trials(one);
            let Some(envelope) = desired.and_then(|desired| desired.envelope.deployments.get(&one.id)) else {
                continue;
            };
            self.next.note_encrypted_anew(one, envelope);
            if self.next.is_on_trial(one) && self.has_stabilised(one, observation) {
                tracing::info!(deployment = %one.name, "has run well for long enough, and is what is put back from now on");
                self.next.note_good(one, envelope);
            }
        }
    }

    /// Ends the trial of what the device has stayed up with.
    fn end_trials(&mut self, one: &DesiredDeployment) {
        let Self { next, state, .. } = self;
        for input in one.components.iter().filter_map(|component| component.input.as_ref().ok()) {
            let is_watched = next.attempt(input).is_some_and(|attempt| attempt.on_trial && attempt.open > 0);
            let for_long = one.stabilise.min(LONG);
            if is_watched && state.stability.is_tried_out(&input.project, input.input_digest, for_long) {
                next.attempts.remove(&input.project);
            }
        }
    }

    fn has_stabilised(&mut self, one: &DesiredDeployment, observation: &Observation) -> bool {
        let is_down = self.is_down(one.id);
        let stability = &mut self.state.stability;
        match SetHealth::of(one, observation) {
            _ if is_down => {
                stability.forget(one.id);
                false
            }
            SetHealth::Healthy => stability.note(one.id, one.set(), true) >= one.stabilise,
            // Since when it is unhealthy was noted before.
            SetHealth::Unhealthy(_) => false,
            // It is known soon.
            SetHealth::Unknown if is_asked_still(one, observation) => false,
            SetHealth::Unknown => {
                stability.forget(one.id);
                false
            }
        }
    }
}
