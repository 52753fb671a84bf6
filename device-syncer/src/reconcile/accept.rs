//! Puts in force what the host has and what is believed of it, before anything is done for it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use repo_git::sign::openssh::fingerprint;
use repo_git::{CommitId, SigningKey};
use repo_model::clock::SKEW;
use repo_model::desired::{Desired, Refusal};
use repo_model::error_chain;
use repo_model::freshness::{Freshness, PROOF_REFUSED};
use repo_model::report::{Condition, ConditionType, Reason};
use repo_model::roster::Trust;

use crate::config::Device;
use crate::decision::conditions::{self, condition};
use crate::decision::device_state::{Accepted, DeviceState};
use crate::decision::site::{Believed, KnownLists};
use crate::host::client::HostClient;
use crate::host::connection::HostClock;
use crate::host::fetch::{FetchOutcome, Fetcher, UpdateError};
use crate::host::refs::RemoteRefs;
use crate::host::verify::{Adoption, Descent};
use crate::reconcile::lost::lost;
use crate::reconcile::outcome::HostAnswer;
use crate::state::accepted::{self, LastRead, Unreadable};
use crate::state::floor::{Floor, FloorError};
use crate::state::rekey;
use crate::state::roster;
use crate::state::site;
use crate::state::view::View;

/// A publisher renews its proof of freshness at half its life of a day: with less than this left, a newer one is
/// looked for.
const RENEWAL: SignedDuration = SignedDuration::from_hours(13);

/// What the host had in one go, judged by what was accepted then. Nothing of it counts before it is taken.
#[derive(Debug)]
pub(super) struct Found {
    /// What was accepted when it was judged; what was judged by something else is out of date.
    accepted: Option<String>,
    /// What was had of the host.
    pub(super) host: HostAnswer,
    /// Whether the host's `status` is known, where this device knows nothing of its own.
    pub(super) is_resumed: bool,
    outcome: FetchOutcome,
    /// What became of the newest proof of freshness, where one was looked at.
    proof: Option<Result<Freshness, Refusal>>,
    /// What persons of the site say from elsewhere, where that is new; the outer `None` where that isn't known, or nobody may.
    site: Option<Result<Option<Box<NewerList>>, Refusal>>,
    /// A roster that its own proof led to, where the host's certificate isn't believed.
    pub(super) newer_roster: Option<Trust>,
}

/// A list on the branch `site` that is believed.
#[derive(Debug)]
struct NewerList {
    list: Believed,
    /// The lists that were known when it was judged.
    after: KnownLists,
}

/// What the host had last, in what counts until it says something else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Whether the host's `status` is known.
    pub(super) is_resumed: bool,
    /// Why what it shows isn't accepted.
    refused: Option<Condition>,
    /// Whether what it shows is for this device; `None` where nothing is known of that.
    is_listed: Option<bool>,
    /// Why its proof of freshness isn't believed, if a clock must be wrong.
    unproven: Option<Refusal>,
    /// Why the site's list isn't believed; the outer absence says that nothing was heard of it yet.
    site: Option<Option<Condition>>,
}

impl Heard {
    /// Takes over what the host says now; where it says nothing, what it said before counts.
    pub(super) fn note(&mut self, found: &Found) {
        self.is_resumed |= found.is_resumed;
        if found.host == HostAnswer::Unreachable {
            return;
        }
        self.refused = match &found.outcome {
            FetchOutcome::Refused(condition) | FetchOutcome::Unfetched(condition) => Some(condition.clone()),
            _ => None,
        };
        self.is_listed = found.outcome.lists_us();
        self.unproven = found.proof.as_ref().and_then(|proof| proof.as_ref().err().cloned());
        if let Some(site) = &found.site {
            self.site = Some(site.as_ref().err().map(site_refused));
        }
    }
}

impl Found {
    /// Whether it brings something that wasn't accepted before.
    pub(super) fn brings(&self) -> bool {
        matches!(self.outcome, FetchOutcome::Adoption(_))
            || matches!(self.proof, Some(Ok(_)))
            || matches!(self.site, Some(Ok(Some(_))))
            || self.newer_roster.is_some()
    }

