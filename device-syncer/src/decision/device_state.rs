//! The device state, `refs/syncer/state`, one commit whose tree is everything that was accepted, applied, begun
//! and given up. Its parents, the accepted `desired` commit and the tip of the local `status`, keep what it needs.
//!
//! The ref moves atomically and alone decides; the local `status` branch is derived from it.

mod attempts;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use repo_git::CommitId;
use repo_model::clock::SKEW;
use repo_model::desired::Desired;
use repo_model::envelope::DriftPolicy;
use repo_model::freshness::LIFE;
use repo_model::margo::ProfileType;
use repo_model::report::{Condition, IMAGES, LockedImage, LockedImages};
use repo_model::{
    Branch, ComponentName, DeploymentId, DeploymentName, Digest, ErrorCode, FileTree, IntoMap, IntoSet, json,
};
use serde::{Deserialize, Serialize};

use crate::decision::approval::KnownNames;
use crate::decision::ask::Asked;
use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::failure::Failure;
use crate::decision::hold::Clocks;
use crate::decision::observation::Observed;
use crate::decision::removed::Removed;
use crate::decision::restart::Restarts;
use crate::decision::sets::{GoodSet, Rollback};

pub use attempts::Attempt;

/// The ref that holds the device state.
pub const STATE: &str = "refs/syncer/state";

/// The local copy of the branch that the device writes.
pub const STATUS: &str = Branch::Status.ref_name();

const ACCEPTED: &str = "accepted.json";
const ASKED: &str = "asked.json";
const ROSTER: &str = "roster.json";
const ATTEMPTS: &str = "attempt.json";
const FAILED_INPUTS: &str = "bad.json";
const ROLLBACKS: &str = "rollbacks.json";
const WHOLE: &str = "whole.json";
const RESTARTS: &str = "restarts.json";
const FROM_FLEET: &str = "from-fleet.json";
const REMOVED: &str = "removed.json";
const WAITING: &str = "waiting.json";
const DAMAGED: &str = "damaged.json";

/// Below a deployment's directory: its last good document, and what else is known of that set.
const GOOD_DOCUMENT: &str = "/last-good/deployment.yaml";
const GOOD_SET: &str = "/last-good/set.json";

/// Everything that a pass needs to know of the ones before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceState {
    /// The desired state in force; `None` before the first.
    pub accepted: Option<Accepted>,
    /// Exact bytes of the newest roster that was believed; empty before the first.
    pub roster: Vec<u8>,
    /// What was put onto the device and not removed since.
    pub deployments: BTreeMap<DeploymentId, Applied>,
    /// Applies that didn't succeed so far, by project.
    pub attempts: BTreeMap<String, Attempt>,
    /// Inputs that are not tried again, by project.
    pub failed_inputs: BTreeMap<String, FailedInput>,
    /// What ran well for long enough, of deployments that are rolled back.
    pub good_sets: BTreeMap<DeploymentId, GoodSet>,
    /// The sets that are wanted and failed, of such deployments.
    pub rollbacks: BTreeMap<DeploymentId, Rollback>,
    /// During which boot all of what was applied was seen there last, by project; absent where it drifted since.
    pub whole: BTreeMap<String, String>,
    /// The restarts that began, by project; absent where none ever did.
    pub restarts: BTreeMap<String, Restarts>,
    /// What went of late and nobody had seen before, where the site limits that.
    pub removed: BTreeMap<DeploymentId, Removed>,
    /// What the fleet asked for last; `None` before the first state.
    pub asked: Option<Asked>,
    /// What counted last of what the fleet says of the site's policy: what was denied before may be allowed when it changes.
    pub from_fleet: BTreeMap<String, serde_json::Value>,
    /// What this device locked itself, by project.
    pub images: BTreeMap<String, FirstUse>,
    /// Why nothing new is adopted, applied or reported. It isn't reported either: only this device shows it.
    pub waiting: Option<Condition>,
    /// Why the clone was made anew; `None` once something newer was adopted since.
    pub damaged: Option<Damaged>,
    /// The tree of the local `status`.
    pub status: FileTree,
}

