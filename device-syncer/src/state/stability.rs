//! For how long a deployment's set has been well, or ill, and the device up with what was applied. Lives as long as the process:
//! after a start it is watched anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use repo_model::{DeploymentId, Digest};

/// Since when sets are well or ill, and inputs on trial, as far as this process has seen it.
#[derive(Debug, Default)]
pub struct Stability {
    /// Whether the set of a deployment is well.
    sets: BTreeMap<DeploymentId, Since>,
    /// The input of a project that is on trial.
    trials: BTreeMap<String, (Digest, Instant)>,
}

#[derive(Debug)]
struct Since {
    set: Digest,
    is_well: bool,
    when: Instant,
}

impl Stability {
    /// Notes how a set is now, and says for how long it has been so without a break.
    pub fn note(&mut self, deployment: DeploymentId, set: Digest, is_well: bool) -> Duration {
        let new = Since { set, is_well, when: Instant::now() };
        let since = self.sets.entry(deployment).or_insert(new);
        if (since.set, since.is_well) != (set, is_well) {
            *since = Since { set, is_well, when: Instant::now() };
        }
        since.when.elapsed()
    }

    /// Forgets how a deployment was: it is neither well nor ill.
    pub fn forget(&mut self, deployment: DeploymentId) {
        self.sets.remove(&deployment);
    }

    /// Notes that an input is on trial, and says whether it has been for so long; then it isn't any more.
    pub fn is_tried_out(&mut self, project: &str, input: Digest, for_long: Duration) -> bool {
        let since = self.trials.entry(project.to_owned()).or_insert((input, Instant::now()));
        if since.0 != input {
            *since = (input, Instant::now());
        }
        let is_over = since.1.elapsed() >= for_long;
        if is_over {
            self.trials.remove(project);
        }
        is_over
    }

    /// Moves every mark back, as if that much time had passed.
    #[cfg(test)]
    pub(crate) fn later(&mut self, time: Duration) {
        let sets = self.sets.values_mut().map(|since| &mut since.when);
        sets.chain(self.trials.values_mut().map(|(_, when)| when))
            .for_each(|when| *when = when.checked_sub(time).unwrap());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{id, input_digest};

    #[test]
    fn what_is_on_trial_is_so_for_as_long_as_it_is_said_and_another_input_anew() {
        let (mut all, one, two) = (Stability::default(), input_digest("a", "x", "1"), input_digest("a", "x", "2"));
        let hour = Duration::from_secs(3600);
        assert!(!all.is_tried_out("x", one, hour));
        all.later(hour);
        assert!(
            !all.is_tried_out("x", two, hour) && !all.is_tried_out("y", one, hour),
            "another input, another project"
        );
        all.later(hour);
        assert!(all.is_tried_out("x", two, hour) && !all.is_tried_out("x", two, hour), "once");
    }

    #[test]
    fn time_counts_from_when_a_set_became_so_and_anew_after_each_change() {
        let (mut all, one, two) = (Stability::default(), input_digest("a", "x", "1"), input_digest("a", "x", "2"));
        let hour = Duration::from_secs(3600);
        assert!(all.note(id("a"), one, true) < hour);
        all.later(hour);
        assert!(all.note(id("a"), one, true) >= hour);
        assert!(all.note(id("b"), one, true) < hour, "another deployment");
        assert!(all.note(id("a"), one, false) < hour, "it is ill now");
        all.later(hour);
        assert!(all.note(id("a"), one, false) >= hour);
        assert!(all.note(id("a"), two, false) < hour, "another set");
        all.later(hour);
        all.forget(id("a"));
        assert!(all.note(id("a"), two, false) < hour, "it was neither");
    }
}
