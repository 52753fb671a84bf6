//! The epochs of `status`: where it stood before its history began anew is kept as `status-<n>`, and nobody moves that.
//!
//! A device keeps the end itself, by a push of its own, before it begins an epoch; for one that knows no epochs, which simply
//! replaces what another key wrote, the host does it.

use std::collections::BTreeMap;

use repo_git::{Commit, CommitId, Expected, PublicKey, ReadError, RefError, RefMove, Repo};
use repo_model::Branch;
use repo_model::branch::{HEADS, epoch_of, epoch_ref};
use repo_model::message::{Epoch, Message};

/// A device ends an epoch after [`repo_git::epoch_commits`]; here it may after a tenth of that, because it may have miscounted, and
/// no earlier, so that refs without end can't be made.
const SHARE: usize = 10;

/// Whether a key is one that the device has now.
pub(crate) type Allows<'a> = &'a dyn Fn(PublicKey) -> bool;

/// The end of an epoch can't be kept, so nothing may be written on `status`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EpochError {
    #[error("cannot read `status`")]
    Read(#[from] ReadError),
    #[error("cannot keep where `status` stood")]
    Keep(#[from] RefError),
}

/// The epochs of a repository that ended, by their numbers.
#[derive(Debug)]
pub(crate) struct Epochs<'a> {
    repo: &'a Repo,
    kept: BTreeMap<u32, CommitId>,
}

impl<'a> Epochs<'a> {
    pub(crate) fn read(repo: &'a Repo) -> Result<Self, ReadError> {
        let refs = repo.references(HEADS)?.into_iter();
        Ok(Self { repo, kept: refs.filter_map(|(name, tip)| Some((epoch_of(&name)?, tip))).collect() })
    }

    /// The number of the epoch that `status` is in.
    fn number(&self) -> u32 {
        self.kept.last_key_value().map_or(1, |(newest, _)| newest.saturating_add(1))
    }

    /// Which epoch ended with this commit, if that is kept.
    fn ended_with(&self, tip: CommitId) -> Option<u32> {
        self.kept.iter().find_map(|(number, end)| (*end == tip).then_some(*number))
    }

    /// Checks that a device may keep `tip` as epoch `number`.
    pub(crate) fn check_end(
        &self,
        allows: Allows<'_>,
        (number, tip): (u32, CommitId),
    ) -> Result<Result<(), String>, ReadError> {
        let (name, here) = (epoch_ref(number), self.number());
        if self.kept.contains_key(&number) {
            return Ok(Err(format!("{name} is the end of an epoch; it stays as it is")));
        }
        if let Some(kept) = self.ended_with(tip) {
            return Ok(Err(format!("{name}: {tip} is kept as {}", epoch_ref(kept))));
        }
        if number != here {
            return Ok(Err(format!("{name} is none: `status` is in epoch {here}")));
        }
        if self.repo.tip(Branch::Status)? != Some(tip) {
            return Ok(Err(format!(
                "{name}: `status` doesn't stand at {tip}: fetch, and end the epoch where it stands"
            )));
        }
        if !is_by_another_key(allows, &self.repo.commit(tip)?) {
            return self.check_length(&name, tip);
        }
        Ok(Ok(()))
    }

    /// An epoch that the device's own key goes on in ends by count alone.
    fn check_length(&self, name: &str, tip: CommitId) -> Result<Result<(), String>, ReadError> {
        let least = (repo_git::epoch_commits() / SHARE).max(1);
        let newest = self.kept.last_key_value().map(|(_, end)| *end);
        let commits = self.repo.history(tip, newest, least)?.len();
        Ok(if commits < least {
            Err(format!("{name}: an epoch has {least} commits at least, and this one {commits}: go on from {tip}"))
        } else {
            Ok(())
        })
    }

    /// Checks that a commit which doesn't go on from `old` may take its place on `status`.
    pub(crate) fn check_begin(
        &self,
        allows: Allows<'_>,
        (old, begins, begin): (CommitId, CommitId, &Message),
    ) -> Result<Result<(), String>, ReadError> {
        let Ok(Some(signer)) = self.repo.commit(old).map(|commit| commit.signer().ok()) else {
            // What can't be read was never whole, and what nobody signed was never the device's.
            return Ok(Ok(()));
        };
        let name = Branch::Status.ref_name();
        let Some(ended) = self.ended_with(old) else {
            let next = epoch_ref(self.number());
            return Ok(Err(format!(
                "{name}: it doesn't go on from {old}, which this device signed: fetch and go on from it, or push it to {next} \
                 first, and begin an epoch"
            )));
        };
        Ok(match Epoch::<CommitId>::of(begin) {
            Some(Epoch { number, previous }) if number == ended + 1 && previous == old => Ok(()),
            // One that knows no epochs has a key of its own, by which they are told apart.
            None if !allows(signer) => Ok(()),
            _ => Err(format!(
                "{name}: {begins} doesn't begin epoch {} with the trailers `Epoch: {}` and `Previous: {old}`",
                ended + 1,
                ended + 1
            )),
        })
    }
}

/// Keeps where `status` stands, if another key than one of the device's own of today signed it. Whoever calls it holds the
/// repository's lock. The same again keeps nothing twice.
pub(crate) fn keep(repo: &Repo, allows: Allows<'_>) -> Result<(), EpochError> {
    let Some(tip) = repo.tip(Branch::Status)? else { return Ok(()) };
    let Ok(commit) = repo.commit(tip) else { return Ok(()) };
    if !is_by_another_key(allows, &commit) {
        return Ok(());
    }
    let epochs = Epochs::read(repo)?;
    if epochs.ended_with(tip).is_some() {
        return Ok(());
    }
    let number = epochs.number();
    tracing::info!(repository = %repo.path().display(), number, %tip, "the device has another key: the epoch of the old one is kept");
    Ok(repo.move_refs(&[RefMove { name: epoch_ref(number), expected: Expected::Absent, new: Some(tip) }])?)
}

/// Whether somebody signed it whose key the device doesn't have any more.
fn is_by_another_key(allows: Allows<'_>, commit: &Commit) -> bool {
    commit.signer().is_ok_and(|signer| !allows(signer))
}
