//! The steps of a pass, each over all devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use repo_git::durable::Group;
use repo_git::{CommitId, CommitSpec, Person, SigningKey, TreeSource};
use repo_model::problem::{Problem, Problems};
use repo_model::{DeviceId, FileTree};

use super::device::{self, Decision, Moved, State, Step};
use super::message::Origin;
use super::reached::Reached;
use super::settled::{Inputs, Rest, Settled, Tips};
use super::{DeviceError, Done, Options, PublishError, ResolveError, Work, locks, renamed};
use crate::fleet::{Broken, Fleet};
use crate::parallel;
use crate::plan::{self, Allowed, Blocked};
use crate::render::{Facts, merged};
use crate::repos::{
    Charts, Control, ControlError, DeviceRepoError, Entry, EntryState, Home, HomeError, Ledger, Mended, Rosters, Tip,
    mend, publisher,
};

/// What the work on every device needs to know.
pub(super) struct Pass<'a> {
    pub(super) home: &'a Home,
    pub(super) rosters: &'a Rosters,
    pub(super) fleet: &'a Fleet,
    pub(super) origin: Origin,
    /// How far the devices are.
    pub(super) reached: &'a Reached,
    /// Of devices that are as far as one of these, no other commit can cause a change.
    pub(super) sole_after: &'a BTreeSet<Option<CommitId>>,
    /// What a person allowed.
    pub(super) allowed: Allowed,
    pub(super) now: Timestamp,
    /// Devices whose foreign tip here, if there is one, is replaced.
    pub(super) reclaim: &'a BTreeSet<DeviceId>,
    /// What earlier passes left settled.
    pub(super) settled: &'a Settled,
    /// Devices that need a new commit, because their tip at the other host is foreign.
    pub(super) reclaim_elsewhere: BTreeSet<DeviceId>,
    /// What is to be said of repositories that were damaged; `None` for a pass that only looks.
    pub(super) mended: Option<Mutex<Vec<(DeviceId, Mended)>>>,
}

type Each<T> = Vec<(DeviceId, Result<T, DeviceError>)>;

type Results = BTreeMap<DeviceId, Result<Done, DeviceError>>;

/// What came of a pass.
pub(super) struct Ran {
    pub(super) unresolved: Vec<ResolveError>,
    pub(super) problems: Problems,
    pub(super) results: Results,
    /// What each device has now, if nothing is left to do for it.
    pub(super) rests: Vec<(DeviceId, Option<Rest>)>,
    /// Where the branches stand.
    pub(super) tips: Vec<(DeviceId, Tips)>,
    /// Devices that get something else as soon as the meaning of a tag is known.
    pub(super) awaiting: Vec<DeviceId>,
    /// What of each device's deployments can't be published.
    pub(super) blocked: Vec<(DeviceId, Vec<Blocked>)>,
}

/// What is found of a device before anything is decided.
pub(super) enum Found {
    /// Nothing that it depends on is another than it was when there was nothing left to do.
    Settled(Rest),
    /// Its repository was read, with where its branches stood before that.
    Read(Box<State>, Option<Tips>),
}

/// What is decided for a device.
struct Decided {
    step: Result<Step, DeviceError>,
    problems: Problems,
    /// How many deployments it has.
    present: usize,
    /// It has nothing yet.
    is_new: bool,
    /// It gets something else as soon as the meaning of a tag is known.
    awaits: bool,
    /// What of its deployments can't be published.
    blocked: Vec<Blocked>,
    /// Where its branches stood.
    before: Option<Tips>,
    /// What the ledger has to say of it first.
    truth: Option<Entry>,
    /// What it will have, if there is nothing left to do then.
    rest: Option<Rest>,
}

/// What came of one device, and what the ledger shall say of it.
struct Written {
    device: DeviceId,
    result: Result<Done, DeviceError>,
    entry: Option<Entry>,
    tips: Option<Tips>,
    awaits: bool,
    blocked: Vec<Blocked>,
    rest: Option<Rest>,
}

