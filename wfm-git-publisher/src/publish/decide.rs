//! The decision of a pass: what is known of the fleet's devices → what is done for each of them, as a value.
//!
//! Pure. `plan` prints a [`FleetPlan`], `publish` carries it out, and neither decides anything itself. What the value
//! doesn't hold is made from it mechanically when it is carried out: serials, bytes, commits, and the proof of freshness
//! of a tip that stays.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::problem::{Problem, Problems};
use repo_model::report::Adopted;
use repo_model::{DeploymentName, DeviceId, FileTree};

use super::error::DeviceError;
use super::holds::{Holds, ReleasedBy};
use super::known::KnownDevice;
use super::since::Since;
use super::up_to_date::{InputDigests, UpToDate};
use crate::fleet::{Device, Fleet};
use crate::mirror::RECLAIMED;
use crate::plan::{self, Allowed, Blocked, Change, Code, DevicePlan, Guarded};
use crate::render::{Artifact, Documents, Facts, Locks, Rendered, render_with, with_published};
use crate::repos::{BY_CAPABILITIES, Claim, Published};

/// Why what a tag means isn't known, if somebody found out.
pub(super) type Unresolved<'a> = dyn Fn(&DeviceId, &DeploymentName, &Artifact) -> Option<Blocked> + Sync + 'a;

/// What decisions about all devices of a pass have in common.
pub(super) struct Inputs<'a> {
    pub(super) fleet: &'a Fleet,
    /// The files of the rosters, which every `desired` carries.
    pub(super) trust: &'a FileTree,
    /// The ledger's locks: what each tag means for the whole fleet.
    pub(super) locks: &'a Locks,
    pub(super) digests: InputDigests<'a>,
    /// What devices have by what the fleet said before; absent where each is read from its repository.
    pub(super) since: Option<Since<'a>>,
    /// Whether a tip's own locks count where the ledger was lost, and what a tag means may become known; a pass that publishes took
    /// them over already, and asked.
    pub(super) believes_tips: bool,
    pub(super) unresolved: &'a Unresolved<'a>,
    pub(super) allowed: Allowed,
    /// What rollouts hold back.
    pub(super) holds: &'a Holds,
    /// Devices that need a new commit, because their tip at the other host is foreign.
    pub(super) reclaim_elsewhere: &'a BTreeSet<DeviceId>,
}

/// What is done for all devices.
#[derive(Debug)]
pub(super) struct FleetPlan {
    /// In the order of their ids.
    pub(super) devices: Vec<DeviceDecision>,
}

/// What is done for one device, and why not what else the fleet says.
#[derive(Debug)]
pub(super) struct DeviceDecision {
    pub(super) device: DeviceId,
    /// How many deployments its tip has.
    pub(super) present: usize,
    /// Those of them that go, if nothing refuses that.
    pub(super) removed: BTreeSet<DeploymentName>,
    /// Whether it has no verified tip yet.
    pub(super) is_new: bool,
    /// Whether it will have everything that the fleet says, and nobody needs to know anything about it.
    pub(super) is_complete: bool,
    /// Whether it gets something else as soon as the meaning of a tag is known, or a rollout releases it.
    pub(super) awaits: bool,
    /// What differs; absent if nothing was compared, and once it is carried out.
    pub(super) plan: Option<Box<DevicePlan>>,
    /// What is done, or why nothing new is.
    pub(super) step: Result<Step, DeviceError>,
    /// What of its deployments can't be published, but for what refuses everything, and for guards.
    pub(super) blocked: Vec<Blocked>,
    /// Guards that hold some of its deployments back; the others go on.
    pub(super) guards: Vec<Guarded>,
    /// By which waves of rollouts it gets what changes.
    pub(super) released: Vec<ReleasedBy>,
    /// What is wrong with what is meant for it.
    pub(super) problems: Problems,
    /// What is doubtful about what it reports; a pass that publishes warns of it.
    pub(super) warnings: Problems,
    /// When its own word counts again, in Unix seconds; absent if nothing of it is put off.
    pub(super) again_at: Option<i64>,
}

/// What is done for a device.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing: what it depends on is what it was when there was nothing left to do.
    UpToDate { serial: u64 },
    /// Nothing is published for it, because no key of it is known.
    NotEnrolled,
    /// Nothing more is published for it, because it is retired and that is said and done.
    Retired,
    /// The tip of `desired` stays.
    Keep,
    /// It gets a new state.
    Publish(NewState),
}

