//! The labels by which our containers are known; on services only, and constant, because compose recreates a container
//! whose labels change.

use std::collections::BTreeMap;

use repo_model::{ComponentName, DeploymentId, DeviceId, Digest, FleetId};

/// What an application's own labels may not begin with.
pub(super) const RESERVED: &[&str] = &["device-syncer.", "com.docker."];

pub(super) const FLEET: &str = "device-syncer.fleet";
pub(super) const DEVICE: &str = "device-syncer.device";
pub(super) const DEPLOYMENT: &str = "device-syncer.deployment";
pub(super) const COMPONENT: &str = "device-syncer.component";
/// Which mounted files a container was made with: a change recreates that one service, on purpose.
pub(super) const FILES: &str = "device-syncer.files";

/// The compose project of a container.
pub(super) const PROJECT: &str = "com.docker.compose.project";
/// The service of a container.
pub(super) const SERVICE: &str = "com.docker.compose.service";

/// The labels of everything on one device.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    fleet: String,
    device: String,
}

impl Owner {
    pub(super) fn new(fleet: FleetId, device: &DeviceId) -> Self {
        Self { fleet: fleet.to_string(), device: value(device.as_str()) }
    }

    /// `label=…` filters that find everything of ours.
    pub(super) fn filters(&self) -> [String; 2] {
        [format!("label={FLEET}={}", self.fleet), format!("label={DEVICE}={}", self.device)]
    }

    /// Whether these are the labels of something of ours.
    pub(super) fn owns(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.get(FLEET) == Some(&self.fleet) && labels.get(DEVICE) == Some(&self.device)
    }

    /// The labels of one component's services.
    pub(super) fn labels(&self, deployment: DeploymentId, component: &ComponentName) -> Vec<(String, String)> {
        let pairs = [
            (FLEET, self.fleet.clone()),
            (DEVICE, self.device.clone()),
            (DEPLOYMENT, deployment.to_string()),
            (COMPONENT, value(component.as_str())),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// The text itself where it is a label's value on every runtime, else the first 32 hex digits of its SHA-256.
fn value(text: &str) -> String {
    let fits = (1..=63).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c));
    if fits { text.to_owned() } else { digest_value(&Digest::of(text.as_bytes())) }
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
        assert_eq!(value("press-04.a_B"), "press-04.a_B");
        for text in ["line-2/press-04", "a~b", &"a".repeat(64)] {
            assert_eq!(value(text).len(), 32, "{text}");
        }
    }
}