/// How many devices are written at the same time for each thread that works: they mostly wait for the disk, and the more
/// there are, the more are synced together.
const WRITERS: usize = 4;

/// Up to this many files are synced one by one.
const FEW: usize = 4;

/// No device.
static NONE: BTreeSet<DeviceId> = BTreeSet::new();

/// Nothing is known of how far devices are.
static NOWHERE: Reached = Reached::NOWHERE;

/// No commit.
static NO_COMMIT: BTreeSet<Option<CommitId>> = BTreeSet::new();

impl<'a> Pass<'a> {
    /// One that only looks: nothing is allowed, and nothing reclaimed.
    pub(super) fn to_look(
        home: &'a Home,
        rosters: &'a Rosters,
        fleet: &'a Fleet,
        (origin, now): (Origin, Timestamp),
        settled: &'a Settled,
    ) -> Self {
        let (allowed, reclaim_elsewhere) = (Allowed::default(), BTreeSet::new());
        let (reached, sole_after, reclaim) = (&NOWHERE, &NO_COMMIT, &NONE);
        Self {
            home,
            rosters,
            fleet,
            origin,
            reached,
            sole_after,
            allowed,
            now,
            reclaim,
            settled,
            reclaim_elsewhere,
            mended: None,
        }
    }
}

impl Pass<'_> {
    /// Whether it may change something.
    pub(super) fn publishes(&self) -> bool {
        self.mended.is_some()
    }

    /// Makes a device's damaged repository anew.
    pub(super) fn mend(&self, device: &DeviceId) -> Result<(), DeviceRepoError> {
        let mended = mend(self.home, device)?;
        if let Some(all) = &self.mended {
            all.lock().unwrap_or_else(PoisonError::into_inner).push((device.clone(), mended));
        }
        Ok(())
    }

    /// What is to be said of repositories that were damaged.
    fn told_mended(&self) -> impl Iterator<Item = Problem> {
        let all = self.mended.as_ref().map(|all| all.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let warning = |(device, mended): (DeviceId, Mended)| {
            let file = self.fleet.devices.get(&device).map_or_else(|| device.to_string(), |device| device.file.clone());
            Problem::error(file, mended.to_string()).warning()
        };
        all.unwrap_or_default().into_iter().map(warning)
    }

    /// Does everything that is to be done.
    pub(super) fn run(
        &self,
        key: &SigningKey,
        control: &mut Control,
        devices: BTreeSet<DeviceId>,
        options: &Options<'_>,
    ) -> Result<Ran, PublishError> {
        self.check_memory(control)?;
        // Only where a tag is new the meaning of everything is looked at before anything is decided.
        let (work, unresolved): (Vec<(_, Option<_>)>, _) = if locks::are_known(self.fleet, &control.ledger().locks) {
            (devices.into_iter().map(|id| (id, None)).collect(), Vec::new())
        } else {
            let ledger = control.ledger();
            let inputs = Inputs::new(self.fleet, self.rosters, &ledger.locks);
            let found = parallel::map(devices.into_iter().collect(), options.threads, |id| {
                let found = self.look(&id, &inputs, Some(ledger));
                (id, found)
            });
            let unresolved = self.resolve(&found, control, options);
            (found.into_iter().map(|(id, found)| (id, Some(found))).collect(), unresolved)
        };
        // The meaning of tags is an input, too.
        let inputs = Inputs::new(self.fleet, self.rosters, &control.ledger().locks);
        let (all, done, ledger) = (work.len(), AtomicUsize::new(0), control.ledger());
        let mut decided = parallel::map(work, options.threads, |(id, found)| {
            let found = found.unwrap_or_else(|| self.look(&id, &inputs, Some(ledger)));
            let decided = self.decide(&id, found, (ledger, &unresolved), &inputs, key);
            (options.progress)(Work::Compare, done.fetch_add(1, Ordering::Relaxed) + 1, all);
            (id, decided)
        });
        let mut problems = merged(decided.iter().map(|(id, decided)| (id, &decided.problems)));
        problems.extend(super::undeclared(self.home, self.fleet, &ledger.locks));
        let new = decided.iter().filter(|(_, one)| one.is_new).filter_map(|(id, _)| self.fleet.devices.get(id));
        problems.extend(renamed::warnings(self, ledger, &new.collect::<Vec<_>>()));
        decided.iter_mut().filter_map(|(_, decided)| decided.truth.take()).for_each(|entry| control.put(entry));
        self.guard(&mut decided);
        if decided.iter().any(|(_, one)| is_work(&one.step)) {
            self.check_devices()?;
        }
        self.reserve(&decided, key, control)?;
        let mut written = self.carry_out(decided, options)?;
        self.remember(&written, key, control)?;
        problems.extend(self.told_mended());
        let tips = written.iter().filter_map(|one| Some((one.device.clone(), one.tips?))).collect();
        let blocked = written.iter_mut().filter(|one| !one.blocked.is_empty());
        let blocked = blocked.map(|one| (one.device.clone(), std::mem::take(&mut one.blocked))).collect();
        let awaiting = written.iter().filter(|one| one.awaits).map(|one| one.device.clone()).collect();
        let (mut results, mut rests) = (Results::new(), Vec::new());
        // What is kept because something is broken, or isn't known yet, is no rest.
        let rests_now = unresolved.is_empty() && self.fleet.broken == Broken::default();
        for one in written {
            rests.push((one.device.clone(), one.rest.filter(|_| rests_now)));
            results.insert(one.device, one.result);
        }
        Ok(Ran { unresolved, problems, results, rests, tips, awaiting, blocked })
    }

    /// What is there of a device. Of one that is settled nothing is read but where its branches stand.
    pub(super) fn look(
        &self,
        device: &DeviceId,
        inputs: &Inputs<'_>,
        ledger: Option<&Ledger>,
    ) -> Result<Found, DeviceError> {
        let before = self.settled.tips(self.home, device);
        let reclaimed = self.reclaim.contains(device) || self.reclaim_elsewhere.contains(device);
        let known = self.fleet.devices.get(device).filter(|_| !reclaimed).zip(before);
        let rest = known.and_then(|(device, tips)| {
            let rest = self.settled.rest(&device.id, &tips, self.now)?;
            let agrees = ledger.is_none_or(|ledger| rest.agrees(ledger.entry(&device.id)));
            (agrees && rest.inputs == inputs.of(device)).then_some(rest)
        });
        match rest {
            Some(rest) => Ok(Found::Settled(rest.clone())),
            None => State::read(self, device).map(|state| Found::Read(Box::new(state), before)),
        }
    }

    /// Finds out what every tag means that a device needs of which was read what it has.
    fn resolve(&self, found: &Each<Found>, control: &mut Control, options: &Options<'_>) -> Vec<ResolveError> {
        let states: BTreeMap<_, _> = found
            .iter()
            .filter_map(|(id, found)| match found {
                Ok(Found::Read(state, _)) => Some((id, state)),
                _ => None,
            })
            .collect();
        let tips = states.values().filter_map(|state| state.tip.as_ref());
        let failed: BTreeSet<_> = found.iter().filter(|(_, found)| found.is_err()).map(|(id, _)| id).collect();
        let facts = |id: &DeviceId| match states.get(id) {
            Some(state) => Some(state.facts()),
            None => failed.contains(id).then(Facts::default),
        };
        let how = (options.resolve, self.allowed, self.now);
        locks::resolve(self.fleet, tips, &facts, control, &Charts::of(self.home), how)
    }

    /// What is done for a device, and what is wrong with what is meant for it.
    fn decide(
        &self,
        id: &DeviceId,
        found: Result<Found, DeviceError>,
        (ledger, unresolved): (&Ledger, &[ResolveError]),
        inputs: &Inputs<'_>,
        key: &SigningKey,
    ) -> Decided {
        let nothing = |step, before| Decided {
            step,
            problems: Problems::default(),
            present: 0,
            is_new: false,
            awaits: false,
            blocked: Vec::new(),
            before,
            truth: None,
            rest: None,
        };
        let (state, before) = match found {
            Err(error) => return nothing(Err(error), None),
            Ok(Found::Settled(rest)) => {
                let step = Ok(Step::Settled(Done::Unchanged { renew_at: rest.renew_at }));
                let (present, tips) = (rest.deployments, rest.tips);
                return Decided { present, rest: Some(rest), ..nothing(step, Some(tips)) };
            }
            Ok(Found::Read(state, before)) => (*state, before),
        };
        let (present, is_new) = (state.present(), state.tip.is_none());
        let truth = state.tip.as_ref().and_then(|tip| truth(id, tip, ledger.entry(id), self.now));
        let entry = truth.as_ref().or_else(|| ledger.entry(id));
        let has = state
            .tip
            .as_ref()
            .map(|tip| (tip.desired.envelope.serial, tip.desired.envelope_digest, tip.desired.deployments.len()));
        let Decision { step, problems, kept, awaits, blocked } = match self.fleet.devices.get(id) {
            // One that lost its keys is still told so, because its word counts no more.
            Some(device) if device.is_enrolled() || state.tip.is_some() => {
                device::decide(self, device, state, entry, (&ledger.locks, unresolved), key)
            }
            _ => {
                let step = device::renew(self, key, id, state);
                let broken = self.fleet.broken.devices.contains(id).then(|| Blocked::of_broken_device(id));
                let blocked = broken.into_iter().collect();
                Decision { step, problems: Problems::default(), kept: true, awaits: false, blocked }
            }
        };
        let has = match &step {
            Ok(Step::Publish(draft)) => Some(draft.has()),
            _ => has,
        };
        let device = self.fleet.devices.get(id).filter(|_| !kept && problems.is_empty());
        let rest = device.zip(before.zip(has)).map(|(device, (tips, (serial, envelope, deployments)))| Rest {
            inputs: inputs.of(device),
            tips,
            stamps: None,
            serial,
            envelope,
            deployments,
            renew_at: 0,
        });
        Decided { step, problems, present, is_new, awaits, blocked, before, truth, rest }
    }

    /// Refuses all removals if they are too many for the fleet; whoever loses nothing gets what is new.
    fn guard(&self, decided: &mut [(DeviceId, Decided)]) {
        let removed = |one: &Decided| match &one.step {
            Ok(Step::Publish(draft)) => draft.removed,
            _ => 0,
        };
        let all = decided.iter().map(|(_, one)| removed(one)).sum();
        let present = decided.iter().map(|(_, one)| one.present).sum();
        if let Some(refused) = plan::of_fleet(&self.fleet.settings.guards, self.allowed, all, present) {
            let losing = decided.iter_mut().filter(|(_, one)| removed(one) > 0);
            losing.for_each(|(_, one)| one.step = Err(refused.clone().into()));
        }
    }

    /// Gives out all serials of the pass by one commit; those that an interrupted pass gave out already are there.
    fn reserve(
        &self,
        decided: &[(DeviceId, Decided)],
        key: &SigningKey,
        control: &mut Control,
    ) -> Result<(), ControlError> {
        let drafts = decided.iter().filter_map(|(_, one)| match &one.step {
            Ok(Step::Publish(draft)) => Some(draft),
            _ => None,
        });
        let mut count = 0;
        for draft in drafts.filter(|draft| !draft.reserved) {
            let entry = draft.entry(EntryState::Reserved, control.ledger().entry(&draft.device), self.now);
            control.put(entry);
            count += 1;
        }
        if count == 0 { Ok(()) } else { self.commit(control, key, format!("reserve {}", serials(count))) }
    }

    /// Writes, many devices side by side, whose syncs are put together.
    fn carry_out(
        &self,
        decided: Vec<(DeviceId, Decided)>,
        options: &Options<'_>,
    ) -> Result<Vec<Written>, ControlError> {
        let (work, settled): (Vec<_>, Vec<_>) = decided.into_iter().partition(|(_, one)| is_work(&one.step));
        let (all, done, stop, progress) = (work.len(), AtomicUsize::new(0), options.stop, options.progress);
        let path = self.home.devices();
        let group = Group::new(&path, FEW).map_err(|source| HomeError::Read { path, source })?;
        let mut written = parallel::map(work, options.threads.saturating_mul(WRITERS), |(device, decided)| {
            let one = group.within(|| self.write(device, decided, stop));
            progress(Work::Publish, done.fetch_add(1, Ordering::Relaxed) + 1, all);
            one
        });
        written.extend(settled.into_iter().map(|(device, one)| self.write(device, one, stop)));
        Ok(written)
    }

    /// Writes one device, if there is anything to write and nobody wants an end.
    fn write(&self, device: DeviceId, decided: Decided, stop: &AtomicBool) -> Written {
        let Decided { step, awaits, blocked, before, rest, .. } = decided;
        let (result, entry) = match step {
            Ok(Step::Settled(done)) => (Ok((done, None)), None),
            Ok(_) if stop.load(Ordering::Relaxed) => (Ok((Done::Stopped, None)), None),
            Ok(Step::Renew(renewal)) => (renewal.write(self, &device).map(moved), None),
            Ok(Step::Publish(draft)) => {
                let entry = draft.entry(EntryState::Published, None, self.now);
                (draft.write(self).map(moved), Some(entry))
            }
            Err(error) => (Err(error), None),
        };
        let tips = before.zip(result.as_ref().ok()).map(|(before, (_, to))| match to {
            Some([desired, freshness]) => [Some(*desired), Some(*freshness), before[2]],
            None => before,
        });
        let result = result.map(|(done, _)| done);
        let renew_at = result.as_ref().ok().and_then(Done::renew_at);
        let rest = rest.zip(tips).zip(renew_at).map(|((rest, tips), renew_at)| Rest { tips, renew_at, ..rest });
        let entry = entry.filter(|_| result.is_ok());
        Written { device, result, entry, tips, awaits, blocked, rest }
    }

    /// Remembers what was published, by one commit.
    fn remember(&self, written: &[Written], key: &SigningKey, control: &mut Control) -> Result<(), ControlError> {
        let mut count = 0;
        for entry in written.iter().filter_map(|one| one.entry.clone()) {
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
        let message = Control::message(subject, self.rosters.fleet()).trailer("Fleet-Commit", self.origin.commit);
        control.commit(message, key, self.now)?;
        Ok(())
    }

    pub(super) fn spec<'t>(
        &self,
        tree: &'t FileTree,
        parents: Vec<CommitId>,
        author: Person,
        message: String,
    ) -> CommitSpec<'t> {
        let time = self.now.as_second();
        CommitSpec { tree: TreeSource::Files(tree), parents, author, committer: publisher(), time, message }
    }
}