/// What the commit of a new state says beside the plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewState {
    /// Why there is a commit although no fleet commit asks for it.
    pub(super) cause: Option<&'static str>,
    /// What it continues, because a repository was restored.
    pub(super) continues: Option<Published>,
}

/// Why nothing may be removed from any device, if these decisions remove too much from all of them together.
pub(super) fn fleet_guard(inputs: &Inputs<'_>, devices: &[DeviceDecision]) -> Option<Guarded> {
    let mut names = BTreeMap::new();
    devices.iter().flat_map(DeviceDecision::removals).for_each(|name| *names.entry(name.clone()).or_default() += 1);
    let (removed, present) = (names.values().sum(), devices.iter().map(|one| one.present).sum());
    plan::of_fleet(&inputs.fleet.settings.guards, inputs.allowed, &names, (removed, present))
}

impl DeviceDecision {
    fn new(device: &DeviceId, step: Result<Step, DeviceError>) -> Self {
        Self {
            device: device.clone(),
            present: 0,
            removed: BTreeSet::new(),
            is_new: false,
            is_complete: false,
            awaits: false,
            plan: None,
            step,
            blocked: Vec::new(),
            guards: Vec::new(),
            released: Vec::new(),
            problems: Problems::default(),
            warnings: Problems::default(),
            again_at: None,
        }
    }

    /// Nothing can be done for a device of which nothing can be known.
    pub(super) fn failed(device: &DeviceId, error: DeviceError) -> Self {
        Self::new(device, Err(error))
    }

    /// Nothing has to be done for a device that is up to date.
    pub(super) fn up_to_date(device: &DeviceId, known: &UpToDate) -> Self {
        let step = Step::UpToDate { serial: known.serial };
        let awaits = !known.held.is_empty();
        Self { present: known.deployments, is_complete: true, awaits, ..Self::new(device, Ok(step)) }
    }

    /// The deployments that go from it by this decision.
    pub(super) fn removals(&self) -> impl Iterator<Item = &DeploymentName> {
        self.removed.iter().filter(|_| matches!(self.step, Ok(Step::Publish(_))))
    }

    /// What of it can't be published, with what refuses everything.
    pub(super) fn all_blocked(&self) -> Vec<Blocked> {
        let refused = match &self.step {
            Err(DeviceError::Guarded(guarded)) => Some(guarded),
            _ => None,
        };
        let guards = self.guards.iter().chain(refused).map(|guarded| Blocked::of_guard(&self.device, guarded));
        self.blocked.iter().cloned().chain(guards).collect()
    }
}

/// Decides what is done for a device by what is known of it. `guard` holds back whatever would go from it.
pub(super) fn decide(
    inputs: &Inputs<'_>,
    id: &DeviceId,
    known: &mut KnownDevice<'_>,
    guard: Option<&Guarded>,
) -> DeviceDecision {
    let decision = DeviceDecision { present: known.present(), ..DeviceDecision::new(id, Ok(Step::Keep)) };
    let decision = DeviceDecision { is_new: known.tip.is_none(), ..decision };
    match inputs.fleet.devices.get(id) {
        Some(device) if device.retired.is_some_and(|how| known.is_retired(how)) => {
            DeviceDecision { step: Ok(Step::Retired), present: 0, ..decision }
        }
        // One that lost its keys still gets a state that says so, because its word counts no more.
        Some(device) if device.is_enrolled() || known.tip.is_some() => {
            of_enrolled(inputs, (device, guard), known, decision)
        }
        Some(_) => DeviceDecision { step: Ok(Step::NotEnrolled), ..decision },
        None => {
            let broken = inputs.fleet.broken.devices.contains(id).then(|| Blocked::of_broken_device(id));
            DeviceDecision { blocked: broken.into_iter().collect(), ..decision }
        }
    }
}

/// What a device shall have compared with what it has.
pub(super) struct Compared {
    pub(super) rendered: Rendered,
    pub(super) plan: DevicePlan,
    /// Deployments about which guards weren't asked, because they were when a rollout of them began, or a person let them pass.
    pub(super) asked: BTreeSet<DeploymentName>,
    /// What of its deployments can't be published, but for what refuses everything.
    pub(super) blocked: Vec<Blocked>,
    /// Guards that hold some of its deployments back, which stay as they are.
    pub(super) guards: Vec<Guarded>,
    /// The guard that refuses everything for this device; absent if none does.
    pub(super) guarded: Option<Guarded>,
}

