//! What a reader of `status` and `heartbeat` checks beside the signature (`repo-layouts/README.md`, *What readers of
//! `status` check*).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::doubt::{
    ADOPTED_MISMATCH, COMPONENT_MISSING, DESIRED_UNKNOWN, Doubt, HISTORY_FORKED, INPUT_MISMATCH, LAYOUT_TOO_NEW,
    REPORT_INVALID, STATE_MISMATCH, TIME_AHEAD, WENT_BACK, WRONG_DEVICE,
};
use super::{Adopted, CAPABILITIES, CURRENT_STATE, CurrentState, IMAGES, LockedImages, SYNCER, SyncerReport};
use crate::ask::{Answer, read_answers};
use crate::clock::SKEW;
use crate::desired::{Desired, Document};
use crate::envelope::{EnvelopeDeployment, LAYOUT, MAX_SERIAL};
use crate::margo::{Component, DeploymentStatus, DeviceCapabilities, ProfileType, State};
use crate::message::{Message, Trailer};
use crate::value::{Param, input_digest};
use crate::{ComponentName, DeploymentId, DeviceId, Digest, FileTree, FleetId, IntoSet};

/// The most commits of `status`, from its tip, whose order is checked.
pub const MAX_CHAIN: usize = 50;

/// The most names that a message lists.
const MAX_NAMES: usize = 3;

/// What a reader knows of the commit of `desired` that a report names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// The commit, 40 hex digits.
    pub commit: String,
    pub serial: u64,
    /// The `manifestVersion` of that desired state.
    pub manifest_version: u64,
    /// The newest roster in its tree.
    pub trust: u64,
    pub envelope: Digest,
    /// The components of its deployments, each with the input digest that it is applied for; absent where a value stays
    /// on the device.
    pub components: BTreeMap<DeploymentId, BTreeMap<ComponentName, Option<Digest>>>,
}

impl Named {
    /// What a commit says.
    pub fn of(commit: impl ToString, desired: &Desired) -> Self {
        let envelope = &desired.envelope;
        let version = |path: &String| path.strip_prefix("trust/")?.strip_suffix(".json")?.parse().ok();
        let components = desired.deployments.iter().map(|(id, document)| {
            let described = envelope.deployments.get(id);
            let input = |one: &Component| described.and_then(|described| known_input(one, document, described));
            (*id, document.deployment.components.iter().map(|one| (one.name.clone(), input(one))).collect())
        });
        Self {
            commit: commit.to_string(),
            serial: envelope.serial,
            manifest_version: envelope.manifest_version,
            trust: envelope.files.keys().filter_map(version).max().unwrap_or(0),
            envelope: desired.envelope_digest,
            components: components.collect(),
        }
    }
}

/// The input digest of a component, as far as everything that enters it is known outside the device.
fn known_input(component: &Component, document: &Document, described: &EnvelopeDeployment) -> Option<Digest> {
    let (deployment, name) = (&document.deployment, &component.name);
    let lock = described.locks.get(name)?.lock;
    let mut from_device = described.values_from.values().flat_map(|from| &from.targets);
    if from_device.any(|target| target.components.contains(name)) {
        return None;
    }
    let kind = deployment.profile_type;
    let params = deployment.parameters.values().flat_map(|parameter| {
        let targets = parameter.targets.iter().filter(|target| target.components.contains(name));
        targets.map(|target| Param::new(target.place(kind), &parameter.value))
    });
    let namespace = (kind == ProfileType::Helm).then_some(deployment.namespace.as_str());
    Some(input_digest(kind.as_str(), name.as_str(), namespace, lock.content, &params.collect::<Vec<_>>()))
}

/// Whether a commit says that it belongs on this branch of this device.
pub fn identity(branch: impl AsRef<str>, fleet: FleetId, device: &DeviceId, message: &Message) -> Result<(), Doubt> {
    match message.wrong_identity(branch, fleet, device) {
        Some((key, value)) => Err(Doubt::new(WRONG_DEVICE, format!("its trailer `{key}` is not `{value}`"))),
        None => Ok(()),
    }
}

/// What the tip of `status` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// What the syncer says of itself.
    pub syncer: SyncerReport,
    /// What the device has and can run, or why that can't be read; absent if it doesn't say.
    pub capabilities: Option<Result<DeviceCapabilities, String>>,
    /// What it says of each deployment.
    pub deployments: BTreeMap<DeploymentId, DeploymentStatus>,
    /// The images that it locked itself; empty if it doesn't say, or that can't be read.
    pub images: LockedImages,
    /// What can't be so although the signature is good.
    pub doubts: Vec<Doubt>,
}