/// What could not be read of a clone that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damaged {
    pub since: Timestamp,
    /// The first thing that can't be read, and why.
    pub what: String,
}

/// The desired state in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The commit on `desired`, 40 hex digits.
    pub commit: String,
    pub serial: u64,
    /// Margo's `manifestVersion`, which rises with the serial.
    pub manifest_version: u64,
    /// SHA-256 of that commit's `envelope.json`: what `Continues` names after a restore of the host.
    pub envelope: Digest,
    /// The roster version that it was judged by.
    pub trust: u64,
    /// When it was put in force.
    pub since: Timestamp,
    /// Until when the publisher's newest proof of freshness holds; absent if there was none for this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_until: Option<Timestamp>,
    /// Until when the newest proof for the state before holds, which counts while there is none for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_before: Option<Timestamp>,
    /// Its descent from what was accepted before couldn't be shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
}

impl Accepted {
    /// `commit` as an id; `None` if it isn't one.
    pub fn id(&self) -> Option<CommitId> {
        self.commit.parse().ok()
    }

    /// Whether there is no proof of freshness that still holds. An adoption alone is none, or a host could feed one old
    /// state after the other unseen. What lasts longer than any proof can was noted by a wrong clock, and is none either.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        !self.fresh_until.or(self.fresh_before).is_some_and(|until| counts(until, now))
    }

    /// How long the newest proof of freshness still holds, if there is one that does.
    pub fn fresh_for(&self, now: Timestamp) -> Option<SignedDuration> {
        self.fresh_until.filter(|until| counts(*until, now)).map(|until| until.duration_since(now))
    }

    /// Takes another proof that is believed.
    pub fn renew(&mut self, expires: Timestamp, now: Timestamp) {
        let known = self.fresh_until.filter(|until| counts(*until, now));
        self.fresh_until = known.max(Some(expires));
    }
}

/// Whether a proof of freshness that ends then holds now.
fn counts(until: Timestamp, now: Timestamp) -> bool {
    now <= until && until.duration_since(now) <= LIFE + SKEW
}

/// A deployment's inputs as they were applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The bytes of its ApplicationDeployment, as they were signed.
    pub document: Vec<u8>,
    /// What became of it on this device.
    pub inputs: Inputs,
}

/// `inputs.json` in the tree of `refs/syncer/state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// The operator's id of the deployment.
    pub id: DeploymentName,
    /// Other names under which it was wanted here since: what a site says of one of them counts for it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub known_as: BTreeSet<DeploymentName>,
    /// What it waits for, and goes before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DeploymentName>,
    /// Whether the operator wants it left as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// What is done where it doesn't run as it was applied.
    #[serde(default, skip_serializing_if = "DriftPolicy::is_heal")]
    pub drift: DriftPolicy,
    /// The set whose apply began last: what of it isn't there yet is brought to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Digest>,
    /// The same by what the fleet says of it: nobody is asked again where only files of the device changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_set: Option<Digest>,
    /// Whether that began with files of the device alone, so that nobody was asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
    /// Whether that came to its end by a failure that was told: to try it again is a change like any other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// Its components in the order in which they were applied.
    pub components: Vec<AppliedComponent>,
}

/// So many other names of a deployment are kept.
const MAX_NAMES: usize = 16;

impl Inputs {
    /// All names under which this device knows it.
    pub fn names(&self) -> impl Iterator<Item = &DeploymentName> {
        std::iter::once(&self.id).chain(&self.known_as)
    }

    fn is_wanted_as(&mut self, name: &DeploymentName) {
        if self.id != *name && self.known_as.len() < MAX_NAMES {
            self.known_as.insert(name.clone());
        }
    }
}

