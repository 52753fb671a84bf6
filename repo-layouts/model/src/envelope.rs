//! `envelope.json` on `desired`: what Margo's documents have no key for.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ask::Ask;
use crate::margo::ProfileType;
use crate::windows::WindowsPolicy;
use crate::words::words;
use crate::{ComponentName, DeploymentId, DeploymentName, DeviceId, Digest, FleetId, KeyText, json};

/// The layout number that this code reads and writes. A higher one is refused with `layout-too-new`.
pub const LAYOUT: u64 = 1;

/// What a device takes for the intervals of its policy, in seconds: under a second it would do nothing else, and over a day it would
/// look dead, and not hear of a new roster for as long.
pub const INTERVAL_SECONDS: RangeInclusive<u64> = 1..=86_400;

/// Something that a reader must not ignore: an envelope that uses it names it in `requires`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Its name in `requires`.
    pub name: &'static str,
    /// The first version of the syncer that knows it.
    pub since: &'static str,
}

/// `policy.suspended` of the device or of one of its deployments.
pub const SUSPENDED: Feature = Feature { name: "suspended", since: "0.2.0" };

/// `policy.dependsOn` of a deployment.
pub const DEPENDS_ON: Feature = Feature { name: "depends-on", since: "0.2.0" };

/// `policy.drift` of a deployment.
pub const DRIFT: Feature = Feature { name: "drift", since: "0.3.0" };

/// `policy.driftIgnore` of a deployment.
pub const DRIFT_IGNORE: Feature = Feature { name: "drift-ignore", since: "0.3.0" };

/// `policy.approval` of the device or of one of its deployments.
pub const APPROVAL: Feature = Feature { name: "approval", since: "0.3.0" };

/// `valuesFrom` of a deployment with `encrypted`.
pub const ENCRYPTED_VALUES: Feature = Feature { name: "encrypted-values", since: "0.3.0" };

/// `policy.windows` of the device or of one of its deployments.
pub const WINDOWS: Feature = Feature { name: "windows", since: "0.3.0" };

/// The features that this code knows by name; `requires` may list no other one.
pub const FEATURES: &[Feature] = &[APPROVAL, DEPENDS_ON, DRIFT, DRIFT_IGNORE, ENCRYPTED_VALUES, SUSPENDED, WINDOWS];

/// The largest serial and `manifestVersion` ever written.
pub const MAX_SERIAL: u64 = json::MAX_INTEGER;

/// The furthest that a serial or `manifestVersion` may jump over the floor.
pub const MAX_JUMP: u64 = 1_000_000;

/// Of how many registries `policy.site.registries` may name mirrors at most.
pub const MAX_MIRRORED: usize = 32;

/// How many mirrors it may name of each at most.
pub const MAX_MIRRORS: usize = 4;

/// The most bytes of a registry's or mirror's name there.
pub const MAX_MIRROR_NAME: usize = 255;

/// The path of the envelope in the tree of `desired`.
pub const ENVELOPE: &str = "envelope.json";

/// Everything about a device's desired state that Margo's documents can't say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    pub layout: u64,
    pub fleet: FleetId,
    /// The device that this repository is for.
    pub device: EnvelopeDevice,
    /// Rises with every `desired` commit.
    pub serial: u64,
    /// Must be that of the manifest.
    pub manifest_version: u64,
    /// SHA-256 of every other file of the tree.
    pub files: BTreeMap<String, Digest>,
    /// How the device behaves; an absent key means the least action.
    pub policy: DevicePolicy,
    /// Features that a reader must not ignore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// What goes with each ApplicationDeployment.
    pub deployments: BTreeMap<DeploymentId, EnvelopeDeployment>,
}

/// Who the repository is for and who may write its `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeDevice {
    /// The operator's id of the device.
    pub id: DeviceId,
    /// The keys that may sign `status` and `heartbeat`.
    pub status_keys: Vec<KeyText>,
    /// Whether it is retired: nothing follows this state while it is so, and proofs of freshness end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
}

/// The device's policy, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DevicePolicy {
    /// How often the device asks whether `desired` moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_seconds: Option<u64>,
    /// How often it replaces `heartbeat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_seconds: Option<u64>,
    /// Whether it leaves everything on it as it is, until the operator says otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// When changes may be made; at any time without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<WindowsPolicy>,
    /// Whether a person has to agree to changes; nobody has to without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalPolicy>,
    /// What the fleet asks for once; a reader that doesn't know the key does nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
    /// What the fleet says of the site's own policy, by the keys of that; only what the site hands over counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub site: BTreeMap<String, serde_json::Value>,
}

impl DevicePolicy {
    /// How often the device asks whether `desired` moved, within [`INTERVAL_SECONDS`].
    pub fn poll(&self) -> Option<Duration> {
        self.poll_seconds.map(interval)
    }