impl Status {
    /// Reads the tip's message and files. `named` is the commit that the trailer `Desired-Commit` names, if the history of
    /// `desired` has it. The error says why nothing of it is believed.
    pub fn read(device: &DeviceId, message: &Message, files: &FileTree, named: Option<&Named>) -> Result<Self, Doubt> {
        let syncer: SyncerReport = document(SYNCER, files)?;
        check_numbers(&syncer)?;
        let mut doubts = Vec::new();
        if named.is_none() && message.all(Trailer::DesiredCommit).next().is_some() {
            let text = "it names a `desired` commit that isn't in this repository";
            doubts.push(Doubt::new(DESIRED_UNKNOWN, text));
        }
        doubts.extend(contradiction(&syncer, message, named).map(|text| Doubt::new(ADOPTED_MISMATCH, text)));
        let capabilities = read_capabilities(device, files, &mut doubts);
        let images = files.get(IMAGES).map(|bytes| serde_json::from_slice::<LockedImages>(bytes)).transpose();
        let images = images.unwrap_or_else(|error| {
            doubts.push(Doubt::new(REPORT_INVALID, format!("`{IMAGES}`: {error}")));
            None
        });
        let deployments = read_deployments(device, files, &mut doubts);
        if syncer.adopted.is_some() {
            doubts.extend(named.iter().flat_map(|named| missing(&deployments, named)));
        }
        Ok(Self { syncer, capabilities, deployments, images: images.unwrap_or_default(), doubts })
    }

    /// What it says that it adopted, unless that contradicts itself.
    pub fn adopted(&self) -> Option<&Adopted> {
        let contradicts = self.doubts.iter().any(|doubt| doubt.code == ADOPTED_MISMATCH);
        self.syncer.adopted.as_ref().filter(|_| !contradicts)
    }
}

/// Reads a document that has a layout.
fn document<T: DeserializeOwned>(path: &str, files: &FileTree) -> Result<T, Doubt> {
    #[derive(Deserialize)]
    struct Head {
        layout: u64,
    }
    let invalid = |problem: String| Doubt::new(REPORT_INVALID, format!("`{path}` {problem}"));
    let bytes = files.get(path).ok_or_else(|| invalid("is missing".to_owned()))?;
    let unreadable = |error: serde_json::Error| invalid(format!("can't be read: {error}"));
    match serde_json::from_slice::<Head>(bytes).map_err(unreadable)?.layout {
        LAYOUT => serde_json::from_slice(bytes).map_err(unreadable),
        layout if layout > LAYOUT => {
            let text = format!("`{path}` has layout {layout}, and this program knows {LAYOUT}: update it");
            Err(Doubt::new(LAYOUT_TOO_NEW, text))
        }
        layout => Err(invalid(format!("has layout {layout}"))),
    }
}

fn check_numbers(syncer: &SyncerReport) -> Result<(), Doubt> {
    let Some(adopted) = &syncer.adopted else { return Ok(()) };
    let numbers = [("serial", adopted.serial), ("manifestVersion", adopted.manifest_version), ("trust", adopted.trust)];
    match numbers.iter().find(|(_, number)| !(1..=MAX_SERIAL).contains(number)) {
        Some((what, number)) => {
            let text = format!("`{SYNCER}`: adopted.{what} is {number}, which is not 1 to {MAX_SERIAL}");
            Err(Doubt::new(REPORT_INVALID, text))
        }
        None => Ok(()),
    }
}

/// How `adopted` contradicts the trailers, or the commit that they name.
fn contradiction(syncer: &SyncerReport, message: &Message, named: Option<&Named>) -> Option<String> {
    let said = |key: Trailer| message.get(key).unwrap_or("missing or repeated").to_owned();
    let Some(adopted) = &syncer.adopted else {
        let is_none = message.get(Trailer::Serial) == Some("0") && message.all(Trailer::DesiredCommit).next().is_none();
        let text = || format!("it adopted nothing, and its trailer `Serial` is {}", said(Trailer::Serial));
        return (!is_none).then(text);
    };
    let trailers = [(Trailer::Serial, adopted.serial.to_string()), (Trailer::DesiredCommit, adopted.commit.clone())];
    if let Some((key, value)) = trailers.into_iter().find(|(key, value)| message.get(key) != Some(value)) {
        return Some(format!("`adopted` says {value}, and the trailer `{key}` is {}", said(key)));
    }
    let named = named?;
    let numbers = [
        ("serial", adopted.serial, named.serial),
        ("manifestVersion", adopted.manifest_version, named.manifest_version),
        ("trust", adopted.trust, named.trust),
    ];
    match numbers.into_iter().find(|(_, said, is)| said != is) {
        Some((what, said, is)) => Some(format!("it says that it adopted {what} {said}, and the commit has {is}")),
        None => (adopted.envelope != named.envelope).then(|| {
            format!("it says that it adopted envelope {}, and the commit has {}", adopted.envelope, named.envelope)
        }),
    }
}

