//! Drift: what was applied and isn't there as it was applied any more, told from what went down with the device.

use std::collections::BTreeMap;

use repo_model::desired::Desired;
use repo_model::envelope::IgnoredDrift;
use repo_model::{DeploymentId, IntoMap};

use super::deployment::DesiredDeployment;
use super::device_state::{AppliedComponent, DeviceState};
use super::observation::{Condition, Observation, Observed};

/// What of charts' objects may be as it is, by deployment.
pub type DriftIgnored = BTreeMap<DeploymentId, Vec<IgnoredDrift>>;

/// What the fleet wants ignored.
pub fn ignored(desired: &Desired) -> DriftIgnored {
    let all = desired.envelope.deployments.iter().map(|(id, one)| (*id, one.policy.drift_ignore.clone()));
    all.filter(|(_, ignored)| !ignored.is_empty()).into_map()
}

impl DeviceState {
    /// Notes of each applied component whether all of it is there during this boot. What was there when the device went down,
    /// and didn't come back with it, keeps the boot before until it is seen whole again. Of what is at work nothing is noted.
    pub fn note_whole(&mut self, observation: &Observation, boot_id: &str, is_at_work: impl Fn(&str) -> bool) {
        let inputs = self.deployments.values().flat_map(|applied| &applied.inputs.components);
        let applied: Vec<_> = inputs.filter(|one| one.input_digest.is_some()).cloned().collect();
        self.whole.retain(|project, _| applied.iter().any(|one| one.project == *project));
        let is_known = |one: &AppliedComponent| !observation.unreachable.contains_key(&one.kind);
        for one in applied.into_iter().filter(|one| is_known(one) && !is_at_work(&one.project)) {
            let found = observation.found.iter().find(|found| (found.kind, &found.project) == (one.kind, &one.project));
            match is_whole(&one, found) {
                Some(true) => self.was_whole(&one.project, boot_id),
                Some(false) if self.whole.get(&one.project).is_some_and(|seen| seen == boot_id) => {
                    self.whole.remove(&one.project);
                }
                Some(false) | None => {}
            }
        }
    }

    /// Notes that all of it was there during this boot.
    pub fn was_whole(&mut self, project: &str, boot_id: &str) {
        if self.whole.get(project).is_none_or(|seen| seen != boot_id) {
            self.whole.insert(project.to_owned(), boot_id.to_owned());
        }
    }

    /// Whether it is put back whatever is said of drift: it went down with the device, a person wants it back, or a restart
    /// stopped it.
    pub fn is_put_back_anyway(&self, project: &str) -> bool {
        self.whole.contains_key(project) || self.is_restarting(project)
    }

    /// A person wants all of it put back where it drifted.
    pub fn forget_all_drift(&mut self) {
        let inputs = self.deployments.values().flat_map(|applied| &applied.inputs.components);
        let projects: Vec<_> = inputs.map(|one| one.project.clone()).collect();
        projects.into_iter().for_each(|project| _ = self.whole.entry(project).or_default());
    }

    /// A person wants this put back where it drifted: once, because it counts until it is seen whole.
    pub fn forget_drift(&mut self, wanted: &DesiredDeployment) {
        for component in &wanted.components {
            self.whole.entry(component.project.clone()).or_default();
        }
    }
}

/// Whether all of it is there as it was applied; `None` where that isn't known.
fn is_whole(applied: &AppliedComponent, found: Option<&Observed>) -> Option<bool> {
    match found.map(|found| (&found.condition, found.input_digest == applied.input_digest)) {
        None => Some(false),
        Some((Condition::Unknown(_), _)) => None,
        Some((Condition::Edited(_), _)) => Some(false),
        Some((condition, is_same)) => Some(is_same && !condition.is_drift()),
    }
}

#[cfg(test)]
mod tests {
    use repo_model::ErrorCode;
    use repo_model::margo::ProfileType;

    use super::*;
    use crate::decision::failure::Failure;
    use crate::testing::{component, input_digest, observed, project, wanted};

    fn applied() -> DeviceState {
        let mut state = DeviceState::default();
        let (name, kind, input_digest) = (component("x"), ProfileType::Compose, Some(input_digest("a", "x", "1")));
        let project = project("a", "x");
        state.note(&wanted("a", &[("x", "1")]), AppliedComponent { name, project, kind, input_digest });
        state
    }

    fn seen(condition: Condition) -> Observation {
        let found = vec![observed("a", "x", Some(input_digest("a", "x", "1")), condition)];
        Observation { found, ..Observation::default() }
    }

    #[test]
    fn what_went_down_with_the_device_is_told_from_what_went_while_it_was_up() {
        let (mut state, one) = (applied(), project("a", "x"));
        let stopped = || seen(Condition::Stopped("exited with 137".to_owned()));
        state.note_whole(&seen(Condition::Running), "boot 1", |_| false);
        let whole = state.clone();
        state.note_whole(&seen(Condition::Degraded("unhealthy".to_owned())), "boot 1", |_| false);
        assert_eq!(state, whole, "it is all there");
        state.note_whole(&stopped(), "boot 1", |_| false);
        assert!(!state.is_put_back_anyway(&one), "it was stopped");
        state.note_whole(&stopped(), "boot 2", |_| false);
        assert!(!state.is_put_back_anyway(&one), "and isn't started by a boot");

        let mut state = whole;
        for lacking in [stopped(), seen(Condition::Missing), Observation::default(), stopped()] {
            state.note_whole(&lacking, "boot 2", |_| false);
            assert!(state.is_put_back_anyway(&one), "it went down with the device, until it was there again");
        }
        state.note_whole(&seen(Condition::Starting), "boot 2", |_| false);
        state.note_whole(&Observation::default(), "boot 2", |_| false);
        assert!(!state.is_put_back_anyway(&one));
    }

    #[test]
    fn what_is_not_known_changes_nothing_and_a_persons_word_counts_once() {
        let (mut state, one) = (applied(), project("a", "x"));
        state.note_whole(&seen(Condition::Running), "boot 1", |_| false);
        let whole = state.clone();
        let failure = Failure::new(ErrorCode::RuntimeUnavailable, "gone");
        let unreachable = [(ProfileType::Compose, failure)].into();
        state.note_whole(&Observation { unreachable, ..Observation::default() }, "boot 1", |_| false);
        state.note_whole(&seen(Condition::Unknown("it hangs".to_owned())), "boot 1", |_| false);
        assert_eq!(state, whole);
        state.note_whole(&seen(Condition::Edited("replicas".to_owned())), "boot 1", |_| false);
        assert!(!state.is_put_back_anyway(&one));
        state.forget_drift(&wanted("a", &[("x", "1")]));
        state.note_whole(&Observation::default(), "boot 1", |_| false);
        assert!(state.is_put_back_anyway(&one));
        state.note_whole(&seen(Condition::Running), "boot 1", |_| false);
        state.note_whole(&Observation::default(), "boot 1", |_| false);
        assert!(!state.is_put_back_anyway(&one));
    }
}
