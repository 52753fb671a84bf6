//! Publishing: one level-triggered pass over the fleet at a commit.
//!
//! The order of a pass: the fleet is read from the commit's objects → every device's verified tip and report are read,
//! but for those that nothing changed for since they were settled → tags without a lock are resolved, the first meaning
//! wins for ever → each device is rendered and compared; where everything means the same there is nothing to do → all
//! new serials are reserved in `control.git` by one commit → per device one pack with the new commits, synced, then
//! `bundle`, `desired`, `freshness` move by compare-and-swap (a new device's repository comes into its place with all
//! that in it); the syncs of many devices are put together → one commit in `control.git` remembers what was published.
//! A pass that is cut off anywhere is completed by the next one: a reserved serial is used again for the same envelope
//! and for no other.

mod clock;
mod device;
mod findings;
mod gone;
mod hints;
mod locks;
mod look;
mod message;
mod outcome;
mod pass;
mod reached;
mod renamed;
mod serial;
mod settled;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::{CommitId, KeyError, PublicKey, SigningKey};
use repo_model::problem::{Problem, Problems};
use repo_model::{DeviceId, FleetId};

use crate::fleet::{self, Fleet, Reading};
use crate::mirror::{Each, Mirror, Seen};
use crate::plan::Allowed;
use crate::render::{self, Locks};
use crate::repos::{
    Charts, Control, ControlError, FleetRepo, Home, HomeError, HomeLock, Remotes, Rosters, SourceError,
};
use message::Origin;
use pass::{Pass, Ran};
use reached::Reached;
use settled::Settled;

pub use clock::{ClockError, check_clock};
pub use device::{DeviceError, FRESH_FOR};
pub(crate) use device::{doubt, is_fresh};
pub use findings::{Findings, Gone};
pub(crate) use hints::hint;
pub use locks::{NewKey, Resolve, ResolveError};
pub use look::{Look, check, look, plan};
pub use outcome::{Done, Outcome, Planned};
pub use serial::{Known, SerialError};
pub use settled::unchanged;
pub(crate) use settled::{Tips, tips};

/// How long a second publisher waits for the first one.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// How often a device is published anew because another publisher was quicker.
const ROUNDS: u32 = 3;

/// A publisher at work: the only one of its home.
#[derive(Debug)]
pub struct Publisher {
    home: Home,
    key: SigningKey,
    rosters: Rosters,
    control: Control,
    /// What is to be said of a memory that was rebuilt.
    rebuilt: Option<String>,
    operators: BTreeSet<PublicKey>,
    settled: Settled,
    reached: Reached,
    _lock: HomeLock,
}

/// A pass can't even begin.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The home can't be used.
    #[error("cannot use the publisher's home")]
    Home(#[from] HomeError),
    /// The memory can't be used.
    #[error("cannot use the publisher's memory")]
    Control(#[from] ControlError),
    /// The publisher's key can't be used.
    #[error("cannot use the publisher's key")]
    Key(#[from] KeyError),
    /// The fleet can't be read.
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    /// The fleet's settings are broken.
    #[error("the fleet can't be used")]
    Fleet(Problems),
    /// The fleet repository and the home don't belong together.
    #[error("`fleet.yaml` has the id {fleet}, and the publisher's home is that of fleet {home}")]
    OtherFleet {
        /// The id in the fleet repository.
        fleet: FleetId,
        /// The id in the home.
        home: FleetId,
    },
    /// This machine's clock must be wrong.
    #[error("nothing is published, because this machine's clock must be wrong")]
    Clock(#[from] ClockError),
    /// The key isn't one that devices believe.
    #[error("the publisher's key {key} is not allowed by roster {version} now")]
    KeyNotAllowed {
        /// Its fingerprint.
        key: String,
        /// The newest roster.
        version: u64,
    },
}

/// What a pass does with many devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// What they have is compared with what the fleet says.
    Compare,
    /// What is new is written.
    Publish,
    /// They are brought to the other host, or looked at there.
    Mirror,
}

/// How a pass is done; everything that isn't in Git comes in here.
pub struct Options<'a> {
    /// The present moment.
    pub now: Timestamp,
    /// Only these devices; all if absent.
    pub devices: Option<BTreeSet<DeviceId>>,
    /// What a person allowed.
    pub allowed: Allowed,
    /// Asks a registry what a tag means.
    pub resolve: Resolve<'a>,
    /// How many devices are worked on at the same time.
    pub threads: usize,
    /// Set when the device in hand shall be the last one.
    pub stop: &'a AtomicBool,
    /// Told how many of how many devices are done.
    pub progress: &'a (dyn Fn(Work, usize, usize) + Sync),
    /// The host that devices talk to, where it isn't this one.
    pub remotes: Option<&'a Remotes>,
    /// Devices whose tip of `desired` is replaced if nobody of this fleet signed it.
    pub reclaim: BTreeSet<DeviceId>,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("now", &self.now).field("devices", &self.devices).finish_non_exhaustive()
    }
}

