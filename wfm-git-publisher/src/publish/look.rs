//! Looking at what a pass would do, or at one device; nothing is asked of a registry, and nothing is changed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use repo_model::problem::Problems;
use repo_model::{DeploymentName, DeviceId};

use super::device::State;
use super::gone;
use super::message::Origin;
use super::pass::{Found, Pass};
use super::settled::{Inputs, Settled};
use super::{
    DeviceError, Findings, Options, Planned, PublishError, Work, check_clock, read, renamed, selected, undeclared,
    usable,
};
use crate::fleet::{self, Device, Fleet, Guards, SourceFile};
use crate::parallel;
use crate::plan::{self, Allowed, Blocked, DevicePlan, Shown};
use crate::render::{Capabilities, Facts, Locks, merged, render, with_published};
use crate::repos::{Control, ControlError, Entry, FleetRepo, Home, Rosters};

/// What the fleet repository and the devices' repositories differ in.
pub fn plan(home: &Home, source: &FleetRepo, rev: &str, options: &Options<'_>) -> Result<Planned, PublishError> {
    let (locks, rosters) = Control::read_locks(home)?;
    let (commit, fleet, problems) = read(source, rev, &rosters, options.threads)?;
    let origin = Origin::of(&source.commit(commit)?, None);
    compare(home, (&locks, &rosters), (&fleet, problems), origin, options)
}

/// What [`plan()`] would say of these files once they are committed; and what is wrong with what devices would get that
/// can't be compared, because they aren't enrolled for instance.
pub fn check(home: &Home, files: &[SourceFile], options: &Options<'_>) -> Result<Planned, PublishError> {
    let (locks, rosters) = Control::read_locks(home)?;
    let (fleet, problems) = usable(fleet::read_on(files, options.threads), &rosters)?;
    let mut planned = compare(home, (&locks, &rosters), (&fleet, problems), Origin::none(), options)?;
    let others = planned.devices.iter().filter(|shown| matches!(shown, Shown::NotEnrolled(_) | Shown::Failed(_)));
    let others = others.filter_map(|shown| fleet.devices.get(shown.device())).collect();
    let found = parallel::map(others, options.threads, |device| {
        (&device.id, render(&fleet, device, Facts::default(), &Locks::new()).problems())
    });
    planned.problems.extend(merged(found.iter().map(|(device, problems)| (*device, problems))));
    Ok(planned)
}

fn compare(
    home: &Home,
    (locks, rosters): (&Locks, &Rosters),
    (fleet, problems): (&Fleet, Problems),
    origin: Origin,
    options: &Options<'_>,
) -> Result<Planned, PublishError> {
    let (settled, commit) = (Settled::read(home), origin.commit);
    let pass = Pass::to_look(home, rosters, fleet, (origin, options.now), &settled);
    let unidentified = fleet.broken.unidentified.iter().cloned().collect();
    let inputs = Inputs::new(fleet, rosters, locks);
    let (devices, done) = (selected(fleet, options), AtomicUsize::new(0));
    let (all, findings) = (devices.len(), Findings::read(home));
    let mut shown = parallel::map(devices.into_iter().collect(), options.threads, |id| {
        let shown = pass.shown(id, &inputs, locks, &findings);
        (options.progress)(Work::Compare, done.fetch_add(1, Ordering::Relaxed) + 1, all);
        shown
    });
    find_lost(home, &mut shown)?;
    let present = shown.iter().map(|one| one.present).sum();
    let clock = check_clock(home, fleet, options.now)?;
    let mut planned = Planned { commit, problems, unidentified, devices: Vec::new(), clock, failed: Vec::new() };
    for Compared { shown, error, .. } in shown {
        planned.failed.extend(error.map(|error| (shown.device().clone(), error)));
        planned.devices.push(shown);
    }
    let asked = |device: &DeviceId| options.devices.as_ref().is_none_or(|only| only.contains(device));
    for device in gone::look(home, fleet)?.into_iter().filter(asked) {
        // One that can't be read is denied anyway.
        let account = gone::account(home, &device).unwrap_or_default().map(|name| name.to_string());
        planned.devices.push(Shown::Gone(device, account));
    }
    guard(&mut planned.devices, &fleet.settings.guards, present, &findings);
    let new = planned.devices.iter().filter_map(|shown| match shown {
        Shown::Plan(plan, _) if plan.serial.is_none() => fleet.devices.get(&plan.device),
        _ => None,
    });
    let new: Vec<_> = new.collect();
    if !new.is_empty() {
        planned.problems.extend(renamed::warnings(&pass, &Control::read(home)?.0, &new));
    }
    let problems: Vec<_> = planned.devices.iter().filter_map(Shown::problems).collect();
    planned.problems.extend(merged(problems.iter().map(|(device, problems)| (*device, problems))));
    planned.problems.extend(undeclared(home, fleet, locks));
    Ok(planned)
}

/// What there is to show of a device, how many deployments it has, and why it can't be compared.
struct Compared {
    shown: Shown,
    present: usize,
    /// A serial that the device adopted and that its repository doesn't know.
    adopted: Option<u64>,
    error: Option<DeviceError>,
}

/// Shows which repositories were restored and will be continued, of those where nothing else is to be done.
fn find_lost(home: &Home, shown: &mut [Compared]) -> Result<(), ControlError> {
    let same = shown.iter_mut().filter_map(|one| match &mut one.shown {
        Shown::Plan(plan, _) if plan.is_empty() => Some((plan, one.adopted)),
        _ => None,
    });
    let same: Vec<_> = same.collect();
    if same.is_empty() {
        return Ok(());
    }
    let (ledger, _) = Control::read(home)?;
    for (plan, adopted) in same {
        let published = ledger.entry(&plan.device).and_then(Entry::last_published).map(|published| published.serial);
        plan.lags_behind = adopted.or(published.filter(|serial| plan.serial.is_some_and(|known| known < *serial)));
    }
    Ok(())
}

