//! `devices/**/*.yaml`: one device, its labels and who may speak for it.

use std::collections::BTreeMap;

use repo_model::ask::Ask;
use repo_model::envelope::DevicePolicy;
use repo_model::value::ParamValue;
use repo_model::yaml::{Field, Reader};
use repo_model::{DeviceId, KeyText};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::enrolled_by::{self, EnrolledBy};
use super::file::refuse_unbuilt;
use super::place::{Place, placed};
use super::policy::{Policy, Seconds};
use super::retired::{self, Retired};
use super::values::data;
use super::{Fleet, ask, labels, policy};

/// A file in `devices/`. In JSON it is without `policy` and `data`: one that has either isn't kept as that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The path of its file in the fleet repository.
    pub file: String,
    pub id: DeviceId,
    /// What selectors match, and what templates know as `device.labels.…`.
    pub labels: BTreeMap<String, String>,
    /// What it does differently from the fleet.
    #[serde(skip)]
    pub policy: Policy,
    /// Whether it is told to leave everything as it is.
    pub suspended: bool,
    /// What the fleet asks it for; the device does it once for each number.
    pub ask: Option<Ask>,
    /// What templates can name as `device.data.…`.
    #[serde(skip)]
    pub data: BTreeMap<String, ParamValue>,
    /// The keys that may sign its `status`; none before it is enrolled.
    pub status_keys: Vec<KeyText>,
    /// The keys by which it logs in to the host over SSH; none where it asks over HTTPS. They say who may read and push
    /// at the host, and are no part of what is published.
    pub ssh_keys: Vec<KeyText>,
    /// How it is taken out of service; absent while it is in it.
    pub retired: Option<Retired>,
    /// The batch token by which it enrolled; it counts as one of that token's devices.
    pub enrolled_by: Option<EnrolledBy>,
}

const UNBUILT: &[&str] = &["repository", "capabilities", "windows"];

impl Device {
    /// Whether a key of the device is known; before that nothing is published for it.
    pub fn is_enrolled(&self) -> bool {
        !self.status_keys.is_empty()
    }

    /// Whether it is the same once it was kept as JSON.
    pub(crate) fn is_plain(&self) -> bool {
        self.policy == Policy::default() && self.data.is_empty()
    }

    /// What it does by its own file, else its groups', else the fleet's, else the built-in ones.
    pub fn policy_in(&self, fleet: &Fleet) -> DevicePolicy {
        let first = |key: fn(&Policy) -> Option<&Seconds>| self.policies(fleet).find_map(|(_, policy)| key(policy));
        let seconds = |found: Option<&Seconds>, default| Some(found.map_or(default, |Seconds(seconds, _)| *seconds));
        DevicePolicy {
            poll_seconds: seconds(first(|policy| policy.poll.as_ref()), policy::POLL),
            report_seconds: seconds(first(|policy| policy.report.as_ref()), policy::REPORT),
            // What is retired shall be gone, which what is left as it is never is.
            suspended: self.suspended && self.retired.is_none(),
            windows: self.policies(fleet).find_map(|(_, policy)| policy.windows.as_ref()).map(|one| one.policy.clone()),
            ask: self.ask.clone(),
            approval: self.policies(fleet).find_map(|(_, policy)| policy.approval.as_ref()).map(|one| one.0),
            site: self.for_site(fleet).map(|(key, (value, _))| (key.to_owned(), value.clone())).collect(),
        }
    }

