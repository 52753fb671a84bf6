//! The steps of a pass, each over all devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use repo_git::{CommitId, CommitSpec, Person, SigningKey, TreeSource};
use repo_model::problem::Problems;
use repo_model::{DeviceId, FileTree};

use super::device::{self, State, Step};
use super::message::Origin;
use super::{DeviceError, Done, Options, ResolveError, locks};
use crate::fleet::Fleet;
use crate::host::{Control, ControlError, Entry, EntryState, Home, Ledger, Rosters, Tip, publisher};
use crate::parallel;
use crate::plan::{Allowed, Guarded};
use crate::render::merged;

/// What the work on every device needs to know.
pub(super) struct Pass<'a> {
    pub(super) home: &'a Home,
    pub(super) rosters: &'a Rosters,
    pub(super) fleet: &'a Fleet,
    pub(super) origin: Origin,
    /// Whether every device had everything of this fleet commit already.
    pub(super) again: bool,
    /// What a person allowed.
    pub(super) allowed: Allowed,
    pub(super) now: Timestamp,
    /// Devices whose foreign tip here, if there is one, is replaced.
    pub(super) reclaim: &'a BTreeSet<DeviceId>,
    /// Devices that need a new commit, because their tip at the other host is foreign.
    pub(super) reclaim_elsewhere: BTreeSet<DeviceId>,
}

type Each<T> = Vec<(DeviceId, Result<T, DeviceError>)>;

type Results = BTreeMap<DeviceId, Result<Done, DeviceError>>;

/// What came of one device, and what the ledger shall say of it.
struct Written {
    device: DeviceId,
    result: Result<Done, DeviceError>,
    entry: Option<Entry>,
}

impl Pass<'_> {
    /// Does everything that is to be done.
    pub(super) fn run(
        &self,
        key: &SigningKey,
        control: &mut Control,
        devices: BTreeSet<DeviceId>,
        options: &Options<'_>,
    ) -> Result<(Vec<ResolveError>, Problems, Results), ControlError> {
        let states = self.read(devices, options);
        self.heal(&states, control);
        let tips = states.iter().filter_map(|(_, state)| state.as_ref().ok()?.tip.as_ref());
        let known: BTreeMap<_, _> =
            states.iter().filter_map(|(id, state)| Some((id, state.as_ref().ok()?.facts()))).collect();
        let facts = |id: &DeviceId| known.get(id).copied().unwrap_or_default();
        let unresolved = locks::resolve(self.fleet, tips, &facts, control, (options.resolve, self.now));
        let present = states.iter().flat_map(|(_, state)| state).map(State::present).sum();
        let (mut steps, problems) = self.decide(states, control.ledger(), options);
        self.guard(&mut steps, present);
        self.reserve(&steps, key, control)?;
        let written = self.carry_out(steps, key, options);
        self.remember(&written, key, control)?;
        Ok((unresolved, problems, written.into_iter().map(|one| (one.device, one.result)).collect()))
    }

    /// What is there of each device.
    pub(super) fn read(&self, devices: BTreeSet<DeviceId>, options: &Options<'_>) -> Each<State> {
        parallel::map(devices.into_iter().collect(), options.threads, |id| {
            let state = State::read(self, &id);
            (id, state)
        })
    }

    /// Corrects the ledger where a tip knows better: a pass was cut off before its end, or the ledger was restored.
    fn heal(&self, states: &Each<State>, control: &mut Control) {
        for (id, state) in states {
            let tip = state.as_ref().ok().and_then(|state| state.tip.as_ref());
            if let Some(entry) = tip.and_then(|tip| truth(id, tip, control.ledger().entry(id), self.now)) {
                control.put(entry);
            }
        }
    }

    /// What is done for each device, and what is wrong with what is meant for it.
    fn decide(&self, states: Each<State>, ledger: &Ledger, options: &Options<'_>) -> (Each<Step>, Problems) {
        let decided = parallel::map(states, options.threads, |(id, state)| {
            let mut problems = Problems::default();
            let step = state.and_then(|state| match self.fleet.devices.get(&id) {
                // One that lost its keys is still told so, because its word counts no more.
                Some(device) if device.is_enrolled() || state.tip.is_some() => {
                    device::decide(self, device, state, ledger.entry(&id), &ledger.locks, &mut problems)
                }
                _ => device::renew(self, state),
            });
            ((id, step), problems)
        });
        let problems = merged(decided.iter().map(|((id, _), problems)| (id, problems)));
        (decided.into_iter().map(|(step, _)| step).collect(), problems)
    }

    /// Refuses all removals if they are too many for the fleet; whoever loses nothing gets what is new.
    fn guard(&self, steps: &mut Each<Step>, present: usize) {
        let removed = |step: &Result<Step, _>| match step {
            Ok(Step::Publish(draft)) => draft.removed,
            _ => 0,
        };
        let all = steps.iter().map(|(_, step)| removed(step)).sum();
        let limit = self.fleet.guards.fleet;
        if !self.allowed.removals && limit.is_passed(all, present) {
            let refused = Guarded::FleetRemovals { removed: all, of: present, percent: limit.percent };
            let losing = steps.iter_mut().filter(|(_, step)| removed(step) > 0);
            losing.for_each(|(_, step)| *step = Err(refused.clone().into()));
        }
    }

    /// Gives out all serials of the pass by one commit; those that an interrupted pass gave out already are there.
    fn reserve(&self, steps: &Each<Step>, key: &SigningKey, control: &mut Control) -> Result<(), ControlError> {
        let drafts = steps.iter().filter_map(|(_, step)| match step {
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

    /// Writes, device by device.
    fn carry_out(&self, steps: Each<Step>, key: &SigningKey, options: &Options<'_>) -> Vec<Written> {
        let work = steps.iter().filter(|(_, step)| matches!(step, Ok(Step::Publish(_) | Step::Renew(_)))).count();
        let done = AtomicUsize::new(0);
        parallel::map(steps, options.threads, |(device, step)| {
            let (result, entry) = match step {
                Ok(Step::Settled(done)) => return Written { device, result: Ok(done), entry: None },
                Err(error) => return Written { device, result: Err(error), entry: None },
                _ if options.stop.load(Ordering::Relaxed) => (Ok(Done::Stopped), None),
                Ok(Step::Renew(renewal)) => (renewal.write(self, key, &device), None),
                Ok(Step::Publish(draft)) => {
                    let entry = draft.entry(EntryState::Published, None, self.now);
                    let result = draft.write(self, key);
                    let entry = result.is_ok().then_some(entry);
                    (result, entry)
                }
            };
            (options.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, work);
            Written { device, result, entry }
        })
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
