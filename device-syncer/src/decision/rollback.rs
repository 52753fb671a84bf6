//! What a device puts back where a deployment can't run as it is wanted: the set that ran well before. Pure.
//!
//! The unit is the deployment's set, because its components were good only together. A set that failed stays bad until
//! another one is wanted or a person says `retry`, and while it is, the last good one is what the device plans for.

use std::collections::BTreeMap;
use std::time::Duration;

use repo_model::desired::read_document;
use repo_model::envelope::{EnvelopeDeployment, OnFailure};
use repo_model::{DeploymentId, ErrorCode, IntoMap, IntoSet};

use crate::decision::component::Component;
use crate::decision::deployment::{DesiredComponent, DesiredDeployment, Requirements};
use crate::decision::desired::{DeviceValues, resolve_deployment};
use crate::decision::device_state::{AppliedComponent, DeviceState};
use crate::decision::failure::Failure;
use crate::decision::observation::{Condition, Observation, Observed};
use crate::decision::sets::{GoodInputs, GoodSet, Instead, Rollback};

/// A set that isn't stable yet fails when it has been unhealthy for so long: a service may be started again once.
pub const UNHEALTHY: Duration = Duration::from_secs(60);

/// How a deployment is as a whole, by which its set becomes good or bad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetHealth {
    /// Just this set runs, and each component of it is healthy.
    Healthy,
    /// It was applied, and something of it is unhealthy or restarts again and again; the text says what.
    Unhealthy(String),
    /// It isn't applied as a whole, has just begun, or can't be observed.
    Unknown,
}

impl SetHealth {
    /// One unhealthy component makes the set unhealthy; what runs with other inputs counts as not applied.
    pub fn of(wanted: &DesiredDeployment, observation: &Observation) -> Self {
        let mut all = Self::Healthy;
        for component in &wanted.components {
            let found = component.input.as_ref().ok().and_then(|input| found(input, &observation.found));
            match found.map(|found| &found.condition) {
                Some(Condition::Running) => {}
                Some(Condition::Degraded(what) | Condition::CrashLooping(what)) => {
                    return Self::Unhealthy(format!("`{}`: {what}", component.name));
                }
                _ => all = Self::Unknown,
            }
        }
        if wanted.components.is_empty() { Self::Unknown } else { all }
    }
}

/// What runs of just this input.
fn found<'a>(input: &Component, found: &'a [Observed]) -> Option<&'a Observed> {
    found.iter().find(|one| one.project == input.project && one.input_digest == Some(input.input_digest))
}

impl DeviceState {
    /// Whether this set may become the last good one, or fail for the last good one: nothing was decided of it yet.
    pub fn is_on_trial(&self, wanted: &DesiredDeployment) -> bool {
        let is_good = || self.good_sets.get(&wanted.id).is_some_and(|good| good.inputs.set == wanted.set());
        wanted.on_failure != OnFailure::Hold && wanted.rolled_back.is_none() && !self.is_bad(wanted) && !is_good()
    }

    /// Whether this set failed for good, and it isn't decided yet whether what ran before is put back.
    pub fn may_be_put_back(&self, wanted: &DesiredDeployment) -> bool {
        self.is_on_trial(wanted) && self.set_failure(wanted).is_some()
    }

    /// Whether this set has failed before, and what was decided of that still counts.
    fn is_bad(&self, wanted: &DesiredDeployment) -> bool {
        let is_bad =
            |rollback: &Rollback| rollback.bad == wanted.set() && !rollback.is_decided_anew(wanted, &self.good_sets);
        self.rollbacks.get(&wanted.id).is_some_and(is_bad)
    }

    /// Why this set failed for good.
    pub fn set_failure(&self, wanted: &DesiredDeployment) -> Option<Failure> {
        let mut inputs = wanted.components.iter().filter_map(|one| one.input.as_ref().ok());
        inputs.find_map(|input| {
            let failure = self.failure(input).cloned().or_else(|| self.takes_down(input))?;
            Some(Failure::new(&failure.code, format!("component `{}`: {}", input.component, failure.message)))
        })
    }

    /// A failure, and why nothing is put back instead where that was wanted.
    pub fn explained(&self, wanted: &DesiredDeployment, failure: Failure) -> Failure {
        match self.rollbacks.get(&wanted.id) {
            Some(Rollback { bad, instead: Instead::Nothing(reason), .. }) if *bad == wanted.set() => {
                let text = format!("{}; what ran before isn't put back: {reason}", failure.message);
                Failure { message: text, ..failure }
            }
            _ => failure,
        }
    }

    /// Takes a set for the last good one.
    pub fn note_good(&mut self, wanted: &DesiredDeployment, envelope: &EnvelopeDeployment) {
        let inputs = wanted.components.iter().filter_map(|one| one.input.as_ref().ok());
        let digests = inputs.clone().map(|input| input.input_digest);
        let images = inputs.filter_map(|input| {
            let known = self.images.get(&input.project).filter(|known| known.input_digest == input.input_digest)?;
            Some((input.component.clone(), known.services.clone()))
        });
        let (set, images, inputs) = (wanted.set(), images.into_map(), digests.into_set());
        let inputs = GoodInputs { set, envelope: envelope.clone(), images, inputs };
        self.good_sets.insert(wanted.id, GoodSet { document: wanted.document.clone(), inputs });
    }