    /// Whether nothing changes by it, for a device in this state that heard this before.
    pub(super) fn is_known(&self, device_state: &DeviceState, heard: &Heard) -> bool {
        let accepted = device_state.accepted.as_ref().map(|accepted| &accepted.commit);
        let mut now = heard.clone();
        now.note(self);
        !self.brings() && self.accepted.as_ref() == accepted && now == *heard
    }
}

/// What isn't believed is told, and the list before still counts.
fn site_refused(refusal: &Refusal) -> Condition {
    let is_forked = refusal.code == Reason::SiteForked;
    let kind = if is_forked { ConditionType::SecurityEvent } else { ConditionType::SiteRefused };
    condition(kind, refusal.code, refusal.message.clone())
}

/// Fetches what the host has, and judges it by what is accepted. Changes nothing but the clone, which gets objects.
pub(super) fn fetch_and_judge(
    host: &mut HostClient,
    device: &Device,
    view: &View,
    floor: &Floor,
    (refs, is_resumed): (Option<&mut RemoteRefs>, bool),
    accepted_history: Option<CommitId>,
) -> Found {
    let accepted = view.device_state.accepted.as_ref().map(|accepted| accepted.commit.clone());
    let Some(refs) = refs.filter(|_| is_resumed) else {
        let (host, outcome) = (HostAnswer::Unreachable, FetchOutcome::Unchanged);
        return Found { accepted, host, is_resumed, outcome, proof: None, site: None, newer_roster: None };
    };
    let accepted_history = accepted_history.filter(|commit| !accepted::is_in_force(view, *commit));
    let mut judge = Judge { host, device, view, floor };
    let outcome = judge.fetcher().outcome(refs, accepted_history);
    let answer = match &outcome {
        FetchOutcome::Unfetched(_) => HostAnswer::Unfetched,
        FetchOutcome::Unreachable(error) => {
            judge.host.connectivity.failed(error, "can't fetch", Timestamp::now());
            HostAnswer::Unreachable
        }
        _ => HostAnswer::Complete,
    };
    let proof = judge.proof(refs, &outcome);
    let site = judge.site(refs);
    Found { accepted, host: answer, is_resumed, outcome, proof, site, newer_roster: None }
}

/// What it takes to judge what the host has.
struct Judge<'a> {
    host: &'a mut HostClient,
    device: &'a Device,
    view: &'a View,
    floor: &'a Floor,
}

