//! The labels by which our containers and releases are known. In compose they are on services only, and constant, because
//! it recreates a container whose labels change.

use std::collections::BTreeMap;

use repo_model::{ComponentName, DeploymentId, DeviceId, Digest, FleetId};

pub(super) const FLEET: &str = "device-syncer.fleet";
pub(super) const DEVICE: &str = "device-syncer.device";
pub(super) const DEPLOYMENT: &str = "device-syncer.deployment";
pub(super) const COMPONENT: &str = "device-syncer.component";
/// Which mounted files a container was made with: a change recreates that one service, on purpose.
pub(super) const FILES: &str = "device-syncer.files";

/// The compose project of a container.
pub(super) const PROJECT: &str = "com.docker.compose.project";

/// Whether a text stands in a label as it is.
type Fits = fn(&str) -> bool;

/// The labels of everything of one runtime on one device.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    fleet: String,
    device: String,
    fits: Fits,
}

impl Owner {
    pub(super) fn new(fleet: FleetId, device: &DeviceId, fits: Fits) -> Self {
        Self { fleet: fleet.to_string(), device: value(device.as_str(), fits), fits }
    }

    /// What everything of ours has.
    pub(super) fn common(&self) -> [(&'static str, &str); 2] {
        [(FLEET, &self.fleet), (DEVICE, &self.device)]
    }

    /// Whether these are the labels of something of ours.
    pub(super) fn owns(&self, labels: &BTreeMap<String, String>) -> bool {
        self.common().iter().all(|(name, value)| labels.get(*name).is_some_and(|found| found == value))
    }

    /// The labels of one component.
    pub(super) fn labels(&self, deployment: DeploymentId, component: &ComponentName) -> Vec<(String, String)> {
        let component = value(component.as_str(), self.fits);
        let pairs = self.common().map(|(name, value)| (name, value.to_owned()));
        let pairs = pairs.into_iter().chain([(DEPLOYMENT, deployment.to_string()), (COMPONENT, component)]);
        pairs.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The text itself where it fits, else the first 32 hex digits of its SHA-256.
pub(super) fn value(text: &str, fits: Fits) -> String {
    if fits(text) { text.to_owned() } else { digest_value(&Digest::of(text.as_bytes())) }
}

/// Whether a text is short and has no other characters than a label's value may have on every runtime.
pub(super) fn is_plain(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
}

/// A digest as a label's value.
pub(super) fn digest_value(digest: &Digest) -> String {
    digest.hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_fit_is_a_hash() {
        assert_eq!(value("press-04.a_B", is_plain), "press-04.a_B");
        for text in ["line-2/press-04", "a~b", &"a".repeat(64)] {
            assert_eq!(value(text, is_plain).len(), 32, "{text}");
        }
    }
}
