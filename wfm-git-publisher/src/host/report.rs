//! What a device says of itself, believed only as far as its signatures reach.

use std::collections::{BTreeMap, BTreeSet};

use repo_git::{Ancestry, Commit, CommitId};
use repo_model::margo::{DeploymentStatus, DeviceCapabilities};
use repo_model::message::Message;
use repo_model::report::{Adopted, CAPABILITIES, CURRENT_STATE, CurrentState, SYNCER, SyncerReport};
use repo_model::{DeploymentId, FileTree, KeyText, error_chain};

use super::device::{DeviceRepo, DeviceRepoError, Tip};
use super::rosters::key_text;

/// Something that a device said.
#[derive(Debug, Clone, PartialEq)]
pub enum Checked<T> {
    /// It said nothing yet.
    Absent,
    /// An allowed key signed it.
    Verified(T),
    /// It can't be believed, and why.
    Unverified(String),
}

/// What a device said on both of its branches.
#[derive(Debug, Clone, PartialEq)]
pub struct Reports {
    /// The tip of `status`.
    pub status: Checked<Status>,
    /// The tip of `heartbeat`.
    pub heartbeat: Checked<Heartbeat>,
}

/// What `status` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The commit.
    pub commit: CommitId,
    /// When the device made it, in Unix seconds, by its own clock.
    pub time: i64,
    /// What the syncer says of itself.
    pub syncer: SyncerReport,
    /// What it has and can run, or why that can't be read; absent if it doesn't say.
    pub capabilities: Option<Result<DeviceCapabilities, String>>,
    /// What it says of each deployment.
    pub deployments: BTreeMap<DeploymentId, DeploymentStatus>,
    /// What is doubtful about it although the signature is good.
    pub notes: Vec<String>,
}

/// What `heartbeat` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Heartbeat {
    /// What runs.
    pub state: CurrentState,
}

impl<T> Checked<T> {
    /// The value, if it can be believed.
    pub fn verified(&self) -> Option<&T> {
        match self {
            Self::Verified(value) => Some(value),
            _ => None,
        }
    }

    fn of(read: Result<Option<T>, String>) -> Self {
        match read {
            Ok(Some(value)) => Self::Verified(value),
            Ok(None) => Self::Absent,
            Err(reason) => Self::Unverified(reason),
        }
    }
}

impl DeviceRepo {
    /// What the device verifiably says on `status`; anything else is as good as nothing.
    pub fn verified_status(
        &self,
        tip: Option<&Tip>,
        enrolled: &[KeyText],
        publishers: &BTreeSet<KeyText>,
    ) -> Option<Status> {
        let current = current_keys(tip, enrolled);
        self.status(tip, &current, publishers, &mut BTreeSet::new()).ok()?
    }

    /// What the device verifiably says that it adopted.
    pub fn adopted(&self, tip: Option<&Tip>, enrolled: &[KeyText], publishers: &BTreeSet<KeyText>) -> Option<Adopted> {
        self.verified_status(tip, enrolled, publishers)?.syncer.adopted
    }

    /// Reads both branches. `enrolled` are the fleet's keys for the device, for as long as no `desired` lists any.
    pub fn reports(&self, tip: Option<&Tip>, enrolled: &[KeyText], publishers: &BTreeSet<KeyText>) -> Reports {
        let current = current_keys(tip, enrolled);
        let mut judged = current.clone();
        let status = Checked::of(self.status(tip, &current, publishers, &mut judged));
        let heartbeat = Checked::of(self.heartbeat(&judged));
        Reports { status, heartbeat }
    }

    /// The tip of `status`, judged by the `desired` commit that it names. The keys that it was judged by are added to
    /// `judged`.
    fn status(
        &self,
        tip: Option<&Tip>,
        current: &BTreeSet<KeyText>,
        publishers: &BTreeSet<KeyText>,
        judged: &mut BTreeSet<KeyText>,
    ) -> Result<Option<Status>, String> {
        let Some((commit, message)) = self.report("status")? else { return Ok(None) };
        let mut notes = Vec::new();
        let named = message.get("Desired-Commit").and_then(|id| id.parse().ok());
        let keys = match self.keys_at(named, tip, publishers).map_err(|error| error_chain(&error))? {
            Some(keys) => keys,
            None => {
                if named.is_some() {
                    notes.push("it names a `desired` commit that isn't in this repository".to_owned());
                }
                current.clone()
            }
        };
        check_signer(&commit, &keys)?;
        judged.extend(keys);
        let files = self.files(commit.id).map_err(|error| error_chain(&error))?;
        let syncer = files.get(SYNCER).ok_or_else(|| format!("`{SYNCER}` is missing"))?;
        let syncer = serde_json::from_slice(syncer).map_err(|error| format!("`{SYNCER}`: {error}"))?;
        let capabilities = self.read_capabilities(&files);
        notes.extend(capabilities.iter().filter_map(|read| read.as_ref().err()).cloned());
        let deployments = read_deployments(&files, &mut notes);
        Ok(Some(Status { commit: commit.id, time: commit.commit_time, syncer, capabilities, deployments, notes }))
    }