/// Warns of values that locked charts don't know.
pub fn undeclared(home: &Home, fleet: &Fleet, locks: &Locks) -> Problems {
    let charts = Charts::of(home);
    render::undeclared(fleet, locks, &|lock| charts.get(lock))
}

/// Reads the fleet at a revision, which must be the one that the home belongs to.
fn read(
    source: &FleetRepo,
    rev: &str,
    rosters: &Rosters,
    threads: usize,
) -> Result<(CommitId, Fleet, Problems), PublishError> {
    let commit = source.resolve(rev)?;
    let (fleet, problems) = usable(fleet::read_on(&source.files_on(commit, threads)?, threads), rosters)?;
    Ok((commit, fleet, problems))
}

/// The fleet that was read, if it is the one that the home belongs to; and what is wrong in it.
fn usable(reading: Reading, rosters: &Rosters) -> Result<(Fleet, Problems), PublishError> {
    let Some(fleet) = reading.fleet else { return Err(PublishError::Fleet(reading.problems)) };
    let home = rosters.fleet();
    if fleet.settings.id != home {
        return Err(PublishError::OtherFleet { fleet: fleet.settings.id, home });
    }
    Ok((fleet, reading.problems))
}

/// The devices of a pass, the broken ones included: their tips are kept fresh.
fn selected(fleet: &Fleet, options: &Options<'_>) -> BTreeSet<DeviceId> {
    let all = fleet.devices.keys().chain(&fleet.broken.devices).cloned();
    all.filter(|id| options.devices.as_ref().is_none_or(|only| only.contains(id))).collect()
}

/// The devices whose foreign tip at the other host is to be replaced by a new commit.
fn to_reclaim(seen: &Each<Seen>) -> BTreeSet<DeviceId> {
    let foreign = seen.iter().filter(|(_, seen)| seen.as_ref().is_ok_and(|seen| seen.reclaim && !seen.reclaimed));
    foreign.map(|(device, _)| device.clone()).collect()
}

impl Publisher {
    /// Becomes the one publisher at work in this home.
    pub fn open(home: &Home, now: Timestamp) -> Result<Self, PublishError> {
        home.check()?;
        let lock = home.lock(LOCK_WAIT)?;
        Self::begin(home, lock, now).inspect_err(|error| {
            let mut findings = Findings::read(home);
            findings.failed(error, now);
            // What went wrong first is told, whatever goes wrong now.
            let _ = findings.write(home);
        })
    }

    fn begin(home: &Home, lock: HomeLock, now: Timestamp) -> Result<Self, PublishError> {
        let key = SigningKey::load(&home.publisher_key())?;
        let (control, rosters, rebuilt) = Control::open_or_rebuild(home, &key, now)?;
        let public = crate::repos::key_text(key.public());
        if !public.is_some_and(|public| rosters.newest.allows(&public, now)) {
            let version = rosters.newest.roster.version;
            return Err(PublishError::KeyNotAllowed { key: key.public().fingerprint(), version });
        }
        let operators = home.operator_keys()?.into_iter().collect();
        home.clear_devices()?;
        let (settled, reached) = (Settled::read(home), Reached::read(home));
        Ok(Self { home: home.clone(), key, rosters, control, rebuilt, operators, settled, reached, _lock: lock })
    }

