//! Audits device repositories from their first commit on: whether all of it can have come about as the contract says, with
//! nothing trusted but one roster.
//!
//! The judges (`desired`, `status`, `singles`, `states`) are pure: a commit, its files and where they stand give what is
//! wrong. `history`, `epochs`, `archives` and `repository` read for them, and nothing is written but the checkpoint; `clone` gets the repositories.

mod archives;
mod checkpoint;
pub mod clone;
mod commit;
mod decisions;
mod desired;
mod epochs;
pub mod finding;
mod history;
mod recent;
mod record;
mod repository;
pub mod sbom;
mod singles;
mod states;
mod status;
mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use repo_model::roster::{Roster, RosterError, Trust};
use repo_model::{DeviceId, Digest, FileTree, KeyText, error_chain, json};
use serde::Serialize;

pub(crate) use archives::unbundle;
pub use archives::{Archives, ArchivesError};
pub use checkpoint::{Checkpoint, CheckpointError, Covered, CoveredStatus};
pub use decisions::{Decided, DecisionsError, decisions};
pub use desired::Package;
use finding::{DEVICE_TWICE, NAME_MISMATCH, REPOSITORY_MISSING};
pub use finding::{Finding, Found, Kind, Level};
pub use recent::Recent;
pub use record::{Adoption, Change, Ended, Record, Run, RunComponent, Seen, Transition};
use repository::Audited;
pub use timeline::{Event, What};

use crate::parallel;

/// What no audit of these repositories can prove, a sentence for each.
pub const UNPROVEN: &[&str] = &[
    "when anything happened: each date is the word of who signed it",
    "that this is the newest: a host can withhold what came later, and only a proof of freshness that still holds, or a \
     checkpoint, shows that it didn't",
    "what a device left out, or that what it says of itself is true",
    "what stood before on the branches that are replaced (bundle, freshness, heartbeat, site)",
    "who used a key that was stolen, or shared",
    "whose keys sign a site's list: only the device's own configuration names them",
];

/// The roster that everything is believed by: the first one of the fleet.
#[derive(Debug, Clone)]
pub struct Start {
    pub digest: Digest,
    /// The roster itself; without it, it is looked for in each `desired`, by its digest.
    trust: Option<Trust>,
}

impl Start {
    /// The roster with these exact bytes.
    ///
    /// # Errors
    /// They are no roster.
    pub fn of(path: &str, bytes: &[u8]) -> Result<Self, RosterError> {
        let trust = pin(path, bytes)?;
        Ok(Self { digest: trust.digest, trust: Some(trust) })
    }

    /// The roster with this digest, wherever `desired` has it.
    pub fn digest(digest: Digest) -> Self {
        Self { digest, trust: None }
    }

    /// The trusted roster among the files of a tree.
    fn find(&self, files: &FileTree) -> Option<Trust> {
        let mut rosters = files.iter().filter(|(path, _)| path.starts_with("trust/") && path.ends_with(".json"));
        let (path, bytes) = rosters.find(|(_, bytes)| Digest::of(bytes) == self.digest)?;
        pin(path, bytes).ok()
    }
}

/// Takes a roster as it is, whatever fleet it is of.
fn pin(path: &str, bytes: &[u8]) -> Result<Trust, RosterError> {
    let roster: Roster = json::read(bytes).map_err(|source| RosterError::Parse { path: path.to_owned(), source })?;
    Trust::pin(path, bytes, roster.fleet)
}

fn chain(error: &(dyn Error + 'static)) -> String {
    error_chain(error)
}

/// A repository to be audited.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its directory.
    pub path: PathBuf,
    /// Whether the directory's own name has to be that of its device's repository: it was found, and not named.
    pub is_found: bool,
}

/// No repository is where one was looked for.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("cannot look into `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{}` is no bare repository, and holds none whose name ends in `.git`", path.display())]
    Nothing { path: PathBuf },
}

/// The repositories that these directories are, or hold.
///
/// # Errors
/// One of them is none and holds none.
pub fn places(directories: &[PathBuf]) -> Result<Vec<Place>, PlaceError> {
    let mut all = BTreeSet::new();
    for directory in directories {
        if is_repository(directory) {
            all.insert(Place { path: directory.clone(), is_found: false });
            continue;
        }
        let fail = |source| PlaceError::Read { path: directory.clone(), source };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.extension().is_some_and(|extension| extension == "git") && path.is_dir() {
                found.push(Place { path, is_found: true });
            }
        }
        if found.is_empty() {
            return Err(PlaceError::Nothing { path: directory.clone() });
        }
        all.extend(found);
    }
    Ok(all.into_iter().collect())
}

