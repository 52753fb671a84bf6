//! What would be done to each device's repository: the rendered documents against the tip that is there.
//!
//! Pure: the same plan is printed by `plan` and carried out by `publish`. Documents that mean the same keep their
//! bytes, and where everything means the same there is nothing to do.

mod blocked;
mod difference;
mod groups;
mod guard;
mod packages;
mod show;
mod shown;
mod statements;

use std::collections::{BTreeMap, BTreeSet};

use repo_model::desired::{Assembled, Desired, Document, assemble};
use repo_model::envelope::{
    APPROVAL, ApprovalPolicy, DEPENDS_ON, DRIFT, DRIFT_IGNORE, DeploymentPolicy, DevicePolicy, ENCRYPTED_VALUES,
    Envelope, EnvelopeDeployment, EnvelopeDevice, Feature, LAYOUT, SUSPENDED, WINDOWS,
};
use repo_model::margo::Component;
use repo_model::problem::Problems;
use repo_model::{DeploymentId, DeploymentName, DeviceId, Digest, FileTree, FleetId, KeyText};

use crate::fleet::{Broken, Retired};
use crate::render::{Artifact, Rendered, RenderedDeployment};

pub use blocked::{Blocked, Code, FLEET_DOUBTFUL, blocked};
pub use difference::{Difference, difference_text, shown_component};
pub use groups::{Describe, Group, Part, groups};
pub use guard::{Allowed, Guarded, of_fleet};
pub use packages::{of_packages, parameter_rules, parameter_type};
pub use show::{summary, to_json, to_text, to_text_of_each};
pub use shown::{GONE, GONE_HINT, Shown};
pub use statements::StatementKind;

/// What would be done for one device.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicePlan {
    pub device: DeviceId,
    /// The serial of the tip; absent if there is none.
    pub serial: Option<u64>,
    /// A serial that went out and that the tip doesn't know, because the repository was restored: what it holds is
    /// published anew.
    pub lags_behind: Option<u64>,
    /// How many deployments the tip has.
    pub present: usize,
    /// What changes in its deployments, in the order of their ids.
    pub changes: Vec<Change>,
    /// What would change, too, and is held back by a rollout or a guard, or waits for what is; in the same order.
    pub held: Vec<Change>,
    /// What changes around them: policy, keys, trust.
    pub settings: Vec<Difference>,
    /// Deployments that are left as they are, because something is wrong with them or a tag isn't resolved.
    pub kept: BTreeSet<DeploymentName>,
    /// What is wrong with those of them that can't be rendered for this device.
    pub wrong: BTreeMap<DeploymentName, Problems>,
    /// Deployments that would be others on a device with other capabilities.
    pub by_capabilities: BTreeSet<DeploymentName>,
    /// All that the device would have then, not only what changes.
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub kind: ChangeKind,
    /// The id in the fleet repository.
    pub name: DeploymentName,
    /// The UUID of Margo's document.
    pub id: DeploymentId,
    /// What exactly, for a change or an addition.
    pub differences: Vec<Difference>,
    /// Tags whose meaning `publish` has to find out.
    pub unresolved: BTreeSet<Artifact>,
    /// The deployment of the same application whose place it takes.
    pub replaces: Option<DeploymentName>,
    /// The guard that holds it back; absent where none does.
    pub guard: Option<Code>,
    /// Whether a person let it pass (`allowed/`).
    pub allowed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    Add,
    /// Its document differs, or what goes with it in the envelope.
    Change,
    Remove,
}

impl Change {
    fn new(kind: ChangeKind, name: &DeploymentName, id: DeploymentId, differences: Vec<Difference>) -> Self {
        let unresolved = BTreeSet::new();
        Self { kind, name: name.clone(), id, differences, unresolved, replaces: None, guard: None, allowed: false }
    }

    /// Whether it goes, or takes the place of another one, and a word about these deployments is enough for that.
    pub fn is_let_go(&self, names: &BTreeSet<DeploymentName>) -> bool {
        let old = self.replaces.as_ref();
        let goes = self.kind == ChangeKind::Remove || old.is_some();
        goes && names.contains(&self.name) && old.is_none_or(|old| names.contains(old))
    }
}

impl ChangeKind {
    /// The word for it in the trailer of a commit.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Change => "change",
            Self::Remove => "remove",
        }
    }
}