    /// Does one pass, and keeps what can't be published for whoever asks.
    pub fn publish(&mut self, source: &FleetRepo, rev: &str, options: &Options<'_>) -> Result<Outcome, PublishError> {
        let mut done = self.pass(source, rev, options);
        let mut findings = Findings::read(&self.home);
        match &mut done {
            Ok(outcome) => {
                findings.take_gone(&self.home, source.is_old(outcome.commit), outcome, options.now);
                findings.update(outcome, options.devices.is_none(), options.now);
            }
            Err(error) => findings.failed(error, options.now),
        }
        let written = findings.write(&self.home);
        let outcome = done?;
        written?;
        Ok(outcome)
    }

    fn pass(&mut self, source: &FleetRepo, rev: &str, options: &Options<'_>) -> Result<Outcome, PublishError> {
        let (commit, fleet, problems) = read(source, rev, &self.rosters, options.threads)?;
        let read = source.commit(commit)?;
        let origin = Origin::of(&read, crate::repos::operator(&read, &self.operators));
        let only = |before: &Option<CommitId>| source.sole_cause(*before, commit).is_some_and(|sole| sole.id == commit);
        let sole_after = self.reached.commits().collect::<BTreeSet<_>>().into_iter().filter(only).collect();
        let unidentified = fleet.broken.unidentified.iter().cloned().collect();
        let mut outcome = Outcome::of(commit, problems, unidentified);
        let rebuilt = self.rebuilt.take().map(|text| Problem::error("control.git", text).warning());
        outcome.problems.extend(rebuilt);
        let mut left = selected(&fleet, options);
        for round in 1..=ROUNDS {
            self.round(&fleet, (&origin, &sole_after), left, options, &mut outcome)?;
            left = outcome.raced();
            if left.is_empty() || round == ROUNDS {
                break;
            }
        }
        if options.devices.is_none() {
            outcome.gone = gone::find(&fleet, self.control.ledger());
        }
        match options.devices.is_none() && outcome.is_complete() {
            true => self.reached.all_reached(commit),
            false => self.reached.reached(commit, outcome.reached()),
        }
        self.reached.write(&self.home)?;
        if options.devices.is_none() {
            self.settled.settle(&outcome, &self.home, &self.key, &self.rosters);
        }
        self.settled.write(&self.home)?;
        Ok(outcome)
    }

    /// One pass over these devices: the other host is looked at, everything is published here, and then there.
    fn round(
        &mut self,
        fleet: &Fleet,
        (origin, sole_after): (&Origin, &BTreeSet<Option<CommitId>>),
        devices: BTreeSet<DeviceId>,
        options: &Options<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), PublishError> {
        let mirror = options.remotes.map(|remotes| Mirror {
            home: &self.home,
            rosters: &self.rosters,
            remotes,
            reclaim: &options.reclaim,
            stop: options.stop,
            progress: options.progress,
        });
        let pull = |mirror: &Mirror<'_>| mirror.pull(mirror.concerned(fleet, devices.iter().cloned()));
        let seen = mirror.as_ref().map(pull).unwrap_or_default();
        let pass = Pass {
            home: &self.home,
            rosters: &self.rosters,
            fleet,
            origin: origin.clone(),
            reached: &self.reached,
            sole_after,
            allowed: options.allowed,
            now: options.now,
            settled: &self.settled,
            reclaim: &options.reclaim,
            reclaim_elsewhere: to_reclaim(&seen),
            mended: Some(Mutex::default()),
        };
        outcome.blocked.retain(|device, _| !devices.contains(device));
        let Ran { unresolved, problems, results, rests, tips, awaiting, blocked } =
            pass.run(&self.key, &mut self.control, devices, options)?;
        self.settled.update(rests);
        outcome.problems.extend(problems);
        outcome.unresolved = unresolved;
        outcome.blocked.extend(blocked);
        outcome.tips.extend(tips);
        outcome.awaiting.extend(awaiting);
        outcome.add(results);
        let (ready, failed): (Vec<_>, Vec<_>) = seen.into_iter().partition(|(_, seen)| seen.is_ok());
        outcome.remote.extend(failed.into_iter().filter_map(|(device, seen)| Some((device, Err(seen.err()?)))));
        if let Some(mirror) = mirror {
            let ready = ready.into_iter().filter_map(|(device, seen)| Some((device, seen.ok()?)));
            outcome.remote.extend(mirror.push(ready.collect()));
        }
        Ok(())
    }
}