    fn read_capabilities(&self, files: &FileTree) -> Option<Result<DeviceCapabilities, String>> {
        Some(match DeviceCapabilities::read(CAPABILITIES, files.get(CAPABILITIES)?) {
            Ok(found) if found.id == self.device => Ok(found),
            Ok(found) => Err(format!("`{CAPABILITIES}` is about `{}`", found.id)),
            Err(problems) => Err(problems.to_string()),
        })
    }

    fn heartbeat(&self, keys: &BTreeSet<KeyText>) -> Result<Option<Heartbeat>, String> {
        let Some((commit, _)) = self.report("heartbeat")? else { return Ok(None) };
        check_signer(&commit, keys)?;
        let files = self.files(commit.id).map_err(|error| error_chain(&error))?;
        let bytes = files.get(CURRENT_STATE).ok_or_else(|| format!("`{CURRENT_STATE}` is missing"))?;
        let state = serde_json::from_slice(bytes).map_err(|error| format!("`{CURRENT_STATE}`: {error}"))?;
        Ok(Some(Heartbeat { state }))
    }

    /// The tip of a branch of the device, if it says that it belongs there.
    fn report(&self, branch: &str) -> Result<Option<(Commit, Message)>, String> {
        let Some(tip) = self.tip(branch).map_err(|error| error_chain(&error))? else { return Ok(None) };
        let commit = self.repo.commit(tip).map_err(|error| error_chain(&error))?;
        let message = Message::parse(&commit.message);
        let expected = [("Kind", branch), ("Fleet", &self.fleet.to_string()), ("Device", self.device.as_str())];
        match expected.iter().find(|(key, value)| message.get(key) != Some(value)) {
            Some((key, value)) => Err(format!("its trailer `{key}` is not `{value}`")),
            None => Ok(Some((commit, message))),
        }
    }

    /// The keys that the named commit of `desired` allows; `None` if it is not in the history of the tip.
    fn keys_at(
        &self,
        named: Option<CommitId>,
        tip: Option<&Tip>,
        publishers: &BTreeSet<KeyText>,
    ) -> Result<Option<BTreeSet<KeyText>>, DeviceRepoError> {
        let (Some(named), Some(tip)) = (named, tip) else { return Ok(None) };
        if named == tip.commit {
            return Ok(Some(tip.desired.envelope.device.status_keys.iter().cloned().collect()));
        }
        match self.repo.is_ancestor(named, tip.commit) {
            Ok(Ancestry::Yes) => {
                let named = self.desired_at(named, publishers)?;
                Ok(Some(named.desired.envelope.device.status_keys.into_iter().collect()))
            }
            _ => Ok(None),
        }
    }
}

fn current_keys(tip: Option<&Tip>, enrolled: &[KeyText]) -> BTreeSet<KeyText> {
    tip.map_or(enrolled, |tip| &tip.desired.envelope.device.status_keys).iter().cloned().collect()
}

fn check_signer(commit: &Commit, keys: &BTreeSet<KeyText>) -> Result<(), String> {
    let signer = commit.signer().map_err(|error| error_chain(&error))?;
    match key_text(signer) {
        Some(key) if keys.contains(&key) => Ok(()),
        _ => Err(format!("it is signed by {}, which is no key of this device", signer.fingerprint())),
    }
}

fn read_deployments(files: &FileTree, notes: &mut Vec<String>) -> BTreeMap<DeploymentId, DeploymentStatus> {
    let mut deployments = BTreeMap::new();
    for (path, bytes) in files.iter().filter(|(path, _)| path.starts_with("deployments/")) {
        match DeploymentStatus::read(path, bytes) {
            Ok(status) => _ = deployments.insert(status.deployment_id, status),
            Err(problems) => notes.push(problems.to_string()),
        }
    }
    deployments
}
