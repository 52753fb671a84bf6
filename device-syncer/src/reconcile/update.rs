//! News from the host: poll, bounded fetch, and what verification makes of it. No effect on what runs.

use std::cell::Cell;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use repo_git::{CommitId, FetchError, FetchLimits, Fetched, Remote, RemoteError};
use repo_model::desired::{Desired, Refusal};
use repo_model::error_chain;
use repo_model::freshness::{Freshness, PROOF_REFUSED};
use repo_model::report::Condition;
use repo_model::roster::{Trust, roster_path};

use crate::config::Limits;
use crate::decision::conditions::{STALLED, WAITING, condition};
use crate::decision::device_state::{Accepted, DeviceState};
use crate::decision::failure::is_disk_full;
use crate::host::account::Keeper;
use crate::host::verify::{Adoption, Judge};
use crate::reconcile::pass::{Ask, Syncer};
use crate::state::floor::FloorError;
use crate::state::store::Store;

/// A publisher renews its proof of freshness at half its life of a day: with less than this left, a newer one is
/// looked for.
const RENEWAL: SignedDuration = SignedDuration::from_hours(13);

/// What a poll is, where it fails.
const POLLING: &str = "the host can't be asked";

/// How many times as long as any other conversation a fetch may take: ten minutes, unless `timeouts` of `device.yaml` say
/// otherwise. At 2 kB/s a pack of a megabyte comes through.
const FETCH: u32 = 10;

/// The largest object. A chain of deltas may hold four times as much, which is what resolving it takes of memory.
const OBJECT_BYTES: u64 = 16 << 20;

/// What reading everything in a pack may come to: some seconds of copying, and enough for thousands of commits.
const RESOLVED_BYTES: u64 = 8 << 30;

/// How long a look for a newer revision may hold up what is waited for.
const LOOK: Duration = Duration::from_secs(5);

/// Where the host's branches stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteRefs {
    /// `desired`; absent before the device is enrolled.
    pub desired: Option<CommitId>,
    /// `freshness`.
    pub freshness: Option<CommitId>,
    /// `status`.
    pub status: Option<CommitId>,
    /// `heartbeat`.
    pub heartbeat: Option<CommitId>,
}

impl RemoteRefs {
    /// Asks the host, in one request.
    pub fn poll(remote: &Remote) -> Result<Self, RemoteError> {
        let mut refs = remote.refs(&["refs/heads/"])?;
        let mut take = |name: &str| refs.remove(&format!("refs/heads/{name}"));
        Ok(Self {
            desired: take("desired"),
            freshness: take("freshness"),
            status: take("status"),
            heartbeat: take("heartbeat"),
        })
    }
}

/// What a poll came to.
#[derive(Debug)]
pub enum FetchOutcome {
    /// `desired` is where it was.
    Unchanged,
    /// A new state that is believed.
    Adoption(Box<Adoption>),
    /// A new state that is believed, and doesn't list this device's key.
    Unlisted,
    /// There is none, or it isn't believed.
    Refused(Condition),
    /// It can't be fetched, for a reason that is not the way to the host.
    Unfetched(Condition),
    /// The host went away while it was fetched.
    Unreachable(Box<RemoteError>),
}

impl FetchOutcome {
    /// Whether the tip is one that could be in force here; `None` where nothing is known of it.
    pub(crate) fn lists_us(&self) -> Option<bool> {
        match self {
            Self::Unchanged | Self::Adoption(_) => Some(true),
            Self::Unlisted => Some(false),
            Self::Refused(_) | Self::Unfetched(_) | Self::Unreachable(_) => None,
        }
    }
}

