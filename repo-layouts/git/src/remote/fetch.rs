//! Fetching commits into a repository, within limits; on any failure nothing is left on disk.

use std::io::BufRead;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;

use gix::DynNestedProgress;
use gix::progress::Discard;
use gix::protocol::fetch::negotiate::{Action, Round, one_round};
use gix::protocol::fetch::{Arguments, Context, Negotiate, Options, Response, Shallow, Tags};

use super::connection::{Connection, agent};
use super::incoming::Incoming;
use super::{FetchError, FetchLimits, Fetched, Remote, RemoteError};
use crate::{CommitId, Repo};

/// The most bytes that come before a pack: where history is cut off, above all.
const TALK: u64 = 1 << 20;

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