/// A component that was put there, in whole or in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedComponent {
    pub name: ComponentName,
    /// The name under which the runtime knows it.
    pub project: String,
    #[serde(rename = "type", default = "compose", skip_serializing_if = "is_compose")]
    pub kind: ProfileType,
    /// What was applied; absent while an apply is under way or after it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<Digest>,
}

fn compose() -> ProfileType {
    ProfileType::Compose
}

fn is_compose(kind: &ProfileType) -> bool {
    *kind == compose()
}

/// An input that can't succeed on this device as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedInput {
    pub input_digest: Digest,
    /// Why it can't succeed; stands in `status`.
    pub failure: Failure,
}

/// The images that nobody else had locked when they were first used for an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstUse {
    /// What they were locked for: another input locks anew.
    pub input_digest: Digest,
    /// Under which `status` reports the images (`images.json`).
    pub deployment: DeploymentId,
    pub component: ComponentName,
    /// By service of the compose file.
    pub services: BTreeMap<String, LockedImage>,
}

/// Why the device state can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DeviceStateError {
    /// A file of the state tree isn't what this program writes.
    #[error("`{path}` in `{STATE}` can't be read: {problem}")]
    Damaged { path: String, problem: String },
}

impl DeviceState {
    /// The version of the accepted manifest; 0 before the first.
    pub fn adopted_version(&self) -> u64 {
        self.accepted.as_ref().map_or(0, |accepted| accepted.manifest_version)
    }

    /// The input digest that was last applied under this name, if its apply completed.
    pub fn applied_digest(&self, project: &str) -> Option<Digest> {
        self.applied_components().find(|(_, _, component)| component.project == project)?.2.input_digest
    }

    /// What runs, or ran last, what was applied under this name.
    pub fn applied_kind(&self, project: &str) -> Option<ProfileType> {
        Some(self.applied_components().find(|(_, _, component)| component.project == project)?.2.kind)
    }

    /// The operator's id of a deployment, or what the device calls it.
    pub fn name_of(&self, id: DeploymentId, desired: Option<&Desired>) -> String {
        let wanted = desired.and_then(|desired| desired.envelope.deployments.get(&id)).map(|one| &one.id);
        let name = wanted.or(self.deployments.get(&id).map(|applied| &applied.inputs.id));
        name.map_or_else(|| id.to_string(), |name| name.to_string())
    }

    /// The names under which each deployment is known here.
    pub fn names(&self) -> KnownNames {
        let all = self.deployments.iter().map(|(id, applied)| (*id, applied.inputs.names().cloned().into_set()));
        KnownNames(all.into_map())
    }

    pub(super) fn applied_components(&self) -> impl Iterator<Item = (DeploymentId, &Inputs, &AppliedComponent)> {
        self.deployments.iter().flat_map(|(id, applied)| {
            applied.inputs.components.iter().map(move |component| (*id, &applied.inputs, component))
        })
    }

    /// Notes what was, or is about to be, put onto the device. Until an apply is complete its digest is absent.
    pub fn note(&mut self, wanted: &DesiredDeployment, component: AppliedComponent) {
        let inputs = Inputs {
            id: wanted.name.clone(),
            known_as: BTreeSet::new(),
            depends_on: Vec::new(),
            suspended: wanted.suspended,
            drift: wanted.drift,
            begun: None,
            fleet_set: None,
            renews: false,
            ended: false,
            components: Vec::new(),
        };
        let applied = self.deployments.entry(wanted.id).or_insert(Applied { document: Vec::new(), inputs });
        applied.document.clone_from(&wanted.document);
        applied.inputs.is_wanted_as(&wanted.name);
        applied.inputs.depends_on.clone_from(&wanted.depends_on);
        let (project, is_changing) = (component.project.clone(), component.input_digest.is_none());
        let is_compose = component.kind == ProfileType::Compose;
        let known = applied.inputs.components.iter_mut().find(|known| known.project == project);
        let is_new = known.as_ref().is_none_or(|known| known.kind != component.kind);
        match known {
            Some(known) => *known = component,
            None => applied.inputs.components.push(component),
        }
        if is_new {
            self.restarts.remove(&project);
        }
        if is_new && is_compose {
            self.has_just_started(&project, wanted.restarts);
        }
        match is_changing {
            true => self.end_restart(&project),
            false => self.has_restarted(&project),
        }
    }