fn read_capabilities(
    device: &DeviceId,
    files: &FileTree,
    doubts: &mut Vec<Doubt>,
) -> Option<Result<DeviceCapabilities, String>> {
    let (code, text) = match DeviceCapabilities::read(CAPABILITIES, files.get(CAPABILITIES)?) {
        Ok(found) if found.id == *device => return Some(Ok(found)),
        Ok(found) => (WRONG_DEVICE, format!("`{CAPABILITIES}` is about `{}`", found.id)),
        Err(problems) => (REPORT_INVALID, problems.to_string()),
    };
    doubts.push(Doubt::new(code, text.clone()));
    Some(Err(text))
}

/// The documents of deployments that are about this device. An overall state that is milder than that of a component
/// becomes the component's.
fn read_deployments(
    device: &DeviceId,
    files: &FileTree,
    doubts: &mut Vec<Doubt>,
) -> BTreeMap<DeploymentId, DeploymentStatus> {
    let mut deployments = BTreeMap::new();
    for (path, bytes) in files.iter().filter(|(path, _)| path.starts_with("deployments/")) {
        match read_deployment(device, path, bytes) {
            Ok((status, doubt)) => {
                doubts.extend(doubt);
                deployments.insert(status.deployment_id, status);
            }
            Err(doubt) => doubts.push(doubt),
        }
    }
    deployments
}

fn read_deployment(device: &DeviceId, path: &str, bytes: &[u8]) -> Result<(DeploymentStatus, Option<Doubt>), Doubt> {
    let read = DeploymentStatus::read(path, bytes);
    let mut document = read.map_err(|problems| Doubt::new(REPORT_INVALID, problems.to_string()))?;
    let id = document.deployment_id;
    if path != format!("deployments/{id}.json") {
        return Err(Doubt::new(REPORT_INVALID, format!("`{path}` is about deployment {id}")));
    }
    if let Some(other) = document.device_id.as_ref().filter(|other| *other != device) {
        return Err(Doubt::new(WRONG_DEVICE, format!("`{path}` is about `{other}`")));
    }
    // Of a deployment without components nothing is there any more, or nothing was asked for.
    let Some(worst) = document.components.iter().map(|one| one.state).max() else { return Ok((document, None)) };
    let said = document.status.state;
    if said == worst {
        return Ok((document, None));
    }
    document.status.state = said.max(worst);
    let text = format!("`{path}` says {said}, and of its components {worst}");
    Ok((document, Some(Doubt::new(STATE_MISMATCH, text))))
}

/// What the commit has and no document speaks of.
fn missing(said: &BTreeMap<DeploymentId, DeploymentStatus>, named: &Named) -> Vec<Doubt> {
    let of = |(id, components): (&DeploymentId, &BTreeMap<ComponentName, Option<Digest>>)| {
        let Some(document) = said.get(id) else { return Some(format!("it says nothing of deployment {id}")) };
        let told = document.components.iter().map(|one| &one.name).into_set();
        let names: Vec<_> =
            components.keys().filter(|name| !told.contains(name)).map(|name| format!("`{name}`")).collect();
        let more = names.len().saturating_sub(MAX_NAMES);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let listed = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| format!("of deployment {id} it says nothing of component {listed}{more}"))
    };
    named.components.iter().filter_map(of).map(|text| Doubt::new(COMPONENT_MISSING, text)).collect()
}

/// What a heartbeat is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'a> {
    /// When the tip of `status` was made, in Unix seconds by the device's clock, and what it adopted.
    pub status: Option<(i64, &'a Adopted)>,
    /// The commit that the tip of `status` names.
    pub named: Option<&'a Named>,
    pub now: Timestamp,
}

