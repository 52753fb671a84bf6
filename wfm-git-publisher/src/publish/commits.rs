//! The commits that carry a decision out: made and packed before serials are reserved, written after it.

use jiff::Timestamp;
use repo_git::repo::{Pack, Prepared};
use repo_git::{CommitId, SigningKey};
use repo_model::desired::{Assembled, Desired};
use repo_model::freshness::{FRESHNESS, Freshness, LIFE};
use repo_model::{Branch, DeviceId, Digest, FileTree, json};

use super::decide::{DeviceDecision, NewState, Step};
use super::error::DeviceError;
use super::freshness::{FRESH_FOR, can_be_now, is_fresh};
use super::holds::ReleasedBy;
use super::known::{KnownDevice, Unread};
use super::message;
use super::outcome::Done;
use super::pass::Pass;
use super::serial::{KnownNumbers, SerialError};
use crate::plan::{DevicePlan, Numbers, Target};
use crate::repos::{BranchMove, DESIRED, DeviceRepoError, DeviceWriter, Entry, EntryState, publisher};

/// What a decision comes to, ready to be written.
#[derive(Debug)]
pub(super) enum Made {
    /// Nothing is written, because the tip and its proof of freshness stay.
    Nothing(Done),
    /// The proof of freshness is old.
    Renewal(Box<Renewal>),
    /// A new state: the commits of all three branches.
    Draft(Box<Draft>),
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
    /// How many packs the repository has; absent where nobody counted them.
    packs: Option<usize>,
    pack: Pack,
    moves: Vec<BranchMove>,
}

/// A new `desired` commit and all that goes with it, made before anything is written.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) device: DeviceId,
    pub(super) holding: Holding,
    manifest_version: u64,
    /// Whether an interrupted attempt reserved this very serial for this very envelope.
    pub(super) is_reserved: bool,
    desired: CommitId,
    fresh: CommitId,
    ready: Ready,
}

/// What the tip of a device's `desired` holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holding {
    pub(super) serial: u64,
    pub(super) envelope: Digest,
    pub(super) manifest: Digest,
    /// How many deployments it has.
    pub(super) deployments: usize,
}

impl Holding {
    pub(super) fn of(desired: &Desired) -> Self {
        Self {
            serial: desired.envelope.serial,
            envelope: desired.envelope_digest,
            manifest: desired.manifest_digest,
            deployments: desired.deployments.len(),
        }
    }
}

/// What was written, and where `desired` and `freshness` stand then.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) done: Done,
    pub(super) desired: CommitId,
    pub(super) freshness: CommitId,
}

/// Makes the commits that a decision asks for; its plan is used up. The error is why nothing can be done.
pub(super) fn make(
    pass: &Pass<'_>,
    key: &SigningKey,
    decision: &mut DeviceDecision,
    known: KnownDevice<'_>,
) -> Result<Option<Made>, DeviceError> {
    let plan = decision.plan.take();
    let made = match (&decision.step, plan) {
        (Err(_), _) => return Ok(None),
        (Ok(Step::Publish(new)), Some(plan)) => {
            let (plan, released) = (plan.without_unresolved(), &decision.released);
            Made::Draft(Box::new(draft(pass, key, &plan, (*new, released), known)?))
        }
        (Ok(Step::Retired), _) => Made::Nothing(Done::Retired),
        (Ok(_), _) => renewal(pass, key, &decision.device, known)?,
    };
    Ok(Some(match (made, decision.again_at) {
        (Made::Nothing(Done::Unchanged { renew_at }), Some(again)) => {
            Made::Nothing(Done::Unchanged { renew_at: renew_at.min(again) })
        }
        (made, _) => made,
    }))
}

