//! What the two sides of a running syncer leave for each other. Neither waits for the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::config::Device;
use crate::host::refs::StatusTip;
use crate::reconcile::accept::{Found, Heard};
use crate::reconcile::host_side::Seen;
use crate::reconcile::outcome::{HostAnswer, HostReport};
use crate::reconcile::pass_error::PassError;
use crate::state::floor::Floor;

/// One slot for each thing, the newest of which counts: whoever comes finds it there, and nothing is queued.
#[derive(Debug)]
pub(super) struct Link {
    left: Mutex<Left>,
    /// Notified of what a pass has to take over.
    pub(super) here: Notify,
    /// Notified of what the host is to be told, or asked.
    pub(super) host: Notify,
    /// Notified of what the host is to be told with the next regular turn.
    pub(super) later: Notify,
}

#[derive(Debug)]
struct Left {
    found: Option<Result<Found, PassError>>,
    /// That is new: a pass begins for it.
    is_new: bool,
    /// A pass is at work that took over something new.
    is_taken_over: bool,
    /// What was handed over last, for what is news.
    heard: Option<Heard>,
    /// By what the host's side judges.
    floor: Floor,
    seen: Option<Seen>,
    /// Settings that count from now on.
    device: Option<Device>,
    /// The host is to be asked at once.
    asks: bool,
    report: Option<HostReport>,
}

impl Link {
    /// Nothing is left for anybody.
    pub(super) fn new(floor: Floor) -> Self {
        let left = Left {
            found: None,
            is_new: false,
            is_taken_over: false,
            heard: None,
            floor,
            seen: None,
            device: None,
            asks: false,
            report: None,
        };
        Self { left: Mutex::new(left), here: Notify::new(), host: Notify::new(), later: Notify::new() }
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves what the host had. A pass begins at once for what is new in it.
    pub(super) fn hand_over(&self, found: Found) {
        let mut left = self.left();
        let mut heard = left.heard.clone().unwrap_or_default();
        heard.note(&found);
        if found.brings() || left.heard.as_ref() != Some(&heard) {
            left.is_new = true;
            self.here.notify_one();
        }
        left.heard = Some(heard);
        // A host that goes away takes nothing back of what it brought.
        let is_kept = found.host != HostAnswer::Complete && left.found.as_ref().is_some_and(brings);
        if !is_kept {
            left.found = Some(Ok(found));
        }
    }

    /// Leaves that something couldn't be had or told, unless a pass has more to take over.
    pub(super) fn fail(&self, error: PassError) {
        let mut left = self.left();
        if left.found.is_none() {
            left.found = Some(Err(error));
            self.here.notify_one();
        }
    }

    /// What the host had since the last pass, for the one that begins now and [ends](Self::pass_ended).
    pub(super) fn found(&self) -> Option<Result<Found, PassError>> {
        let mut left = self.left();
        left.is_taken_over = std::mem::take(&mut left.is_new);
        left.found.take()
    }

    /// What that came to is known.
    pub(super) fn pass_ended(&self) {
        self.left().is_taken_over = false;
    }

    /// Whether something was found that no pass has taken over.
    pub(super) fn has_found(&self) -> bool {
        self.left().found.is_some()
    }

    /// Whether what new things come to is known once a pass has ended, which has begun or is about to.
    pub(super) fn has_new(&self) -> bool {
        let left = self.left();
        left.is_new || left.is_taken_over
    }

    /// Leaves what a pass saw, and the floor after it.
    pub(super) fn see(&self, seen: Option<Seen>, floor: &Floor) {
        let mut left = self.left();
        left.floor = floor.clone();
        let Some(mut seen) = seen else { return };
        seen.acted |= left.seen.as_ref().is_some_and(|before| before.acted);
        match &left.seen {
            Some(before) if !seen.acted => {
                if !Arc::ptr_eq(&before.observation, &seen.observation) {
                    self.later.notify_one();
                }
            }
            _ => self.host.notify_one(),
        }
        left.seen = Some(seen);
    }

    pub(super) fn floor(&self) -> Floor {
        self.left().floor.clone()
    }

    pub(super) fn seen(&self) -> Option<Seen> {
        self.left().seen.clone()
    }

    /// The heartbeat has said what was tried.
    pub(super) fn acted_is_reported(&self) {
        if let Some(seen) = &mut self.left().seen {
            seen.acted = false;
        }
    }

    /// Has the next turn ask the host, and begin at once.
    pub(super) fn ask(&self) {
        self.left().asks = true;
        self.host.notify_one();
    }

    /// Takes that back, and says whether it was so.
    pub(super) fn asks(&self) -> bool {
        std::mem::take(&mut self.left().asks)
    }

    /// Leaves settings that count from now on.
    pub(super) fn follow(&self, device: Device) {
        self.left().device = Some(device);
        self.ask();
    }

    pub(super) fn device(&self) -> Option<Device> {
        self.left().device.take()
    }

    /// Leaves how it stands with the host.
    pub(super) fn stands(&self, report: HostReport) {
        self.left().report = Some(report);
    }

    /// How it stands with the host; `None` before it was asked.
    pub(super) fn report(&self) -> Option<HostReport> {
        self.left().report.clone()
    }

    /// Where its `status` stands.
    pub(super) fn pushed(&self) -> StatusTip {
        self.left().report.as_ref().map_or(StatusTip::Unknown, |report| report.status)
    }
}

fn brings(found: &Result<Found, PassError>) -> bool {
    found.as_ref().is_ok_and(Found::brings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floor() -> Floor {
        let (trust_digest, time) = (repo_model::Digest::of(b""), jiff::Timestamp::UNIX_EPOCH);
        let (envelope, manifest, issued) = (None, None, None);
        let (seq, serial, manifest_version, trust) = (0, 0, 0, 1);
        Floor { seq, serial, envelope, manifest_version, manifest, trust, trust_digest, time, issued }
    }

    #[tokio::test]
    async fn what_was_tried_is_told_at_once_what_else_is_seen_with_the_next_turn_and_the_same_not_at_all() {
        let (link, floor) = (Link::new(floor()), floor());
        let is_notified = async |notify: &Notify| {
            tokio::select! {
                biased;
                () = notify.notified() => true,
                () = std::future::ready(()) => false,
            }
        };
        let seen = |acted| Seen { observation: Arc::default(), acted, is_soon: false };
        let first = seen(false);
        for (what, seen, expected) in [
            ("the first", first.clone(), (true, false)),
            ("the same", first, (false, false)),
            ("another", seen(false), (false, true)),
            ("what was tried", seen(true), (true, false)),
        ] {
            link.see(Some(seen), &floor);
            assert_eq!((is_notified(&link.host).await, is_notified(&link.later).await), expected, "{what}");
        }
    }

    #[test]
    fn a_host_that_goes_away_takes_nothing_back_of_what_no_pass_has_taken_over() {
        let link = Link::new(floor());
        let taken = || link.found().unwrap().unwrap();
        for away in [HostAnswer::Unreachable, HostAnswer::Unfetched] {
            link.hand_over(Found::proven(HostAnswer::Complete));
            link.hand_over(Found::nothing(away));
            assert!(link.has_new() && taken().brings(), "{away:?}");
        }
        link.hand_over(Found::proven(HostAnswer::Complete));
        link.hand_over(Found::nothing(HostAnswer::Complete));
        assert!(!taken().brings(), "it shows something else now");
        link.hand_over(Found::nothing(HostAnswer::Unreachable));
        assert_eq!(taken().host, HostAnswer::Unreachable);
    }
}