/// Whether anything is written for a device.
fn is_work(step: &Result<Step, DeviceError>) -> bool {
    matches!(step, Ok(Step::Publish(_) | Step::Renew(_)))
}

fn moved((done, to): Moved) -> (Done, Option<[CommitId; 2]>) {
    (done, Some(to))
}

fn serials(count: usize) -> String {
    if count == 1 { "1 serial".to_owned() } else { format!("{count} serials") }
}

/// What the ledger must say of a tip, if it doesn't.
fn truth(device: &DeviceId, tip: &Tip, entry: Option<&Entry>, now: Timestamp) -> Option<Entry> {
    let envelope = &tip.desired.envelope;
    let known = match entry {
        // The ledger knows better: the device's repository was restored, or a newer serial is reserved.
        Some(entry) if entry.serial > envelope.serial => true,
        Some(entry) => {
            entry.serial == envelope.serial
                && entry.state == EntryState::Published
                && entry.envelope == tip.desired.envelope_digest
        }
        None => false,
    };
    (!known).then(|| Entry {
        device: device.clone(),
        serial: envelope.serial,
        manifest_version: entry.map_or(0, |entry| entry.manifest_version).max(envelope.manifest_version),
        envelope: tip.desired.envelope_digest,
        state: EntryState::Published,
        time: now,
        published: None,
    })
}