/// Makes the three commits of a new state.
fn draft(
    pass: &Pass<'_>,
    key: &SigningKey,
    plan: &DevicePlan,
    (new, released): (NewState, &[ReleasedBy]),
    known: KnownDevice<'_>,
) -> Result<Draft, DeviceError> {
    let numbers = known.numbers();
    let Numbered { assembled, is_reserved } =
        numbered(pass, &plan.device, &plan.target, &numbers, known.tip.as_ref().map(|tip| &tip.desired))?;
    let NewState { cause, continues } = new;
    let message = message::desired(plan, &assembled, &pass.origin, released, cause, continues);
    let sole = cause.is_none() && pass.sole_after.contains(&pass.covered.of(&plan.device));
    let author = pass.origin.author(sole);
    let parent = known.tip.as_ref().map(|tip| tip.commit);
    let repo = known.repo.as_ref();
    let packs = known.unread.as_ref().map(|unread| unread.packs);
    let (mut prepared, [had_bundle, had_fresh]) = match (repo, known.unread) {
        (Some(repo), _) => {
            let prepared = parent.map(|tip| repo.prepare(tip)).transpose()?.unwrap_or_default();
            let tip = |branch: Branch| repo.tip(branch.as_str());
            (prepared, [tip(Branch::Bundle)?, tip(Branch::Freshness)?])
        }
        (None, Some(Unread { files, tips, .. })) => {
            let listed = &assembled.envelope.files;
            let is_same = |path: &String| files.get(path).is_some_and(|had| listed.get(path) == Some(had));
            let same = assembled.tree.iter().filter(|(path, _)| is_same(path));
            (Prepared::upon_files(same).map_err(DeviceRepoError::from)?, tips)
        }
        (None, None) => <_>::default(),
    };
    let mut make = |files: &FileTree, parents, author, text| {
        prepared.commit(&pass.spec(files, parents, author, text), Some(key)).map_err(DeviceRepoError::from)
    };
    let desired = make(&assembled.tree, parent.into_iter().collect(), author, message.to_string())?;
    let bundle = make(&assembled.bundle, Vec::new(), publisher(), message::bundle(&assembled).to_string())?;
    let (serial, envelope) = (assembled.envelope.serial, assembled.envelope_digest);
    let proof = proof(pass, &plan.device, desired, envelope, serial);
    let fresh = make(&proof.files, Vec::new(), publisher(), proof.message)?;
    let pack = prepared.pack().map_err(DeviceRepoError::from)?;
    let moves = vec![
        BranchMove { branch: Branch::Bundle.as_str(), from: had_bundle, to: bundle },
        BranchMove { branch: DESIRED, from: known.foreign.or(parent), to: desired },
        BranchMove { branch: Branch::Freshness.as_str(), from: had_fresh, to: fresh },
    ];
    Ok(Draft {
        device: plan.device.clone(),
        holding: Holding {
            serial,
            envelope,
            manifest: assembled.manifest_digest,
            deployments: assembled.envelope.deployments.len(),
        },
        manifest_version: assembled.envelope.manifest_version,
        is_reserved,
        desired,
        fresh,
        ready: Ready { packs, pack, moves },
    })
}

/// A desired state with its numbers.
struct Numbered {
    assembled: Assembled,
    /// Whether an interrupted attempt reserved them for this very envelope.
    is_reserved: bool,
}

/// Gives the target its numbers: those of an interrupted attempt at the same envelope, or the next ones.
fn numbered(
    pass: &Pass<'_>,
    device: &DeviceId,
    target: &Target,
    known: &KnownNumbers<'_>,
    parent: Option<&Desired>,
) -> Result<Numbered, SerialError> {
    let put_together = |numbers: Numbers| target.assemble(pass.fleet.settings.id, device, numbers, &pass.rosters.files);
    if let Some((numbers, envelope)) = known.reserved() {
        let again = put_together(numbers);
        if again.envelope_digest == envelope {
            return Ok(Numbered { assembled: again, is_reserved: true });
        }
    }
    let mut assembled = put_together(known.next(target.new_manifest)?);
    // The same documents can make other bytes, with another version of the compressing library for instance, and one
    // `manifestVersion` never has two contents.
    let clash = parent.is_some_and(|parent| {
        parent.envelope.manifest_version == assembled.envelope.manifest_version
            && parent.manifest_digest != assembled.manifest_digest
    });
    if clash {
        assembled = put_together(known.next(true)?);
    }
    Ok(Numbered { assembled, is_reserved: false })
}