/// The numbers of a desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub serial: u64,
    /// The `manifestVersion` of Margo's manifest; it rises only with its documents.
    pub manifest_version: u64,
}

/// A desired state but for its serial and version.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The exact bytes of each ApplicationDeployment.
    pub documents: BTreeMap<DeploymentId, Vec<u8>>,
    /// What goes with each in the envelope: policy, locks, values that stay on the device.
    pub deployments: BTreeMap<DeploymentId, EnvelopeDeployment>,
    pub policy: DevicePolicy,
    /// Who may sign its reports; in the parent's order where they are the same keys.
    pub status_keys: Vec<KeyText>,
    /// Whether the device is retired.
    pub retired: bool,
    /// Whether the documents are other ones than the parent's.
    pub new_manifest: bool,
}

impl DevicePlan {
    /// Whether there is anything to publish.
    pub fn is_empty(&self) -> bool {
        self.serial.is_some() && self.changes.is_empty() && self.settings.is_empty() && self.lags_behind.is_none()
    }

    /// Everything that is wrong with what is meant for the device.
    pub fn problems(&self) -> Problems {
        Problems(self.wrong.values().flat_map(|problems| problems.iter().cloned()).collect())
    }

    /// Whether something in it can't be published yet, because the meaning of a tag isn't known.
    pub fn is_unresolved(&self) -> bool {
        self.changes.iter().any(|change| !change.unresolved.is_empty())
    }

    /// Whether this deployment can't be published yet, because the meaning of a tag isn't known.
    fn awaits(&self, deployment: &DeploymentName) -> bool {
        self.changes.iter().any(|change| change.name == *deployment && !change.unresolved.is_empty())
    }

    /// Whether something that can't be published yet comes in the place of something else, or the other way round.
    pub fn splits_replacement(&self) -> bool {
        let comes = |name: &DeploymentName| {
            self.changes.iter().any(|change| change.name == *name && change.unresolved.is_empty())
        };
        let mut replacing = self.changes.iter().chain(&self.held);
        replacing.any(|change| change.replaces.as_ref().is_some_and(|old| comes(&change.name) != comes(old)))
    }

    /// Gives up the deployments that the device would have, which only whoever publishes needs.
    pub fn forget_deployments(&mut self) {
        self.target.documents.clear();
        self.target.deployments.clear();
    }

    /// The plan without what can't be published yet; the target leaves that as it is already.
    pub fn without_unresolved(mut self) -> Self {
        self.changes.retain(|change| change.unresolved.is_empty());
        self
    }
}

impl Target {
    /// What a reader of it must know, by what it uses; sorted by name.
    pub fn features(&self) -> Vec<Feature> {
        features(&self.policy, self.deployments.values())
    }

    /// The whole desired state under these numbers; its bytes depend on nothing else.
    pub fn assemble(&self, fleet: FleetId, device: &DeviceId, numbers: Numbers, trust: &FileTree) -> Assembled {
        assemble(self.envelope(fleet, device, numbers), &self.documents, trust)
    }

    /// Its envelope, which lists no files yet.
    pub fn envelope(&self, fleet: FleetId, device: &DeviceId, numbers: Numbers) -> Envelope {
        Envelope {
            layout: LAYOUT,
            fleet,
            device: EnvelopeDevice { id: device.clone(), status_keys: self.status_keys.clone(), retired: self.retired },
            serial: numbers.serial,
            manifest_version: numbers.manifest_version,
            files: BTreeMap::new(),
            policy: self.policy.clone(),
            requires: self.features().iter().map(|feature| feature.name.to_owned()).collect(),
            deployments: self.deployments.clone(),
        }
    }
}

/// What a reader of a state with this policy and these deployments must know; sorted by name.
pub fn features<'a>(
    policy: &DevicePolicy,
    deployments: impl Iterator<Item = &'a EnvelopeDeployment> + Clone,
) -> Vec<Feature> {
    let uses = |test: fn(&DeploymentPolicy) -> bool| deployments.clone().any(|one| test(&one.policy));
    let suspended = policy.suspended || uses(|policy| policy.suspended);
    let dependent = uses(|policy| !policy.depends_on.is_empty());
    let drifting = uses(|policy| !policy.drift.is_heal());
    let ignoring = uses(|policy| !policy.drift_ignore.is_empty());
    let windows = policy.windows.is_some() || uses(|policy| policy.windows.is_some());
    let mut values = deployments.clone().flat_map(|one| one.values_from.values());
    let encrypted = values.any(|from| from.encrypted().is_some());
    let asks = |said: Option<ApprovalPolicy>| said.is_some_and(|word| word != ApprovalPolicy::None);
    let approval = asks(policy.approval) || deployments.clone().any(|one| asks(one.policy.approval));
    let all = [
        approval.then_some(APPROVAL),
        dependent.then_some(DEPENDS_ON),
        drifting.then_some(DRIFT),
        ignoring.then_some(DRIFT_IGNORE),
        encrypted.then_some(ENCRYPTED_VALUES),
        suspended.then_some(SUSPENDED),
        windows.then_some(WINDOWS),
    ];
    all.into_iter().flatten().collect()
}

