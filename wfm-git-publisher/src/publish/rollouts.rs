//! Rollouts in a pass: all devices are compared with the fleet as if nothing were held back, the pure room decides, and what
//! it decides is in the ledger before anything is given out. What no record releases stays as it is.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use repo_git::{CommitId, SigningKey};
use repo_model::{DeviceId, error_chain};

use super::clock;
use super::decide::{Inputs, Unresolved};
use super::error::PublishError;
use super::findings::Findings;
use super::holds::Holds;
use super::known::Known;
use super::options::Options;
use super::pass::Pass;
use super::standing::Stood;
use super::tips::heartbeat;
use crate::fleet::{Fleet, RolloutRule};
use crate::parallel;
use crate::plan::{Allowed, Code, of_fleet};
use crate::repos::{Control, DeviceRepo, HomeError, Judge, Ledger, Looks};
use crate::rollout::{Evidence, Facts, Look, MAX_AT_ONCE, Proposal, Record, look};

/// What rollouts say of a pass.
pub(super) struct Looked {
    pub(super) look: Look,
    pub(super) holds: Holds,
    /// Where the heartbeats stood of those devices that something waits for, before they were judged.
    pub(super) heartbeats: BTreeMap<DeviceId, Option<CommitId>>,
}

/// Whether anything is, or could be, held back.
fn is_in_force(fleet: &Fleet, ledger: &Ledger) -> bool {
    let is_waves = |rule: &RolloutRule| matches!(rule, RolloutRule::Waves(_));
    let rules = fleet.settings.rollout.iter().chain(fleet.deployments.values().filter_map(|one| one.rollout.as_ref()));
    let is_many = fleet.settings.rollout.is_none() && fleet.devices.len() > MAX_AT_ONCE;
    is_many || rules.into_iter().any(is_waves) || !ledger.rollouts.open.is_empty()
}

/// What a record remembers as allowed.
fn words(allowed: Allowed) -> BTreeSet<String> {
    let all = [(allowed.removals, "removals"), (allowed.replacements, "replacements")];
    all.into_iter().filter(|(is, _)| *is).map(|(_, word)| word.to_owned()).collect()
}

