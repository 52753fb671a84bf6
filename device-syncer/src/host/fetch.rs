//! Fetches what is new at the host, within bounds, and says what verification makes of it. No effect on what runs.

use repo_git::{CommitId, FetchError, FetchLimits, Fetched, Remote, RemoteError};
use repo_model::desired::{Desired, Refusal};
use repo_model::freshness::{Freshness, PROOF_REFUSED};
use repo_model::report::{Condition, ConditionType, Reason};
use repo_model::roster::{Trust, roster_path};
use repo_model::{ErrorCode, error_chain};

use crate::config::{Device, Limits};
use crate::decision::conditions::condition;
use crate::decision::device_state::Accepted;
use crate::decision::failure::is_disk_full;
use crate::decision::site::{Believed, KnownLists};
use crate::host::connection::HostConnection;
use crate::host::refs::RemoteRefs;
use crate::host::verify::{Adoption, Judge};
use crate::state::floor::Floor;
use crate::state::rekey;
use crate::state::roster;
use crate::state::view::View;

/// How many times as long as any other conversation a fetch may take: ten minutes, unless `timeouts` of `device.yaml` say
/// otherwise. At 2 kB/s a pack of a megabyte comes through.
const FETCH: u32 = 10;

/// The largest object. A chain of deltas may hold four times as much, which is what resolving it takes of memory.
const OBJECT_BYTES: u64 = 16 << 20;

/// What reading everything in a pack may come to: some seconds of copying, and enough for thousands of commits.
const RESOLVED_BYTES: u64 = 8 << 30;

/// The largest pack and object of `site`, whose only file has 64 KiB at most, and how many objects it may have: a person's
/// push, which nobody but this device judges, holds up nothing else.
const SITE_PACK: u64 = 256 << 10;
const SITE_OBJECT: u64 = 128 << 10;
const SITE_OBJECTS: u32 = 10;

/// What polling and fetching came to.
#[derive(Debug)]
pub enum FetchOutcome {
    /// `desired` is at the accepted commit.
    Unchanged,
    /// A new state that is believed.
    Adoption(Box<Adoption>),
    /// A new state that is believed, and doesn't list this device's key.
    Unlisted,
    /// There is none, or it isn't believed.
    Refused(Condition),
    /// It can't be fetched, for a reason that is not the connection.
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
    #[error("can't fetch from the host")]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// How much history comes with what is fetched.
#[derive(Debug, Clone, Copy)]
pub enum History {
    /// None: the tips alone are fetched.
    None,
    /// All of it since this commit, or from its beginning. The tips alone where that is too much.
    Since(Option<CommitId>),
}

/// Fetches what the clone doesn't have of `wants`.
pub fn fetch(
    remote: &Remote,
    view: &View,
    wants: &[CommitId],
    history: History,
    limits: &Limits,
) -> Result<(), FetchError> {
    let wants: Vec<_> = wants.iter().copied().filter(|id| view.repo.commit(*id).is_err()).collect();
    if wants.is_empty() {
        return Ok(());
    }
    let limits = fetch_limits(remote, limits);
    if let History::Since(since) = history {
        let haves: Vec<_> = since.into_iter().collect();
        match remote.fetch(&view.repo, &wants, &haves, false, &limits) {
            Err(error) if error.is_too_much() || is_disk_full(&error) => {
                tracing::warn!(error = error_chain(&error), "the history is too long; fetching the tip alone");
            }
            result => return suspecting(view, result),
        }
    }
    suspecting(view, remote.fetch(&view.repo, &wants, &[], true, &limits))
}

/// Fetches the tip of `site` alone, if the clone doesn't have it.
pub fn fetch_site(remote: &Remote, view: &View, tip: CommitId, limits: &Limits) -> Result<(), FetchError> {
    if view.repo.commit(tip).is_ok() {
        return Ok(());
    }
    let limits = FetchLimits {
        bytes: limits.pack_bytes.min(SITE_PACK),
        objects: SITE_OBJECTS,
        object_bytes: SITE_OBJECT,
        resolved_bytes: SITE_PACK * 4,
        ..fetch_limits(remote, limits)
    };
    remote.fetch(&view.repo, &[tip], &[], true, &limits).map(drop)
}

/// A pack that can't be resolved may build on something in the clone that can't be read.
fn suspecting(view: &View, fetched: Result<Fetched, FetchError>) -> Result<(), FetchError> {
    if matches!(fetched, Err(FetchError::Corrupt(_) | FetchError::Read(_))) {
        view.suspect();
    }
    fetched.map(drop)
}

/// What can't be fetched is an outcome, too.
fn unfetched(tip: CommitId, error: FetchError) -> FetchOutcome {
    if let FetchError::Remote(error) = error {
        return FetchOutcome::Unreachable(Box::new(error));
    }
    tracing::warn!(commit = %tip, error = error_chain(&error), "can't fetch");
    let reason = if is_disk_full(&error) { ErrorCode::DiskFull.into() } else { Reason::FetchFailed };
    // Without the causes, which name other temporary files each time: each change is a commit.
    FetchOutcome::Unfetched(condition(ConditionType::Stalled, reason, format!("{tip}: {error}")))
}

/// Fetches all that came before a commit which the clone has, if it ends there.
pub fn fetch_history(remote: &Remote, view: &View, tip: CommitId, limits: &Limits) -> Result<(), FetchError> {
    remote.fetch_whole(&view.repo, &[tip], &fetch_limits(remote, limits)).map(drop)
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

/// Fetches for one device, and judges what came by what it knows.
#[derive(Debug, Clone, Copy)]
pub struct Fetcher<'a> {
    /// The host connection, and the present moment.
    pub connection: &'a HostConnection,
    /// Who this is, and its bounds.
    pub device: &'a Device,
    /// The clone that is fetched into.
    pub view: &'a View,
    /// Nothing below it is believed.
    pub floor: &'a Floor,
}

impl Fetcher<'_> {
    fn remote(&self) -> &Remote {
        &self.connection.remote
    }

