//! A device's repository that is damaged: set aside, and made anew from what of it can be read.
//!
//! Branches stay as far back as they can be read. What `desired` lost is published anew from the fleet and the ledger, as
//! in any repository that was restored; what `status` and `heartbeat` lost only the device can say, and pushes again.

use std::path::{Path, PathBuf};

use repo_git::repo::{RenewError, set_aside};
use repo_git::{CommitId, ConsolidateError, Expected, OpenError, RefError, RefMove, Repo};
use repo_model::branch::{HEADS, epoch_branch, epoch_of, ref_name};
use repo_model::{Branch, DeviceId, error_chain};

use super::device::{DeviceRepo, DeviceRepoError, LOCK_WAIT};
use super::{DESIRED, Home};

/// The branches of a device's repository, but for the epochs of `status` that ended.
const BRANCHES: [&str; 6] = [
    DESIRED,
    Branch::Bundle.as_str(),
    Branch::Freshness.as_str(),
    Branch::Status.as_str(),
    Branch::Heartbeat.as_str(),
    Branch::Site.as_str(),
];

/// What becomes of a damaged repository, for whoever finds it so.
const BY_PUBLISH: &str = "`publish` makes it anew, at the latest when it renews its proof of freshness";

/// What became of a damaged repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Where the damaged one is.
    pub aside: PathBuf,
    /// The branches that can't be read as they were.
    pub lost: Vec<String>,
}

impl std::fmt::Display for Repaired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "its repository was damaged, and was made anew from what can be read")?;
        if !self.lost.is_empty() {
            write!(f, ", which isn't all of `{}`", self.lost.join("`, `"))?;
        }
        write!(f, "; the damaged one is `{}`: look at this disk", self.aside.display())
    }
}

impl DeviceRepoError {
    /// Whether something of the repository is gone or isn't what it was when it was written.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Open(error) => matches!(error, OpenError::NotARepository { .. }),
            Self::Read(error) | Self::Consolidate(ConsolidateError::Read(error)) => error.is_damage(),
            Self::Tree { source, .. } => source.is_damage(),
            Self::Unrepaired { .. } => true,
            _ => false,
        }
    }

    /// What `status` says of it.
    pub fn status_text(&self) -> String {
        match self.is_damage() {
            true => format!("its repository is damaged; {BY_PUBLISH}: {}", error_chain(self)),
            false => self.to_string(),
        }
    }
}

impl DeviceRepo {
    /// Whether something of it was met that isn't what it was when it was written, or a branch names what isn't there.
    pub fn is_damaged(&self) -> bool {
        let names_nothing = |branch: &&str| match self.repo.tip(branch) {
            Ok(tip) => tip.is_some_and(|tip| self.repo.commit(tip).is_err()),
            Err(_) => true,
        };
        BRANCHES.iter().any(names_nothing) || self.repo.damage().is_some() || self.repo.met_a_hole()
    }
}

/// Makes the repository of a device anew from what can be read of it, under the writer's lock.
pub fn repair(home: &Home, device: &DeviceId) -> Result<Repaired, DeviceRepoError> {
    let repaired = repair_at(&home.device(device));
    home.moves.notify(device);
    repaired
}

/// The same for the repository at this place.
pub(crate) fn repair_at(path: &Path) -> Result<Repaired, DeviceRepoError> {
    let fail = |source: RenewError| DeviceRepoError::Unrepaired { source };
    Repo::finish_renewal(path).map_err(fail)?;
    Repo::put_right(path, DESIRED)?;
    let old = match Repo::open(path) {
        Err(OpenError::NotARepository { .. }) => None,
        opened => Some(opened?),
    };
    let _lock = old.as_ref().map(|old| old.try_lock(LOCK_WAIT)).transpose()?;
    let lost = Repo::renew(path, DESIRED, |new| match &old {
        Some(old) => copy(old, new),
        None => Ok(BRANCHES.map(str::to_owned).to_vec()),
    });
    let repaired = Repaired { aside: set_aside(path), lost: lost.map_err(|error: CopyError| error.into_repo_error())? };
    tracing::error!(path = %path.display(), "{repaired}");
    Ok(repaired)
}

/// Copies the branches of a device's repository, with all that they reach, to a place where none is as yet.
pub fn copy_repository(from: &Path, to: &Path) -> Result<(), DeviceRepoError> {
    let (old, new) = (Repo::open(from)?, Repo::create(to, DESIRED)?);
    let lost = copy(&old, &new).map_err(CopyError::into_repo_error)?;
    match old.damage_below(lost.iter().filter_map(|branch| old.tip(branch).ok()?)) {
        Some(damage) => Err(damage.into()),
        None => Ok(()),
    }
}

enum CopyError {
    Renew(RenewError),
    Move(RefError),
}

impl From<RenewError> for CopyError {
    fn from(error: RenewError) -> Self {
        Self::Renew(error)
    }
}

impl CopyError {
    fn into_repo_error(self) -> DeviceRepoError {
        match self {
            Self::Renew(source) => DeviceRepoError::Unrepaired { source },
            Self::Move(error) => error.into(),
        }
    }
}

/// Copies every branch as far back as it can be read; returns those that aren't where they were.
fn copy(old: &Repo, new: &Repo) -> Result<Vec<String>, CopyError> {
    let epochs = old.references(HEADS).unwrap_or_default().into_iter();
    let epochs: Vec<_> = epochs.filter_map(|(name, _)| epoch_of(&name).map(epoch_branch)).collect();
    let branches: Vec<_> = BRANCHES.into_iter().map(str::to_owned).chain(epochs).collect();
    let stood: Vec<(&String, Option<CommitId>)> =
        branches.iter().map(|branch| (branch, old.tip(branch).unwrap_or_default())).collect();
    let is_damaged = |branch: &&String| old.tip(branch).is_err();
    let mut lost: Vec<_> = branches.iter().filter(is_damaged).cloned().collect();
    let found = old.copy_readable(new, stood.iter().filter_map(|(_, tip)| *tip)).map_err(RenewError::from)?;
    let mut moves = Vec::new();
    for (branch, tip) in stood.into_iter().filter_map(|(branch, tip)| Some((branch, tip?))) {
        let newest = found.get(&tip).copied();
        if newest != Some(tip) {
            lost.push(branch.clone());
        }
        moves.extend(newest.map(|newest| RefMove {
            name: ref_name(branch),
            expected: Expected::Absent,
            new: Some(newest),
        }));
    }
    new.move_refs(&moves).map_err(CopyError::Move)?;
    Ok(lost)
}