    /// How often it replaces `heartbeat`, within [`INTERVAL_SECONDS`].
    pub fn report(&self) -> Option<Duration> {
        self.report_seconds.map(interval)
    }
}

fn interval(seconds: u64) -> Duration {
    Duration::from_secs(seconds.clamp(*INTERVAL_SECONDS.start(), *INTERVAL_SECONDS.end()))
}

/// What goes with one ApplicationDeployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeDeployment {
    /// The operator's own id of the deployment.
    pub id: DeploymentName,
    /// Policy of this deployment; a reader ignores what it doesn't know.
    #[serde(default)]
    pub policy: DeploymentPolicy,
    /// The profile that was chosen by the device's capabilities; absent if the operator named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The pre-draft's `requiredResources` of the profile, as written: an ApplicationDeployment has no key for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_resources: Option<serde_json::Value>,
    /// The bytes that each component's tag meant when it was published.
    #[serde(default)]
    pub locks: BTreeMap<ComponentName, ComponentLock>,
    /// Parameters whose values only the device knows.
    #[serde(default)]
    pub values_from: BTreeMap<String, ValueFrom>,
}

/// `policy` of one deployment: what Margo has no key for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentPolicy {
    /// Whether the device leaves what it has of it as it is, until the operator says otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// The deployments on the same device, by the operator's ids, that are installed before it is applied; sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DeploymentName>,
    /// What the device does where the deployment can't run as it is wanted.
    #[serde(default, skip_serializing_if = "OnFailure::is_hold")]
    pub on_failure: OnFailure,
    /// For how many seconds all of it runs well before it counts as good; absent means [`STABILISE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stabilise_seconds: Option<u64>,
    /// Whether the device puts back what doesn't run as it was applied.
    #[serde(default, skip_serializing_if = "DriftPolicy::is_heal")]
    pub drift: DriftPolicy,
    /// What of its charts' objects may be as it is, whatever the charts say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift_ignore: Vec<IgnoredDrift>,
    /// The number of the newest restart that the fleet asks for; absent means 0, as where it never did.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restart: u64,
    /// When it may be changed, in the place of all that the device's own `windows` say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<WindowsPolicy>,
    /// Whether a person has to agree to its changes, in the place of what the device's own `approval` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalPolicy>,
}

pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// `stabiliseSeconds` where nobody says anything.
pub const STABILISE: u64 = 300;

words! {
    /// What a device does with a deployment of which something failed for good.
    OnFailure {
        Hold "hold" "It leaves it as it is."
        LastGood "last-good" "It puts back what ran well before, unless something that runs only once began."
        LastGoodAnyway "last-good-anyway" "It puts back what ran well before, whatever began."
    }
}

impl OnFailure {
    fn is_hold(&self) -> bool {
        *self == Self::Hold
    }
}

#[expect(clippy::derivable_impls, reason = "the words are made by a macro")]
impl Default for OnFailure {
    fn default() -> Self {
        Self::Hold
    }
}

impl<'de> Deserialize<'de> for OnFailure {
    /// A word that isn't known means the least action.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = serde_json::Value::deserialize(deserializer)?;
        Ok(word.as_str().and_then(Self::parse).unwrap_or_default())
    }
}

words! {
    /// What a device does with what doesn't run as it was applied, from the least strict to the strictest.
    DriftPolicy {
        Heal "heal" "It puts it back."
        HealInWindow "heal-in-window" "It puts it back within the site's windows."
        Report "report" "It tells it, and puts it back when a person at the device says so."
    }
}

/// A part of a chart's objects whose drift is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IgnoredDrift {
    /// The objects' kind, such as `Deployment`.
    pub kind: String,
    /// The object's name; absent means each of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it is in the object as the chart renders it; everything below is meant, too.
    pub pointer: ObjectPointer,
}

/// A JSON Pointer (RFC 6901) into an object; the empty one means all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ObjectPointer(String);

impl TryFrom<String> for ObjectPointer {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_escaped = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        if (text.is_empty() || text.starts_with('/')) && is_escaped {
            Ok(Self(text))
        } else {
            Err(
                "isn't a JSON Pointer: `/spec/replicas`, with `~1` for a slash and `~0` for a tilde within a name, or nothing",
            )
        }
    }
}

impl IgnoredDrift {
    /// Whether this part of an object, as a JSON Pointer, is meant.
    pub fn covers(&self, kind: &str, name: &str, part: &str) -> bool {
        let rest = part.strip_prefix(self.pointer.0.as_str());
        let is_below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.kind == kind && self.name.as_ref().is_none_or(|only| only == name) && is_below
    }
}

