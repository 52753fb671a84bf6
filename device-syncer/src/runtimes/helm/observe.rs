//! What is ours now: releases by their labels.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use repo_model::envelope::IgnoredDrift;
use repo_model::margo::ProfileType;

use super::HelmRuntime;
use super::known::{Known, KnownRelease};
use super::release::{Listed, Release};
use crate::decision::drift::DriftIgnored;
use crate::decision::observation::{Condition, Observed};
use crate::runtimes::RuntimeError;
use crate::runtimes::command::CommandError;

/// How long what was observed of a release's objects is taken to be so.
const FRESH: Duration = Duration::from_secs(60);

impl HelmRuntime {
    /// Makes one call that lists, two more for each release that changed since the last observation, and one for each
    /// whose objects weren't observed for a minute.
    pub(super) fn observe_releases(&self) -> Result<Vec<Observed>, RuntimeError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = Known::new();
        for listed in self.list()? {
            let seen = match known.remove(&listed) {
                Some(seen) if seen.when.elapsed() < FRESH && seen.ignored == self.ignored_of(&seen.release) => {
                    Some(seen)
                }
                Some(seen) => Some(self.know(&listed, seen.release)?),
                None => match self.release(&listed.namespace, &listed.name)? {
                    Some(release) => Some(self.know(&listed, release)?),
                    None => None,
                },
            };
            now.extend(seen.map(|seen| (listed, seen)));
        }
        *known = now;
        let is_twice = |name: &str| known.keys().filter(|listed| listed.name == name).count() > 1;
        Ok(known.iter().map(|(listed, seen)| observed(listed, seen, is_twice(&listed.name))).collect())
    }

    fn know(&self, listed: &Listed, release: Release) -> Result<KnownRelease, RuntimeError> {
        let ignored = self.ignored_of(&release);
        let (condition, violation) = match listed.status.as_str() {
            "deployed" => self.objects(listed, &ignored).or_else(too_much)?,
            status if status.starts_with("pending-") => (Condition::Starting, None),
            status => (Condition::Degraded(format!("its release is {status}")), None),
        };
        Ok(KnownRelease { release, condition, violation, ignored, when: Instant::now() })
    }
}

impl HelmRuntime {
    /// From now on this is ignored of deployments' drift. Returns whether something else was before.
    pub fn ignore_drift(&self, ignored: DriftIgnored) -> bool {
        let mut before = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *before, ignored.clone()) != ignored
    }

    fn ignored_of(&self, release: &Release) -> Vec<IgnoredDrift> {
        let ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        release.deployment().and_then(|id| ignored.get(&id).cloned()).unwrap_or_default()
    }
}

/// A chart chooses how much there is to say of its objects: more than is ever read of one release hides no other one.
fn too_much(error: RuntimeError) -> Result<(Condition, Option<String>), RuntimeError> {
    match error {
        RuntimeError::RuntimeUnavailable { reason, source: Some(CommandError::TooMuch { .. }), .. } => {
            Ok((Condition::Unknown(reason), None))
        }
        error => Err(error),
    }
}

/// One that is in two namespaces is half made: its next apply removes the other.
fn observed(listed: &Listed, seen: &KnownRelease, is_twice: bool) -> Observed {
    Observed {
        kind: ProfileType::Helm,
        project: listed.name.clone(),
        deployment: seen.release.deployment(),
        component: seen.release.component(),
        input_digest: seen.release.input_digest().filter(|_| !is_twice),
        condition: seen.condition.clone(),
        violation: seen.violation.clone(),
        services: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::helm::client::HELM;

    #[test]
    fn a_release_of_which_there_is_too_much_to_say_hides_no_other_one() {
        let failed = |error| too_much(HELM.broken_off(error));
        let command = || "helm status".to_owned();
        let found = failed(CommandError::TooMuch { command: command(), limit: 10 }).unwrap();
        assert_eq!(found, (Condition::Unknown("`helm status` wrote more than 10 bytes".to_owned()), None));
        let slow = CommandError::TimedOut { command: command(), seconds: 60, stderr: String::new() };
        assert_eq!(failed(slow).unwrap_err().code(), "runtime-unavailable");
    }
}