    /// The last good set is the same one where its values were only encrypted anew, maybe to another key.
    pub fn note_encrypted_anew(&mut self, wanted: &DesiredDeployment, envelope: &EnvelopeDeployment) {
        let good = self.good_sets.get_mut(&wanted.id).filter(|good| good.inputs.set == wanted.set());
        if let Some(good) = good {
            good.inputs.envelope.values_from.clone_from(&envelope.values_from);
        }
    }

    /// Notes that a set failed, and what is done instead, which `against` may speak against.
    pub fn note_bad(&mut self, wanted: &DesiredDeployment, why: Failure, against: Option<String>) {
        let good = self.good_sets.get(&wanted.id).map(|good| good.inputs.set);
        let instead = match (good, against) {
            (None, _) => Instead::Nothing("nothing of it ran well here for long enough before".to_owned()),
            (Some(_), Some(against)) => Instead::Nothing(against),
            (Some(good), None) => Instead::LastGood(good),
        };
        self.rollbacks.insert(wanted.id, Rollback { bad: wanted.set(), why, instead });
    }

    /// Forgets what failed and isn't wanted any more, and what ran well of deployments that are never rolled back.
    pub fn forget_sets(&mut self, wanted: &[DesiredDeployment]) {
        let find = |id: &DeploymentId| wanted.iter().find(|one| one.id == *id);
        // While a file of the device is missing, nobody knows which set is wanted.
        let is_unknown = |one: &DesiredDeployment| one.components.iter().any(|one| one.input.is_err());
        let goes_back = |one: &DesiredDeployment| one.on_failure != OnFailure::Hold;
        self.good_sets.retain(|id, _| find(id).is_some_and(goes_back));
        let good_sets = &self.good_sets;
        self.rollbacks.retain(|id, rollback| {
            find(id)
                .filter(|one| goes_back(one) && !rollback.is_decided_anew(one, good_sets))
                .is_some_and(|one| is_unknown(one) || one.set() == rollback.bad)
        });
    }

    /// Puts the last good sets into the place of those that failed.
    pub fn with_last_good(&mut self, wanted: &mut [DesiredDeployment], values: &DeviceValues<'_>) {
        for one in wanted {
            let Some(Rollback { why, instead: Instead::LastGood(target), .. }) = self.rollbacks.get(&one.id).cloned()
            else {
                continue;
            };
            let good = self.good_sets.get(&one.id).and_then(|good| good.resolve(one.id, values));
            match good.filter(|good| good.set() == target) {
                Some(good) => {
                    self.lock_good_images(&good);
                    *one = rolled_back(one, good, why);
                }
                None => *one = unknown(one, self.deployments.get(&one.id).map(|it| &it.inputs.components[..]), why),
            }
        }
    }

    /// The images of a good set are those that it had.
    fn lock_good_images(&mut self, good: &DesiredDeployment) {
        let Some(known) = self.good_sets.get(&good.id).map(|known| known.inputs.images.clone()) else { return };
        for input in good.components.iter().filter_map(|one| one.input.as_ref().ok()) {
            let is_known = self.images.get(&input.project).is_some_and(|it| it.input_digest == input.input_digest);
            if let Some(services) = known.get(&input.component).filter(|_| !is_known) {
                self.lock_images(input, services.clone());
            }
        }
    }
}

impl Rollback {
    /// What was decided for `last-good`, where nothing could be put back, is decided anew for `last-good-anyway`.
    fn is_decided_anew(&self, wanted: &DesiredDeployment, good_sets: &BTreeMap<DeploymentId, GoodSet>) -> bool {
        let is_anyway = wanted.on_failure == OnFailure::LastGoodAnyway && good_sets.contains_key(&wanted.id);
        is_anyway && matches!(self.instead, Instead::Nothing(_))
    }
}

impl GoodSet {
    /// What it comes to with the device's files as they are; `None` if its document can't be read any more.
    fn resolve(&self, id: DeploymentId, values: &DeviceValues<'_>) -> Option<DesiredDeployment> {
        let document = read_document(id, &self.document).ok()?;
        Some(resolve_deployment(id, &document, &self.inputs.envelope, values))
    }
}

/// The good set, under what the operator says of the deployment now. What it asks of the device, the device had.
fn rolled_back(wanted: &DesiredDeployment, good: DesiredDeployment, why: Failure) -> DesiredDeployment {
    let text = format!("what ran before runs instead, because of {}: {}", why.code, why.message);
    DesiredDeployment {
        title: good.title,
        document: good.document,
        components: good.components,
        requirements: Requirements::Met,
        rolled_back: Some(Failure::new(ErrorCode::RolledBack, text)),
        ..wanted.clone()
    }
}

/// What is left alone, because a file of the device has changed since the good set ran.
fn unknown(wanted: &DesiredDeployment, applied: Option<&[AppliedComponent]>, why: Failure) -> DesiredDeployment {
    let text = format!(
        "a file of this device that the last good set needs isn't what it was, so what runs is left as it is; the wanted \
         set failed with {}: {}",
        why.code, why.message
    );
    let component = |one: &AppliedComponent| DesiredComponent {
        name: one.name.clone(),
        project: one.project.clone(),
        input: Err(Failure::new(ErrorCode::RollbackFailed, &text)),
    };
    let components = applied.unwrap_or_default().iter().map(component).collect();
    let rolled_back = Some(Failure::new(ErrorCode::RollbackFailed, &text));
    DesiredDeployment { components, rolled_back, ..wanted.clone() }
}

#[cfg(test)]
mod tests;
