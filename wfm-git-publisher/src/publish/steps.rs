//! The steps of a pass, each over all devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use repo_git::SigningKey;
use repo_git::durable::{FileError, Group};
use repo_model::problem::Problems;
use repo_model::{Branch, DeviceId, Trailer};

use super::clock;
use super::commits::{self, Draft, Holding, Made, Written};
use super::decide::{DeviceDecision, FleetPlan, Inputs, Step, Unresolved, decide, fleet_guard};
use super::error::{DeviceError, PublishError};
use super::findings;
use super::fleet_at::undeclared;
use super::holds::{Holds, NOTHING_HELD};
use super::known::{Known, KnownDevice, Unread};
use super::locks::{self, ResolveError, Resolving};
use super::options::{Options, Work};
use super::outcome::{Done, Results};
use super::pass::Pass;
use super::renamed;
use super::rollouts::Looked;
use super::tips::Tips;
use super::up_to_date::{InputDigests, UpToDate};
use crate::fleet::{Broken, Retired};
use crate::parallel;
use crate::plan::{Blocked, Guarded};
use crate::render::{Artifact, Documents, Facts, Locks, merged};
use crate::repos::{Charts, Control, ControlError, DeviceRepo, Entry, EntryState, HomeError, Ledger};

/// What came of one round of a pass.
pub(super) struct Ran {
    pub(super) unresolved: Vec<ResolveError>,
    pub(super) problems: Problems,
    pub(super) results: Results,
    /// What each device has now, if nothing is left to do for it.
    pub(super) up_to_date: Vec<(DeviceId, Option<UpToDate>)>,
    /// Where the branches of each device stand now, as far as that is known.
    pub(super) tips: Vec<(DeviceId, Tips)>,
    /// Devices that get something else as soon as the meaning of a tag is known, or a rollout releases it.
    pub(super) awaiting: Vec<DeviceId>,
    /// What of each device's deployments can't be published.
    pub(super) blocked: Vec<(DeviceId, Vec<Blocked>)>,
    /// What rollouts say; absent where there are none.
    pub(super) looked: Option<Looked>,
}

/// A device with what is known of it; absent until its repository is read.
pub(super) struct ToDecide<'a> {
    pub(super) device: DeviceId,
    pub(super) known: Option<Result<Known<'a>, DeviceError>>,
}

/// Decides for each device, side by side. `then` is given each decision with what is known of the device, which isn't
/// kept: thousands of open repositories and their documents would be too much.
pub(super) fn decide_all<'a, T: Send>(
    pass: &Pass<'a>,
    devices: Vec<ToDecide<'a>>,
    inputs: &Inputs<'a>,
    ledger: &Ledger,
    options: &Options<'_>,
    then: impl Fn(&mut DeviceDecision, Option<Known<'a>>) -> T + Sync,
) -> (FleetPlan, Vec<T>) {
    let (all, done) = (devices.len(), AtomicUsize::new(0));
    let one = |ToDecide { device, known }: ToDecide<'a>, guard: Option<&Guarded>| {
        let known = known.unwrap_or_else(|| Known::of(pass, &device, &inputs.digests, inputs.since.as_ref(), ledger));
        let known = known.and_then(|known| match known {
            // What is held back is shown by whoever doesn't publish.
            Known::UpToDate(found)
                if found.held != inputs.holds.of(&device).deployments
                    || (inputs.believes_tips && !found.held.is_empty()) =>
            {
                Known::compared(pass, &device, &found, inputs.since.as_ref(), ledger)
            }
            known => Ok(known),
        });
        let (mut decision, known) = match known {
            Ok(Known::Read(mut known)) if known.partly.is_some() => {
                let mut decision = decide(inputs, &device, &mut known, guard);
                let is_told = known.is_enough_for(decision.plan.as_deref());
                match is_told && (!pass.publishes() || is_known(pass, inputs, &mut decision, &mut known)) {
                    true => (decision, Some(Known::Read(known))),
                    false => decide_known(inputs, &device, Known::read(pass, &device, known.branches, ledger), guard),
                }
            }
            known => decide_known(inputs, &device, known, guard),
        };
        let made = then(&mut decision, known);
        (decision, made)
    };
    let decided = parallel::map(devices, options.threads, |device| {
        let decided = one(device, None);
        (options.progress)(Work::Compare, done.fetch_add(1, Ordering::Relaxed) + 1, all);
        decided
    });
    let (mut devices, mut made): (Vec<_>, Vec<_>) = decided.into_iter().unzip();
    if let Some(guard) = fleet_guard(inputs, &devices) {
        // Whoever loses something is decided about again, and keeps that.
        let losing = devices.iter().enumerate().filter(|(_, one)| one.removals().next().is_some());
        let losing: Vec<_> = losing.map(|(place, one)| (place, one.device.clone())).collect();
        let again = parallel::map(losing, options.threads, |(place, device)| {
            let known = Some(Known::read(pass, &device, None, ledger));
            (place, one(ToDecide { device, known }, Some(&guard)))
        });
        for (place, decided) in again {
            (devices[place], made[place]) = decided;
        }
    }
    (FleetPlan { devices }, made)
}

