//! Fetching commits into a repository, within limits; on any failure nothing is left on disk.

use std::io::{self, BufRead};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gix::DynNestedProgress;
use gix::progress::Discard;
use gix::protocol::fetch::negotiate::{Action, Round, one_round};
use gix::protocol::fetch::{Arguments, Context, Negotiate, Options, Response, Shallow, Tags};

use super::connection::{Connection, agent};
use super::incoming::Incoming;
use super::{Remote, RemoteError};
use crate::{Cause, CommitId, ReadError, Repo};

/// The most bytes of what is said before a pack comes: where history is cut off, above all.
const TALK: u64 = 1 << 20;

/// What one fetch may take.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// Bytes of the pack on the wire.
    pub bytes: u64,
    /// Objects in the pack.
    pub objects: u32,
    /// Bytes of one object, unpacked. A chain of deltas may hold four times as much in all, and resolving it takes so
    /// much memory.
    pub object_bytes: u64,
    /// Bytes that reading each object of the pack by itself takes, with all that it is a delta of.
    pub resolved_bytes: u64,
    /// Time of the whole conversation, and of what is made of it here.
    pub timeout: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            objects: 100_000,
            object_bytes: 16 << 20,
            resolved_bytes: 32 << 30,
            timeout: Duration::from_secs(60),
        }
    }
}

/// What a fetch brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Objects received.
    pub objects: u32,
    /// Bytes of the pack on the wire.
    pub bytes: u64,
}

/// A fetch failed; the repository is as it was.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The remote can't be reached, is too slow or breaks the protocol.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The pack has more objects than allowed.
    #[error("the pack has {found} objects, more than the {limit} allowed")]
    TooManyObjects {
        /// Objects announced.
        found: u32,
        /// The limit.
        limit: u32,
    },
    /// The pack has more bytes than allowed.
    #[error("the pack is larger than the {limit} bytes allowed")]
    TooManyBytes {
        /// The limit.
        limit: u64,
    },
    /// An object is larger than allowed.
    #[error("the pack has an object larger than the {limit} bytes allowed")]
    ObjectTooLarge {
        /// The limit.
        limit: u64,
    },
    /// The pack has too many deltas of deltas.
    #[error("the pack has a chain of more than the {limit} deltas allowed")]
    TooManyDeltas {
        /// The limit.
        limit: u64,
    },
    /// The pack is small, and what its deltas stand for is not.
    #[error("the deltas of the pack come to more than the {limit} bytes allowed")]
    TooMuchToResolve {
        /// The limit.
        limit: u64,
    },
    /// The pack is damaged or incomplete.
    #[error("the pack is damaged")]
    Corrupt(#[source] Cause),
    /// The remote doesn't have a wanted commit, or didn't send it. Ask for its refs again.
    #[error("the remote did not send commit {0}")]
    NotSent(CommitId),
    /// The pack can't be kept.
    #[error("cannot store the fetched objects in `{}`", path.display())]
    Store {
        /// The repository.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What the repository already holds can't be read.
    #[error("cannot read the repository to fetch into")]
    Read(#[from] ReadError),
}

impl Remote {
    /// Fetches `wants` and what they need into `into`, durable when it returns; refs don't move. `haves` name commits
    /// that `into` holds in full; `depth_one` leaves out the history of `wants`. The caller holds the writer's lock.
    pub fn fetch(
        &self,
        into: &Repo,
        wants: &[CommitId],
        haves: &[CommitId],
        depth_one: bool,
        limits: &FetchLimits,
    ) -> Result<Fetched, FetchError> {
        let shallow = if depth_one { Shallow::DepthAtRemote(NonZeroU32::MIN) } else { Shallow::NoChange };
        self.fetch_with(into, (wants, haves), &shallow, limits)
    }

    /// Fetches the whole history of `tips`, also of those that `into` holds without it. Everything comes anew, so this is
    /// for once. Otherwise as [`Remote::fetch`].
    pub fn fetch_whole(&self, into: &Repo, tips: &[CommitId], limits: &FetchLimits) -> Result<Fetched, FetchError> {
        self.fetch_with(into, (tips, &[]), &Shallow::undo(), limits)
    }

    fn fetch_with(
        &self,
        into: &Repo,
        (wants, haves): (&[CommitId], &[CommitId]),
        shallow: &Shallow,
        limits: &FetchLimits,
    ) -> Result<Fetched, FetchError> {
        let mut incoming = Incoming::begin(into, limits)?;
        let mut connection = Connection::open(self, limits.timeout)?;
        let (expired, left) = (connection.expired(), connection.left());
        left.set(TALK);
        let options =
            Options { shallow_file: incoming.shallow_file(), shallow, tags: Tags::None, reject_shallow_remote: false };
        let context = Context {
            handshake: &mut connection.handshake,
            transport: &mut connection.transport,
            user_agent: agent(),
            trace_packetlines: false,
        };
        let receive = |pack: &mut dyn BufRead, _progress: &mut dyn DynNestedProgress, interrupt: &AtomicBool| {
            // With what stands between its bytes, and is said beside it.
            left.set(limits.bytes.saturating_add(limits.bytes / 4).saturating_add(TALK));
            incoming.receive(pack, interrupt).map(|()| false)
        };
        let talk = gix::protocol::fetch(&mut Request { wants, haves }, receive, Discard, &expired, context, options);
        match (talk, incoming.failure.take()) {
            (Ok(_), _) => incoming.keep(wants),
            // Over a limit we are the one who broke off.
            (Err(_), Some(failure)) if failure.is_too_much() => Err(failure),
            (Err(source), failure) => Err(match (connection.failed(self, source.into()), failure) {
                (RemoteError::Protocol { .. }, Some(failure)) => failure,
                (error, _) => not_sent(wants, &error).map_or_else(|| error.into(), FetchError::NotSent),
            }),
        }
    }
}

/// The wanted commit that the other side says it doesn't have, in stock Git's words (2.39 to 2.52): a replaced ref's
/// old commit may be gone by now. It says so in the conversation, and on its standard error if it gets that far.
fn not_sent(wants: &[CommitId], error: &RemoteError) -> Option<CommitId> {
    let RemoteError::Protocol { detail, source, .. } = error else { return None };
    let said = format!("{detail}\n{source:?}");
    wants.iter().copied().find(|want| said.contains(&format!("not our ref {want}")))
}

impl FetchError {
    /// Whether the pack was over a limit other than that of time.
    pub fn is_too_much(&self) -> bool {
        matches!(
            self,
            Self::TooManyObjects { .. }
                | Self::TooManyBytes { .. }
                | Self::ObjectTooLarge { .. }
                | Self::TooManyDeltas { .. }
                | Self::TooMuchToResolve { .. }
        )
    }
}

/// Asks for what is wanted in one round: the caller knows exactly what both sides have.
struct Request<'a> {
    wants: &'a [CommitId],
    haves: &'a [CommitId],
}

impl Negotiate for Request<'_> {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<Action> {
        Ok(Action::MustNegotiate { remote_ref_target_known: Vec::new() })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _remote_ref_target_known: &[bool]) -> bool {
        self.wants.iter().for_each(|id| arguments.want(id.0));
        !self.wants.is_empty()
    }

    fn one_round(
        &mut self,
        _state: &mut one_round::State,
        arguments: &mut Arguments,
        _previous_response: Option<&Response>,
    ) -> gix::Result<(Round, bool)> {
        self.haves.iter().for_each(|id| arguments.have(id.0));
        let haves_sent = self.haves.len();
        let round = Round {
            haves_sent,
            in_vain: 0,
            haves_to_send: haves_sent,
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}
