//! The fleet that a pass is about: read at a revision, and no other than the home's own.

use std::collections::BTreeSet;

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::DeviceId;
use repo_model::problem::Problems;

use super::error::PublishError;
use super::options::Options;
use crate::fleet::{self, Fleet, Reading};
use crate::render::{self, Locks};
use crate::repos::{Charts, FleetRepo, Home, Ledger, Rosters};

/// A fleet that can be used, and what is wrong in it.
pub(super) struct UsableFleet {
    pub(super) fleet: Fleet,
    pub(super) problems: Problems,
}

/// Reads the fleet at a commit.
pub(super) fn read(
    source: &FleetRepo,
    commit: CommitId,
    rosters: &Rosters,
    threads: usize,
) -> Result<UsableFleet, PublishError> {
    usable(fleet::read_on(&source.files_on(commit, threads)?, threads), rosters)
}

/// The fleet that was read, if it is the one that the home belongs to.
pub(super) fn usable(reading: Reading, rosters: &Rosters) -> Result<UsableFleet, PublishError> {
    let Some(fleet) = reading.fleet else { return Err(PublishError::Fleet(reading.problems)) };
    let home = rosters.fleet();
    if fleet.settings.id != home {
        return Err(PublishError::OtherFleet { fleet: fleet.settings.id, home });
    }
    Ok(UsableFleet { fleet, problems: reading.problems })
}

/// Whether those agreed to a commit who have to.
pub(super) fn check_covered(
    source: &FleetRepo,
    ledger: &Ledger,
    commit: CommitId,
    now: Timestamp,
) -> Result<(), PublishError> {
    source
        .check_covered(ledger.base(source), commit, &[], now)
        .map_err(|source| PublishError::NotCovered { commit, source: Box::new(source) })
}

/// The devices of a pass, the broken ones included: their tips are kept fresh.
pub(super) fn selected(fleet: &Fleet, options: &Options<'_>) -> BTreeSet<DeviceId> {
    let all = fleet.devices.keys().chain(&fleet.broken.devices).cloned();
    all.filter(|id| options.devices.as_ref().is_none_or(|only| only.contains(id))).collect()
}

/// Warns of values that locked charts don't know.
pub(super) fn undeclared(home: &Home, fleet: &Fleet, locks: &Locks) -> Problems {
    let charts = Charts::of(home);
    render::undeclared(fleet, locks, &|lock| charts.get(lock))
}