fn is_repository(path: &Path) -> bool {
    ["HEAD", "objects", "refs"].iter().all(|name| path.join(name).exists())
}

/// What came of an audit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    pub repositories: Vec<Row>,
    pub findings: Vec<Finding>,
    /// What the next audit begins with.
    #[serde(skip)]
    pub checkpoint: Checkpoint,
    /// The keys that signed what was published, as far as that is kept.
    #[serde(skip)]
    pub publishers: BTreeSet<KeyText>,
    /// What believed commits say, by device, if that is kept.
    #[serde(skip)]
    pub records: BTreeMap<DeviceId, Record>,
}

/// One repository that was audited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub repository: String,
    /// Absent where nothing of it can be believed.
    pub device: Option<DeviceId>,
    /// How many commits were judged now, of all branches.
    pub commits: usize,
    /// The serial of the newest believed `desired`.
    pub desired: Option<u64>,
    /// The serial that the device says that it has.
    pub adopted: Option<u64>,
}

impl Audit {
    /// Whether something is wrong.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.found.kind.level == Level::Error)
    }
}

/// What an audit is to do.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    pub start: &'a Start,
    /// What was covered before.
    pub before: &'a Checkpoint,
    /// What was archived; absent if nobody knows.
    pub archives: Option<&'a Archives>,
    pub now: Timestamp,
    pub threads: usize,
    /// Whether believed commits are kept as records; a long history takes some memory then.
    pub keeps_records: bool,
}

/// Audits repositories. `progress` is told how many are done of
/// how many. What can't be read of one is a finding, and no other one suffers.
pub fn audit(places: Vec<Place>, options: Options<'_>, progress: &(dyn Fn(usize, usize) + Sync)) -> Audit {
    let Options { start, before, archives, now, threads, keeps_records } = options;
    let (all, done) = (places.len(), AtomicUsize::new(0));
    let audited = parallel::map(places, threads, |place| {
        let covered = |device: &DeviceId| before.devices.get(device);
        let audited = repository::audit(&place.path, start, covered, archives, (now, keeps_records));
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        (place, audited)
    });
    together(audited, before)
}

/// What several repositories say together.
fn together(mut audited: Vec<(Place, Audited)>, before: &Checkpoint) -> Audit {
    let mut of: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
    for (index, (place, audited)) in audited.iter_mut().enumerate() {
        let Some(device) = audited.device.clone() else { continue };
        let name = format!("{}.git", device.repository_name());
        let found = place.path.file_name().map(|found| found.to_string_lossy().into_owned()).unwrap_or_default();
        if place.is_found && found != name {
            let text =
                format!("the directory is `{found}`, and what is in it is signed for `{device}`, whose is `{name}`");
            audited.found.push(Found::whole(&NAME_MISMATCH, text));
        }
        of.entry(device).or_default().push(index);
    }
    for (device, several) in of.iter().filter(|(_, several)| several.len() > 1) {
        for index in several {
            let text = format!("{} repositories say that they are of `{device}`", several.len());
            audited[*index].1.found.push(Found::whole(&DEVICE_TWICE, text));
        }
    }
    let mut checkpoint = before.clone();
    let (mut rows, mut findings, mut records) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut publishers = BTreeSet::new();
    for (place, Audited { device, commits, serial, adopted, found, covered, record }) in audited {
        let repository = place.path.display().to_string();
        let is_wrong = found.iter().any(|one| one.kind.level == Level::Error);
        let finding = |found| Finding { repository: repository.clone(), device: device.clone(), found };
        findings.extend(found.into_iter().map(finding));
        if let Some((device, covered)) = device.clone().zip(covered).filter(|_| !is_wrong) {
            checkpoint.devices.insert(device, covered);
        }
        publishers.extend(record.changes.iter().filter_map(|change| change.publisher_key.clone()));
        records.extend(device.clone().map(|device| (device, record)));
        rows.push(Row { repository, device, commits, desired: serial, adopted });
    }
    let missing = before.devices.keys().filter(|device| !of.contains_key(device));
    findings.extend(missing.map(|device| Finding {
        repository: String::new(),
        device: Some(device.clone()),
        found: Found::whole(&REPOSITORY_MISSING, "the checkpoint covers it, and none of the repositories is of it"),
    }));
    Audit { repositories: rows, findings, checkpoint, publishers, records }
}