impl Judge<'_> {
    fn fetcher(&self) -> Fetcher<'_> {
        Fetcher { connection: &self.host.connection, device: self.device, view: self.view, floor: self.floor }
    }

    /// The newest proof of freshness for what will be accepted; it is asked for once more where a state was just found and
    /// nothing proves it.
    fn proof(&mut self, refs: &mut RemoteRefs, outcome: &FetchOutcome) -> Option<Result<Freshness, Refusal>> {
        let now = self.host.now();
        let adopted = if let FetchOutcome::Adoption(adoption) = outcome {
            let mut next = self.view.device_state.clone();
            adoption.put_into(&mut next, now);
            next.accepted
        } else {
            None
        };
        let is_new = adopted.is_some();
        let mut accepted = adopted.or_else(|| self.view.device_state.accepted.clone())?;
        let proof = self.proof_of(refs, &accepted, now);
        match &proof {
            Some(Ok(proof)) => accepted.renew(proof.expires, now),
            Some(Err(_)) => return proof,
            None => {}
        }
        if !is_new || !accepted.is_stale(now) {
            return proof;
        }
        self.host.poll_proof(refs);
        self.proof_of(refs, &accepted, now).or(proof)
    }

    /// The proof of freshness that the host has, if this state needs one.
    fn proof_of(&self, refs: &RemoteRefs, accepted: &Accepted, now: Timestamp) -> Option<Result<Freshness, Refusal>> {
        let is_due = accepted.fresh_for(now).is_none_or(|left| left < RENEWAL);
        let tip = refs.freshness.filter(|_| is_due)?;
        match self.fetcher().proof(tip, accepted) {
            Ok(proof) => Some(Ok(proof)),
            Err(UpdateError::Refused(refusal)) if refusal.code == PROOF_REFUSED => Some(Err(refusal)),
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "no proof of freshness");
                None
            }
        }
    }

    /// What persons of the site say from elsewhere, if any may.
    fn site(&mut self, refs: &RemoteRefs) -> Option<Result<Option<Box<NewerList>>, Refusal>> {
        let keys = &self.device.settings.gates.keys;
        if keys.is_empty() {
            return None;
        }
        Some(refs.site.map_or(Ok(None), |tip| self.site_list(tip)))
    }

    fn site_list(&mut self, tip: CommitId) -> Result<Option<Box<NewerList>>, Refusal> {
        let known = site::read(&self.device.home).map_err(|error| unavailable(&error))?;
        if known.is_newest(&tip.to_string(), &self.device.settings.gates.keys) {
            return Ok(None);
        }
        // Without the causes, which may be others each time: each change is a commit.
        let unfetched = || Refusal::new(Reason::Unavailable, format!("`site` can't be fetched: {tip}"));
        if !self.host.may_fetch_site(tip) {
            return Err(unfetched());
        }
        match self.fetcher().site_list(tip, &known) {
            Ok(list) => Ok(Some(Box::new(NewerList { list, after: known }))),
            Err(UpdateError::Refused(refusal)) => Err(refusal),
            Err(UpdateError::Fetch(error)) => {
                tracing::warn!(commit = %tip, error = error_chain(&error), "can't fetch `site`");
                self.host.site_is_unfetched(tip);
                Err(unfetched())
            }
        }
    }
}

fn unavailable(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(Reason::Unavailable, error_chain(error))
}

/// What one pass goes by: the newest state that is believed.
#[derive(Debug)]
pub(super) struct PassInput {
    /// What is believed of the desired state, in the device state as it was when the pass began.
    pub(super) next: DeviceState,
    /// The desired state to put in force; `None` without one, and where it is lost.
    pub(super) desired: Option<Arc<Desired>>,
    /// Whether that is a new one.
    pub(super) is_adopted: bool,
    /// The key that signs from the adoption on, where it lists a new one.
    pub(super) next_key: Option<SigningKey>,
    /// Whether what was found was judged by what isn't in force any more.
    pub(super) is_outdated: bool,
    /// Whether the device's clock shows less than a time that was proven.
    pub(super) clock_is_behind: bool,
    /// What `syncer.json` reports so far; the reconciler adds what it meets itself.
    pub(super) conditions: Vec<Condition>,
}

impl PassInput {
    fn of(next: DeviceState) -> Self {
        let (is_adopted, is_outdated, clock_is_behind) = (false, false, false);
        Self { next, desired: None, is_adopted, next_key: None, is_outdated, clock_is_behind, conditions: Vec::new() }
    }
}

/// Nothing can be put in force.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The floor can't be raised, and nothing is adopted before it is.
    #[error(transparent)]
    Floor(#[from] FloorError),
    /// What was accepted can't be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// What it takes to put a state in force.
#[derive(Debug)]
pub(super) struct Acceptance<'a> {
    pub(super) device: &'a Device,
    pub(super) clock: &'a HostClock,
    pub(super) view: &'a View,
    pub(super) floor: &'a mut Floor,
    pub(super) heard: &'a mut Heard,
    pub(super) last_read: &'a mut LastRead,
}

