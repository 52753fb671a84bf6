//! One device in a pass: what is there, what shall be there, and how it gets there.

use jiff::Timestamp;
use repo_git::repo::{Pack, Prepared};
use repo_git::{CommitId, Person, SigningKey};
use repo_model::desired::{Assembled, Desired};
use repo_model::freshness::{FRESHNESS, Freshness, LIFE};
use repo_model::message::Message;
use repo_model::problem::{Problem, Problems};
use repo_model::report::Adopted;
use repo_model::{DeploymentId, DeviceId, Digest, FileTree, json};

use super::findings;
use super::message;
use super::pass::Pass;
use super::serial::{Known, SerialError};
use super::{Done, ResolveError};
use crate::fleet::Device;
use crate::mirror::RECLAIMED;
use crate::plan::{Blocked, DevicePlan, Guarded, Numbers, Target, blocked, plan};
use crate::render::{Capabilities, Facts, Locks, render};
use crate::repos::{
    BY_CAPABILITIES, Claim, DESIRED, DeviceRepo, DeviceRepoError, DeviceWriter, Entry, EntryState, Published, Status,
    Tip, publisher,
};

/// How long a proof of freshness counts, in seconds; it is renewed at half of that.
pub const FRESH_FOR: i64 = LIFE.as_secs();

/// How far a clock may be set back before proofs of freshness are made anew for that, in seconds.
const SET_BACK: i64 = 60 * 60;

/// Whether a proof of freshness that is renewed then is one now: a clock that was ahead made those that are renewed later
/// than any can be, and no device believes them.
pub(crate) fn is_fresh(renew_at: i64, now: Timestamp) -> bool {
    (1..=FRESH_FOR / 2 + SET_BACK).contains(&renew_at.saturating_sub(now.as_second()))
}

/// Whether something that was signed then can have been, by this clock.
fn is_now(issued: Timestamp, now: Timestamp) -> bool {
    issued.as_second().saturating_sub(now.as_second()) <= SET_BACK
}

