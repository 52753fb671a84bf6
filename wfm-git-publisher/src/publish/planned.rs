//! The decision of a pass without carrying it out, for `plan`, `validate`, `explain` and `why-not`: nothing is asked of a
//! registry, and nothing is changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::problem::Problems;
use repo_model::{DeviceId, error_chain};

use super::clock;
use super::covered::CoveredCommits;
use super::decide::{Compared, DeviceDecision, FleetPlan, Step, compare};
use super::error::{DeviceError, PublishError};
use super::findings::{self, Findings};
use super::fleet_at::{UsableFleet, check_covered, read, selected, undeclared, usable};
use super::gone;
use super::holds::NOTHING_HELD;
use super::known::KnownDevice;
use super::message::Origin;
use super::options::Options;
use super::outcome::Planned;
use super::pass::Pass;
use super::renamed;
use super::rollout_progress::RolloutProgress;
use super::since::Before;
use super::steps::{ToDecide, decide_all};
use super::up_to_date::UpToDateIndex;
use crate::explain::{DeviceContext, KnownOfDevice};
use crate::fleet::{self, Device, Fleet, Reading, SourceFile};
use crate::parallel;
use crate::plan::{Blocked, Change, Shown};
use crate::render::{Capabilities, Facts, Locks, merged, render, with_published};
use crate::repos::{Control, FleetRepo, Home, Ledger, Rosters};

/// What the fleet repository and the devices' repositories differ in.
pub fn plan(home: &Home, source: &FleetRepo, rev: &str, options: &Options<'_>) -> Result<Planned, PublishError> {
    let (ledger, rosters) = Control::read(home)?;
    let commit = source.resolve(rev)?;
    let usable = read(source, commit, &rosters, options.threads)?;
    let origin = Origin::of(&source.commit(commit)?, None);
    let mut planned = decided(home, &ledger, &rosters, (usable, Some(source)), origin, options)?;
    planned.not_covered = check_covered(source, &ledger, commit, options.now).err();
    Ok(planned)
}

/// What [`plan()`] would say of a fleet that was read already, of whichever commit.
pub fn plan_read(
    home: &Home,
    source: &FleetRepo,
    reading: Reading,
    options: &Options<'_>,
) -> Result<Planned, PublishError> {
    let (ledger, rosters) = Control::read(home)?;
    decided(home, &ledger, &rosters, (usable(reading, &rosters)?, Some(source)), Origin::none(), options)
}

/// What [`plan()`] would say of these files once they are committed; and what is wrong with what devices would get that
/// can't be compared, because they aren't enrolled for instance.
pub fn check(home: &Home, files: &[SourceFile], options: &Options<'_>) -> Result<Planned, PublishError> {
    let (ledger, rosters) = Control::read(home)?;
    let usable = usable(fleet::read_on(files, options.threads), &rosters)?;
    let mut planned = decided(home, &ledger, &rosters, (usable, None), Origin::none(), options)?;
    let fleet = &planned.fleet;
    let others = planned.devices.iter().filter(|shown| matches!(shown, Shown::NotEnrolled(_) | Shown::Failed(..)));
    let others = others.filter_map(|shown| fleet.devices.get(shown.device())).collect();
    let found = parallel::map(others, options.threads, |device| {
        (&device.id, render(fleet, device, Facts::default(), &Locks::new()).problems())
    });
    let found = merged(found.iter().map(|(device, problems)| (*device, problems)));
    planned.problems.extend(found);
    Ok(planned)
}