    /// What counts of what is said of its site's policy, key by key.
    fn for_site<'a>(&'a self, fleet: &'a Fleet) -> impl Iterator<Item = (&'static str, &'a (Value, Place))> {
        let mut counts = BTreeMap::new();
        let said = self.policies(fleet).flat_map(|(_, policy)| &policy.site);
        said.for_each(|(key, value)| _ = counts.entry(*key).or_insert(value));
        counts.into_iter()
    }

    /// Every policy that is about it, and whose it is, the strongest first: its own file over its groups, the later
    /// over the earlier, over the fleet.
    pub fn policies<'a>(&'a self, fleet: &'a Fleet) -> impl Iterator<Item = (String, &'a Policy)> {
        let groups = fleet.settings.groups.iter().rev().filter(|group| group.when.selects(self));
        let groups = groups.map(|group| (format!("the fleet's group `{}`", group.name), &group.policy));
        let own = [("the device's policy".to_owned(), &self.policy)].into_iter();
        own.chain(groups).chain([("the fleet's policy".to_owned(), &fleet.settings.policy)])
    }

    /// Reads a device, with the place of its id.
    pub(super) fn read(file: &str, reader: &mut Reader<'_>) -> Option<(Self, Place)> {
        let id = reader.required("id", placed);
        let labels = reader.optional("labels", labels::read).unwrap_or_default();
        let policy = reader.optional("policy", policy::read).unwrap_or_default();
        let suspended = reader.optional("suspended", Field::bool).unwrap_or_default();
        let ask = reader.optional("ask", ask::read);
        let data = reader.optional("data", data).unwrap_or_default();
        let status_keys = reader.optional("statusKeys", |field| keys(field, status_key)).unwrap_or_default();
        let ssh_keys = reader.optional("sshKeys", |field| keys(field, ssh_key)).unwrap_or_default();
        let retired = reader.optional("retired", retired::read);
        let enrolled_by = reader.optional("enrolledBy", enrolled_by::read);
        refuse_unbuilt(reader, UNBUILT);
        let (id, place) = id?;
        let file = file.to_owned();
        let device =
            Self { file, id, labels, policy, suspended, ask, data, status_keys, ssh_keys, retired, enrolled_by };
        Some((device, place))
    }
}

fn keys(field: Field<'_>, one: fn(Field<'_>) -> Option<KeyText>) -> Option<Vec<KeyText>> {
    let keys = field.clone().list(one)?;
    match keys.iter().enumerate().find(|(index, key)| keys[..*index].contains(key)) {
        Some((_, key)) => field.fail(format!("lists `{key}` twice")),
        None => Some(keys),
    }
}

/// The Base64 of an Ed25519 key's fixed head: the length and name of its algorithm, and the key's length.
const ED25519: &str = "AAAAC3NzaC1lZDI1NTE5AAAAI";

/// Whether a key is an Ed25519 one, whole.
pub(super) fn is_ed25519(key: &KeyText) -> bool {
    key.as_str().strip_prefix("ssh-ed25519 ").is_some_and(|blob| blob.len() == 68 && blob.starts_with(ED25519))
}

fn status_key(field: Field<'_>) -> Option<KeyText> {
    let key: KeyText = field.clone().parse()?;
    match key.as_str().strip_prefix("ssh-ed25519 ") {
        _ if is_ed25519(&key) => Some(key),
        Some(_) => field.fail("is cut off or damaged: copy the whole line that `device-syncer init` printed"),
        None => field.fail("must be an Ed25519 key: `ssh-ed25519 AAAA…`"),
    }
}

/// The algorithms of SSH keys that a device can log in by, each with the fixed head of its keys in Base64: lengths and
/// names (RFC 4253, 6.6; RFC 5656, 3.1; RFC 8709, 4).
const SSH_ALGORITHMS: [(&str, &str); 5] = [
    ("ssh-ed25519", ED25519),
    ("ecdsa-sha2-nistp256", "AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBB"),
    ("ecdsa-sha2-nistp384", "AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhB"),
    ("ecdsa-sha2-nistp521", "AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFB"),
    ("ssh-rsa", "AAAAB3NzaC1yc2EAAAAD"),
];

fn ssh_key(field: Field<'_>) -> Option<KeyText> {
    let key: KeyText = field.clone().parse()?;
    let (algorithm, blob) = key.as_str().split_once(' ')?;
    match SSH_ALGORITHMS.iter().find(|(name, _)| *name == algorithm) {
        Some((_, head)) if blob.starts_with(head) && blob.len() >= 68 => Some(key),
        Some(_) => field.fail("is cut off or damaged: copy the whole line of the `.pub` file"),
        None => field.fail("must be an Ed25519, ECDSA or RSA key: `ssh-ed25519 AAAA…`"),
    }
}