impl Acceptance<'_> {
    /// Puts together what a pass goes by: the newest state that is believed, and the conditions to report of it. Waits for
    /// nobody.
    pub(super) fn take(mut self, found: Option<Found>, events: &[Condition]) -> Result<PassInput, AcceptError> {
        let mut pass = PassInput::of(self.view.device_state.clone());
        let accepted = self.view.device_state.accepted.as_ref().map(|accepted| &accepted.commit);
        match found {
            Some(found) if found.accepted.as_ref() == accepted && self.is_here(&found) => {
                self.heard.note(&found);
                self.put_into(&mut pass, found)?;
            }
            found => pass.is_outdated = found.is_some(),
        }
        pass.conditions.extend(self.heard.refused.clone());
        if pass.desired.is_none() {
            pass.desired = self.last_read.read(self.view, &pass.next)?;
            pass.conditions.extend(lost(&pass.next, pass.desired.as_deref()));
        }
        pass.conditions.extend(conditions::damaged(&pass.next));
        self.note_waiting(&mut pass);
        pass.conditions.extend(of_accepted(&pass.next, self.heard.unproven.clone(), self.clock.now()));
        pass.clock_is_behind = is_behind(self.floor);
        self.note_site(&mut pass);
        let left_out = self.device.settings.capabilities.left_out();
        if !left_out.is_empty() {
            pass.conditions.push(condition(ConditionType::CapabilitiesInvalid, Reason::LeftOut, left_out.join("; ")));
        }
        pass.conditions.extend(events.iter().cloned());
        Ok(pass)
    }

    /// Whether the clone still has what was found: it may have been made anew.
    fn is_here(&self, found: &Found) -> bool {
        if let FetchOutcome::Adoption(adoption) = &found.outcome { self.view.holds(adoption.commit) } else { true }
    }

    /// Adopts what is believed, and takes what proves that the host shows the newest.
    fn put_into(&mut self, pass: &mut PassInput, found: Found) -> Result<(), FloorError> {
        if let FetchOutcome::Adoption(adoption) = found.outcome {
            self.adopt(pass, *adoption)?;
        }
        if let (Some(Ok(proof)), Some(accepted)) = (found.proof, &mut pass.next.accepted) {
            let now = self.clock.now();
            accepted.renew(proof.expires, now);
            if self.floor.learn_time(proof.issued, now) {
                self.floor.raise(&self.device.home.floor())?;
                self.clock.set_floor(self.floor.time);
            }
        }
        if let Some(Ok(Some(newer))) = found.site {
            pass.is_outdated |= !self.take_site_list(*newer);
        }
        Ok(())
    }

    /// Takes over what persons of the site say from elsewhere; `false` where it was judged after other lists than are known now.
    fn take_site_list(&mut self, NewerList { list, after }: NewerList) -> bool {
        let (home, keys) = (&self.device.home, &self.device.settings.gates.keys);
        let (serial, key, commit) = (list.list.serial, list.key.clone(), list.commit.clone());
        let taken = site::read(home).and_then(|known| {
            // Settings may have changed since, and so may what counts by now.
            let is_next = known.bound(keys) == after.bound(keys) && keys.iter().any(|one| one.key == key);
            if is_next {
                site::believe(home, list)?;
            }
            Ok(is_next)
        });
        match taken {
            Ok(true) => {
                let name = keys.iter().find(|one| one.key == key).map(|one| one.name.as_str());
                tracing::info!(serial, key = name, commit, "the site's list counts from here on");
                true
            }
            Ok(false) => false,
            Err(error) => {
                self.heard.site = Some(Some(site_refused(&unavailable(&error))));
                true
            }
        }
    }

    /// Tells why what the branch `site` shows isn't believed, as far as the host was asked; else what was told of it before.
    fn note_site(&self, pass: &mut PassInput) {
        if self.device.settings.gates.keys.is_empty() {
            return;
        }
        match &self.heard.site {
            Some(refused) => pass.conditions.extend(refused.clone()),
            None => {
                let told = conditions::all(&pass.next.status).into_iter();
                pass.conditions.extend(told.filter(|one| one.kind == ConditionType::SiteRefused));
            }
        }
    }

    /// Notes what the device waits for if the fleet doesn't list its key, and logs it once.
    fn note_waiting(&self, pass: &mut PassInput) {
        let before = &self.view.device_state;
        pass.next.waiting = self.device.not_listed(self.heard.is_listed, pass.desired.as_deref(), before);
        if let Some(Condition { kind, reason, message }) = &pass.next.waiting
            && pass.next.waiting != before.waiting
        {
            tracing::warn!(kind, reason, "{message}");
        }
    }

    /// The floor first: what was accepted once can't be taken back by a crash.
    fn adopt(&mut self, pass: &mut PassInput, adoption: Adoption) -> Result<(), FloorError> {
        // What a clone that was made anew takes over again is nothing newer.
        if adoption.desired.envelope.serial > self.floor.serial {
            pass.next.damaged = None;
        }
        let Device { home, join, .. } = self.device;
        roster::keep(home, join, &adoption.trust, &adoption.roster)
            .map_err(|source| FloorError::Roster { path: home.roster(), source })?;
        *self.floor = adoption.raise(self.floor);
        self.floor.raise(&self.device.home.floor())?;
        let before =
            self.view.device_state.accepted.as_ref().map_or("nothing".to_owned(), |before| before.commit.clone());
        let (serial, commit) = (adoption.desired.envelope.serial, adoption.commit);
        match adoption.descent {
            Descent::Shown | Descent::Unknown => {}
            Descent::Continued => {
                let text =
                    format!("serial {serial} ({commit}) doesn't descend from {before}, and says it continues it");
                pass.conditions.push(condition(ConditionType::SecurityEvent, Reason::HistoryContinued, text));
            }
            Descent::ByHand => {
                let text = format!("a person at the device accepted serial {serial} ({commit}) after {before}");
                pass.conditions.push(condition(ConditionType::SecurityEvent, Reason::HistoryAccepted, text));
            }
        }
        adoption.put_into(&mut pass.next, self.clock.now());
        if let Some((next, key)) = rekey::listed(home, &adoption.desired) {
            tracing::info!(serial, key = fingerprint(&key), "the device's new key is listed, and signs from here on");
            self.device.key.set(key);
            pass.next_key = Some(next);
        }
        tracing::info!(serial, %commit, "adopted");
        pass.is_adopted = true;
        pass.desired = Some(Arc::new(adoption.desired));
        Ok(())
    }
}