impl std::fmt::Display for IgnoredDrift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, name, pointer: ObjectPointer(pointer) } = self;
        let whole = if pointer.is_empty() { "all of it" } else { pointer };
        write!(f, "{kind}{}{}: {whole}", if name.is_some() { " " } else { "" }, name.as_deref().unwrap_or_default())
    }
}

impl DriftPolicy {
    /// Whether it is as if nothing were said.
    pub fn is_heal(&self) -> bool {
        *self == Self::Heal
    }
}

#[expect(clippy::derivable_impls, reason = "the words are made by a macro")]
impl Default for DriftPolicy {
    fn default() -> Self {
        Self::Heal
    }
}

impl<'de> Deserialize<'de> for DriftPolicy {
    /// A word that isn't known means the least action.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = serde_json::Value::deserialize(deserializer)?;
        Ok(word.as_str().and_then(Self::parse).unwrap_or(Self::Report))
    }
}

words! {
    /// Who has to agree before a deployment is changed, as far as the fleet is asked.
    ApprovalPolicy {
        None "none" "Nobody."
        Site "site" "A person at the site."
    }
}

impl<'de> Deserialize<'de> for ApprovalPolicy {
    /// A word that isn't known means the least action.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = serde_json::Value::deserialize(deserializer)?;
        Ok(word.as_str().and_then(Self::parse).unwrap_or(Self::Site))
    }
}

/// What a component is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentLock {
    /// Its archive or chart.
    #[serde(flatten)]
    pub lock: Lock,
    /// The images of its services, as its compose files name them with their variables filled, and the digest of the
    /// manifest or index that each name meant. One that isn't here is locked by the device when it first uses it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, Digest>,
}

impl From<Lock> for ComponentLock {
    fn from(lock: Lock) -> Self {
        Self { lock, images: BTreeMap::new() }
    }
}

/// What a tag in a registry meant when it was first resolved, for the whole fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Digest of the OCI manifest.
    pub manifest: Digest,
    /// Digest of the layer: the archive or chart itself.
    pub content: Digest,
}

/// A parameter whose value only the device knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenValueFrom")]
pub struct ValueFrom {
    #[serde(flatten)]
    pub source: ValueSource,
    /// Where the value goes, as in an ApplicationDeployment.
    pub targets: Vec<ValueTarget>,
}

/// Where the device has such a value from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ValueSource {
    /// A bare file name in the directory that the device's own configuration names.
    DeviceFile(String),
    /// An armoured age file that is encrypted to the device's key.
    Encrypted(String),
}

/// The same as it is written: one of both sources.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenValueFrom {
    device_file: Option<String>,
    encrypted: Option<String>,
    targets: Vec<ValueTarget>,
}

impl TryFrom<WrittenValueFrom> for ValueFrom {
    type Error = &'static str;

    fn try_from(written: WrittenValueFrom) -> Result<Self, Self::Error> {
        let source = match (written.device_file, written.encrypted) {
            (Some(name), None) => ValueSource::DeviceFile(name),
            (None, Some(text)) => ValueSource::Encrypted(text),
            _ => return Err("needs either `deviceFile` or `encrypted`"),
        };
        Ok(Self { source, targets: written.targets })
    }
}

/// Where a value from the device goes: `targets` of Margo's parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueTarget {
    /// A path into a chart's values, or the name of an environment variable.
    pub pointer: String,
    /// The components that get it.
    pub components: Vec<ComponentName>,
}

impl ValueTarget {
    /// What the pointer means to a runtime of this type, in one spelling.
    pub fn place(&self, kind: ProfileType) -> &str {
        match kind {
            ProfileType::Compose => self.pointer.strip_prefix("ENV.").unwrap_or(&self.pointer),
            ProfileType::Helm | ProfileType::Custom => &self.pointer,
        }
    }
}

impl ValueFrom {
    /// The age file, where the value is encrypted.
    pub fn encrypted(&self) -> Option<&str> {
        match &self.source {
            ValueSource::DeviceFile(_) => None,
            ValueSource::Encrypted(text) => Some(text),
        }
    }

    /// Whether `name` is a bare file name: one path part of letters, digits and `. _ -` that starts with none of them.
    pub fn is_bare(name: &str) -> bool {
        (1..=100).contains(&name.len())
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
            && name.as_bytes()[0].is_ascii_alphanumeric()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_beyond_what_a_device_keeps_is_the_nearest() {
        for (written, kept) in [(0, 1), (1, 1), (300, 300), (86_400, 86_400), (86_401, 86_400), (u64::MAX, 86_400)] {
            let (seconds, kept) = (Some(written), Some(Duration::from_secs(kept)));
            let policy = DevicePolicy { poll_seconds: seconds, report_seconds: seconds, ..DevicePolicy::default() };
            assert_eq!((policy.poll(), policy.report()), (kept, kept), "{written}");
        }
    }
}