/// What a device says on `heartbeat`.
#[derive(Debug, Clone, PartialEq)]
pub struct Heartbeat {
    /// What runs, and the number that it is done with (`current-state.json`).
    pub state: CurrentState,
    /// What it answers to what the fleet asked for, by number; those that can be read.
    pub answers: BTreeMap<u64, Answer>,
    /// What is doubtful about it although the signature is good.
    pub doubts: Vec<Doubt>,
}

/// What is doubtful about the time of a report, which is the device's own clock's.
pub fn time_ahead(report: &str, time: Timestamp, now: Timestamp) -> Option<Doubt> {
    let is_ahead = time.duration_since(now) > SKEW;
    is_ahead.then(|| Doubt::new(TIME_AHEAD, format!("{report} says that it is of {time}")))
}

/// Reads the files of `heartbeat`. The error says why nothing of it is believed.
pub fn heartbeat(files: &FileTree, beside: Beside<'_>) -> Result<Heartbeat, Doubt> {
    let state: CurrentState = document(CURRENT_STATE, files)?;
    let mut doubts = Vec::new();
    doubts.extend(time_ahead("the heartbeat", state.time, beside.now));
    let is_newer = |(time, adopted): &(i64, &Adopted)| state.time.as_second() > *time && state.serial < adopted.serial;
    if let Some((_, adopted)) = beside.status.filter(is_newer) {
        let (has, had) = (state.serial, adopted.serial);
        let text =
            format!("the heartbeat has serial {has} at {}, and `status` told of serial {had} before", state.time);
        doubts.push(Doubt::new(WENT_BACK, text));
    }
    if let Some(named) = beside.named.filter(|named| named.serial == state.serial) {
        doubts.extend(impossible_inputs(&state, named));
    }
    let (answers, problems) = read_answers(files);
    doubts.extend(problems.into_iter().map(|problem| Doubt::new(REPORT_INVALID, problem)));
    Ok(Heartbeat { state, answers, doubts })
}

fn impossible_inputs(state: &CurrentState, named: &Named) -> Option<Doubt> {
    let inputs = named.components.iter().flat_map(|(id, all)| all.iter().map(move |(name, input)| (id, name, input)));
    let is_impossible = |id, name, input: &Option<Digest>| {
        let said = state.deployments.get(id)?.components.get(name)?;
        let (found, expected) = said.input_digest.zip(*input)?;
        (said.state == State::Installed.as_str() && found != expected).then(|| format!("`{name}` of {id}"))
    };
    let all: Vec<_> = inputs.filter_map(|(id, name, input)| is_impossible(id, name, input)).collect();
    let (first, more) = (all.first()?, all.len() - 1);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let text = format!("what it says that runs as {first}{more} isn't what serial {} gives", named.serial);
    Some(Doubt::new(INPUT_MISMATCH, text))
}

/// One commit of `status`, as its order is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Its trailer `Serial`; 0 before the first adoption.
    pub serial: u64,
    /// The installation that made it, if its `syncer.json` says so.
    pub instance: Option<Uuid>,
}

/// How much of a chain tells of the state that was adopted last: down to the oldest commit with the highest serial. What
/// was before that is over.
pub fn newest_state(serials: &[u64]) -> usize {
    let highest = serials.iter().max().filter(|highest| **highest > 0);
    highest.and_then(|highest| serials.iter().rposition(|serial| serial == highest)).map_or(0, |oldest| oldest + 1)
}

/// Judges the order of the newest commits of `status`, the newest first and at most [`MAX_CHAIN`] of them.
pub fn chain(links: &[Link]) -> Vec<Doubt> {
    let serials: Vec<_> = links.iter().map(|link| link.serial).collect();
    let present = &links[..newest_state(&serials)];
    let Some(highest) = present.last().map(|oldest| oldest.serial) else { return Vec::new() };
    let mut doubts = Vec::new();
    if let Some(older) = present.iter().find(|link| (1..highest).contains(&link.serial)) {
        let text = format!("its history goes back from serial {highest} to serial {}", older.serial);
        doubts.push(Doubt::new(WENT_BACK, text));
    }
    let instances = present.iter().filter_map(|link| link.instance).into_set();
    if instances.len() > 1 {
        let names: Vec<_> = instances.iter().take(MAX_NAMES).map(Uuid::to_string).collect();
        let text =
            format!("installations {} tell of serial {highest}: a cloned disk, or a new one", names.join(" and "));
        doubts.push(Doubt::new(HISTORY_FORKED, text));
    }
    doubts
}
