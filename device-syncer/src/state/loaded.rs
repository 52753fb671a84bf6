//! What a clone holds of the device state, or what of it can still be read.

use std::path::Path;

use jiff::Timestamp;
use repo_git::CommitId;
use repo_git::repo::{Entry, Repo};
use repo_model::desired::Desired;
use repo_model::{FileTree, IntoMap, error_chain, json};
use serde::{Deserialize, Serialize};

use crate::decision::device_state::{Accepted, Damaged, DeviceState, STATE};
use crate::decision::failure::shown;
use crate::state::layout::{self, limits};

/// The directory of the state's tree with what this device reported last, where the tip of `status` says something
/// else.
const REPORTED: &str = "told/";

/// The file of the state's tree with how many commits the device made in its epoch of `status`.
const EPOCH: &str = "epoch.json";

/// What is kept of the local `status` beside its tip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OnStatus {
    /// The tip has what this device reported last, so that the state's tree needn't.
    pub(super) reported: bool,
    /// How many commits the device made in its epoch.
    pub(super) epoch: usize,
}

/// `epoch.json`. A program that knows no epochs drops it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct EpochLength {
    commits: usize,
}

/// What a clone holds.
pub(super) struct Loaded {
    pub(super) state: Option<CommitId>,
    pub(super) status: Option<CommitId>,
    pub(super) device_state: DeviceState,
    pub(super) reported: bool,
    pub(super) epoch: usize,
    pub(super) is_rooted: bool,
    /// Why part of it can't be read.
    pub(super) damage: Option<String>,
}

impl Loaded {
    /// Everything, or what of it can be read, with the first thing that can't.
    pub(super) fn read(repo: &Repo) -> Self {
        let (state, mut damage) = match repo.reference(STATE) {
            Ok(state) => (state, None),
            Err(error) => (None, Some(error_chain(&error))),
        };
        let nothing = Self {
            state,
            status: None,
            device_state: DeviceState::default(),
            reported: true,
            epoch: 0,
            is_rooted: true,
            damage: None,
        };
        let Some(id) = state else { return Self { damage, ..nothing } };
        let mut note = |error: &(dyn std::error::Error + 'static)| _ = damage.get_or_insert_with(|| error_chain(error));
        let tree = remains(repo, id, &mut note);
        let mut device_state = DeviceState::of_tree(&tree).unwrap_or_else(|error| {
            note(&error);
            DeviceState::of_remains(tree.clone())
        });
        let parents = repo.commit(id).map(|commit| commit.parents).inspect_err(|error| note(error)).unwrap_or_default();
        let accepted = device_state.accepted.as_ref().and_then(Accepted::id);
        let is_rooted = accepted.is_none_or(|accepted| parents.contains(&accepted));
        // Without the first, which is lost with its file, both may be there.
        let status = parents.last().copied().filter(|last| Some(*last) != accepted);
        // What can't be read only makes the epoch longer.
        let epoch = tree.get(EPOCH).and_then(|bytes| serde_json::from_slice::<EpochLength>(bytes).ok());
        let epoch = epoch.unwrap_or_default().commits;
        let reported_files =
            tree.into_iter().filter_map(|(path, bytes)| Some((path.strip_prefix(REPORTED)?.to_owned(), bytes)));
        device_state.status = reported_files.into_map();
        let reported = device_state.status.is_empty();
        let status = status.filter(|tip| match repo.files(*tip, &limits()) {
            Ok(files) if reported => {
                device_state.status = files;
                true
            }
            Ok(_) => true,
            Err(error) => {
                note(&error);
                false
            }
        });
        Self { state, status, device_state, reported, epoch, is_rooted, damage }
    }
}

/// Reads the device state in force and the accepted state without the lock, beside a syncer that may be at work; what
/// can't be read is left out, and named in `damaged`.
pub fn peek(path: &Path) -> (DeviceState, Option<Desired>) {
    if !path.exists() {
        return Default::default();
    }
    let repo = match Repo::open(path) {
        Ok(repo) => repo,
        Err(error) => {
            let found = Some(damaged(error_chain(&error)));
            return (DeviceState { damaged: found, ..DeviceState::default() }, None);
        }
    };
    let Loaded { mut device_state, damage, .. } = Loaded::read(&repo);
    let accepted = device_state.accepted.as_ref().and_then(Accepted::id);
    let desired = accepted.and_then(|id| repo_model::desired::read(&repo.files(id, &limits()).ok()?).ok());
    if let Some(why) = damage {
        device_state.damaged = Some(damaged(why));
    }
    (device_state, desired)
}

/// The files of a commit that can be read.
fn remains(repo: &Repo, id: CommitId, note: &mut dyn FnMut(&(dyn std::error::Error + 'static))) -> FileTree {
    let entries = repo.list(id, &limits()).unwrap_or_else(|error| {
        note(&error);
        repo.list_readable(id, &limits())
    });
    let read = |entry: Entry| match repo.blob(entry.blob, limits().bytes) {
        Ok(bytes) => Some((entry.path, bytes)),
        Err(error) => {
            note(&error);
            None
        }
    };
    entries.into_iter().filter_map(read).into_map()
}

/// The tree of a commit on `refs/syncer/state`.
pub(super) fn state_tree(device_state: &DeviceState, on_status: OnStatus) -> FileTree {
    let mut tree = device_state.to_tree();
    tree.extend([layout::file()]);
    tree.insert(EPOCH.to_owned(), json::to_bytes(&EpochLength { commits: on_status.epoch }));
    if !on_status.reported {
        tree.extend(device_state.status.iter().map(|(path, bytes)| (format!("{REPORTED}{path}"), bytes.clone())));
    }
    tree
}

/// A clone in which this can't be read, found now.
pub(super) fn damaged(what: String) -> Damaged {
    Damaged { since: Timestamp::now(), what: shown(&what) }
}