fn decided(
    home: &Home,
    ledger: &Ledger,
    rosters: &Rosters,
    (UsableFleet { fleet, problems }, source): (UsableFleet, Option<&FleetRepo>),
    origin: Origin,
    options: &Options<'_>,
) -> Result<Planned, PublishError> {
    let (up_to_date, findings) = (UpToDateIndex::read(home), Findings::read(home));
    let commit = origin.commit;
    let covered = CoveredCommits::read(home).before(commit);
    let before = |(source, commit)| Before::read(source, commit, &fleet, (rosters, &ledger.locks), options.threads);
    let before = source.zip(covered).and_then(before);
    let pass = Pass::read_only(home, rosters, &fleet, origin, options.now, (&up_to_date, before.as_ref()));
    let unresolved = |device: &_, name: &_, artifact: &_| findings.of_artifact(device, name, artifact);
    let looked = pass.look(ledger, &unresolved, options);
    let holds = looked.as_ref().map_or(&NOTHING_HELD, |looked| &looked.holds);
    let inputs = pass.inputs(&ledger.locks, &unresolved, holds);
    let devices = selected(&fleet, options).into_iter().map(|device| ToDecide { device, known: None }).collect();
    // What thousands of devices would have then would be too much to keep, and isn't shown.
    let forget = |decision: &mut DeviceDecision, _| decision.plan.iter_mut().for_each(|plan| plan.forget_deployments());
    let (plan, _) = decide_all(&pass, devices, &inputs, ledger, options, forget);
    let new: Vec<_> = plan.devices.iter().filter(|one| one.is_new && one.plan.is_some()).collect();
    let new: Vec<_> = new.into_iter().filter_map(|one| fleet.device(&one.device)).collect();
    let renamed = renamed::warnings(&pass, ledger, &new);
    let mut all = problems;
    all.extend(renamed);
    all.extend(merged(plan.devices.iter().map(|one| (&one.device, &one.problems))));
    all.extend(undeclared(home, &fleet, &ledger.locks));
    let (mut devices, failed) = shown(plan, &pass, &findings);
    let asked = |device: &DeviceId| options.devices.as_ref().is_none_or(|only| only.contains(device));
    let gone = gone::find(&fleet, ledger).unwrap_or_default().into_iter().filter(asked);
    let (retired, gone): (Vec<_>, Vec<_>) = gone.partition(|device| findings.retired.contains_key(device));
    devices.extend(retired.into_iter().map(Shown::Retired));
    for device in gone {
        // One that can't be read is denied anyway.
        let account = gone::account(home, &device).unwrap_or_default().map(|name| name.to_string());
        devices.push(Shown::Gone(device, account));
    }
    Ok(Planned {
        commit,
        problems: all,
        unidentified: fleet.broken.unidentified.iter().cloned().collect(),
        devices,
        rollouts: looked.as_ref().map(|looked| RolloutProgress::of(&looked.look)),
        clock: clock::check_clock(home, &fleet, ledger, rosters, options.now),
        failed,
        not_covered: None,
        fleet,
    })
}

impl Planned {
    /// What keeps everything from being published for all devices.
    pub fn refusals_of_all(&self) -> impl Iterator<Item = Blocked> {
        let clock = self.clock.iter().map(findings::of_clock);
        clock.chain(self.not_covered.iter().map(findings::of_pass))
    }

    /// What keeps something from being published and is no problem in a file: of the whole fleet, then of its devices.
    pub fn refusals(&self) -> Vec<Blocked> {
        let all = self.refusals_of_all();
        let failed = self.failed.iter().map(|(device, error)| findings::of_device(device, error));
        let blocked = self.devices.iter().flat_map(Shown::blocked).filter(|one| !one.is_shown_as_problem());
        all.chain(failed).chain(blocked.cloned()).collect()
    }
}

/// What there is to show of each device, in words that need no carrying out; and which can't be compared, and why.
fn shown(plan: FleetPlan, pass: &Pass<'_>, findings: &Findings) -> (Vec<Shown>, Vec<(DeviceId, DeviceError)>) {
    let (mut devices, mut failed) = (Vec::new(), Vec::new());
    for decision in plan.devices {
        let blocked: Vec<_> = decision.all_blocked().into_iter().map(|one| findings.since(one)).collect();
        let DeviceDecision { device, plan, step, .. } = decision;
        devices.push(match (step, plan) {
            _ if !pass.fleet.devices.contains_key(&device) => Shown::Broken(device),
            (Ok(Step::UpToDate { serial }), _) => Shown::UpToDate(device, serial),
            (Ok(Step::Retired), _) => Shown::Retired(device),
            (Ok(_) | Err(DeviceError::Guarded(_)), Some(plan)) => Shown::Plan(plan, blocked),
            (Ok(_), None) => Shown::NotEnrolled(device),
            (Err(error), _) => {
                let blocked = findings.since(findings::of_device(&device, &error));
                failed.push((device.clone(), error));
                Shown::Failed(device, Box::new(blocked))
            }
        });
    }
    (devices, failed)
}