/// Whether the device's clock shows less than a time that was proven; clocks may differ by a day.
pub fn is_behind(floor: &Floor) -> bool {
    floor.time.duration_since(Timestamp::now()) > SKEW
}

/// What `syncer.json` reports of the accepted state: that nothing proves it fresh, or its descent.
fn of_accepted(next: &DeviceState, refused: Option<Refusal>, now: Timestamp) -> Vec<Condition> {
    let Some(accepted) = &next.accepted else { return Vec::new() };
    let mut all = Vec::new();
    if let Some(refusal) = refused {
        all.push(condition(ConditionType::Stale, refusal.code, refusal.message));
    } else if accepted.is_stale(now) {
        all.push(condition(
            ConditionType::Stale,
            Reason::Expired,
            "no fresh proof that the host shows the newest state",
        ));
    }
    if accepted.unverified {
        let text = "the history since what was accepted before isn't at hand, so its descent wasn't checked";
        all.push(condition(ConditionType::AncestryUnverified, Reason::ShallowHistory, text));
    }
    all
}

#[cfg(test)]
impl Found {
    /// Nothing that is new.
    pub(super) fn nothing(host: HostAnswer) -> Self {
        let outcome = FetchOutcome::Unchanged;
        Self { accepted: None, host, is_resumed: true, outcome, proof: None, site: None, newer_roster: None }
    }

    /// A proof that the host shows the newest.
    pub(super) fn proven(host: HostAnswer) -> Self {
        let proof = Freshness {
            fleet: crate::testing::fleet(),
            device: "press-01".parse().unwrap(),
            tip: "a".repeat(40),
            envelope_digest: repo_model::Digest::of(b""),
            serial: 1,
            issued: Timestamp::UNIX_EPOCH,
            expires: Timestamp::MAX,
        };
        Self { proof: Some(Ok(proof)), ..Self::nothing(host) }
    }
}