/// Renews the proof of freshness of a tip that stays, if it is old.
fn renewal(pass: &Pass<'_>, key: &SigningKey, device: &DeviceId, known: KnownDevice<'_>) -> Result<Made, DeviceError> {
    if let Some(partly) = known.partly {
        return Ok(Made::Nothing(Done::Unchanged { renew_at: partly.renew_at }));
    }
    let (Some(repo), Some(tip)) = (known.repo, known.tip) else { return Ok(Made::Nothing(Done::NotEnrolled)) };
    let (digest, serial) = (tip.desired.envelope_digest, tip.desired.envelope.serial);
    let present = repo.freshness(&pass.rosters.publishers)?;
    let present = present.filter(|one| {
        let is_about_tip = one.tip == tip.commit.to_string() && one.envelope_digest == digest && one.serial == serial;
        // Whoever signed it: a proof that no device believes, now or ever, is none.
        let can_be = can_be_now(one.issued, pass.now) && one.expires.duration_since(one.issued) <= LIFE;
        is_about_tip && one.fleet == pass.rosters.fleet() && one.device == *device && can_be
    });
    let renew_at = present.map(|one| one.expires.as_second() - FRESH_FOR / 2);
    if let Some(renew_at) = renew_at.filter(|renew_at| is_fresh(*renew_at, pass.now)) {
        return Ok(Made::Nothing(Done::Unchanged { renew_at }));
    }
    let proof = proof(pass, device, tip.commit, digest, serial);
    let mut prepared = Prepared::default();
    let spec = pass.spec(&proof.files, Vec::new(), publisher(), proof.message);
    let fresh = prepared.commit(&spec, Some(key)).map_err(DeviceRepoError::from)?;
    let pack = prepared.pack().map_err(DeviceRepoError::from)?;
    let moves =
        vec![BranchMove { branch: Branch::Freshness.as_str(), from: repo.tip(Branch::Freshness.as_str())?, to: fresh }];
    Ok(Made::Renewal(Box::new(Renewal { tip: tip.commit, ready: Ready { packs: None, pack, moves } })))
}

impl Draft {
    /// The entry of the ledger for this draft.
    pub(super) fn entry(&self, state: EntryState, before: Option<&Entry>, now: Timestamp) -> Entry {
        Entry {
            device: self.device.clone(),
            serial: self.holding.serial,
            manifest_version: self.manifest_version,
            envelope: self.holding.envelope,
            state,
            time: now,
            published: before.filter(|_| state == EntryState::Reserved).and_then(Entry::last_published),
        }
    }

    /// Writes the commits, then moves `bundle`, `desired` and `freshness`, in this order.
    pub(super) fn write(self, pass: &Pass<'_>) -> Result<Written, DeviceError> {
        self.ready.write(pass, &self.device, self.is_reserved)?;
        let renew_at = pass.now.as_second() + FRESH_FOR / 2;
        let done = Done::Published { serial: self.holding.serial, commit: self.desired, renew_at };
        Ok(Written { done, desired: self.desired, freshness: self.fresh })
    }
}

impl Renewal {
    /// Replaces the proof of freshness; the tip of `desired` stays.
    pub(super) fn write(self, pass: &Pass<'_>, device: &DeviceId) -> Result<Written, DeviceError> {
        let freshness = self.ready.write(pass, device, false)?;
        let done = Done::Renewed { renew_at: pass.now.as_second() + FRESH_FOR / 2 };
        Ok(Written { done, desired: self.tip, freshness })
    }
}

impl Ready {
    /// Makes the repository whole, or writes the pack and then moves the branches; where the last of them stands.
    fn write(self, pass: &Pass<'_>, device: &DeviceId, was_interrupted: bool) -> Result<CommitId, DeviceError> {
        if !DeviceWriter::create_with(pass.home, device, &self.pack, &self.moves)? {
            let writer = DeviceWriter::lock(pass.home, device)?;
            if was_interrupted {
                writer.clear()?;
            }
            // Before branches move, because whoever was told where they are may read that still.
            let consolidated = writer.consolidate(self.packs);
            writer.write(&self.pack, &self.moves)?;
            drop(writer);
            match consolidated {
                // What is published is, and what of the history can't be read is no reason to do it again.
                Err(error) if error.is_damage() => pass.repair(device)?,
                consolidated => consolidated?,
            }
        }
        Ok(self.moves[self.moves.len() - 1].to)
    }
}

/// A proof of freshness, and the message of its commit.
struct Proof {
    files: FileTree,
    message: String,
}

fn proof(pass: &Pass<'_>, device: &DeviceId, tip: CommitId, envelope_digest: Digest, serial: u64) -> Proof {
    // Whole seconds, as in Git's own dates.
    let at = |second| Timestamp::from_second(second).unwrap_or(pass.now);
    let (issued, expires) = (at(pass.now.as_second()), at(pass.now.as_second() + FRESH_FOR));
    let fleet = pass.rosters.fleet();
    let (device, tip) = (device.clone(), tip.to_string());
    let message = message::freshness(fleet, &device, serial, expires).to_string();
    let fresh = Freshness { fleet, device, tip, envelope_digest, serial, issued, expires };
    Proof { files: FileTree::from([(FRESHNESS.to_owned(), json::to_bytes(&fresh))]), message }
}