impl Pass<'_> {
    /// Keeps what is decided about rollouts, durably, before anything of it is done.
    pub(super) fn note_decided(
        &self,
        look: &Look,
        key: &SigningKey,
        control: &mut Control,
    ) -> Result<(), PublishError> {
        if !look.decided.is_empty() {
            clock::check_devices(self)?;
        }
        for decided in &look.decided {
            control.commit_rollout(decided, self.origin.commit, self.rosters.fleet(), key, self.now)?;
        }
        Ok(())
    }

    /// Notes that devices can be heard now, while a rollout waits for them.
    pub(super) fn note_look(&self, ledger: &Ledger) -> Result<(), HomeError> {
        match ledger.rollouts.open.is_empty() {
            true => Ok(()),
            false => Looks::read(self.home).note(self.home, self.now.as_second()),
        }
    }

    /// Decides about rollouts; nothing is done yet. `None` where there are none. All devices of the fleet are compared,
    /// whichever the pass is for: what differs on one alone would else be no rollout. `unresolved` tells why what a tag
    /// means isn't known.
    pub(super) fn look(&self, ledger: &Ledger, unresolved: &Unresolved<'_>, options: &Options<'_>) -> Option<Looked> {
        if !is_in_force(self.fleet, ledger) {
            return None;
        }
        let asked = Holds::asked(ledger.rollouts.open.values());
        let is_any_open = !ledger.rollouts.open.is_empty();
        let inputs = self.inputs(&ledger.locks, unresolved, &asked);
        // What is unfinished asks what its members have of it.
        let open = || ledger.rollouts.open.values().flat_map(|record| &record.state.deployments);
        let since = inputs.since.as_ref().filter(|_| self.before.is_some_and(|before| before.tells(open())));
        let all: Vec<_> = self.fleet.devices.keys().chain(&self.fleet.broken.devices).cloned().collect();
        let stood = parallel::map(all, options.threads, |device| {
            let known = Known::of(self, &device, &inputs.digests, since, ledger);
            let stood = Stood::judge(&inputs, &device, known, is_any_open);
            Some((stood.or_else(|| self.stand(&inputs, &device, is_any_open, ledger))?, device))
        });
        let mut stood: BTreeMap<_, _> = stood.into_iter().flatten().map(|(one, device)| (device, one)).collect();
        let looked = self.look_at(ledger, &stood);
        let stale = stood.iter().filter(|(device, one)| one.is_stale(device, &looked.look, self.fleet));
        let stale: Vec<_> = stale.map(|(device, _)| device.clone()).collect();
        if stale.is_empty() {
            return Some(looked);
        }
        let compared =
            parallel::map(stale, options.threads, |device| (self.stand(&inputs, &device, is_any_open, ledger), device));
        stood.extend(compared.into_iter().filter_map(|(one, device)| Some((device, one?))));
        Some(self.look_at(ledger, &stood))
    }

    /// How a device stands by what its repository says.
    fn stand(&self, inputs: &Inputs<'_>, device: &DeviceId, is_any_open: bool, ledger: &Ledger) -> Option<Stood> {
        Stood::judge(inputs, device, Known::read(self, device, None, ledger), is_any_open)
    }

    fn look_at(&self, ledger: &Ledger, stood: &BTreeMap<DeviceId, Stood>) -> Looked {
        let numbers = stood.values().map(|one| one.rollout).chain(self.fleet.rollouts.keys().copied());
        let next_number = numbers.fold(ledger.rollouts.highest(), u32::max).saturating_add(1);
        let present = stood.values().map(|one| one.present).sum();
        let mut names = BTreeMap::new();
        stood.values().flat_map(|one| &one.removed).for_each(|name| *names.entry(name.clone()).or_default() += 1);
        let removed = names.values().sum();
        // All that would go at this look is one change, however many rollouts it is.
        let refused = RefCell::new(None);
        let ask = |removals: usize| {
            let removals = if removals == 0 { 0 } else { removals.max(removed) };
            let guarded = of_fleet(&self.fleet.settings.guards, self.allowed, &names, (removals, present))?;
            let why = guarded.to_string();
            refused.replace(Some(guarded));
            Some(why)
        };
        let allowed = |proposal: &Proposal<'_>| {
            let of = |device| stood.get(device).into_iter().flat_map(|one| &one.allowed);
            proposal.devices.iter().flat_map(of).filter(|name| proposal.deployments.contains(*name)).count()
        };
        let looks = Looks::read(self.home);
        let heartbeats = RefCell::new(BTreeMap::new());
        let evidence = |record: &Record, device: &DeviceId| {
            heartbeats.borrow_mut().entry(device.clone()).or_insert_with(|| heartbeat(self.home, device));
            self.evidence(record, device, &looks)
        };
        let findings = Findings::read(self.home);
        let not_pushed = findings.blocked.iter().filter(|one| one.code == Code::NotPushed);
        let not_pushed = not_pushed.filter_map(|one| Some((one.device.clone()?, one.message.clone()))).collect();
        let facts = Facts {
            fleet: self.fleet,
            fleet_commit: self.origin.commit.to_string(),
            operator_key: self.origin.operator_key(),
            devices: stood.iter().map(|(device, one)| (device.clone(), one.standing.clone())).collect(),
            replaces: stood.values().flat_map(|one| one.replaces.iter().cloned()).collect(),
            not_pushed,
            evidence: &evidence,
            // Nobody is asked again what a person let pass.
            refused: &|proposal| ask(proposal.removals.saturating_sub(allowed(proposal))),
            allowed: words(self.allowed),
            next_number,
        };
        let look = look(&ledger.rollouts.open, &facts, self.now);
        let holds = Holds::of_look(&look, &facts.fleet_commit, refused.borrow().as_ref());
        let awaited: BTreeSet<_> = look.waiting.iter().flat_map(|one| one.devices.keys()).cloned().collect();
        let mut heartbeats = heartbeats.borrow().clone();
        heartbeats.retain(|device, _| awaited.contains(device));
        Looked { look, holds, heartbeats }
    }

    fn evidence(&self, record: &Record, device: &DeviceId, looks: &Looks) -> Evidence {
        let publishers = &self.rosters.publishers;
        let enrolled = self.fleet.devices.get(device).map_or(&[][..], |device| &device.status_keys);
        let opened = DeviceRepo::open(self.home, self.rosters.fleet(), device);
        let read = opened.and_then(|repo| repo.map(|repo| Ok((repo.desired(publishers)?, repo))).transpose());
        match read {
            Ok(Some((tip, repo))) => {
                let judge = Judge { enrolled, publishers, looks, now: self.now };
                let evidence = repo.evidence(tip.as_ref(), &record.state.deployments, judge);
                // A look at a host that is down is none.
                let silent_for = if self.unheard.contains(device) { 0 } else { evidence.silent_for };
                Evidence { silent_for, ..evidence }
            }
            // Of nobody's word nothing is known.
            Ok(None) => Evidence::default(),
            Err(error) => {
                tracing::warn!(%device, error = error_chain(&error), "nothing can be known of it for a rollout");
                Evidence::default()
            }
        }
    }
}