/// Whether all is known that is written by a decision about a device whose repository wasn't read; its plan is completed.
fn is_known(
    pass: &Pass<'_>,
    inputs: &Inputs<'_>,
    DeviceDecision { device, step, plan, .. }: &mut DeviceDecision,
    known: &mut KnownDevice<'_>,
) -> bool {
    match (step, plan) {
        (Ok(Step::Keep), _) => true,
        (Ok(Step::Publish(_)), Some(plan)) => {
            let all = inputs.fleet.device(device).zip(inputs.since.as_ref()).zip(known.tip.as_ref());
            let files = all.and_then(|((device, since), tip)| since.complete(device, tip, plan));
            let glance = files.is_some().then(|| DeviceRepo::glance(pass.home, device, Branch::Bundle)).flatten();
            let unread = files.zip(glance).zip(known.branches);
            known.unread = unread.map(|((files, (bundle, packs)), [_, freshness, _])| {
                let tips = [bundle, freshness];
                Unread { files, tips, packs }
            });
            known.unread.is_some()
        }
        _ => false,
    }
}

/// Decides for one device, whatever is known of it.
fn decide_known<'a>(
    inputs: &Inputs<'_>,
    device: &DeviceId,
    known: Result<Known<'a>, DeviceError>,
    guard: Option<&Guarded>,
) -> (DeviceDecision, Option<Known<'a>>) {
    match known {
        Err(error) => (DeviceDecision::failed(device, error), None),
        Ok(Known::UpToDate(known)) => (DeviceDecision::up_to_date(device, &known), Some(Known::UpToDate(known))),
        Ok(Known::Read(mut known)) => (decide(inputs, device, &mut known, guard), Some(Known::Read(known))),
    }
}

/// What is made of a decision, before anything is written.
struct Making {
    /// What is written; absent if the decision is that nothing can be done.
    made: Option<Made>,
    /// Where the device's branches stood.
    before: Option<Tips>,
    /// What the ledger has to say of it first.
    corrected: Option<Entry>,
    /// What it will have, if there is nothing left to do then.
    up_to_date: Option<UpToDate>,
}

/// One device whose decision is carried out.
struct Device {
    decision: DeviceDecision,
    making: Making,
}

/// What came of one device, and what the ledger shall say of it.
struct Carried {
    device: DeviceId,
    result: Result<Done, DeviceError>,
    entry: Option<Entry>,
    tips: Option<Tips>,
    awaits: bool,
    blocked: Vec<Blocked>,
    up_to_date: Option<UpToDate>,
}

/// How many devices are written at the same time for each thread that works: they mostly wait for the disk, and the more
/// there are, the more are synced together.
const WRITERS: usize = 8;

/// The most that are written at the same time; each has some ten files open.
const MAX_WRITERS: usize = 64;

/// Up to this many files are synced one by one: all that one device has.
const FEW: usize = 5;

