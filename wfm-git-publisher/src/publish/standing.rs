//! How each device stands before anything is held back: what of its deployments differs, for whoever decides about rollouts.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::error_chain;
use repo_model::{DeploymentName, DeviceId};

use super::decide::{Compared, Inputs, compare, put_off};
use super::error::DeviceError;
use super::known::{Known, KnownDevice};
use crate::fleet::{Device, Fleet, RolloutRule};
use crate::plan::{Change, ChangeKind};
use crate::rollout::{DeviceState, Difference, Look, Record, Standing, meaning, meanings};

/// A device as it is compared with the fleet.
pub(super) struct Stood {
    pub(super) standing: Standing,
    /// What was held back when it was up to date but for that; nothing of a device that was compared.
    pub(super) rests: BTreeSet<DeploymentName>,
    /// How many deployments it has.
    pub(super) present: usize,
    /// Those of them that would go, but for those about which guards were asked already.
    pub(super) removed: BTreeSet<DeploymentName>,
    /// Those that go and that a person let pass.
    pub(super) allowed: BTreeSet<DeploymentName>,
    /// What would come in the place of what: new and old.
    pub(super) replaces: Vec<(DeploymentName, DeploymentName)>,
    /// The highest number of a rollout that its tip names; 0 if it names none.
    pub(super) rollout: u32,
}

impl Stood {
    /// Whether nothing is known of it before it is compared: something that it rests with is neither held back nor released any more,
    /// because the record of it was lost or another one came in its place; or what it has may be something else than what a rollout
    /// released, which came at once.
    pub(super) fn is_stale(&self, device: &DeviceId, look: &Look, fleet: &Fleet) -> bool {
        if self.standing == Standing::Complete && may_have_another(device, look, fleet) {
            return true;
        }
        let held = look.held.get(device);
        let is_held = |name: &DeploymentName| held.is_some_and(|held| held.contains_key(name));
        let is_released = |name: &DeploymentName| {
            let mut ours = look.records.values().filter(|record| record.state.deployments.contains(name));
            ours.any(|record| record.released_with(device).is_some())
        };
        !self.rests.iter().all(|name| is_held(name) || is_released(name))
    }

