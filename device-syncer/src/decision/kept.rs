//! What of that which was fetched stays on the device, because it may be needed without its registry.

use std::collections::BTreeSet;

use repo_model::Digest;

use super::deployment::DesiredDeployment;
use super::device_state::DeviceState;

/// What is wanted, and what ran well before. What runs, the runtimes know themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Of archives and charts, by the digest of their bytes.
    pub contents: BTreeSet<Digest>,
    /// Of what was fetched for an input, by the input digest.
    pub inputs: BTreeSet<Digest>,
    /// Projects whose input can't be known now, because a file of the device is missing: it may come back as it was.
    pub unknown: BTreeSet<String>,
    /// Whether `contents` lacks something that is wanted, because nobody locked it, or its input can't be known now.
    pub lacks_contents: bool,
    /// Whether the device's clock shows less than a time that was proven: no time is over by it.
    pub clock_is_behind: bool,
}

impl Kept {
    /// Of this device, which wants just this.
    pub fn of(wanted: &[DesiredDeployment], device_state: &DeviceState) -> Self {
        let mut kept = Self::default();
        for component in wanted.iter().flat_map(|wanted| &wanted.components) {
            match &component.input {
                Ok(input) => {
                    kept.contents.extend(input.lock.map(|lock| lock.content));
                    kept.lacks_contents |= input.lock.is_none();
                    kept.inputs.insert(input.input_digest);
                }
                Err(_) => {
                    kept.unknown.insert(component.project.clone());
                    kept.lacks_contents = true;
                }
            }
        }
        for good in device_state.good_sets.values() {
            kept.contents.extend(good.inputs.envelope.locks.values().map(|locked| locked.lock.content));
            kept.inputs.extend(good.inputs.inputs.iter().copied());
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use repo_model::envelope::Lock;

    use super::*;
    use crate::testing::{input_digest, project, wanted};

    #[test]
    fn what_is_wanted_and_what_was_good_stays_also_where_it_can_not_be_known_now() {
        let mut device_state = DeviceState::default();
        let envelope = serde_json::from_value(serde_json::json!({"id": "one"})).unwrap();
        device_state.note_good(&wanted("one", &[("x", "1"), ("y", "1")]), &envelope);
        let now = [wanted("one", &[("x", "2"), ("y", "1")]), wanted("two", &[("x", "!value-missing")])];
        let kept = Kept::of(&now, &device_state);
        let expected = [("x", "1"), ("x", "2"), ("y", "1")].map(|(part, version)| input_digest("one", part, version));
        assert_eq!(kept.inputs, expected.into());
        assert_eq!(kept.unknown, [project("two", "x")].into());
        assert!(kept.lacks_contents, "nobody locked them");
        let mut locked = wanted("one", &[("x", "1")]);
        let lock = Lock { manifest: Digest::of(b"manifest"), content: Digest::of(b"archive") };
        locked.components[0].input.as_mut().unwrap().lock = Some(lock);
        let kept = Kept::of(&[locked], &DeviceState::default());
        assert_eq!((kept.contents, kept.lacks_contents), ([lock.content].into(), false));
    }
}
