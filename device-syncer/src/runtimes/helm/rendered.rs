//! What a release consists of, as helm prints it in JSON, for the site's policy.

use serde::Deserialize;

use crate::decision::kubernetes::{Manifest, ObjectPolicy, Verdict};

/// The events of hooks that only `helm test` runs, which nothing here calls.
const TESTS: &[&str] = &["test", "test-success", "test-failure"];

/// The part of a release, or of one that would be, that makes objects.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Rendered {
    #[serde(default)]
    pub(super) manifest: String,
    /// Absent if there are none.
    #[serde(default)]
    hooks: Option<Vec<Hook>>,
}

/// An object that helm makes by itself at an event, and that isn't in the manifest.
#[derive(Debug, Deserialize)]
struct Hook {
    #[serde(default)]
    manifest: String,
    #[serde(default)]
    events: Vec<String>,
}

impl Rendered {
    /// Judges all that helm would make of it. What can't be read is denied.
    pub(super) fn judge(&self, policy: &ObjectPolicy, namespace: &str, crds: &[String]) -> Verdict {
        let (mut verdict, mut manifest) = (Verdict::default(), Manifest::default());
        let hooks = self.hooks.iter().flatten().filter(|hook| !hook.is_test()).map(|hook| hook.manifest.as_str());
        for text in [self.manifest.as_str()].into_iter().chain(crds.iter().map(String::as_str)).chain(hooks) {
            if let Err(problem) = manifest.read(text, |object| verdict.object(policy, namespace, object)) {
                verdict.deny(format!("what its chart renders to can't be judged: {problem}"));
                break;
            }
        }
        verdict
    }
}

impl Hook {
    fn is_test(&self) -> bool {
        !self.events.is_empty() && self.events.iter().all(|event| TESTS.contains(&event.as_str()))
    }
}
