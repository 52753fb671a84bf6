//! Puts in force what the host has and what is believed of it, before anything is done for it.

use jiff::{SignedDuration, Timestamp};
use repo_git::CommitId;
use repo_model::desired::{Desired, Refusal};
use repo_model::error_chain;
use repo_model::freshness::{PROOF_REFUSED, SKEW};
use repo_model::report::{Condition, ConditionType, Reason};

use crate::config::Device;
use crate::decision::conditions::{self, condition};
use crate::decision::device_state::DeviceState;
use crate::host::client::HostClient;
use crate::host::fetch::{FetchOutcome, Fetcher, UpdateError};
use crate::host::refs::RemoteRefs;
use crate::host::verify::{Adoption, Descent};
use crate::reconcile::lost::lost;
use crate::reconcile::outcome::HostAnswer;
use crate::state::accepted::{self, Unreadable};
use crate::state::floor::{Floor, FloorError};
use crate::state::site;
use crate::state::view::View;

/// A publisher renews its proof of freshness at half its life of a day: with less than this left, a newer one is
/// looked for.
const RENEWAL: SignedDuration = SignedDuration::from_hours(13);

/// What one pass goes by: the host's answer, and the newest state that is believed.
#[derive(Debug)]
pub(super) struct PassInput {
    /// Where the host's branches stand; `None` if that isn't known.
    pub(super) refs: Option<RemoteRefs>,
    /// What was had of the host, if it was asked.
    pub(super) host: HostAnswer,
    /// What is believed of the desired state, in the device state as it was when the pass began.
    pub(super) next: DeviceState,
    /// The desired state to put in force; `None` without one, and where it is lost.
    pub(super) desired: Option<Desired>,
    /// Whether that is a new one.
    pub(super) is_adopted: bool,
    /// Whether the device's clock shows less than a time that was proven.
    pub(super) clock_is_behind: bool,
    /// What `syncer.json` reports so far; the reconciler adds what it meets itself.
    pub(super) conditions: Vec<Condition>,
}

impl PassInput {
    fn new(refs: Option<RemoteRefs>, next: DeviceState) -> Self {
        let host = if refs.is_some() { HostAnswer::Complete } else { HostAnswer::Unreachable };
        let (is_adopted, clock_is_behind) = (false, false);
        Self { refs, host, next, desired: None, is_adopted, clock_is_behind, conditions: Vec::new() }
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
    pub(super) host: &'a mut HostClient,
    pub(super) view: &'a View,
    pub(super) floor: &'a mut Floor,
}

impl Acceptance<'_> {
    /// Puts together what a pass goes by: the newest state that is believed, and the conditions to report of it.
    pub(super) fn take(
        mut self,
        refs: Option<RemoteRefs>,
        accepted_history: Option<CommitId>,
        events: &[Condition],
    ) -> Result<PassInput, AcceptError> {
        let mut pass = PassInput::new(refs, self.view.device_state.clone());
        let accepted_history = accepted_history.filter(|commit| !accepted::is_in_force(self.view, *commit));
        let outcome = pass.refs.as_ref().map(|refs| self.fetcher().outcome(refs, accepted_history));
        let is_listed_by_tip = outcome.as_ref().and_then(FetchOutcome::lists_us);
        self.put_into(&mut pass, outcome.unwrap_or(FetchOutcome::Unchanged))?;
        if pass.desired.is_none() {
            pass.desired = accepted::read(self.view, &pass.next)?;
            pass.conditions.extend(lost(&pass.next, pass.desired.as_ref()));
        }
        pass.conditions.extend(conditions::damaged(&pass.next));
        self.note_waiting(&mut pass, is_listed_by_tip);
        let refused = self.prove_freshness(&mut pass)?;
        pass.conditions.extend(of_accepted(&pass.next, refused, self.host.now()));
        pass.clock_is_behind = is_behind(self.floor);
        self.take_site_list(&mut pass);
        let left_out = self.device.settings.capabilities.left_out();
        if !left_out.is_empty() {
            pass.conditions.push(condition(ConditionType::CapabilitiesInvalid, Reason::LeftOut, left_out.join("; ")));
        }
        if !pass.is_adopted {
            pass.conditions.extend(conditions::events(&pass.next.status));
        }
        pass.conditions.extend(events.iter().cloned());
        Ok(pass)
    }

