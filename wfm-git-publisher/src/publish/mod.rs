//! Publishing: one level-triggered pass over the fleet at a commit.
//!
//! The order of a pass: the fleet is read from the commit's objects → every device's verified tip and report are read
//! → tags without a lock are resolved, the first meaning wins for ever → each device is rendered and compared; where
//! everything means the same there is nothing to do → all new serials are reserved in `control.git` by one commit →
//! per device one pack with the new commits, synced, then `bundle`, `desired`, `freshness` move by compare-and-swap →
//! one commit in `control.git` remembers what was published. A pass that is cut off anywhere is completed by the next
//! one: a reserved serial is used again for the same envelope and for no other.

mod device;
mod locks;
mod message;
mod outcome;
mod pass;
mod serial;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::{CommitId, KeyError, PublicKey, SigningKey};
use repo_model::problem::Problems;
use repo_model::{DeviceId, FleetId};

use crate::fleet::{self, Device, Fleet};
use crate::host::{Control, ControlError, FleetRepo, Home, HomeError, HomeLock, Remotes, Rosters, SourceError};
use crate::mirror::{Each, Mirror, Seen};
use crate::plan::Allowed;
use crate::plan::Shown;
use crate::render::{Facts, merged, with_published};
use message::Origin;
use pass::Pass;

pub use device::{DeviceError, FRESH_FOR};
pub use locks::{Resolve, ResolveError};
pub use outcome::{Done, Outcome, Planned};
pub use serial::{Known, SerialError};

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
    operators: BTreeSet<PublicKey>,
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
    /// The key isn't one that devices believe.
    #[error("the publisher's key {key} is not allowed by roster {version} now")]
    KeyNotAllowed {
        /// Its fingerprint.
        key: String,
        /// The newest roster.
        version: u64,
    },
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
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
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

/// What the fleet repository and the devices' repositories differ in; asks no registry and changes nothing.
pub fn plan(home: &Home, source: &FleetRepo, rev: &str, options: &Options<'_>) -> Result<Planned, PublishError> {
    let (ledger, rosters) = Control::read(home)?;
    let (commit, fleet, problems) = read(source, rev, &rosters)?;
    let origin = Origin::of(&source.commit(commit)?, None, false);
    let (now, reclaim, reclaim_elsewhere) = (options.now, &BTreeSet::new(), BTreeSet::new());
    let (again, allowed) = (false, Allowed::default());
    let pass = Pass { home, rosters: &rosters, fleet: &fleet, origin, again, allowed, now, reclaim, reclaim_elsewhere };
    let unidentified = fleet.broken.unidentified.iter().cloned().collect();
    let mut planned = Planned { commit, problems, unidentified, devices: Vec::new(), failed: Vec::new() };
    for (id, state) in pass.read(selected(&fleet, options), options) {
        planned.devices.push(match (state, fleet.devices.get(&id)) {
            (_, None) => Shown::Broken(id),
            (Ok(state), Some(device)) if !device.is_enrolled() && state.tip.is_none() => Shown::NotEnrolled(id),
            (Ok(state), Some(device)) => {
                let tip = state.tip.iter();
                let locks = tip.fold(ledger.locks.clone(), |locks, tip| with_published(locks, &tip.desired));
                let plan = state.plan(&pass, device, &locks);
                let guarded = plan.guarded(&fleet.guards, Allowed::default(), state.version());
                Shown::Plan(Box::new(plan), guarded)
            }
            (Err(error), Some(_)) => {
                planned.failed.push((id.clone(), error));
                Shown::Failed(id)
            }
        });
    }
    planned.problems.extend(merged(planned.devices.iter().filter_map(Shown::problems)));
    Ok(planned)
}