/// What is known of each device of these files of the fleet that is asked about, for `work`, on so many threads; with what is
/// wrong in the files.
pub fn known_devices<T: Send>(
    home: &Home,
    files: &[SourceFile],
    is_asked: impl Fn(&DeviceId) -> bool,
    now: Timestamp,
    threads: usize,
    work: impl Fn(&Fleet, KnownOfDevice<'_>) -> T + Sync,
) -> Result<(Vec<T>, Problems), PublishError> {
    let (ledger, rosters) = Control::read(home)?;
    let UsableFleet { fleet, problems } = usable(fleet::read_on(files, threads), &rosters)?;
    let up_to_date = UpToDateIndex::default();
    let pass = Pass::read_only(home, &rosters, &fleet, Origin::none(), now, (&up_to_date, None));
    let devices = fleet.all_devices().filter(|device| is_asked(&device.id)).collect();
    let known = parallel::map(devices, threads, |device: &Device| {
        let unreported = Facts { capabilities: Capabilities::Unreported, ..Facts::default() };
        match KnownDevice::read(&pass, &device.id, ledger.entry(&device.id)) {
            Ok(known) => {
                let states = known.states();
                work(&fleet, KnownOfDevice { device, facts: known.facts(), states, trouble: None })
            }
            Err(error) => {
                let (states, trouble) = (BTreeMap::new(), Some(error_chain(&error)));
                work(&fleet, KnownOfDevice { device, facts: unreported, states, trouble })
            }
        }
    });
    Ok((known, problems))
}

/// What is known of one device of the fleet at a revision, for `work`; `None` if it isn't there.
pub fn device_context<T>(
    home: &Home,
    source: &FleetRepo,
    rev: &str,
    device: &DeviceId,
    now: Timestamp,
    work: impl FnOnce(DeviceContext<'_>) -> T,
) -> Result<Option<T>, PublishError> {
    let (ledger, rosters) = Control::read(home)?;
    let commit = source.resolve(rev)?;
    let UsableFleet { fleet, .. } = read(source, commit, &rosters, 1)?;
    let Some(found) = fleet.devices.get(device) else { return Ok(None) };
    let origin = Origin::of(&source.commit(commit)?, None);
    let (up_to_date, findings) = (UpToDateIndex::default(), Findings::read(home));
    let pass = Pass::read_only(home, &rosters, &fleet, origin, now, (&up_to_date, None));
    let (mut known, trouble) = match KnownDevice::read(&pass, device, ledger.entry(device)) {
        Ok(known) => (Some(known), None),
        Err(error) => (None, Some(error_chain(&error))),
    };
    let unresolved = |device: &_, name: &_, artifact: &_| findings.of_artifact(device, name, artifact);
    let inputs = pass.inputs(&ledger.locks, &unresolved, &NOTHING_HELD);
    let (changes, held, blocked) = known.as_mut().map_or_else(Default::default, |known| {
        let Compared { plan, blocked, guards, guarded, .. } = compare(&inputs, found, known, None);
        let guards = guards.iter().chain(&guarded).map(|guarded| Blocked::of_guard(device, guarded));
        let blocked = blocked.into_iter().chain(guards);
        let blocked = blocked.map(|one| findings.since(one)).collect();
        let names = |changes: Vec<Change>| changes.into_iter().map(|change| change.name).collect();
        (names(plan.changes), names(plan.held), blocked)
    });
    let unreported = Facts { capabilities: Capabilities::Unreported, ..Facts::default() };
    let facts = known.as_ref().map_or(unreported, KnownDevice::facts);
    let tip = known.as_ref().and_then(|known| known.tip.as_ref());
    let locks = tip.map(|tip| with_published(ledger.locks.clone(), &tip.desired));
    let locks = locks.as_ref().unwrap_or(&ledger.locks);
    Ok(Some(work(DeviceContext { fleet: &fleet, device: found, facts, locks, changes, held, blocked, trouble })))
}