    fn fetcher(&self) -> Fetcher<'_> {
        Fetcher { connection: &self.host.connection, device: self.device, view: self.view, floor: self.floor }
    }

    /// Adopts what is believed, or notes why nothing is.
    fn put_into(&mut self, pass: &mut PassInput, outcome: FetchOutcome) -> Result<(), FloorError> {
        match outcome {
            FetchOutcome::Adoption(adoption) => self.adopt(pass, *adoption)?,
            FetchOutcome::Refused(condition) => pass.conditions.push(condition),
            FetchOutcome::Unfetched(condition) => {
                pass.conditions.push(condition);
                pass.host = HostAnswer::Unfetched;
            }
            FetchOutcome::Unreachable(error) => {
                self.host.connectivity.failed(&error, "can't fetch", Timestamp::now());
                pass.host = HostAnswer::Unreachable;
            }
            FetchOutcome::Unchanged | FetchOutcome::Unlisted => {}
        }
        Ok(())
    }

    /// Notes what the device waits for if the fleet doesn't list its key, and logs it once.
    fn note_waiting(&self, pass: &mut PassInput, is_listed_by_tip: Option<bool>) {
        let before = &self.view.device_state;
        pass.next.waiting = self.device.not_listed(is_listed_by_tip, pass.desired.as_ref(), before);
        if let Some(Condition { kind, reason, message }) = &pass.next.waiting
            && pass.next.waiting != before.waiting
        {
            tracing::warn!(kind, reason, "{message}");
        }
    }

    /// Takes over what persons of the site say from elsewhere, if any may; what isn't believed is told, and the list before
    /// still counts.
    fn take_site_list(&mut self, pass: &mut PassInput) {
        if self.device.settings.gates.keys.is_empty() {
            return;
        }
        let Some(refs) = &pass.refs else {
            let told = conditions::all(&pass.next.status).into_iter();
            return pass.conditions.extend(told.filter(|one| one.kind == ConditionType::SiteRefused));
        };
        let Some(tip) = refs.site else { return };
        let Err(refusal) = self.site_list(tip) else { return };
        let kind =
            if refusal.code == Reason::SiteForked { ConditionType::SecurityEvent } else { ConditionType::SiteRefused };
        pass.conditions.push(condition(kind, refusal.code, refusal.message));
    }

    fn site_list(&mut self, tip: CommitId) -> Result<(), Refusal> {
        let unavailable = |error: &dyn std::error::Error| Refusal::new(Reason::Unavailable, error_chain(error));
        let (home, keys) = (&self.device.home, &self.device.settings.gates.keys);
        let known = site::read(home).map_err(|error| unavailable(&error))?;
        if known.is_newest(&tip.to_string(), keys) {
            return Ok(());
        }
        // Without the causes, which may be others each time: each change is a commit.
        let unfetched = || Refusal::new(Reason::Unavailable, format!("`site` can't be fetched: {tip}"));
        if !self.host.may_fetch_site(tip) {
            return Err(unfetched());
        }
        let believed = match self.fetcher().site_list(tip, &known) {
            Ok(believed) => believed,
            Err(UpdateError::Refused(refusal)) => return Err(refusal),
            Err(UpdateError::Fetch(error)) => {
                tracing::warn!(commit = %tip, error = error_chain(&error), "can't fetch `site`");
                self.host.site_is_unfetched(tip);
                return Err(unfetched());
            }
        };
        let (serial, key) = (believed.list.serial, believed.key.clone());
        site::believe(home, believed).map_err(|error| unavailable(&error))?;
        let name = keys.iter().find(|one| one.key == key).map(|one| one.name.as_str());
        tracing::info!(serial, key = name, commit = %tip, "the site's list counts from here on");
        Ok(())
    }

    /// Takes the newest proof of freshness; asks for it once more where a state was just adopted and nothing proves it.
    /// Returns why the one that is there isn't believed, if a clock must be wrong.
    fn prove_freshness(&mut self, pass: &mut PassInput) -> Result<Option<Refusal>, FloorError> {
        let refused = self.refresh(pass.refs.as_ref(), &mut pass.next)?;
        let is_unproven =
            pass.is_adopted && pass.next.accepted.as_ref().is_some_and(|one| one.is_stale(self.host.now()));
        match &mut pass.refs {
            Some(refs) if is_unproven && refused.is_none() => {
                self.host.look_for_proof(refs);
                self.refresh(Some(refs), &mut pass.next)
            }
            _ => Ok(refused),
        }
    }

    /// The floor first: what was accepted once can't be taken back by a crash.
    fn adopt(&mut self, pass: &mut PassInput, adoption: Adoption) -> Result<(), FloorError> {
        // What a clone that was made anew takes over again is nothing newer.
        if adoption.desired.envelope.serial > self.floor.serial {
            pass.next.damaged = None;
        }
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
        adoption.put_into(&mut pass.next, self.host.now());
        tracing::info!(serial, %commit, "adopted");
        pass.is_adopted = true;
        pass.desired = Some(adoption.desired);
        Ok(())
    }

    /// Takes a newer proof of freshness for the state in `next`, if it needs one. Returns why the one that is there isn't
    /// believed, if a clock must be wrong.
    fn refresh(&mut self, refs: Option<&RemoteRefs>, next: &mut DeviceState) -> Result<Option<Refusal>, FloorError> {
        let now = self.host.now();
        let Some(accepted) = &mut next.accepted else { return Ok(None) };
        let is_due = accepted.fresh_for(now).is_none_or(|left| left < RENEWAL);
        let Some(tip) = refs.and_then(|refs| refs.freshness).filter(|_| is_due) else { return Ok(None) };
        match self.fetcher().proof(tip, accepted) {
            Ok(proof) => {
                accepted.renew(proof.expires, now);
                if self.floor.learn_time(proof.issued, now) {
                    self.floor.raise(&self.device.home.floor())?;
                    self.host.connection.set_floor_of_time(self.floor.time);
                }
            }
            Err(UpdateError::Refused(refusal)) if refusal.code == PROOF_REFUSED => return Ok(Some(refusal)),
            Err(error) => tracing::debug!(error = error_chain(&error), "no proof of freshness"),
        }
        Ok(None)
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