/// Shows that nothing goes from any device, if that is too much for the fleet.
fn guard(devices: &mut [Shown], guards: &Guards, present: usize, findings: &Findings) {
    let is_guarded = |blocked: &[Blocked]| blocked.iter().any(|one| one.code.is_of_guard());
    let losing = devices.iter_mut().filter_map(|shown| match shown {
        Shown::Plan(plan, blocked)
            if plan.removed() > 0 && !plan.replaces_unresolved() && !is_guarded(blocked.as_slice()) =>
        {
            Some((plan, blocked))
        }
        _ => None,
    });
    let losing: Vec<_> = losing.collect();
    let removed = losing.iter().map(|(plan, _)| plan.removed()).sum();
    if let Some(refused) = plan::of_fleet(guards, Allowed::default(), removed, present) {
        for (plan, blocked) in losing {
            blocked.push(findings.since(Blocked::of_guard(&plan.device, &refused)));
        }
    }
}

impl Pass<'_> {
    /// What would be published for a device, and what of it can't be, as far as that is known without any registry.
    fn compared(
        &self,
        state: &State,
        device: &Device,
        locks: &Locks,
        findings: &Findings,
    ) -> (DevicePlan, Vec<Blocked>) {
        // What the device has is known, also where the memory of it was lost.
        let mut plan = state.plan(self, device, locks);
        if let Some(tip) = state.tip.as_ref().filter(|_| plan.is_unresolved()) {
            plan = state.plan(self, device, &with_published(locks.clone(), &tip.desired));
        }
        let unresolved = |name: &_, artifact: &_| findings.of_artifact(&device.id, name, artifact);
        let mut blocked = plan::blocked(&plan, &self.fleet.broken, &unresolved);
        let guarded = plan.guarded(&self.fleet.settings.guards, Allowed::default(), state.version());
        blocked.extend(guarded.iter().map(|guarded| Blocked::of_guard(&device.id, guarded)));
        (plan, blocked.into_iter().map(|one| findings.since(one)).collect())
    }

    /// What there is to show of a device.
    fn shown(&self, id: DeviceId, inputs: &Inputs<'_>, locks: &Locks, findings: &Findings) -> Compared {
        let nothing = |shown, error| Compared { shown, present: 0, adopted: None, error };
        let Some(device) = self.fleet.devices.get(&id) else { return nothing(Shown::Broken(id), None) };
        match self.look(&id, inputs, None) {
            Ok(Found::Settled(rest)) => {
                Compared { present: rest.deployments, ..nothing(Shown::Settled(id, rest.serial), None) }
            }
            Ok(Found::Read(state, _)) if !device.is_enrolled() && state.tip.is_none() => {
                nothing(Shown::NotEnrolled(id), None)
            }
            Ok(Found::Read(state, _)) => {
                let (plan, blocked) = self.compared(&state, device, locks, findings);
                let adopted = state.known(None).lost().map(|lost| lost.serial);
                let shown = Shown::Plan(Box::new(plan), blocked);
                Compared { shown, present: state.present(), adopted, error: None }
            }
            Err(error) => nothing(Shown::Failed(id), Some(error)),
        }
    }
}

/// One device of the fleet, with all that is known of it.
#[derive(Debug)]
pub struct Look<'a> {
    /// The fleet.
    pub fleet: &'a Fleet,
    /// The device in it.
    pub device: &'a Device,
    /// What its repository tells.
    pub facts: Facts<'a>,
    /// What tags mean.
    pub locks: &'a Locks,
    /// The deployments that it would get anew, or otherwise than it has them.
    pub changes: BTreeSet<DeploymentName>,
    /// What of it can't be published.
    pub blocked: Vec<Blocked>,
    /// Why its repository tells nothing: it can't be used or believed.
    pub trouble: Option<DeviceError>,
}

/// Looks at one device of the fleet at a revision; `None` if it isn't there.
pub fn look<T>(
    home: &Home,
    source: &FleetRepo,
    rev: &str,
    device: &DeviceId,
    now: Timestamp,
    work: impl FnOnce(Look<'_>) -> T,
) -> Result<Option<T>, PublishError> {
    let (mut locks, rosters) = Control::read_locks(home)?;
    let (commit, fleet, _) = read(source, rev, &rosters, 1)?;
    let Some(found) = fleet.devices.get(device) else { return Ok(None) };
    let origin = Origin::of(&source.commit(commit)?, None);
    let settled = Settled::default();
    let pass = Pass::to_look(home, &rosters, &fleet, (origin, now), &settled);
    let (state, trouble) = match State::read(&pass, device) {
        Ok(state) => (Some(state), None),
        Err(error) => (None, Some(error)),
    };
    let findings = Findings::read(home);
    let (changes, blocked) = state.as_ref().map_or_else(Default::default, |state| {
        let (plan, blocked) = pass.compared(state, found, &locks, &findings);
        (plan.changes.into_iter().map(|change| change.name).collect(), blocked)
    });
    let facts =
        state.as_ref().map_or(Facts { parent: None, capabilities: Capabilities::Unreported }, |one| one.facts());
    if let Some(tip) = state.as_ref().and_then(|state| state.tip.as_ref()) {
        locks = with_published(locks, &tip.desired);
    }
    Ok(Some(work(Look { fleet: &fleet, device: found, facts, locks: &locks, changes, blocked, trouble })))
}