impl<'a> Pass<'a> {
    /// Decides for every device, makes what the decisions ask for, and writes it.
    pub(super) fn run(
        &self,
        key: &SigningKey,
        control: &mut Control,
        devices: BTreeSet<DeviceId>,
        options: &Options<'_>,
    ) -> Result<Ran, PublishError> {
        clock::check_ledger(self, control)?;
        let (devices, unresolved) = self.resolve(devices, control, options);
        let of_artifact = |_: &_, _: &_, artifact: &Artifact| {
            unresolved.iter().find(|error| error.artifact == *artifact).map(findings::of_artifact)
        };
        self.note_look(control.ledger())?;
        let looked = self.look(control.ledger(), &of_artifact, options);
        looked.as_ref().map_or(Ok(()), |looked| self.note_decided(&looked.look, key, control))?;
        let ledger = control.ledger();
        let holds = looked.as_ref().map_or(&NOTHING_HELD, |looked| &looked.holds);
        let inputs = self.inputs(&ledger.locks, &of_artifact, holds);
        let make = |decision: &mut DeviceDecision, known| self.make(key, &inputs, decision, known);
        let (plan, made) = decide_all(self, devices, &inputs, ledger, options, make);
        let mut problems =
            merged(plan.devices.iter().flat_map(|one| [(&one.device, &one.problems), (&one.device, &one.warnings)]));
        problems.extend(undeclared(self.home, self.fleet, &ledger.locks));
        let new = plan.devices.iter().filter(|one| one.is_new).filter_map(|one| self.fleet.device(&one.device));
        problems.extend(renamed::warnings(self, ledger, &new.collect::<Vec<_>>()));
        let mut devices: Vec<_> =
            plan.devices.into_iter().zip(made).map(|(decision, making)| Device { decision, making }).collect();
        devices.iter_mut().filter_map(|one| one.making.corrected.take()).for_each(|entry| control.put(entry));
        if devices.iter().any(Device::is_written) {
            clock::check_devices(self)?;
        }
        self.note_covered(key, control)?;
        self.reserve(&devices, key, control)?;
        let mut carried = self.publish_each(devices, options)?;
        self.note_published(&carried, key, control)?;
        problems.extend(self.repair_warnings());
        let tips = carried.iter().filter_map(|one| Some((one.device.clone(), one.tips?))).collect();
        let blocked = carried.iter_mut().filter(|one| !one.blocked.is_empty());
        let blocked = blocked.map(|one| (one.device.clone(), std::mem::take(&mut one.blocked))).collect();
        let awaiting = carried.iter().filter(|one| one.awaits).map(|one| one.device.clone()).collect();
        let (mut results, mut up_to_date) = (Results::new(), Vec::new());
        // What is kept because something is broken, or isn't known yet, isn't up to date.
        let is_whole = unresolved.is_empty() && self.fleet.broken == Broken::default();
        for one in carried {
            up_to_date.push((one.device.clone(), one.up_to_date.filter(|_| is_whole)));
            results.insert(one.device, one.result);
        }
        Ok(Ran { unresolved, problems, results, up_to_date, tips, awaiting, blocked, looked })
    }