    /// Notes that an apply of this deployment begins; something of it was noted before.
    pub fn note_begun(&mut self, wanted: &DesiredDeployment) {
        if let Some(Applied { inputs, .. }) = self.deployments.get_mut(&wanted.id) {
            let (set, fleet_set) = (Some(wanted.set()), Some(wanted.fleet_set()));
            if inputs.begun != set {
                inputs.renews = inputs.fleet_set == fleet_set;
            }
            (inputs.begun, inputs.fleet_set, inputs.ended) = (set, fleet_set, false);
        }
    }

    /// Notes that a deployment is removed: what began of it is nothing that goes on if it is wanted again before all of it is gone.
    pub fn note_going(&mut self, id: DeploymentId) {
        if let Some(Applied { inputs, .. }) = self.deployments.get_mut(&id) {
            (inputs.begun, inputs.fleet_set) = (None, None);
        }
    }

    /// Notes that what began came to its end by a failure that is told.
    pub fn note_ended(&mut self, wanted: &DesiredDeployment) {
        let applied = self.deployments.get_mut(&wanted.id);
        if let Some(applied) = applied.filter(|applied| applied.inputs.begun == Some(wanted.set())) {
            applied.inputs.ended = true;
        }
    }

    /// Whether this is what was applied last, but for what files of the device hold. What failed for good differs by what it
    /// differed by when it began.
    pub fn differs_by_files_only(&self, wanted: &DesiredDeployment) -> bool {
        self.deployments.get(&wanted.id).is_some_and(|Applied { inputs, .. }| {
            let is_over = inputs.ended && inputs.begun == Some(wanted.set());
            inputs.fleet_set == Some(wanted.fleet_set()) && (inputs.renews || !is_over)
        })
    }

    /// Whether an apply of just this began and goes on. While what failed for good stands, nothing behind it is applied.
    pub fn has_begun(&self, wanted: &DesiredDeployment) -> bool {
        self.deployments.get(&wanted.id).is_some_and(|Applied { inputs, .. }| {
            inputs.begun == Some(wanted.set()) && (!inputs.ended || self.set_failure(wanted).is_some())
        })
    }

    /// Remembers what the operator wants left as it is, `all` or single deployments, and what is done about drift.
    pub fn note_policy(&mut self, wanted: &[DesiredDeployment], all: bool) {
        for one in wanted {
            if let Some(applied) = self.deployments.get_mut(&one.id) {
                applied.inputs.suspended = all || one.suspended;
                applied.inputs.drift = one.drift;
            }
        }
    }

    /// Remembers what counts of what the fleet says of the site's policy and of mirrors. Where that is something else than before, what
    /// the policy denied is tried again, and what a registry had with other bytes.
    pub fn note_policy_of_fleet(&mut self, said: impl Iterator<Item = (String, serde_json::Value)>) {
        let said = said.into_map();
        if self.from_fleet != said {
            let tried_again = [ErrorCode::PolicyDenied, ErrorCode::ArtifactDigestChanged];
            self.failed_inputs.retain(|_, failed| tried_again.iter().all(|code| failed.failure.code != *code));
            self.from_fleet = said;
        }
    }

    /// Forgets a component that was removed, and its deployment with the last one.
    pub fn forget(&mut self, project: &str) {
        self.restarts.remove(project);
        for applied in self.deployments.values_mut() {
            applied.inputs.components.retain(|component| component.project != project);
        }
        self.deployments.retain(|_, applied| !applied.inputs.components.is_empty());
    }