/// One device's part of a pass failed; the others go on.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its repository can't be used or believed.
    #[error(transparent)]
    Repo(#[from] DeviceRepoError),
    /// It can't get another serial.
    #[error(transparent)]
    Serial(#[from] SerialError),
    /// A person has to allow it, or the device is too old.
    #[error(transparent)]
    Guarded(#[from] Guarded),
}

/// What is there of a device before anything is decided.
#[derive(Debug)]
pub(super) struct State {
    pub(super) repo: Option<DeviceRepo>,
    pub(super) tip: Option<Tip>,
    status: Option<Status>,
    /// Where `desired` stands, if that isn't the tip: someone else wrote it, and it is replaced.
    foreign: Option<CommitId>,
    /// Whether what the device says that it adopted is known, and believed; absent if it says nothing or has no tip.
    claim: Option<Claim>,
    /// Whether a person said that it is believed.
    by_hand: bool,
}

impl State {
    /// Reads the verified tip of `desired`, and what the device verifiably says that it adopted. A repository that is
    /// damaged is made anew by a pass that publishes.
    pub(super) fn read(pass: &Pass<'_>, device: &DeviceId) -> Result<Self, DeviceError> {
        if pass.publishes() {
            DeviceRepo::put_right(pass.home, device)?;
        }
        let state = Self::read_as_it_is(pass, device);
        let is_damaged = match &state {
            Ok(state) => state.repo.as_ref().is_some_and(DeviceRepo::is_damaged),
            Err(DeviceError::Repo(error)) => error.is_damage(),
            Err(_) => false,
        };
        if !is_damaged || !pass.publishes() {
            return state;
        }
        drop(state);
        pass.mend(device)?;
        Self::read_as_it_is(pass, device)
    }

    fn read_as_it_is(pass: &Pass<'_>, device: &DeviceId) -> Result<Self, DeviceError> {
        let publishers = &pass.rosters.publishers;
        let Some(repo) = DeviceRepo::open(pass.home, pass.rosters.fleet(), device)? else {
            return Ok(Self { repo: None, tip: None, foreign: None, status: None, claim: None, by_hand: false });
        };
        // Most of what a device has is what it gets again.
        let wanted = pass.fleet.devices.get(device);
        let wanted = wanted.map(|device| render(pass.fleet, device, Facts::default(), &Locks::new()).deployments);
        let known = |id: DeploymentId, bytes: &[u8]| {
            let document = &wanted.as_ref()?.get(&id)?.document;
            (document.to_yaml() == bytes).then(|| document.clone())
        };
        let (tip, foreign) = match repo.desired_knowing(publishers, &known) {
            Err(_) if pass.reclaim.contains(device) => last_verified(&repo, pass)?,
            read => (read?, None),
        };
        let enrolled = pass.fleet.devices.get(device).map_or(&[][..], |device| &device.status_keys);
        let status = repo.verified_status(tip.as_ref(), enrolled, publishers);
        let adopted = status.as_ref().and_then(|status| status.said.adopted());
        let by_hand = pass.reclaim.contains(device);
        let now = pass.now.as_second();
        let claim = tip.as_ref().zip(adopted).map(|(tip, adopted)| match repo.claim(tip, adopted, publishers, now) {
            Ok(Claim::Doubted(_) | Claim::TooFar) if by_hand => Ok(Claim::Unknown),
            claim => claim,
        });
        let claim = claim.transpose()?;
        Ok(Self { repo: Some(repo), tip, foreign, status, claim, by_hand })
    }

    /// What the device's syncer verifiably says it is.
    pub(super) fn version(&self) -> Option<&str> {
        self.status.as_ref().map(|status| status.said.syncer.version.as_str())
    }

    /// How many deployments the device has.
    pub(super) fn present(&self) -> usize {
        self.tip.as_ref().map_or(0, |tip| tip.desired.deployments.len())
    }

    /// What is known of the device beyond the fleet's files.
    pub(super) fn facts(&self) -> Facts<'_> {
        let capabilities = match self.status.as_ref().and_then(|status| status.said.capabilities.as_ref()) {
            None => Capabilities::Unreported,
            Some(Ok(found)) => Capabilities::Reported(found),
            Some(Err(why)) => Capabilities::Unreadable(why),
        };
        Facts { parent: self.tip.as_ref().map(|tip| &tip.desired), capabilities }
    }

    /// What would be published, whether it differs or not.
    pub(super) fn plan(&self, pass: &Pass<'_>, device: &Device, locks: &Locks) -> DevicePlan {
        let facts = self.facts();
        let rendered = render(pass.fleet, device, facts, locks);
        plan(&rendered, facts.parent, &pass.rosters.files, &pass.fleet.broken)
    }

    pub(super) fn known<'a>(&'a self, entry: Option<&'a Entry>) -> Known<'a> {
        let parent = self.tip.as_ref().map(|tip| &tip.desired.envelope);
        Known {
            parent: parent.map(|envelope| (envelope.serial, envelope.manifest_version)),
            ledger: entry,
            adopted: self.adopted().filter(|_| !matches!(self.claim, Some(Claim::Doubted(_) | Claim::TooFar))),
            adopted_is_known: self.claim == Some(Claim::Known),
            is_certain: self.by_hand || self.claim == Some(Claim::Proven),
        }
    }

    fn adopted(&self) -> Option<&Adopted> {
        self.status.as_ref().and_then(|status| status.said.adopted())
    }

    /// From when on a change counts that is made by nothing but what the device says of its capabilities.
    fn heeds_capabilities_from(
        &self,
        pass: &Pass<'_>,
        plan: &DevicePlan,
        entry: Option<&Entry>,
    ) -> Result<Option<i64>, DeviceError> {
        let lost = self.known(entry).lost();
        match (&self.repo, &self.tip) {
            (Some(repo), Some(tip)) if cause(pass, plan, self, lost) == Some(BY_CAPABILITIES) => {
                Ok(repo.heeds_from(tip.commit, pass.now.as_second())?)
            }
            _ => Ok(None),
        }
    }
}

/// How far back the last commit of ours is looked for under a foreign tip.
const MAX_BACK: usize = 1000;

/// The last commit of ours under a foreign tip, and that tip.
fn last_verified(repo: &DeviceRepo, pass: &Pass<'_>) -> Result<(Option<Tip>, Option<CommitId>), DeviceError> {
    let publishers = &pass.rosters.publishers;
    let Some(foreign) = repo.tip(DESIRED)? else { return Ok((None, None)) };
    let last = repo.last_verified(foreign, publishers, MAX_BACK)?;
    let tip = last.map(|commit| repo.desired_at(commit, publishers)).transpose()?;
    Ok((tip, Some(foreign)))
}

/// What a pass does for one device.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing but what is said.
    Settled(Done),
    /// The proof of freshness is old.
    Renew(Box<Renewal>),
    /// There is something new.
    Publish(Box<Draft>),
}