/// Compares what a device shall run with the verified tip of its `desired`.
pub fn plan(rendered: &Rendered, parent: Option<&Desired>, trust: &FileTree, broken: &Broken) -> DevicePlan {
    let none = BTreeMap::new();
    let before = parent.map_or(&none, |parent| &parent.deployments);
    let mut draft = Draft { kept: rendered.left.keys().cloned().collect(), ..Draft::default() };
    for (id, wanted) in &rendered.deployments {
        draft.wanted(*id, wanted, Present::of(parent, *id));
    }
    for id in before.keys().filter(|id| !rendered.deployments.contains_key(id)) {
        // A verified tip always has both.
        let present = Present::of(parent, *id);
        present.into_iter().for_each(|present| draft.unwanted(*id, present, rendered, broken));
    }
    let status_keys = keep_order(&rendered.status_keys, parent);
    let new_manifest =
        parent.is_none_or(|_| !before.iter().map(|(id, document)| (id, &document.bytes)).eq(draft.documents.iter()));
    draft.changes.sort_by(|a, b| a.name.cmp(&b.name));
    draft.held.sort_by(|a, b| a.name.cmp(&b.name));
    replacements(&mut draft, rendered, parent);
    DevicePlan {
        device: rendered.device.clone(),
        serial: parent.map(|parent| parent.envelope.serial),
        lags_behind: None,
        present: before.len(),
        settings: parent.map_or_else(Vec::new, |parent| difference::of_settings(rendered, trust, parent)),
        changes: draft.changes,
        held: draft.held,
        kept: draft.kept,
        wrong: rendered.wrong(),
        by_capabilities: rendered.by_capabilities.clone(),
        target: Target {
            documents: draft.documents,
            deployments: draft.deployments,
            policy: rendered.policy.clone(),
            status_keys,
            retired: rendered.retired.is_some(),
            new_manifest,
        },
    }
}

/// Finds what comes in the place of what goes: the same application with a component of the same name.
fn replacements(Draft { changes, held, .. }: &mut Draft, rendered: &Rendered, parent: Option<&Desired>) {
    let Some(parent) = parent else { return };
    let all = changes.iter().chain(held.iter());
    let gone: Vec<_> = all.filter(|one| one.kind == ChangeKind::Remove).cloned().collect();
    let mut taken = BTreeSet::new();
    for change in changes.iter_mut().chain(held).filter(|one| one.kind == ChangeKind::Add) {
        let Some(new) = rendered.deployments.get(&change.id).map(|one| &one.document) else { continue };
        let old = gone.iter().find(|old| {
            !taken.contains(&old.name)
                && parent.deployments.get(&old.id).is_some_and(|old| {
                    let shares = |one: &Component| new.components.iter().any(|other| other.name == one.name);
                    old.deployment.application_id == new.application_id && old.deployment.components.iter().any(shares)
                })
        });
        change.replaces = old.map(|old| old.name.clone());
        taken.extend(change.replaces.clone());
    }
}

/// What the tip holds of one deployment.
#[derive(Clone, Copy)]
struct Present<'a> {
    document: &'a Document,
    envelope: &'a EnvelopeDeployment,
}

impl<'a> Present<'a> {
    fn of(parent: Option<&'a Desired>, id: DeploymentId) -> Option<Self> {
        let parent = parent?;
        Some(Self { document: parent.deployments.get(&id)?, envelope: parent.envelope.deployments.get(&id)? })
    }
}

#[derive(Default)]
struct Draft {
    changes: Vec<Change>,
    held: Vec<Change>,
    kept: BTreeSet<DeploymentName>,
    documents: BTreeMap<DeploymentId, Vec<u8>>,
    deployments: BTreeMap<DeploymentId, EnvelopeDeployment>,
}