    /// Why this input isn't tried again, if it isn't.
    pub fn failure(&self, input: &Component) -> Option<&Failure> {
        let bad = self.failed_inputs.get(&input.project)?;
        (bad.input_digest == input.input_digest).then_some(&bad.failure)
    }

    /// Takes over what was found out about the desired state, and nothing of what is done for it meanwhile.
    pub fn believe(&mut self, found: &Self) {
        self.accepted.clone_from(&found.accepted);
        self.roster.clone_from(&found.roster);
        self.waiting.clone_from(&found.waiting);
        self.damaged.clone_from(&found.damaged);
    }

    /// Keeps what the images of an input are.
    pub fn lock_images(&mut self, input: &Component, services: BTreeMap<String, LockedImage>) {
        if services.is_empty() {
            return;
        }
        let (deployment, component, input_digest) = (input.deployment, input.component.clone(), input.input_digest);
        let new = FirstUse { input_digest, deployment, component, services: BTreeMap::new() };
        let known = self.images.remove(&input.project).filter(|known| known.input_digest == input_digest);
        let mut known = known.unwrap_or(new);
        known.services.extend(services);
        self.images.insert(input.project.clone(), known);
    }

    /// Takes the locks of what runs from `status`, where a clone that was lost no longer has them.
    pub fn recover_images(&mut self, wanted: &[DesiredDeployment], found: &[Observed]) {
        let recorded = self.status.get(IMAGES).and_then(|bytes| serde_json::from_slice::<LockedImages>(bytes).ok());
        let Some(recorded) = recorded else { return };
        let runs = |input: &Component| {
            let is_it = |one: &Observed| one.project == input.project && one.input_digest == Some(input.input_digest);
            found.iter().any(is_it)
        };
        let inputs = wanted.iter().flat_map(|wanted| &wanted.components).filter_map(|one| one.input.as_ref().ok());
        for input in inputs.filter(|input| runs(input)) {
            let services = recorded.get(&input.deployment).and_then(|all| all.get(&input.component));
            if let Some(services) = services.filter(|_| !self.images.contains_key(&input.project)) {
                self.lock_images(input, services.clone());
            }
        }
    }

    /// Adds to what is wanted the images that this device locked itself.
    pub fn with_images(&self, wanted: &mut [DesiredDeployment]) {
        let inputs = wanted.iter_mut().flat_map(|wanted| &mut wanted.components);
        for input in inputs.filter_map(|component| component.input.as_mut().ok()) {
            let known = self.images.get(&input.project).filter(|known| known.input_digest == input.input_digest);
            let locked = known.iter().flat_map(|known| &known.services);
            input.images.first_use = locked.map(|(service, image)| (service.clone(), image.digest)).into_map();
        }
    }

    /// Puts the images that this device locked itself into its `status`.
    pub fn report_images(&mut self) {
        let mut all = LockedImages::new();
        for one in self.images.values() {
            all.entry(one.deployment).or_default().insert(one.component.clone(), one.services.clone());
        }
        match all.is_empty() {
            true => _ = self.status.remove(IMAGES),
            false => _ = self.status.insert(IMAGES.to_owned(), json::to_bytes(&all)),
        }
    }

    /// The deployments whose removal counts still.
    pub fn recently_removed(&self, clocks: &Clocks) -> BTreeSet<DeploymentId> {
        self.removed.iter().filter(|(_, removed)| removed.counts(clocks)).map(|(id, _)| *id).into_set()
    }

    /// Notes what goes and nobody has seen, and forgets what counts no more.
    pub fn note_removed(&mut self, unseen: &BTreeSet<DeploymentId>, clocks: &Clocks) {
        self.removed.retain(|_, removed| removed.counts(clocks));
        for id in unseen {
            if !self.removed.get(id).is_some_and(|known| known.is_new(clocks)) {
                self.removed.insert(*id, Removed::at(clocks));
            }
        }
    }