/// A proof of freshness that is renewed.
#[derive(Debug)]
pub(super) struct Renewal {
    tip: CommitId,
    ready: Ready,
}

/// Commits that are made, and the branches that move to them, in this order.
#[derive(Debug)]
struct Ready {
    pack: Pack,
    moves: Vec<(&'static str, Option<CommitId>, CommitId)>,
}

/// What is decided for an enrolled device.
pub(super) struct Decision {
    pub(super) step: Result<Step, DeviceError>,
    /// What is wrong with what is meant for it.
    pub(super) problems: Problems,
    /// Whether it keeps something that isn't what the fleet says.
    pub(super) kept: bool,
    /// Whether it gets something else as soon as the meaning of a tag is known.
    pub(super) awaits: bool,
    /// What of its deployments can't be published.
    pub(super) blocked: Vec<Blocked>,
}

/// A new `desired` commit and all that goes with it, made before anything is written.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) device: DeviceId,
    /// How many deployments go.
    pub(super) removed: usize,
    /// How many there are then.
    deployments: usize,
    numbers: Numbers,
    envelope: Digest,
    /// Whether an interrupted attempt reserved this very serial for this very envelope.
    pub(super) reserved: bool,
    desired: CommitId,
    fresh: CommitId,
    ready: Ready,
}

/// Decides what to do for an enrolled device.
pub(super) fn decide(
    pass: &Pass<'_>,
    device: &Device,
    state: State,
    entry: Option<&Entry>,
    (locks, unresolved): (&Locks, &[ResolveError]),
    key: &SigningKey,
) -> Decision {
    let plan = state.plan(pass, device, locks);
    let blocked = blocked(&plan, &pass.fleet.broken, &|_, artifact| {
        unresolved.iter().find(|error| error.artifact == *artifact).map(findings::of_artifact)
    });
    let (mut problems, kept, awaits) = (plan.problems(), !plan.kept.is_empty(), plan.is_unresolved());
    let doubted = match state.claim {
        Some(Claim::Doubted(from)) => Some(from),
        _ => None,
    };
    let put_off = match state.heeds_capabilities_from(pass, &plan, entry) {
        Ok(put_off) => put_off,
        Err(error) => return Decision { step: Err(error), problems, kept, awaits, blocked },
    };
    let warnings = [
        state
            .claim
            .filter(|claim| *claim != Claim::Unknown)
            .zip(state.adopted())
            .and_then(|(claim, adopted)| doubt(claim, adopted)),
        put_off.map(|from| format!("its capabilities change often; what follows is published from {} on", time(from))),
    ];
    problems.extend(warnings.into_iter().flatten().map(|text| Problem::error(&device.file, text).warning()));
    let step = match plan.guarded(&pass.fleet.settings.guards, pass.allowed, state.version()) {
        Some(guarded) => Err(guarded.into()),
        // What is replaced stays until the other can come.
        None if plan.replaces_unresolved() || put_off.is_some() => renew(pass, key, &device.id, state),
        None => step(pass, device, state, entry, plan.without_unresolved(), key),
    };
    let again = doubted.into_iter().chain(put_off).min();
    let step = step.map(|step| match (step, again) {
        (Step::Settled(Done::Unchanged { renew_at }), Some(again)) => {
            Step::Settled(Done::Unchanged { renew_at: renew_at.min(again) })
        }
        (step, _) => step,
    });
    Decision { step, problems, kept, awaits, blocked }
}