/// Compares what a device shall have with what it has; the documents that its tip was read with are used up. What a guard
/// names stays as it is, and so does what would go if the `fleet`'s guard is given; everything else is compared as if the fleet
/// didn't ask for that.
pub(super) fn compare(
    inputs: &Inputs<'_>,
    device: &Device,
    known: &mut KnownDevice<'_>,
    fleet: Option<&Guarded>,
) -> Compared {
    let documents = std::mem::take(&mut known.documents);
    let allowed = known.allowed(&device.id, &inputs.fleet.allowances);
    let (by_rollouts, facts, present) = (inputs.holds.of(&device.id), known.facts(), known.present());
    let planned = |documents: Documents<'_>, locks: &Locks, held: &BTreeSet<DeploymentName>| {
        let rendered = render_with(documents, inputs.fleet, device, Facts { held: Some(held), ..facts }, locks);
        let plan = plan::plan(&rendered, facts.parent, inputs.trust, &inputs.fleet.broken);
        (rendered, DevicePlan { present, ..plan })
    };
    let (mut rendered, mut plan) = planned(documents, inputs.locks, &by_rollouts.deployments);
    let tip = known.tip.as_ref().filter(|_| inputs.believes_tips && plan.is_unresolved());
    let published = tip.map(|tip| with_published(inputs.locks.clone(), &tip.desired));
    let locks = published.as_ref().unwrap_or(inputs.locks);
    if published.is_some() {
        (rendered, plan) = planned(Documents::default(), locks, &by_rollouts.deployments);
    }
    let waits = plan.held.first().map(|change| change.name.clone());
    let is_lost = by_rollouts.is_lost || known.numbers().lost().is_some();
    let refused = by_rollouts.refused.as_ref().filter(|_| waits.is_some());
    let of_refused = |(guard, names): &(Guarded, BTreeSet<DeploymentName>)| -> BTreeMap<_, _> {
        names.iter().map(|name| (name.clone(), Code::of_guard(guard))).collect()
    };
    let (mut codes, refused) = (refused.map(of_refused).unwrap_or_default(), refused.map(|(guard, _)| guard.clone()));
    let (mut guards, mut guarded) = match is_lost {
        true => (Vec::new(), refused.or_else(|| waits.map(Guarded::NotKept))),
        false => (Vec::from_iter(refused), None),
    };
    let asked: BTreeSet<_> = by_rollouts.asked.iter().chain(allowed.into_iter().flatten()).cloned().collect();
    let limits = &inputs.fleet.settings.guards;
    let next = |plan: &DevicePlan| {
        let of_fleet = || fleet.filter(|_| plan.removals(&asked).next().is_some()).cloned();
        plan.guarded(limits, inputs.allowed, known.version(), (&asked, &by_rollouts.asked)).or_else(of_fleet)
    };
    let mut held = by_rollouts.deployments.clone();
    while let (None, Some(guard)) = (&guarded, next(&plan)) {
        let names = plan.held_by(&guard, &asked);
        // What was lost can't stay as it was.
        if is_lost || names.is_subset(&held) {
            guarded = Some(guard);
            break;
        }
        codes.extend(names.iter().map(|name| (name.clone(), Code::of_guard(&guard))));
        held.extend(names);
        guards.push(guard);
        (rendered, plan) = planned(Documents::default(), locks, &held);
    }
    plan.held.iter_mut().for_each(|change| change.guard = codes.get(&change.name).copied());
    plan.changes.iter_mut().for_each(|change| change.allowed = allowed.is_some_and(|names| change.is_let_go(names)));
    let unresolved = |name: &_, artifact: &_| (inputs.unresolved)(&device.id, name, artifact);
    let blocked = plan::blocked(&plan, &inputs.fleet.broken, &unresolved);
    // Of a plan that changes nothing it is the only thing to show.
    plan.lags_behind = known.numbers().lost().map(|lost| lost.serial).filter(|_| plan.is_empty());
    Compared { rendered, plan, asked, blocked, guards, guarded }
}