    /// Forgets attempts at, failures and images of inputs that are no longer wanted, and learns the order of what is.
    pub fn keep_only(&mut self, wanted: &[DesiredDeployment]) {
        for wanted in wanted {
            if let Some(applied) = self.deployments.get_mut(&wanted.id) {
                applied.inputs.depends_on.clone_from(&wanted.depends_on);
            }
        }
        let inputs = wanted.iter().flat_map(|wanted| &wanted.components).filter_map(|one| one.input.as_ref().ok());
        // An input that can't be known now, because a file of the device is missing, may come back as it was.
        let unknown = wanted.iter().flat_map(|wanted| &wanted.components).filter(|one| one.input.is_err());
        let unknown = unknown.map(|one| one.project.as_str()).into_set();
        let inputs = inputs.map(|input| (input.project.as_str(), input.input_digest)).into_set();
        self.failed_inputs.retain(|project, bad| inputs.contains(&(project.as_str(), bad.input_digest)));
        self.images.retain(|project, known| {
            unknown.contains(project.as_str()) || inputs.contains(&(project.as_str(), known.input_digest))
        });
        self.attempts.retain(|project, attempt| inputs.contains(&(project.as_str(), attempt.input_digest)));
    }

    /// The tree of `refs/syncer/state`, without `status`, which is a parent.
    pub fn to_tree(&self) -> FileTree {
        let mut tree = FileTree::new();
        if let Some(accepted) = &self.accepted {
            tree.insert(ACCEPTED.to_owned(), json::to_bytes(accepted));
        }
        if !self.roster.is_empty() {
            tree.insert(ROSTER.to_owned(), self.roster.clone());
        }
        if !self.attempts.is_empty() {
            tree.insert(ATTEMPTS.to_owned(), json::to_bytes(&self.attempts));
        }
        if !self.failed_inputs.is_empty() {
            tree.insert(FAILED_INPUTS.to_owned(), json::to_bytes(&self.failed_inputs));
        }
        if !self.images.is_empty() {
            tree.insert(IMAGES.to_owned(), json::to_bytes(&self.images));
        }
        if !self.rollbacks.is_empty() {
            tree.insert(ROLLBACKS.to_owned(), json::to_bytes(&self.rollbacks));
        }
        if !self.whole.is_empty() {
            tree.insert(WHOLE.to_owned(), json::to_bytes(&self.whole));
        }
        if !self.restarts.is_empty() {
            tree.insert(RESTARTS.to_owned(), json::to_bytes(&self.restarts));
        }
        if !self.from_fleet.is_empty() {
            tree.insert(FROM_FLEET.to_owned(), json::to_bytes(&self.from_fleet));
        }
        if !self.removed.is_empty() {
            tree.insert(REMOVED.to_owned(), json::to_bytes(&self.removed));
        }
        if let Some(asked) = &self.asked {
            tree.insert(ASKED.to_owned(), json::to_bytes(asked));
        }
        if let Some(waiting) = &self.waiting {
            tree.insert(WAITING.to_owned(), json::to_bytes(waiting));
        }
        if let Some(damaged) = &self.damaged {
            tree.insert(DAMAGED.to_owned(), json::to_bytes(damaged));
        }
        for (id, applied) in &self.deployments {
            tree.insert(format!("deployments/{id}/applied/deployment.yaml"), applied.document.clone());
            tree.insert(format!("deployments/{id}/applied/inputs.json"), json::to_bytes(&applied.inputs));
        }
        for (id, good) in &self.good_sets {
            tree.insert(format!("deployments/{id}{GOOD_DOCUMENT}"), good.document.clone());
            tree.insert(format!("deployments/{id}{GOOD_SET}"), json::to_bytes(&good.inputs));
        }
        tree
    }