/// Looks at one device of the fleet at a revision, with all that is known of it; `None` if it isn't there. Changes
/// nothing.
pub fn look<T>(
    home: &Home,
    source: &FleetRepo,
    rev: &str,
    device: &DeviceId,
    now: Timestamp,
    work: impl FnOnce(&Fleet, &Device, Facts<'_>) -> T,
) -> Result<Option<T>, PublishError> {
    let (_, rosters) = Control::read(home)?;
    let (commit, fleet, _) = read(source, rev, &rosters)?;
    let Some(found) = fleet.devices.get(device) else { return Ok(None) };
    let origin = Origin::of(&source.commit(commit)?, None, false);
    let (again, allowed) = (false, Allowed::default());
    let (reclaim, reclaim_elsewhere) = (&BTreeSet::new(), BTreeSet::new());
    let pass = Pass { home, rosters: &rosters, fleet: &fleet, origin, again, allowed, now, reclaim, reclaim_elsewhere };
    // A repository that can't be believed tells nothing, and explains nothing away.
    let state = device::State::read(&pass, device).ok();
    Ok(Some(work(&fleet, found, state.as_ref().map(device::State::facts).unwrap_or_default())))
}

/// Reads the fleet at a revision, which must be the one that the home belongs to.
fn read(source: &FleetRepo, rev: &str, rosters: &Rosters) -> Result<(CommitId, Fleet, Problems), PublishError> {
    let commit = source.resolve(rev)?;
    let reading = fleet::read(&source.files(commit)?);
    let Some(fleet) = reading.fleet else { return Err(PublishError::Fleet(reading.problems)) };
    let home = rosters.fleet();
    if fleet.id != home {
        return Err(PublishError::OtherFleet { fleet: fleet.id, home });
    }
    Ok((commit, fleet, reading.problems))
}

/// The devices of a pass, the broken ones included: their tips are kept fresh.
fn selected(fleet: &Fleet, options: &Options<'_>) -> BTreeSet<DeviceId> {
    let all = fleet.devices.keys().chain(&fleet.broken.devices).cloned();
    all.filter(|id| options.devices.as_ref().is_none_or(|only| only.contains(id))).collect()
}

/// The devices whose foreign tip at the other host is to be replaced.
fn reclaimed(seen: &Each<Seen>) -> BTreeSet<DeviceId> {
    let foreign = seen.iter().filter(|(_, seen)| seen.as_ref().is_ok_and(|seen| seen.reclaim));
    foreign.map(|(device, _)| device.clone()).collect()
}

impl Publisher {
    /// Becomes the one publisher at work in this home.
    pub fn open(home: &Home, now: Timestamp) -> Result<Self, PublishError> {
        home.check()?;
        let lock = home.lock(LOCK_WAIT)?;
        let key = SigningKey::load(&home.publisher_key())?;
        Control::rebuild_if_lost(home, &key, now)?;
        let (control, rosters) = Control::open(home)?;
        let public = crate::host::key_text(key.public());
        if !public.is_some_and(|public| rosters.newest.allows(&public, now)) {
            let version = rosters.newest.roster.version;
            return Err(PublishError::KeyNotAllowed { key: key.public().fingerprint(), version });
        }
        let operators = home.operator_keys()?.into_iter().collect();
        Ok(Self { home: home.clone(), key, rosters, control, operators, _lock: lock })
    }

    /// Does one pass.
    pub fn publish(&mut self, source: &FleetRepo, rev: &str, options: &Options<'_>) -> Result<Outcome, PublishError> {
        let (commit, fleet, problems) = read(source, rev, &self.rosters)?;
        let origin = self.origin(source, commit)?;
        let unidentified = fleet.broken.unidentified.iter().cloned().collect();
        let (devices, remote) = (BTreeMap::new(), BTreeMap::new());
        let mut outcome = Outcome { commit, problems, unidentified, unresolved: Vec::new(), devices, remote };
        let mut left = selected(&fleet, options);
        for round in 1..=ROUNDS {
            self.round(&fleet, &origin, left, options, &mut outcome)?;
            left = outcome.raced();
            if left.is_empty() || round == ROUNDS {
                break;
            }
        }
        if options.devices.is_none() && outcome.is_complete() {
            self.remember_commit(commit)?;
        }
        Ok(outcome)
    }

    /// One pass over these devices: the other host is looked at, everything is published here, and then there.
    fn round(
        &mut self,
        fleet: &Fleet,
        origin: &Origin,
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
            again: self.published() == Some(outcome.commit),
            allowed: options.allowed,
            now: options.now,
            reclaim: &options.reclaim,
            reclaim_elsewhere: reclaimed(&seen),
        };
        let (unresolved, problems, done) = pass.run(&self.key, &mut self.control, devices, options)?;
        outcome.problems.extend(problems);
        outcome.unresolved = unresolved;
        outcome.add(done);
        let (ready, failed): (Vec<_>, Vec<_>) = seen.into_iter().partition(|(_, seen)| seen.is_ok());
        outcome.remote.extend(failed.into_iter().filter_map(|(device, seen)| Some((device, Err(seen.err()?)))));
        if let Some(mirror) = mirror {
            let ready = ready.into_iter().filter_map(|(device, seen)| Some((device, seen.ok()?)));
            outcome.remote.extend(mirror.push(ready.collect()));
        }
        Ok(())
    }

    /// Who answers for a commit of the fleet.
    fn origin(&self, source: &FleetRepo, commit: CommitId) -> Result<Origin, PublishError> {
        let sole = source.sole_cause(self.published(), commit).is_some_and(|cause| cause.id == commit);
        let read = source.commit(commit)?;
        let operator = crate::host::operator(&read, &self.operators);
        Ok(Origin::of(&read, operator, sole))
    }

    /// The commit up to which every device has everything.
    fn published(&self) -> Option<CommitId> {
        std::fs::read_to_string(self.published_file()).ok().and_then(|text| text.trim().parse().ok())
    }

    /// Remembers the commit up to which every device has everything. Losing it costs nothing but an author's name.
    fn remember_commit(&self, commit: CommitId) -> Result<(), PublishError> {
        let path = self.published_file();
        let text = format!("{commit}\n");
        if std::fs::read_to_string(&path).is_ok_and(|present| present == text) {
            return Ok(());
        }
        Ok(self.home.write(&path, text.as_bytes(), 0o600)?)
    }

    fn published_file(&self) -> PathBuf {
        self.home.index().join("published")
    }
}