/// What there is to doubt about what a device says that it adopted.
pub(crate) fn doubt(claim: Claim, adopted: &Adopted) -> Option<String> {
    let (serial, version) = (adopted.serial, adopted.manifest_version);
    Some(match claim {
        Claim::Known => return None,
        Claim::Unknown | Claim::Proven => format!(
            "it says that it adopted serial {serial}, which was never published here or is lost; `publish` continues it"
        ),
        Claim::Doubted(from) => format!(
            "it says that it adopted serial {serial}, which was never published here, and it said such things before; it \
             is not believed before {}, unless by `publish --reclaim`",
            time(from)
        ),
        Claim::TooFar => format!(
            "it says that it adopted serial {serial} with manifestVersion {version}, which is too far from what was \
             published here to be lost, so it is not followed; if it is true, as after the theft of a publisher's key, \
             `publish --reclaim` goes on from there"
        ),
    })
}

fn time(second: i64) -> String {
    Timestamp::from_second(second).map_or_else(|_| second.to_string(), |time| time.to_string())
}

fn step(
    pass: &Pass<'_>,
    device: &Device,
    state: State,
    entry: Option<&Entry>,
    plan: DevicePlan,
    key: &SigningKey,
) -> Result<Step, DeviceError> {
    let removed = plan.removed();
    let lost = state.known(entry).lost();
    let reclaim = state.foreign.is_some() || pass.reclaim_elsewhere.contains(&device.id);
    if plan.is_empty() && lost.is_none() && !reclaim {
        return renew(pass, key, &device.id, state);
    }
    let known = state.known(entry);
    let parent = state.tip.as_ref().map(|tip| &tip.desired);
    let (assembled, reserved) = numbered(pass, &device.id, &plan.target, (&known, parent))?;
    let cause = cause(pass, &plan, &state, lost).filter(|_| !reclaim).or(reclaim.then_some(RECLAIMED));
    let message = message::desired(&plan, &assembled, &pass.origin, cause, lost);
    let sole = cause.is_none() && pass.sole_after.contains(&pass.reached.of(&device.id));
    let author = pass.origin.author(sole);
    draft(pass, key, &device.id, state, (assembled, reserved), (message, author)).map(|draft| {
        let draft = Draft { removed, ..draft };
        Step::Publish(Box::new(draft))
    })
}

/// Makes the three commits of a new state.
fn draft(
    pass: &Pass<'_>,
    key: &SigningKey,
    device: &DeviceId,
    state: State,
    (assembled, reserved): (Assembled, bool),
    (message, author): (Message, Person),
) -> Result<Draft, DeviceError> {
    let parent = state.tip.as_ref().map(|tip| tip.commit);
    let (repo, envelope) = (state.repo.as_ref(), assembled.envelope_digest);
    let mut prepared = match repo.zip(parent) {
        Some((repo, tip)) => repo.prepare(tip)?,
        None => Prepared::default(),
    };
    let mut make = |files: &FileTree, parents, author, text| {
        prepared.commit(&pass.spec(files, parents, author, text), Some(key)).map_err(DeviceRepoError::from)
    };
    let desired = make(&assembled.tree, parent.into_iter().collect(), author, message.to_string())?;
    let bundle = make(&assembled.bundle, Vec::new(), publisher(), message::bundle(&assembled).to_string())?;
    let serial = assembled.envelope.serial;
    let (files, text) = freshness(pass, device, desired, envelope, serial);
    let fresh = make(&files, Vec::new(), publisher(), text)?;
    let pack = prepared.pack().map_err(DeviceRepoError::from)?;
    let tip = |branch| repo.map_or(Ok(None), |repo| repo.tip(branch));
    let moves = vec![
        ("bundle", tip("bundle")?, bundle),
        (DESIRED, state.foreign.or(parent), desired),
        ("freshness", tip("freshness")?, fresh),
    ];
    let (device, deployments) = (device.clone(), assembled.envelope.deployments.len());
    let numbers = Numbers { serial, manifest_version: assembled.envelope.manifest_version };
    let ready = Ready { pack, moves };
    Ok(Draft { device, removed: 0, deployments, numbers, envelope, reserved, desired, fresh, ready })
}