    /// Reads what [`DeviceState::to_tree`] wrote; `status` stays empty.
    pub fn of_tree(tree: &FileTree) -> Result<Self, DeviceStateError> {
        let mut device_state = Self {
            accepted: read(tree, ACCEPTED)?,
            roster: tree.get(ROSTER).cloned().unwrap_or_default(),
            attempts: read(tree, ATTEMPTS)?.unwrap_or_default(),
            failed_inputs: read(tree, FAILED_INPUTS)?.unwrap_or_default(),
            images: read(tree, IMAGES)?.unwrap_or_default(),
            rollbacks: read(tree, ROLLBACKS)?.unwrap_or_default(),
            whole: read(tree, WHOLE)?.unwrap_or_default(),
            restarts: read(tree, RESTARTS)?.unwrap_or_default(),
            asked: read(tree, ASKED)?,
            removed: read(tree, REMOVED)?.unwrap_or_default(),
            from_fleet: read(tree, FROM_FLEET)?.unwrap_or_default(),
            waiting: read(tree, WAITING)?,
            damaged: read(tree, DAMAGED)?,
            ..Self::default()
        };
        for path in tree.keys().filter(|path| path.ends_with("/inputs.json")) {
            device_state.remember(tree, path)?;
        }
        for path in tree.keys().filter(|path| path.ends_with(GOOD_SET)) {
            device_state.remember_good(tree, path)?;
        }
        Ok(device_state)
    }

    /// Reads what is left of such a tree: a file that isn't there, or isn't what this program writes, is as if nothing had
    /// been written.
    pub fn of_remains(mut tree: FileTree) -> Self {
        // What runs is known without the document that it was made from.
        let inputs: Vec<_> =
            tree.keys().filter_map(|path| path.strip_suffix("inputs.json").map(str::to_owned)).collect();
        for directory in inputs {
            tree.entry(directory + "deployment.yaml").or_default();
        }
        loop {
            match Self::of_tree(&tree) {
                Ok(device_state) => return device_state,
                Err(DeviceStateError::Damaged { path, .. }) => _ = tree.remove(&path),
            }
        }
    }

    fn remember_good(&mut self, tree: &FileTree, path: &str) -> Result<(), DeviceStateError> {
        let damaged = |problem: &str| DeviceStateError::Damaged { path: path.to_owned(), problem: problem.to_owned() };
        let id = path.strip_prefix("deployments/").and_then(|rest| rest.strip_suffix(GOOD_SET));
        let id: DeploymentId = id.and_then(|id| id.parse().ok()).ok_or_else(|| damaged("unexpected path"))?;
        let document = tree.get(&format!("deployments/{id}{GOOD_DOCUMENT}"));
        let document = document.ok_or_else(|| damaged("no deployment.yaml beside it"))?.clone();
        let inputs = read(tree, path)?.ok_or_else(|| damaged("missing"))?;
        self.good_sets.insert(id, GoodSet { document, inputs });
        Ok(())
    }

    fn remember(&mut self, tree: &FileTree, path: &str) -> Result<(), DeviceStateError> {
        let damaged = |problem: &str| DeviceStateError::Damaged { path: path.to_owned(), problem: problem.to_owned() };
        let id = path.strip_prefix("deployments/").and_then(|rest| rest.strip_suffix("/applied/inputs.json"));
        let id: DeploymentId = id.and_then(|id| id.parse().ok()).ok_or_else(|| damaged("unexpected path"))?;
        let document = tree.get(&format!("deployments/{id}/applied/deployment.yaml"));
        let document = document.ok_or_else(|| damaged("no deployment.yaml beside it"))?.clone();
        let inputs = read(tree, path)?.ok_or_else(|| damaged("missing"))?;
        self.deployments.insert(id, Applied { document, inputs });
        Ok(())
    }
}

fn read<T: for<'a> Deserialize<'a>>(tree: &FileTree, path: &str) -> Result<Option<T>, DeviceStateError> {
    let parse = |bytes: &Vec<u8>| {
        serde_json::from_slice(bytes)
            .map_err(|error| DeviceStateError::Damaged { path: path.to_owned(), problem: error.to_string() })
    };
    tree.get(path).map(parse).transpose()
}

#[cfg(test)]
mod tests;