fn of_enrolled(
    inputs: &Inputs<'_>,
    (device, guard): (&Device, Option<&Guarded>),
    known: &mut KnownDevice<'_>,
    decision: DeviceDecision,
) -> DeviceDecision {
    let Compared { plan, asked, blocked, guards, guarded, .. } = compare(inputs, device, known, guard);
    // What goes with a device that is retired is no removal that anything guards.
    let removed = || plan.removals(&asked).cloned().collect();
    let (present, removed) = if plan.target.retired { (0, BTreeSet::new()) } else { (decision.present, removed()) };
    let (problems, awaits) = (plan.problems(), plan.is_unresolved() || !plan.held.is_empty());
    let (is_kept, splits_replacement) = (!plan.kept.is_empty(), plan.splits_replacement());
    let decision = DeviceDecision { present, removed, awaits, blocked, problems, ..decision };
    let put_off = match put_off(&plan, known) {
        Ok(put_off) => put_off,
        Err(error) => return DeviceDecision { step: Err(error), ..decision },
    };
    let claim = known.claim.filter(|claim| *claim != Claim::Unknown).zip(known.adopted());
    let warnings = [
        claim.and_then(|(claim, adopted)| doubt(claim, adopted)),
        put_off.map(|from| format!("its capabilities change often; what follows is published from {} on", time(from))),
    ];
    let warnings = warnings.into_iter().flatten().map(|text| Problem::error(&device.file, text).warning());
    let warnings = Problems(warnings.collect());
    let step = match guarded {
        Some(guarded) => Err(guarded.into()),
        // What is replaced stays until the other can come.
        None if splits_replacement || put_off.is_some() => Ok(Step::Keep),
        None => Ok(step(inputs, &plan, known)),
    };
    let released = inputs.holds.of(&device.id).released.iter();
    let released = released.filter(|by| plan.changes.iter().any(|change| by.deployments.contains(&change.name)));
    let doubted = match known.claim {
        Some(Claim::Doubted(from)) => Some(from),
        _ => None,
    };
    DeviceDecision {
        is_complete: !is_kept && decision.problems.is_empty() && warnings.is_empty() && guards.is_empty(),
        guards,
        released: released.cloned().collect(),
        plan: Some(Box::new(plan)),
        step,
        warnings,
        again_at: doubted.into_iter().chain(put_off).min(),
        ..decision
    }
}

/// The moment, in Unix seconds, until which a change is put off that nothing but the device's capabilities ask for; absent if
/// it isn't.
pub(super) fn put_off(plan: &DevicePlan, known: &mut KnownDevice<'_>) -> Result<Option<i64>, DeviceError> {
    let from = std::mem::replace(&mut known.capabilities_from, Ok(None));
    let is_asked_by_them = cause(plan, plan.changes.iter(), known) == Some(BY_CAPABILITIES);
    if is_asked_by_them { Ok(from?) } else { Ok(None) }
}

/// What is done for a device that nothing refuses anything; what can't be published yet is left out.
fn step(inputs: &Inputs<'_>, plan: &DevicePlan, known: &KnownDevice<'_>) -> Step {
    let changes = plan.changes.iter().filter(|change| change.unresolved.is_empty());
    let is_same = plan.serial.is_some() && plan.settings.is_empty() && changes.clone().next().is_none();
    let continues = known.numbers().lost();
    let reclaims = known.foreign.is_some() || inputs.reclaim_elsewhere.contains(&plan.device);
    if is_same && continues.is_none() && !reclaims {
        return Step::Keep;
    }
    // What a rollout releases was asked for by a commit, whichever that was.
    let released = &inputs.holds.of(&plan.device).released;
    let is_released = |change: &Change| released.iter().any(|by| by.deployments.contains(&change.name));
    let is_of_rollouts =
        plan.settings.is_empty() && changes.clone().next().is_some() && changes.clone().all(is_released);
    let cause = match reclaims {
        true => Some(RECLAIMED),
        false if is_of_rollouts && continues.is_none() => None,
        false => cause(plan, changes, known),
    };
    Step::Publish(NewState { cause, continues })
}

/// Why there is a commit with these changes although no fleet commit asks for it.
fn cause<'a>(
    plan: &DevicePlan,
    mut changes: impl Iterator<Item = &'a Change> + Clone,
    known: &KnownDevice<'_>,
) -> Option<&'static str> {
    let is_unchanged = changes.clone().next().is_none();
    let mut by_capabilities =
        || plan.settings.is_empty() && changes.all(|change| plan.by_capabilities.contains(&change.name));
    if known.numbers().lost().is_some() {
        Some("a restored repository lagged behind what was published")
    } else if is_unchanged && plan.settings.iter().all(|one| one.what == "roster") {
        (!plan.settings.is_empty()).then_some("a new roster")
    } else if known.has_commit && by_capabilities() {
        Some(BY_CAPABILITIES)
    } else {
        known.has_commit.then_some("rendered anew from the same fleet commit")
    }
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