    /// What decisions about all devices have in common.
    pub(super) fn inputs<'b>(
        &'b self,
        locks: &'b Locks,
        unresolved: &'b Unresolved<'b>,
        holds: &'b Holds,
    ) -> Inputs<'b> {
        Inputs {
            fleet: self.fleet,
            trust: &self.rosters.files,
            locks,
            digests: InputDigests::new(self.fleet, self.rosters, locks),
            since: self.before.map(|before| before.since(self.fleet, self.rosters, locks)),
            believes_tips: !self.publishes(),
            unresolved,
            allowed: self.allowed,
            holds,
            reclaim_elsewhere: &self.reclaim_elsewhere,
        }
    }

    /// Finds out what every tag means that isn't known yet; only where there is one, all repositories are read before
    /// anything is decided.
    fn resolve(
        &self,
        devices: BTreeSet<DeviceId>,
        control: &mut Control,
        options: &Options<'_>,
    ) -> (Vec<ToDecide<'a>>, Vec<ResolveError>) {
        if locks::are_known(self.fleet, &control.ledger().locks) {
            return (devices.into_iter().map(|device| ToDecide { device, known: None }).collect(), Vec::new());
        }
        let ledger = control.ledger();
        let digests = InputDigests::new(self.fleet, self.rosters, &ledger.locks);
        let found = parallel::map(devices.into_iter().collect(), options.threads, |device| {
            let known = Known::of(self, &device, &digests, None, ledger);
            // What is held back needs its tags, too.
            let mut known = known.and_then(|known| match known {
                Known::UpToDate(found) if !found.held.is_empty() => {
                    Known::read(self, &device, Some(found.tips), ledger)
                }
                known => Ok(known),
            });
            if let Ok(Known::Read(known)) = &mut known {
                // Of all devices at the same time they would be too much; each is written anew once it is decided about.
                known.documents = Documents::default();
            }
            (device, known)
        });
        let read: BTreeMap<_, _> = found
            .iter()
            .filter_map(|(id, found)| match found {
                Ok(Known::Read(known)) => Some((id, known)),
                _ => None,
            })
            .collect();
        let tips = read.values().filter_map(|known| known.tip.as_ref());
        let failed: BTreeSet<_> = found.iter().filter(|(_, found)| found.is_err()).map(|(id, _)| id).collect();
        let facts = |id: &DeviceId| match read.get(id) {
            Some(known) => Some(known.facts()),
            None => failed.contains(id).then(Facts::default),
        };
        let resolving = Resolving { resolve: options.resolve, allowed: self.allowed, now: self.now };
        let unresolved = locks::resolve(self.fleet, tips, &facts, control, &Charts::of(self.home), resolving);
        (found.into_iter().map(|(device, known)| ToDecide { device, known: Some(known) }).collect(), unresolved)
    }

    /// Makes what a decision asks for. What fails with that is the decision then.
    fn make(
        &self,
        key: &SigningKey,
        inputs: &Inputs<'_>,
        decision: &mut DeviceDecision,
        known: Option<Known<'a>>,
    ) -> Making {
        let known = match known {
            None => return Making { made: None, before: None, corrected: None, up_to_date: None },
            Some(Known::UpToDate(known)) => {
                let made = Some(Made::Nothing(Done::Unchanged { renew_at: known.renew_at }));
                return Making { made, before: Some(known.tips), corrected: None, up_to_date: Some(*known) };
            }
            Some(Known::Read(known)) => known,
        };
        let holding =
            known.tip.as_ref().map(|tip| Holding { deployments: known.present(), ..Holding::of(&tip.desired) });
        let (before, had) = (known.branches, known.partly.map(|partly| partly.inputs));
        let rollout = decision.released.iter().map(|by| by.rollout).fold(known.rollout(), u32::max);
        let corrected = known.entry.clone().filter(|_| known.corrects_ledger);
        let made = commits::make(self, key, decision, *known).unwrap_or_else(|error| {
            decision.step = Err(error);
            None
        });
        let (holding, had) = match &made {
            Some(Made::Draft(draft)) => (Some(draft.holding), None),
            _ => (holding, had),
        };
        let had = had.filter(|_| !inputs.holds.of(&decision.device).deployments.is_empty());
        let device = self.fleet.devices.get(&decision.device).filter(|_| decision.is_complete);
        // The next pass finds that nothing more is published for it.
        let device = device.filter(|device| !device.retired.is_some_and(Retired::is_unheard));
        let up_to_date = device.zip(before.zip(holding)).map(|(device, (tips, holding))| UpToDate {
            inputs: inputs.digests.of(device),
            held: inputs.holds.of(&device.id).deployments.clone(),
            had,
            tips,
            stamps: None,
            serial: holding.serial,
            rollout,
            envelope: holding.envelope,
            manifest: holding.manifest,
            deployments: holding.deployments,
            renew_at: 0,
        });
        Making { made, before, corrected, up_to_date }
    }

    /// Keeps what of the fleet is agreed to, before anything of it is published: what comes next is judged by that.
    fn note_covered(&self, key: &SigningKey, control: &mut Control) -> Result<(), ControlError> {
        if control.ledger().covered == self.agreed {
            return Ok(());
        }
        control.put_covered(self.agreed);
        self.commit(control, key, "what of the fleet is agreed to".to_owned())
    }

    /// Gives out all serials of the pass by one commit; those that an interrupted pass gave out already are there.
    fn reserve(&self, devices: &[Device], key: &SigningKey, control: &mut Control) -> Result<(), ControlError> {
        let mut count = 0;
        for draft in devices.iter().filter_map(Device::draft).filter(|draft| !draft.is_reserved) {
            let entry = draft.entry(EntryState::Reserved, control.ledger().entry(&draft.device), self.now);
            control.put(entry);
            count += 1;
        }
        if count == 0 { Ok(()) } else { self.commit(control, key, format!("reserve {}", serials(count))) }
    }

    /// Writes, many devices side by side, whose syncs are put together.
    fn publish_each(&self, devices: Vec<Device>, options: &Options<'_>) -> Result<Vec<Carried>, ControlError> {
        let (work, others): (Vec<_>, Vec<_>) = devices.into_iter().partition(Device::is_written);
        let (all, done, stop, progress) = (work.len(), AtomicUsize::new(0), options.stop, options.progress);
        let path = self.home.devices();
        let group = Group::new(&path, FEW).map_err(FileError::read(&path)).map_err(HomeError::from)?;
        let mut carried = parallel::map(work, options.threads.saturating_mul(WRITERS).min(MAX_WRITERS), |device| {
            let one = group.within(|| self.write(device, stop));
            progress(Work::Publish, done.fetch_add(1, Ordering::Relaxed) + 1, all);
            one
        });
        carried.extend(others.into_iter().map(|device| self.write(device, stop)));
        Ok(carried)
    }

    /// Writes one device, if there is anything to write and nobody wants an end.
    fn write(&self, device: Device, stop: &AtomicBool) -> Carried {
        let Device { decision, making } = device;
        let DeviceDecision { device, step, awaits, blocked, guards, .. } = decision;
        let Making { made, before, up_to_date, .. } = making;
        let mut entry = None;
        let nothing = |done| Ok((done, before));
        let moved = |written: Written| {
            let tips = before.map(|before| [Some(written.desired), Some(written.freshness), before[2]]);
            (written.done, tips)
        };
        let result = match (step, made) {
            (Err(error), _) => Err(error),
            (Ok(_), Some(Made::Nothing(done))) => nothing(done),
            (Ok(_), None) => nothing(Done::Stopped),
            (Ok(_), _) if stop.load(Ordering::Relaxed) => nothing(Done::Stopped),
            (Ok(_), Some(Made::Renewal(renewal))) => renewal.write(self, &device).map(moved),
            (Ok(_), Some(Made::Draft(draft))) => {
                entry = Some(draft.entry(EntryState::Published, None, self.now));
                draft.write(self).map(moved)
            }
        };
        let (result, tips) = match result {
            Ok((done, tips)) => (Ok(done), tips),
            Err(error) => (Err(error), None),
        };
        let renew_at = result.as_ref().ok().and_then(Done::renew_at);
        let up_to_date =
            up_to_date.zip(tips).zip(renew_at).map(|((known, tips), renew_at)| UpToDate { tips, renew_at, ..known });
        let entry = entry.filter(|_| result.is_ok());
        // The rest is done.
        let result = guards.into_iter().next().map_or(result, |guard| Err(guard.into()));
        Carried { device, result, entry, tips, awaits, blocked, up_to_date }
    }

    /// Notes what was published, by one commit.
    fn note_published(&self, carried: &[Carried], key: &SigningKey, control: &mut Control) -> Result<(), ControlError> {
        let mut count = 0;
        for entry in carried.iter().filter_map(|one| one.entry.clone()) {
            control.put(entry);
            count += 1;
        }
        match count {
            0 if control.is_changed() => self.commit(control, key, "remember what is published".to_owned()),
            0 => Ok(()),
            count => self.commit(control, key, format!("published {}", serials(count))),
        }
    }

    fn commit(&self, control: &mut Control, key: &SigningKey, subject: String) -> Result<(), ControlError> {
        let message = Control::message(subject, self.rosters.fleet()).trailer(Trailer::FleetCommit, self.origin.commit);
        control.commit(message, key, self.now)?;
        Ok(())
    }
}

impl Device {
    /// Whether anything is written for it.
    fn is_written(&self) -> bool {
        self.decision.step.is_ok() && matches!(self.making.made, Some(Made::Renewal(_) | Made::Draft(_)))
    }

    fn draft(&self) -> Option<&Draft> {
        match &self.making.made {
            Some(Made::Draft(draft)) if self.decision.step.is_ok() => Some(draft),
            _ => None,
        }
    }
}

fn serials(count: usize) -> String {
    if count == 1 { "1 serial".to_owned() } else { format!("{count} serials") }
}
