//! For how long a deployment's set has been well, or ill. Lives as long as the process: after a start it is watched anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use repo_model::{DeploymentId, Digest};

/// Since when each set is so, by deployment.
#[derive(Debug, Default)]
pub struct Stability(BTreeMap<DeploymentId, Since>);

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
        let since = self.0.entry(deployment).or_insert(new);
        if (since.set, since.is_well) != (set, is_well) {
            *since = Since { set, is_well, when: Instant::now() };
        }
        since.when.elapsed()
    }

    /// Forgets how a deployment was: it is neither well nor ill.
    pub fn forget(&mut self, deployment: DeploymentId) {
        self.0.remove(&deployment);
    }

    /// Moves every mark back, as if that much time had passed.
    #[cfg(test)]
    pub(crate) fn later(&mut self, time: Duration) {
        self.0.values_mut().for_each(|since| since.when = since.when.checked_sub(time).unwrap());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{id, input_digest};

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