/// Gives the target its numbers: those of an interrupted attempt at the same envelope, or the next ones.
fn numbered(
    pass: &Pass<'_>,
    device: &DeviceId,
    target: &Target,
    (known, parent): (&Known<'_>, Option<&Desired>),
) -> Result<(Assembled, bool), SerialError> {
    let put_together = |numbers| target.assemble(pass.fleet.settings.id, device, numbers, &pass.rosters.files);
    if let Some((numbers, envelope)) = known.reserved() {
        let again = put_together(numbers);
        if again.envelope_digest == envelope {
            return Ok((again, true));
        }
    }
    let assembled = put_together(known.next(target.new_manifest)?);
    // The same documents can make other bytes, with another version of the compressing library for instance, and one
    // `manifestVersion` never has two contents.
    let clash = parent.is_some_and(|parent| {
        parent.envelope.manifest_version == assembled.envelope.manifest_version
            && parent.manifest_digest != assembled.manifest_digest
    });
    if clash { Ok((put_together(known.next(true)?), false)) } else { Ok((assembled, false)) }
}

/// Why there is a commit although no fleet commit asks for it.
fn cause(pass: &Pass<'_>, plan: &DevicePlan, state: &State, lost: Option<Published>) -> Option<&'static str> {
    let origin = pass.origin.commit.to_string();
    let of_tip = state.tip.as_ref().is_some_and(|tip| tip.message.get("Fleet-Commit") == Some(&origin));
    let again = of_tip || (state.tip.is_some() && pass.reached.of(&plan.device) == Some(pass.origin.commit));
    let by_capabilities =
        plan.settings.is_empty() && plan.changes.iter().all(|change| plan.by_capabilities.contains(&change.name));
    match lost {
        Some(_) => Some("a restored repository lagged behind what was published"),
        None if plan.changes.is_empty() && plan.settings.iter().all(|one| one.what == "roster") => {
            (!plan.settings.is_empty()).then_some("a new roster")
        }
        None if again && by_capabilities => Some(BY_CAPABILITIES),
        None => again.then_some("rendered anew from the same fleet commit"),
    }
}

/// Decides whether the proof of freshness of the present tip has to be renewed.
pub(super) fn renew(pass: &Pass<'_>, key: &SigningKey, device: &DeviceId, state: State) -> Result<Step, DeviceError> {
    let (Some(repo), Some(tip)) = (state.repo, state.tip) else { return Ok(Step::Settled(Done::NotEnrolled)) };
    let (digest, serial) = (tip.desired.envelope_digest, tip.desired.envelope.serial);
    let present = repo.freshness(&pass.rosters.publishers)?;
    let present = present.filter(|one| {
        let about = (one.tip == tip.commit.to_string(), one.envelope_digest == digest, one.serial == serial);
        // Whoever signed it: a proof that no device believes, now or ever, is none.
        let can_be = is_now(one.issued, pass.now) && one.expires.duration_since(one.issued) <= LIFE;
        about == (true, true, true) && one.fleet == pass.rosters.fleet() && one.device == *device && can_be
    });
    let renew_at = present.map(|one| one.expires.as_second() - FRESH_FOR / 2);
    match renew_at.filter(|renew_at| is_fresh(*renew_at, pass.now)) {
        Some(renew_at) => Ok(Step::Settled(Done::Unchanged { renew_at })),
        None => {
            let (files, text) = freshness(pass, device, tip.commit, digest, serial);
            let mut prepared = Prepared::default();
            let spec = pass.spec(&files, Vec::new(), publisher(), text);
            let fresh = prepared.commit(&spec, Some(key)).map_err(DeviceRepoError::from)?;
            let pack = prepared.pack().map_err(DeviceRepoError::from)?;
            let moves = vec![("freshness", repo.tip("freshness")?, fresh)];
            Ok(Step::Renew(Box::new(Renewal { tip: tip.commit, ready: Ready { pack, moves } })))
        }
    }
}

/// What was done, and where `desired` and `freshness` stand then.
pub(super) type Moved = (Done, [CommitId; 2]);

impl Draft {
    /// The serial, the envelope's digest, and how many deployments there are.
    pub(super) fn has(&self) -> (u64, Digest, usize) {
        (self.numbers.serial, self.envelope, self.deployments)
    }

    /// The entry of the ledger for this draft.
    pub(super) fn entry(&self, state: EntryState, before: Option<&Entry>, now: Timestamp) -> Entry {
        Entry {
            device: self.device.clone(),
            serial: self.numbers.serial,
            manifest_version: self.numbers.manifest_version,
            envelope: self.envelope,
            state,
            time: now,
            published: before.filter(|_| state == EntryState::Reserved).and_then(Entry::last_published),
        }
    }

    /// Writes the commits, then moves `bundle`, `desired` and `freshness`, in this order.
    pub(super) fn write(self, pass: &Pass<'_>) -> Result<Moved, DeviceError> {
        self.ready.write(pass, &self.device, self.reserved)?;
        let renew_at = pass.now.as_second() + FRESH_FOR / 2;
        let (serial, commit) = (self.numbers.serial, self.desired);
        Ok((Done::Published { serial, commit, renew_at }, [self.desired, self.fresh]))
    }
}

impl Renewal {
    /// Replaces the proof of freshness; the tip of `desired` stays.
    pub(super) fn write(self, pass: &Pass<'_>, device: &DeviceId) -> Result<Moved, DeviceError> {
        let fresh = self.ready.write(pass, device, false)?;
        Ok((Done::Renewed { renew_at: pass.now.as_second() + FRESH_FOR / 2 }, [self.tip, fresh]))
    }
}

impl Ready {
    /// Makes the repository whole, or writes the pack and then moves the branches; where the last of them stands.
    fn write(self, pass: &Pass<'_>, device: &DeviceId, interrupted: bool) -> Result<CommitId, DeviceError> {
        if !DeviceWriter::create_with(pass.home, device, &self.pack, &self.moves)? {
            let writer = DeviceWriter::lock(pass.home, device)?;
            if interrupted {
                writer.clear()?;
            }
            writer.store(&self.pack)?;
            writer.move_branches(&self.moves)?;
            let consolidated = writer.consolidate();
            drop(writer);
            match consolidated {
                // What is published is, and what of the history can't be read is no reason to do it again.
                Err(error) if error.is_damage() => pass.mend(device)?,
                consolidated => consolidated?,
            }
        }
        Ok(self.moves[self.moves.len() - 1].2)
    }
}

fn freshness(pass: &Pass<'_>, device: &DeviceId, tip: CommitId, digest: Digest, serial: u64) -> (FileTree, String) {
    // Whole seconds, as in Git's own dates.
    let at = |second| Timestamp::from_second(second).unwrap_or(pass.now);
    let (issued, expires) = (at(pass.now.as_second()), at(pass.now.as_second() + FRESH_FOR));
    let fleet = pass.rosters.fleet();
    let fresh = Freshness {
        fleet,
        device: device.clone(),
        tip: tip.to_string(),
        envelope_digest: digest,
        serial,
        issued,
        expires,
    };
    let files = FileTree::from([(FRESHNESS.to_owned(), json::to_bytes(&fresh))]);
    (files, message::freshness(fleet, device, serial, expires).to_string())
}