/// Why something of the host's isn't known.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// It can't be fetched.
    #[error("can't fetch from the host")]
    Fetch(#[from] FetchError),
    /// It isn't believed.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// How much history comes with what is fetched.
#[derive(Debug, Clone, Copy)]
pub enum History {
    /// The tips alone.
    None,
    /// All of it since this commit, or from its beginning. The tips alone where that is too much.
    Since(Option<CommitId>),
}

/// Fetches what the clone doesn't have of `wants`.
pub fn fetch(
    remote: &Remote,
    store: &Store,
    wants: &[CommitId],
    history: History,
    limits: &Limits,
) -> Result<(), FetchError> {
    let wants: Vec<_> = wants.iter().copied().filter(|id| store.repo.commit(*id).is_err()).collect();
    if wants.is_empty() {
        return Ok(());
    }
    let limits = fetch_limits(remote, limits);
    if let History::Since(since) = history {
        let haves: Vec<_> = since.into_iter().collect();
        match remote.fetch(&store.repo, &wants, &haves, false, &limits) {
            Err(error) if error.is_too_much() || is_disk_full(&error) => {
                tracing::warn!(error = error_chain(&error), "the history is too long; fetching the tip alone");
            }
            result => return suspecting(store, result),
        }
    }
    suspecting(store, remote.fetch(&store.repo, &wants, &[], true, &limits))
}

/// A pack that can't be resolved may build on something in the clone that can't be read.
fn suspecting(store: &Store, fetched: Result<Fetched, FetchError>) -> Result<(), FetchError> {
    if matches!(fetched, Err(FetchError::Corrupt(_) | FetchError::Read(_))) {
        store.suspect();
    }
    fetched.map(drop)
}

/// What can't be fetched is news, too.
fn unfetched(tip: CommitId, error: FetchError) -> FetchOutcome {
    if let FetchError::Remote(error) = error {
        return FetchOutcome::Unreachable(Box::new(error));
    }
    tracing::warn!(commit = %tip, error = error_chain(&error), "can't fetch");
    let reason = if is_disk_full(&error) { "disk-full" } else { "FetchFailed" };
    // Without the causes, which name other temporary files each time: each change is a commit.
    FetchOutcome::Unfetched(condition(STALLED, reason, format!("{tip}: {error}")))
}

/// Fetches all that came before a commit which the clone has, if it ends there.
pub fn fetch_history(remote: &Remote, store: &Store, tip: CommitId, limits: &Limits) -> Result<(), FetchError> {
    remote.fetch_whole(&store.repo, &[tip], &fetch_limits(remote, limits)).map(drop)
}

fn fetch_limits(remote: &Remote, limits: &Limits) -> FetchLimits {
    FetchLimits {
        bytes: limits.pack_bytes,
        objects: limits.pack_objects,
        object_bytes: limits.pack_bytes.min(OBJECT_BYTES),
        resolved_bytes: RESOLVED_BYTES,
        timeout: remote.timeout().saturating_mul(FETCH),
    }
}

impl Syncer {
    /// Where the host's branches stand, by what it says now or said before.
    pub(crate) fn remote_refs(&mut self, ask: Ask) -> Option<RemoteRefs> {
        match (ask, &self.refs) {
            (Ask::Later(_), _) => return None,
            (Ask::IfMoved, Some(refs)) => return Some(refs.clone()),
            _ => {}
        }
        self.connection.refresh(&self.home, &self.join, &self.settings.host);
        let refs = self.poll().inspect_err(|error| self.connectivity.failed(error, POLLING, Timestamp::now())).ok();
        self.shown = refs.as_ref().map(|refs| (refs.desired, refs.freshness));
        self.refs = refs;
        let now = self.now();
        // Only a host of our kind lets devices wait, and has accounts that end.
        if let Some(keeper) =
            self.connection.keeper.as_mut().filter(|_| self.refs.is_some() && self.connection.remote.waits().is_some())
        {
            keeper.renew_if_due(now);
        }
        self.refs.clone()
    }

    /// Asks the host, with the secret that it knows.
    fn poll(&mut self) -> Result<RemoteRefs, RemoteError> {
        if let Some(keeper) = &mut self.connection.keeper {
            keeper.prove();
        }
        let refs = RemoteRefs::poll(&self.connection.remote);
        let refused = matches!(&refs, Err(RemoteError::Http(error)) if error.status() == Some(401));
        let falls_back = refused && self.connection.keeper.as_mut().is_some_and(Keeper::fall_back);
        if falls_back { RemoteRefs::poll(&self.connection.remote) } else { refs }
    }

    /// Fetches and judges what is new on `desired`.
    pub(crate) fn fetch_outcome(&self, refs: &RemoteRefs, accepted_history: Option<CommitId>) -> FetchOutcome {
        let tip = match (refs.desired, &self.store.device_state.accepted) {
            (Some(tip), Some(accepted)) if accepted.id() == Some(tip) => match self.fetch_lost(tip) {
                Ok(()) => return FetchOutcome::Unchanged,
                Err(error) => return unfetched(tip, error),
            },
            (Some(tip), _) => tip,
            (None, Some(_)) => {
                return FetchOutcome::Refused(condition(
                    STALLED,
                    "history-rewritten",
                    "`desired` is gone from the host",
                ));
            }
            (None, None) => {
                return FetchOutcome::Refused(condition(
                    WAITING,
                    "NotEnrolled",
                    "the host has no `desired` for this device yet",
                ));
            }
        };
        match self.judge(tip, refs, accepted_history) {
            Ok(adoption) if !self.is_listed(&adoption.desired) => FetchOutcome::Unlisted,
            Ok(adoption) => FetchOutcome::Adoption(Box::new(adoption)),
            Err(UpdateError::Refused(refusal)) => {
                FetchOutcome::Refused(condition(STALLED, refusal.code, format!("{tip}: {}", refusal.message)))
            }
            Err(UpdateError::Fetch(error)) => unfetched(tip, error),
        }
    }

    fn is_listed(&self, desired: &Desired) -> bool {
        desired.envelope.device.status_keys.contains(&self.key)
    }

    /// What this device waits for where the tip, or the state in force, doesn't list its key: it isn't the device that the
    /// fleet means, or not any more. What isn't known of the tip is as it was before.
    pub(crate) fn waiting(&self, tip_lists_us: Option<bool>, in_force: Option<&Desired>) -> Option<Condition> {
        let tip_lists_us = tip_lists_us.unwrap_or(self.store.device_state.waiting.is_none());
        if tip_lists_us && in_force.is_none_or(|desired| self.is_listed(desired)) {
            return None;
        }
        let (device, key) = (&self.join.device, &self.key);
        let text = format!(
            "`statusKeys` of `desired` don't list this device's key, so it adopts nothing new and tells the host nothing; \
             if it shall be `{device}`, run `wfm-git-publisher device enroll {device} '{key}'`, with `--replace` where \
             another machine was that"
        );
        Some(condition(WAITING, "NotListed", text))
    }

    /// Fetches the accepted commit, which believing once is enough for, if the clone has lost it.
    fn fetch_lost(&self, accepted: CommitId) -> Result<(), FetchError> {
        if self.store.holds(accepted) {
            return Ok(());
        }
        tracing::warn!(commit = %accepted, "what was accepted is fetched anew");
        fetch(&self.connection.remote, &self.store, &[accepted], History::Since(None), &self.settings.limits)
    }

    fn judge(
        &self,
        tip: CommitId,
        refs: &RemoteRefs,
        accepted_history: Option<CommitId>,
    ) -> Result<Adoption, UpdateError> {
        let accepted = self.store.device_state.accepted.as_ref().and_then(Accepted::id);
        let history = accepted
            .map_or(History::None, |accepted| History::Since(Some(accepted).filter(|id| self.store.holds(*id))));
        let wants: Vec<CommitId> = [Some(tip), refs.freshness].into_iter().flatten().collect();
        fetch(&self.connection.remote, &self.store, &wants, history, &self.settings.limits)?;
        Ok(self.judging(&self.trust()?, accepted_history).desired(tip)?)
    }

    fn judging<'a>(&'a self, trust: &'a Trust, accepted_history: Option<CommitId>) -> Judge<'a> {
        let (store, join, floor) = (&self.store, &self.join, &self.floor);
        Judge { store, join, floor, trust, now: self.now(), accepted_history }
    }

    /// The newest roster that is believed: the one of the accepted state, or that of a join file which came later.
    fn trust(&self) -> Result<Trust, Refusal> {
        let pin = |roster: &[u8]| {
            Trust::pin(&roster_path(self.join.trust.version), roster, self.join.fleet)
                .map_err(|error| Refusal::new("trust-invalid", error_chain(&error)))
        };
        let joined = pin(self.join.trust.roster.as_bytes())?;
        match self.store.device_state.roster.as_slice() {
            [] => Ok(joined),
            known => pin(known).map(|known| if known.roster.version < joined.roster.version { joined } else { known }),
        }
    }

    /// The present moment, by which keys and proofs are judged as certificates are.
    pub(crate) fn now(&self) -> Timestamp {
        self.connection.now()
    }

    /// Takes a newer proof of freshness for the state in `next`, if it needs one. Returns why the one that is there isn't
    /// believed, if a clock must be wrong.
    pub(crate) fn refresh(
        &mut self,
        refs: Option<&RemoteRefs>,
        next: &mut DeviceState,
    ) -> Result<Option<Refusal>, FloorError> {
        let now = self.now();
        let Some(accepted) = &mut next.accepted else { return Ok(None) };
        let is_due = accepted.fresh_for(now).is_none_or(|left| left < RENEWAL);
        let Some(tip) = refs.and_then(|refs| refs.freshness).filter(|_| is_due) else { return Ok(None) };
        match self.proof(tip, accepted) {
            Ok(proof) => {
                accepted.renew(proof.expires, now);
                if self.floor.learn_time(proof.issued, now) {
                    self.floor.raise(&self.home.floor())?;
                    self.connection.set_floor_of_time(self.floor.time);
                }
            }
            Err(UpdateError::Refused(refusal)) if refusal.code == PROOF_REFUSED => return Ok(Some(refusal)),
            Err(error) => tracing::debug!(error = error_chain(&error), "no proof of freshness"),
        }
        Ok(None)
    }

    /// A publisher moves `freshness` after `desired`, so where a state was just adopted and nothing proves it, the host is
    /// asked once more. Only for the proof: what else moved is the next pass's.
    pub(crate) fn look_for_proof(&mut self, refs: &mut RemoteRefs) {
        let Ok(again) = RemoteRefs::poll(&self.connection.remote) else { return };
        refs.freshness = again.freshness;
        if let Some(known) = &mut self.refs {
            known.freshness = again.freshness;
        }
        self.shown = self.shown.map(|(desired, _)| (desired, again.freshness));
    }

    fn proof(&self, tip: CommitId, accepted: &Accepted) -> Result<Freshness, UpdateError> {
        fetch(&self.connection.remote, &self.store, &[tip], History::None, &self.settings.limits)?;
        let trust = self.trust()?;
        let (key, proof) = self.judging(&trust, None).freshness(tip, accepted)?;
        if !self.connection.can_be(proof.issued) || !trust.allows(&key, proof.issued) {
            tracing::debug!(issued = %proof.issued, now = %self.now(), "a proof of freshness of another time");
            // Without the times, which are others twice a day: each change is a commit.
            let text = "the proof of freshness says that it is later than it can be: the clock of this device, or that \
                        of its publisher, is wrong";
            return Err(Refusal::new(PROOF_REFUSED, text).into());
        }
        Ok(proof)
    }
}

/// Looks now and then whether the host has moved on, so that waiting for what is outdated ends.
pub(crate) struct NewerRevision {
    remote: Remote,
    known: Option<CommitId>,
    interval: Duration,
    asked: Cell<Instant>,
    found: Cell<bool>,
}

impl NewerRevision {
    /// Looks for anything but `known`.
    pub(crate) fn new(remote: Remote, known: Option<CommitId>, interval: Duration) -> Self {
        Self {
            remote: remote.with_timeout(LOOK),
            known,
            interval,
            asked: Cell::new(Instant::now()),
            found: Cell::new(false),
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        if !self.found.get() && self.asked.get().elapsed() >= self.interval {
            let refs = RemoteRefs::poll(&self.remote);
            self.found.set(refs.is_ok_and(|refs| refs.desired.is_some() && refs.desired != self.known));
            self.asked.set(Instant::now());
        }
        self.found.get()
    }

    /// Whether it was there when it was last looked for.
    pub(crate) fn was_there(&self) -> bool {
        self.found.get()
    }
}
