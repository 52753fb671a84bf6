//! What the other host has that isn't here: reports of devices, and what another publisher of this fleet published.

use repo_git::{Ancestry, CommitId, Expected, RefMove, RepoLock};
use repo_model::branch::{epoch_branch, epoch_of, ref_name};
use repo_model::{Branch, DeviceId, Trailer, error_chain};
use tracing::warn;

use super::provision::When;
use super::{ForeignTip, Mirror, MirrorError, RECLAIMED, RemoteRefs};
use crate::repos::{DESIRED, DeviceRepo, DeviceRepoError, RemoteRepo, RemoteRepoError};

/// What the publisher writes, `desired` first.
pub(super) const OURS: [&str; 3] = [DESIRED, Branch::Bundle.as_str(), Branch::Freshness.as_str()];

/// What the device writes.
const REPORTS: [&str; 2] = [Branch::Status.as_str(), Branch::Heartbeat.as_str()];

/// What persons of the device's site write.
const SITE: &str = Branch::Site.as_str();

/// The longest subject and author of a foreign commit that are shown, in characters.
const MAX_SHOWN: usize = 200;

/// How many commits back the last one of ours is searched for under a foreign tip.
const MAX_BACK: usize = 1000;

pub(super) fn pull(mirror: &Mirror<'_>, device: &DeviceId) -> Result<RemoteRefs, MirrorError> {
    let (remote, mut seen) = observe_or_make(mirror, device)?;
    let fleet = mirror.rosters.fleet();
    let repo = match DeviceRepo::open(mirror.home, fleet, device)? {
        Some(repo) => repo,
        None if !seen.branches.contains_key(DESIRED) => return Ok(seen),
        // This machine was lost, or is a second publisher's.
        None => DeviceRepo::create(mirror.home, fleet, device)?,
    };
    let lock = tidied(&repo, device)?;
    let here = Here { mirror, device, repo: &repo, lock: &lock, remote: &remote };
    here.fetch(&seen, &OURS)?;
    let foreign = here.adopt(&seen);
    let reports = here.take_reports(&seen);
    here.take_site(&seen);
    match foreign {
        Err(MirrorError::Foreign(tip)) if mirror.reclaim.contains(device) => {
            here.step_back(tip.commit)?;
            (seen.reclaim, seen.reclaimed) = (true, here.is_reclaimed(tip.commit)?);
        }
        foreign => foreign?,
    }
    reports?;
    Ok(seen)
}

pub(super) fn reports(mirror: &Mirror<'_>, device: &DeviceId) -> Result<(), MirrorError> {
    let Some(repo) = DeviceRepo::open(mirror.home, mirror.rosters.fleet(), device)? else { return Ok(()) };
    let (remote, seen) = observe(mirror, device)?;
    let lock = tidied(&repo, device)?;
    let here = Here { mirror, device, repo: &repo, lock: &lock, remote: &remote };
    here.take_reports(&seen)?;
    here.take_site(&seen);
    here.fetch(&seen, &[DESIRED])?;
    match seen.branches.get(DESIRED) {
        Some(tip) if !here.has_part(*tip)? => here.believe(*tip).map(drop),
        _ => Ok(()),
    }
}

/// The writer's lock of a repository, whose packs are made one before anything comes that no branch names yet. Where they can't be,
/// `publish` makes it anew, and nothing waits for that.
fn tidied(repo: &DeviceRepo, device: &DeviceId) -> Result<RepoLock, MirrorError> {
    let lock = repo.lock()?;
    if let Err(error) = repo.consolidate(&lock) {
        warn!(%device, error = error_chain(&error), "the packs of its repository here can't be made one");
    }
    Ok(lock)
}

/// Observes the repository; one that isn't there, or that the device isn't let into yet, is made by the command first.
fn observe_or_make(mirror: &Mirror<'_>, device: &DeviceId) -> Result<(RemoteRepo, RemoteRefs), MirrorError> {
    let provisioned = mirror.provision(device, When::Changed);
    match (observe(mirror, device), provisioned) {
        (Ok((remote, seen)), provisioned) => Ok((remote, RemoteRefs { unprovisioned: provisioned.err(), ..seen })),
        (Err(_), Err(error)) => Err(MirrorError::Provision(error)),
        (Err(MirrorError::Remote { source, url }), Ok(false)) if source.may_be_missing() => {
            match mirror.provision(device, When::Missing) {
                Ok(true) => observe(mirror, device),
                Ok(false) => Err(MirrorError::Remote { source, url }),
                Err(error) => Err(MirrorError::Provision(error)),
            }
        }
        (Err(error), Ok(_)) => Err(error),
    }
}