    fn of(standing: Standing) -> Self {
        let (rests, removed, allowed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { standing, rests, present: 0, removed, allowed, replaces: Vec::new(), rollout: 0 }
    }

    /// Compares it; what is known of it is used up. Nothing is held back in `inputs`. `is_any_open`: whether a rollout isn't
    /// finished, because only then something may be held back of a device that has nothing. `None` if too little is known of it.
    pub(super) fn judge(
        inputs: &Inputs<'_>,
        id: &DeviceId,
        known: Result<Known<'_>, DeviceError>,
        is_any_open: bool,
    ) -> Option<Self> {
        let mut known = match known {
            Err(error) => return Some(Self::of(Standing::Unknown(error_chain(&error)))),
            Ok(Known::UpToDate(known)) => {
                let standing = if known.held.is_empty() { Standing::Complete } else { Standing::AsHeld };
                let (present, rollout) = (known.deployments, known.rollout);
                return Some(Self { present, rollout, rests: known.held, ..Self::of(standing) });
            }
            Ok(Known::Read(known)) => known,
        };
        let rollout = known.rollout();
        let stood = match inputs.fleet.devices.get(id) {
            None => Self::of(Standing::Unknown("its file can't be used".to_owned())),
            // Whoever retires a device means all of it.
            Some(device) if device.retired.is_some() || !(device.is_enrolled() || known.tip.is_some()) => {
                Self::of(Standing::Complete)
            }
            Some(_) if !is_any_open && is_bare(&known) => Self::of(Standing::Complete),
            Some(device) => Self::compared(inputs, device, &mut known)?,
        };
        Some(Self { present: known.present(), rollout, ..stood })
    }

    fn compared(inputs: &Inputs<'_>, device: &Device, known: &mut KnownDevice<'_>) -> Option<Self> {
        let Compared { rendered, plan, asked, guards, guarded, .. } = compare(inputs, device, known, None);
        if !known.is_enough_for(Some(&plan)) {
            return None;
        }
        let tip = known.tip.as_ref().map(|tip| &tip.desired);
        let is_bare = is_bare(known);
        let same = |(name, digest)| (name, Difference { had: Some(digest), want: Some(digest), blocked: None });
        let mut deployments: BTreeMap<_, _> = tip.map(meanings).unwrap_or_default().into_iter().map(same).collect();
        let refused = match put_off(&plan, known) {
            _ if guarded.is_some() => guarded.map(|guarded| guarded.to_string()),
            Ok(None) if plan.splits_replacement() => Some("what it replaces can't come yet".to_owned()),
            Ok(put_off) => put_off.map(|_| "its capabilities change often".to_owned()),
            Err(error) => Some(error_chain(&error)),
        };
        let nothing = || Difference { had: None, want: None, blocked: None };
        let (held, mut unasked) = (guards.first().map(ToString::to_string), BTreeSet::new());
        let all = || plan.changes.iter().map(|one| (one, &refused)).chain(plan.held.iter().map(|one| (one, &held)));
        for (change, refused) in all() {
            let one = deployments.entry(change.name.clone()).or_insert_with(nothing);
            match (change.kind, rendered.deployments.get(&change.id)) {
                (ChangeKind::Remove, _) => one.want = None,
                (_, Some(wanted)) => one.want = Some(meaning(&wanted.document, &wanted.envelope)),
                // It stays as it is, but for whether it is suspended.
                (_, None) => {}
            }
            // Where nobody asked yet what a tag means, it is as if that were known, unless somebody found out why it can't be.
            let is_unknown = |artifact: &&_| {
                !inputs.believes_tips || (inputs.unresolved)(&device.id, &change.name, artifact).is_some()
            };
            let tag = change.unresolved.iter().find(is_unknown);
            unasked.extend((tag.is_none() && !change.unresolved.is_empty()).then_some(&change.name));
            let tag = tag.map(|artifact| format!("it isn't known yet which bytes {artifact} is"));
            one.blocked = one.blocked.take().or(tag).or_else(|| refused.clone());
        }
        for name in plan.kept.iter().filter(|name| !unasked.contains(name)) {
            let one = deployments.entry(name.clone()).or_insert_with(nothing);
            let wrong = || plan.wrong.get(name).and_then(|problems| Some(problems.iter().next()?.to_string()));
            one.blocked = one.blocked.take().or_else(wrong).or_else(|| Some("it is left as it is".to_owned()));
        }
        let replaces = all().filter_map(|(change, _)| Some((change.name.clone(), change.replaces.clone()?)));
        let replaces = replaces.collect();
        let goes = |change: &Change| change.kind == ChangeKind::Remove && !asked.contains(&change.name);
        let removed = all().filter(|(change, _)| goes(change)).map(|(change, _)| change.name.clone()).collect();
        let is_open = |name: &DeploymentName| deployments.get(name).is_some_and(|one| one.blocked.is_none());
        let allowed = plan.changes.iter().filter(|change| change.kind == ChangeKind::Remove && change.allowed);
        let allowed = allowed.filter(|change| is_open(&change.name)).map(|change| change.name.clone()).collect();
        Some(Self { replaces, removed, allowed, ..Self::of(Standing::Compared { deployments, is_bare }) })
    }
}

/// Whether a rollout released something for a device that has all that is meant, and that may be something else by now.
fn may_have_another(device: &DeviceId, look: &Look, fleet: &Fleet) -> bool {
    let is_at_once = |name: &DeploymentName| fleet.rollout_rule(name) == Some(&RolloutRule::AtOnce);
    let may = |(number, record): (&u32, &Record)| {
        let state = || look.states.get(number).and_then(|states| states.get(device)).map(|judged| judged.state);
        let is_released = record.members.contains_key(device) && record.released_with(device).is_some();
        // Who never takes what was released may have got something else before the word for that was taken away.
        is_released && (record.state.deployments.iter().any(is_at_once) || state() == Some(DeviceState::Offline))
    };
    look.records.iter().any(may)
}

/// Whether a device has nothing. What a lost repository held isn't known, and isn't nothing.
fn is_bare(known: &KnownDevice<'_>) -> bool {
    match &known.tip {
        Some(_) => known.present() == 0,
        None => known.numbers().lost().is_none(),
    }
}
