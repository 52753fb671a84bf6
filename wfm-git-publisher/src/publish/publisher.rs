//! The publisher at work: passes over the fleet, here and at the other host.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::{CommitId, PublicKey, SigningKey};
use repo_model::DeviceId;
use repo_model::problem::Problem;

use super::covered::CoveredCommits;
use super::error::PublishError;
use super::findings::Findings;
use super::fleet_at::{UsableFleet, check_covered, read, selected};
use super::gone;
use super::message::Origin;
use super::options::{Options, Work};
use super::outcome::Outcome;
use super::pass::Pass;
use super::retired;
use super::rollout_progress::RolloutProgress;
use super::rollouts::Looked;
use super::since::Before;
use super::ssh_keys;
use super::steps::Ran;
use super::tokens;
use super::up_to_date::UpToDateIndex;
use crate::coverage::Written;
use crate::fleet::Fleet;
use crate::mirror::{Each, Mirror, Provisioned, Provisioning, RemoteRefs};
use crate::plan::Blocked;
use crate::repos::{Control, Covered, FleetRepo, Home, HomeLock, Rosters, key_text, keys_at};

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
    /// The warning about a ledger that was rebuilt.
    rebuilt: Option<String>,
    operators: BTreeSet<PublicKey>,
    up_to_date: UpToDateIndex,
    covered: CoveredCommits,
    _lock: HomeLock,
}

/// Which commit of the fleet a pass publishes, and whom else it can be the only cause for.
struct Cause {
    origin: Origin,
    /// Of devices that have everything of one of these, no other commit can cause a change.
    sole_after: BTreeSet<Option<CommitId>>,
    /// What of the fleet is covered with it.
    agreed: Option<Covered>,
    /// The fleet as it was when devices had everything, where most of what is another is held back.
    before: Option<Before>,
}

/// The devices whose foreign tip at the other host is to be replaced by a new commit.
fn to_reclaim(remote_refs: &Each<RemoteRefs>) -> BTreeSet<DeviceId> {
    let is_foreign = |refs: &RemoteRefs| refs.reclaim && !refs.reclaimed;
    let foreign = remote_refs.iter().filter(|(_, refs)| refs.as_ref().is_ok_and(is_foreign));
    foreign.map(|(device, _)| device.clone()).collect()
}

/// Checks that devices believe what this key signs.
pub(crate) fn check_key(key: &SigningKey, rosters: &Rosters, now: Timestamp) -> Result<(), PublishError> {
    let public = key_text(key.public());
    if public.is_some_and(|public| rosters.newest.allows(&public, now)) {
        return Ok(());
    }
    let version = rosters.newest.roster.version;
    Err(PublishError::KeyNotAllowed { key: key.public().fingerprint(), version })
}

impl Publisher {
    /// Becomes the one publisher at work in this home.
    pub fn open(home: &Home, now: Timestamp) -> Result<Self, PublishError> {
        home.check()?;
        let lock = home.lock(LOCK_WAIT)?;
        Self::begin(home, lock, now).inspect_err(|error| {
            let mut findings = Findings::read(home);
            findings.failed(error, now);
            // The first error is returned, whatever goes wrong with noting it.
            let _ = findings.write(home);
        })
    }

    fn begin(home: &Home, lock: HomeLock, now: Timestamp) -> Result<Self, PublishError> {
        let key = SigningKey::load(&home.publisher_key())?;
        let (control, rosters, rebuilt) = Control::open_or_rebuild(home, &key, now)?;
        check_key(&key, &rosters, now)?;
        let operators = home.operator_keys()?.into_iter().collect();
        home.clear_devices()?;
        let (up_to_date, covered) = (UpToDateIndex::read(home), CoveredCommits::read(home));
        Ok(Self { home: home.clone(), key, rosters, control, rebuilt, operators, up_to_date, covered, _lock: lock })
    }