    /// Fetches and judges what is new on `desired`.
    pub fn outcome(&self, refs: &RemoteRefs, accepted_history: Option<CommitId>) -> FetchOutcome {
        let tip = match (refs.desired, &self.view.device_state.accepted) {
            (Some(tip), Some(accepted)) if accepted.id() == Some(tip) => match self.fetch_lost(tip) {
                Ok(()) => return FetchOutcome::Unchanged,
                Err(error) => return unfetched(tip, error),
            },
            (Some(tip), _) => tip,
            (None, Some(_)) => {
                return FetchOutcome::Refused(condition(
                    ConditionType::Stalled,
                    ErrorCode::HistoryRewritten,
                    "`desired` is gone from the host",
                ));
            }
            (None, None) => {
                return FetchOutcome::Refused(condition(
                    ConditionType::Waiting,
                    Reason::NotEnrolled,
                    "the host has no `desired` for this device yet",
                ));
            }
        };
        match self.judge(tip, refs, accepted_history) {
            Ok(adoption) if !self.lists_us(&adoption.desired) => FetchOutcome::Unlisted,
            Ok(adoption) => FetchOutcome::Adoption(Box::new(adoption)),
            Err(UpdateError::Refused(refusal)) => FetchOutcome::Refused(condition(
                ConditionType::Stalled,
                refusal.code,
                format!("{tip}: {}", refusal.message),
            )),
            Err(UpdateError::Fetch(error)) => unfetched(tip, error),
        }
    }

    /// Whether the fleet means this device, by the key that it has or the one that shall take its place.
    fn lists_us(&self, desired: &Desired) -> bool {
        self.device.is_listed(desired) || rekey::listed(&self.device.home, desired).is_some()
    }

    /// Fetches the accepted commit, which believing once is enough for, if the clone has lost it.
    fn fetch_lost(&self, accepted: CommitId) -> Result<(), FetchError> {
        if self.view.holds(accepted) {
            return Ok(());
        }
        tracing::warn!(commit = %accepted, "what was accepted is fetched anew");
        fetch(self.remote(), self.view, &[accepted], History::Since(None), &self.device.settings.limits)
    }

    fn judge(
        &self,
        tip: CommitId,
        refs: &RemoteRefs,
        accepted_history: Option<CommitId>,
    ) -> Result<Adoption, UpdateError> {
        let accepted = self.view.device_state.accepted.as_ref().and_then(Accepted::id);
        let history =
            accepted.map_or(History::None, |accepted| History::Since(Some(accepted).filter(|id| self.view.holds(*id))));
        let wants: Vec<CommitId> = [Some(tip), refs.freshness].into_iter().flatten().collect();
        fetch(self.remote(), self.view, &wants, history, &self.device.settings.limits)?;
        Ok(self.judging(&self.trust()?, accepted_history).desired(tip)?)
    }

    fn judging<'b>(&'b self, trust: &'b Trust, accepted_history: Option<CommitId>) -> Judge<'b> {
        let (view, join, floor) = (self.view, &self.device.join, self.floor);
        Judge { view, join, floor, trust, now: self.connection.now(), accepted_history }
    }

    /// The newest roster that is believed: the one of the accepted state, that of the join file, or one that came since.
    pub fn trust(&self) -> Result<Trust, Refusal> {
        let invalid = |error| Refusal::new(ErrorCode::TrustInvalid, error_chain(&error));
        let (device, join) = (&self.device, &self.device.join);
        let newest = roster::newest(&device.home, join).map_err(invalid)?;
        match self.view.device_state.roster.as_slice() {
            [] => Ok(newest),
            bytes => {
                let accepted = Trust::pin(&roster_path(join.trust.version), bytes, join.fleet).map_err(invalid)?;
                Ok(if accepted.roster.version > newest.roster.version { accepted } else { newest })
            }
        }
    }

    /// The list at this commit on `site`, if it is believed after the ones that are known.
    pub fn site_list(&self, tip: CommitId, known: &KnownLists) -> Result<Believed, UpdateError> {
        fetch_site(self.remote(), self.view, tip, &self.device.settings.limits)?;
        Ok(self.judging(&self.trust()?, None).site_list(tip, &self.device.settings.gates.keys, known)?)
    }

    /// The proof of freshness at this commit, if it is believed for the accepted state.
    pub fn proof(&self, tip: CommitId, accepted: &Accepted) -> Result<Freshness, UpdateError> {
        fetch(self.remote(), self.view, &[tip], History::None, &self.device.settings.limits)?;
        let trust = self.trust()?;
        let (key, proof) = self.judging(&trust, None).freshness(tip, accepted)?;
        if !trust.allows(&key, proof.issued) || !self.connection.can_be(proof.issued, trust.end_of(&key)) {
            tracing::debug!(issued = %proof.issued, now = %self.connection.now(), "a proof of freshness of another time");
            // Without the times, which are others twice a day: each change is a commit.
            let text = "the proof of freshness says that it is later than it can be: the clock of this device, or that \
                        of its publisher, is wrong";
            return Err(Refusal::new(PROOF_REFUSED, text).into());
        }
        Ok(proof)
    }
}