impl Draft {
    fn wanted(&mut self, id: DeploymentId, wanted: &RenderedDeployment, present: Option<Present<'_>>) {
        let same_document = present.is_some_and(|one| one.document.deployment.same_meaning(&wanted.document));
        let same = same_document && present.is_some_and(|one| *one.envelope == wanted.envelope);
        if !same {
            let suspended = wanted.envelope.policy.suspended;
            let alike = present.filter(|_| wanted.held).map(|one| suspended_as(one.envelope, suspended));
            // Whether it is suspended comes at once.
            let is_held = wanted.held && !(same_document && alike.as_ref() == Some(&wanted.envelope));
            let alike = alike.filter(|_| is_held);
            let before = present.map(|one| (&one.document.deployment, alike.as_ref().unwrap_or(one.envelope)));
            let differences = difference::of_deployment(wanted, before);
            let kind = if present.is_some() { ChangeKind::Change } else { ChangeKind::Add };
            let (name, unresolved) = (wanted.envelope.id.clone(), wanted.unresolved.clone());
            let is_unresolved = !unresolved.is_empty();
            let change = Change { unresolved, ..Change::new(kind, &name, id, differences) };
            if is_held {
                self.held.push(change);
            } else {
                self.changes.push(change);
                self.kept.extend(is_unresolved.then_some(name));
            }
            if is_held || is_unresolved {
                return present.into_iter().for_each(|one| self.keep(id, one, Some(suspended)));
            }
        }
        let bytes = match present {
            Some(present) if same_document => present.document.bytes.clone(),
            _ => wanted.document.to_yaml(),
        };
        self.put(id, bytes, &wanted.envelope);
    }

    fn unwanted(&mut self, id: DeploymentId, present: Present<'_>, rendered: &Rendered, broken: &Broken) {
        let name = &present.envelope.id;
        let left = rendered.left.get(name);
        match rendered.retired {
            Some(Retired::KeepWorkloads) => return self.keep(id, present, None),
            // A person said so, whatever files that can't be read would say.
            Some(_) => return self.changes.push(Change::new(ChangeKind::Remove, name, id, Vec::new())),
            None => {}
        }
        if left.is_some() || broken.keeps(name) {
            self.kept.insert(name.clone());
            return self.keep(id, present, left.and_then(|left| left.suspended));
        }
        if rendered.stay.contains(name) {
            self.held.push(Change::new(ChangeKind::Remove, name, id, Vec::new()));
            return self.keep(id, present, None);
        }
        self.changes.push(Change::new(ChangeKind::Remove, name, id, Vec::new()));
    }

    /// What is there stays, but for whether it is suspended: that is no part of what can't be rendered.
    fn keep(&mut self, id: DeploymentId, present: Present<'_>, suspended: Option<bool>) {
        let envelope = suspended_as(present.envelope, suspended.unwrap_or(present.envelope.policy.suspended));
        let difference = difference::of_suspension(&present.envelope.policy, &envelope.policy);
        self.changes.extend(difference.map(|one| Change::new(ChangeKind::Change, &envelope.id, id, vec![one])));
        self.put(id, present.document.bytes.clone(), &envelope);
    }

    fn put(&mut self, id: DeploymentId, bytes: Vec<u8>, envelope: &EnvelopeDeployment) {
        self.documents.insert(id, bytes);
        self.deployments.insert(id, envelope.clone());
    }
}

/// The same, suspended or not.
fn suspended_as(envelope: &EnvelopeDeployment, suspended: bool) -> EnvelopeDeployment {
    let mut envelope = envelope.clone();
    envelope.policy.suspended = suspended;
    envelope
}

/// The keys in the parent's order if they are the same ones: their order means nothing.
fn keep_order(keys: &[KeyText], parent: Option<&Desired>) -> Vec<KeyText> {
    let before = parent.map_or(&[][..], |parent| &parent.envelope.device.status_keys);
    if difference::same_keys(keys, before) { before.to_vec() } else { keys.to_vec() }
}

/// The digests of a roster's files as an envelope lists them.
fn trust_files(trust: &FileTree) -> BTreeMap<&str, Digest> {
    trust.iter().map(|(path, bytes)| (path.as_str(), Digest::of(bytes))).collect()
}