    /// Does one pass, and keeps what can't be published for whoever asks.
    pub fn publish(&mut self, source: &FleetRepo, rev: &str, options: &Options<'_>) -> Result<Outcome, PublishError> {
        let mut done = self.pass(source, rev, options);
        let mut findings = Findings::read(&self.home);
        match &mut done {
            Ok(outcome) => {
                let is_old = source.is_old(outcome.commit);
                findings.take_retired(&self.home, is_old, outcome, options.now);
                findings.take_gone(&self.home, is_old, outcome, options.now);
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
        let commit = source.resolve(rev)?;
        check_covered(source, self.control.ledger(), commit, options.now)?;
        let written = source.written(commit)?;
        let operators = self.operators.iter().copied().chain(keys_at(&written, options.now)).collect();
        let UsableFleet { fleet, problems } = read(source, commit, &self.rosters, options.threads)?;
        let read = source.commit(commit)?;
        let origin = Origin::of(&read, crate::repos::operator(&read, &operators));
        let only = |before: &Option<CommitId>| source.sole_cause(*before, commit).is_some_and(|sole| sole.id == commit);
        let sole_after = self.covered.commits().collect::<BTreeSet<_>>().into_iter().filter(only).collect();
        // Where nobody had to agree and nobody has to, nothing is noted.
        let free =
            |known: &Covered| known.rebuilt && source.written(known.commit).map_or(true, |had| had == Written::Absent);
        let agreed = match written {
            Written::Absent => self.control.ledger().covered.filter(free),
            _ => Some(Covered { commit, rebuilt: false }),
        };
        let before = self.before(source, &fleet, commit, options.threads);
        let cause = Cause { origin, sole_after, agreed, before };
        let invalid = Blocked::of_files(&fleet.broken, &problems);
        let unidentified = fleet.broken.unidentified.iter().cloned().collect();
        let mut outcome = Outcome { invalid, ..Outcome::of(commit, problems, unidentified) };
        let rebuilt = self.rebuilt.take().map(|text| Problem::error("control.git", text).warning());
        outcome.problems.extend(rebuilt);
        // A token that was ended ends also where nothing can be published.
        if !source.is_old(commit) {
            outcome.problems.extend(tokens::follow(&self.home, &fleet));
        }
        let mut left = selected(&fleet, options);
        for round in 1..=ROUNDS {
            self.round(&fleet, &cause, left, options, &mut outcome)?;
            left = outcome.raced();
            if left.is_empty() || round == ROUNDS {
                break;
            }
        }
        outcome.cut_off = retired::cut_off(&fleet, &outcome);
        if options.devices.is_none() {
            outcome.gone = gone::find(&fleet, self.control.ledger());
            if !source.is_old(commit) {
                outcome.problems.extend(ssh_keys::follow(&self.home, &fleet, options.now));
                self.withdraw(&fleet, options, &mut outcome)?;
            }
        }
        match options.devices.is_none() && outcome.is_complete() && outcome.awaiting.is_empty() {
            true => self.covered.cover_all(commit),
            false => self.covered.cover(commit, outcome.covered()),
        }
        self.covered.write(&self.home)?;
        if options.devices.is_none() {
            self.up_to_date.note_pass(&outcome, &self.home, &self.key, &self.rosters);
        }
        self.up_to_date.write(&self.home)?;
        Ok(outcome)
    }

    /// The fleet as it was when devices had everything.
    fn before(&self, source: &FleetRepo, fleet: &Fleet, commit: CommitId, threads: usize) -> Option<Before> {
        let ledger = self.control.ledger();
        let covered = self.covered.before(commit)?;
        Before::read(source, covered, fleet, (&self.rosters, &ledger.locks), threads)
    }

    /// Takes away at the other host what devices that left the fleet may do there.
    fn withdraw(&self, fleet: &Fleet, options: &Options<'_>, outcome: &mut Outcome) -> Result<(), PublishError> {
        let (Some(remotes), Some(gone)) = (options.remotes, &outcome.gone) else { return Ok(()) };
        let provisioned = Provisioned::read(&self.home);
        let mirror = Mirror {
            home: &self.home,
            rosters: &self.rosters,
            remotes,
            reclaim: &options.reclaim,
            provisioning: Some(Provisioning { fleet, provisioned: &provisioned }),
            stop: options.stop,
            progress: &|_, _| {},
        };
        let failed = mirror.withdraw(gone).into_iter().filter_map(|(device, result)| Some((device, result.err()?)));
        outcome.remote.extend(failed.map(|(device, error)| (device, Err(error))));
        Ok(mirror.keep_provisioned()?)
    }

    /// One pass over these devices: the other host is read, everything is published here, and then there.
    fn round(
        &mut self,
        fleet: &Fleet,
        cause: &Cause,
        devices: BTreeSet<DeviceId>,
        options: &Options<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), PublishError> {
        let progress = |done, all| (options.progress)(Work::Mirror, done, all);
        let provisioned = Provisioned::read(&self.home);
        let provisioning = Provisioning { fleet, provisioned: &provisioned };
        let mirror = options.remotes.map(|remotes| Mirror {
            home: &self.home,
            rosters: &self.rosters,
            remotes,
            reclaim: &options.reclaim,
            provisioning: Some(provisioning),
            stop: options.stop,
            progress: &progress,
        });
        let pull = |mirror: &Mirror<'_>| mirror.pull(mirror.concerned(fleet, devices.iter().cloned()));
        let remote_refs = mirror.as_ref().map(pull).unwrap_or_default();
        mirror.as_ref().map_or(Ok(()), Mirror::keep_provisioned)?;
        let pass = Pass {
            home: &self.home,
            rosters: &self.rosters,
            fleet,
            origin: cause.origin.clone(),
            covered: &self.covered,
            agreed: cause.agreed,
            sole_after: &cause.sole_after,
            allowed: options.allowed,
            now: options.now,
            up_to_date: &self.up_to_date,
            before: cause.before.as_ref(),
            reclaim: &options.reclaim,
            reclaim_elsewhere: to_reclaim(&remote_refs),
            unheard: remote_refs.iter().filter(|(_, refs)| refs.is_err()).map(|(device, _)| device.clone()).collect(),
            repaired: Some(Mutex::default()),
        };
        outcome.blocked.retain(|device, _| !devices.contains(device));
        let Ran { unresolved, problems, results, up_to_date, tips, awaiting, blocked, looked } =
            pass.run(&self.key, &mut self.control, devices, options)?;
        self.up_to_date.update(up_to_date);
        outcome.problems.extend(problems);
        outcome.unresolved = unresolved;
        outcome.blocked.extend(blocked);
        outcome.tips.extend(tips);
        outcome.awaiting.extend(awaiting);
        if let Some(Looked { look, heartbeats, .. }) = looked {
            let decided = outcome.rollouts.take().map(|before| before.decided).unwrap_or_default();
            let mut progress = RolloutProgress::of(&look);
            progress.decided.splice(0..0, decided);
            outcome.rollouts = Some(progress);
            outcome.heartbeats = heartbeats;
        }
        outcome.add(results);
        let (ready, failed): (Vec<_>, Vec<_>) = remote_refs.into_iter().partition(|(_, refs)| refs.is_ok());
        outcome.remote.extend(failed.into_iter().filter_map(|(device, refs)| Some((device, Err(refs.err()?)))));
        if let Some(mirror) = mirror {
            let ready = ready.into_iter().filter_map(|(device, refs)| Some((device, refs.ok()?)));
            outcome.remote.extend(mirror.push(ready.collect()));
        }
        Ok(())
    }
}