fn observe(mirror: &Mirror<'_>, device: &DeviceId) -> Result<(RemoteRepo, RemoteRefs), MirrorError> {
    let failed = |source| MirrorError::Remote { url: mirror.remotes.url(device), source };
    let remote = mirror.remotes.repo(device).map_err(failed)?;
    let branches = remote.branches().map_err(failed)?;
    mirror.remotes.is_there(device);
    Ok((remote, RemoteRefs { branches, ..RemoteRefs::default() }))
}

/// A device's repository here, locked, and the one at the host.
struct Here<'a> {
    mirror: &'a Mirror<'a>,
    device: &'a DeviceId,
    repo: &'a DeviceRepo,
    lock: &'a RepoLock,
    remote: &'a RemoteRepo,
}

impl Here<'_> {
    fn failed(&self, source: RemoteRepoError) -> MirrorError {
        MirrorError::Remote { url: self.remote.url().to_owned(), source }
    }

    /// Fetches the tips of these branches that aren't here yet.
    fn fetch(&self, seen: &RemoteRefs, branches: &[&str]) -> Result<(), MirrorError> {
        let tips = branches.iter().filter_map(|branch| seen.branches.get(*branch).copied());
        let wants: Vec<_> = tips.filter(|tip| !self.repo.has(*tip)).collect();
        if wants.is_empty() {
            return Ok(());
        }
        let mut haves = Vec::new();
        for branch in OURS.iter().chain(&REPORTS) {
            haves.extend(self.repo.tip(branch)?);
        }
        self.repo.fetch(self.remote, &wants, &haves).map_err(|source| self.failed(source))
    }

    /// The reports here are those of the host. What vanished there stays: it is what the device once reported.
    fn take_reports(&self, seen: &RemoteRefs) -> Result<(), MirrorError> {
        self.fetch(seen, &REPORTS)?;
        self.take_epochs(seen)?;
        for branch in REPORTS {
            if let Some(tip) = seen.branches.get(branch).filter(|tip| self.repo.tip(branch).ok() != Some(Some(**tip))) {
                self.set(branch, Expected::Any, *tip)?;
            }
        }
        Ok(())
    }

    /// Ends of epochs of `status` are kept as they were seen first, whatever the host makes of them later. So is the end of the one
    /// that was here, if what the host has now goes on from it and it keeps none itself.
    fn take_epochs(&self, seen: &RemoteRefs) -> Result<(), MirrorError> {
        let named = |branch: &String| epoch_of(&ref_name(branch)).is_some();
        let there: Vec<_> = seen.branches.keys().filter(|branch| named(branch)).map(String::as_str).collect();
        self.fetch(seen, &there)?;
        for branch in there {
            match (self.repo.tip(branch)?, seen.branches.get(branch)) {
                (None, Some(end)) => self.set(branch, Expected::Absent, *end)?,
                (Some(here), Some(end)) if here != *end => {
                    warn!(device = %self.device, branch, %here, there = %end, "the host moved the end of an epoch of `status`");
                }
                _ => {}
            }
        }
        let status = seen.branches.get(Branch::Status.as_str());
        let (Some(here), Some(there)) = (self.repo.tip(Branch::Status.as_str())?, status) else { return Ok(()) };
        if let Some(epoch) = self.repo.begun_epoch(*there, here)?.filter(|epoch| epoch.previous == here) {
            // Where the host showed another one under that number, under the next: nothing of it is lost here.
            let mut branch = epoch_branch(epoch.number - 1);
            let mut number = epoch.number;
            while self.repo.tip(&branch)?.is_some_and(|end| end != here) {
                branch = epoch_branch(number);
                number += 1;
            }
            if self.repo.tip(&branch)?.is_none() {
                self.set(&branch, Expected::Absent, here)?;
            }
        }
        Ok(())
    }

    /// The site's list here is that of the host, to be shown: only the device knows whose key counts. One that can't be had
    /// holds nothing else up.
    fn take_site(&self, seen: &RemoteRefs) {
        let Some(tip) = seen.branches.get(SITE).filter(|tip| self.repo.tip(SITE).ok() != Some(Some(**tip))) else {
            return;
        };
        let taken = self.fetch(seen, &[SITE]).and_then(|()| self.set(SITE, Expected::Any, *tip));
        if let Err(error) = taken {
            warn!(device = %self.device, commit = %tip, error = error_chain(&error), "the host's `site` can't be taken over");
        }
    }

    /// Moves `desired` here to where another publisher of this fleet brought it, and its company along.
    fn adopt(&self, seen: &RemoteRefs) -> Result<(), MirrorError> {
        let Some(tip) = seen.branches.get(DESIRED).copied() else { return Ok(()) };
        let local = self.repo.tip(DESIRED)?;
        if self.has_part(tip)? && local != Some(tip) {
            return Ok(());
        }
        if local != Some(tip) {
            self.believe(tip)?;
            if let Some(local) = local {
                // A tip here that isn't ours is reported by the pass itself.
                self.repo.desired_at(local, &self.mirror.rosters.publishers)?;
                if self.repo.is_ancestor(local, tip)? != Ancestry::Yes {
                    warn!(device = %self.device, %local, %tip, "another publisher was quicker: its state is built upon");
                }
            }
            self.set(DESIRED, local.map_or(Expected::Absent, Expected::At), tip)?;
        }
        self.adopt_company(seen, tip, local != Some(tip))
    }

    /// Takes over `bundle` and `freshness` of the same `desired`, unless those here are better: two publishers that
    /// replace each other's equal ones would never end.
    fn adopt_company(&self, seen: &RemoteRefs, desired: CommitId, moved: bool) -> Result<(), MirrorError> {
        let publishers = &self.mirror.rosters.publishers;
        let differs = |branch: &str| {
            seen.branches.get(branch).copied().filter(|tip| self.repo.tip(branch).ok() != Some(Some(*tip)))
        };
        if let Some(tip) =
            differs(Branch::Bundle.as_str()).filter(|tip| self.repo.is_ours(*tip, Branch::Bundle.as_str(), publishers))
            && (moved || self.repo.same_files(tip, Branch::Bundle.as_str()))
        {
            self.set(Branch::Bundle.as_str(), Expected::Any, tip)?;
        }
        if let Some(tip) = differs(Branch::Freshness.as_str())
            .filter(|tip| self.repo.is_ours(*tip, Branch::Freshness.as_str(), publishers))
        {
            let expires = |commit| {
                let proof = self.repo.freshness_at(commit)?;
                (proof.tip == desired.to_string()).then_some(proof.expires)
            };
            let here = self.repo.tip(Branch::Freshness.as_str())?.and_then(expires);
            if expires(tip).is_some_and(|there| here.is_none_or(|here| there >= here)) {
                self.set(Branch::Freshness.as_str(), Expected::Any, tip)?;
            }
        }
        Ok(())
    }

    /// Whether `desired` here is this commit or has it in its history.
    fn has_part(&self, tip: CommitId) -> Result<bool, MirrorError> {
        match self.repo.tip(DESIRED)? {
            Some(local) if local == tip => Ok(true),
            Some(local) if self.repo.has(tip) => Ok(self.repo.is_ancestor(tip, local)? == Ancestry::Yes),
            _ => Ok(false),
        }
    }

    /// A tip that a publisher of this fleet signed for this device, or who wrote it instead.
    fn believe(&self, tip: CommitId) -> Result<(), MirrorError> {
        let Err(source) = self.repo.desired_at(tip, &self.mirror.rosters.publishers) else { return Ok(()) };
        match source {
            DeviceRepoError::Foreign { .. }
            | DeviceRepoError::Unverified { .. }
            | DeviceRepoError::Misplaced { .. }
            | DeviceRepoError::Invalid { .. }
            | DeviceRepoError::Tree { .. } => {
                let what = self.repo.described(tip, MAX_SHOWN);
                let url = self.remote.url().to_owned();
                Err(MirrorError::Foreign(Box::new(ForeignTip { url, commit: tip, what, source })))
            }
            other => Err(other.into()),
        }
    }

    /// Moves `desired` here on to the last commit of ours under a foreign tip, if it is newer than what is here.
    fn step_back(&self, foreign: CommitId) -> Result<(), MirrorError> {
        let local = self.repo.tip(DESIRED)?;
        let last = self.repo.last_verified(foreign, &self.mirror.rosters.publishers, MAX_BACK)?;
        let last = last.map(|tip| tip.commit);
        match (last, local) {
            (Some(last), None) => self.set(DESIRED, Expected::Absent, last),
            (Some(last), Some(local)) if last != local && self.repo.is_ancestor(local, last)? == Ancestry::Yes => {
                self.set(DESIRED, Expected::At(local), last)
            }
            _ => Ok(()),
        }
    }

    /// Whether what is here was made to replace this tip.
    fn is_reclaimed(&self, foreign: CommitId) -> Result<bool, MirrorError> {
        let Some(local) = self.repo.desired(&self.mirror.rosters.publishers)? else { return Ok(false) };
        let is_old = self.repo.is_ancestor(local.commit, foreign)? == Ancestry::Yes;
        Ok(!is_old && local.message.get(Trailer::Cause) == Some(RECLAIMED))
    }

    fn set(&self, branch: &str, expected: Expected, tip: CommitId) -> Result<(), MirrorError> {
        let name = ref_name(branch);
        Ok(self.repo.move_ref(self.lock, RefMove { name, expected, new: Some(tip) })?)
    }
}
