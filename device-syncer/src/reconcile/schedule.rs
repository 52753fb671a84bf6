//! When the host is asked, and when the next pass is due.
//!
//! Looking at the device keeps its own time, whatever asking does: a host that is away, wants to be left alone or lets
//! wait delays what is asked of it, and no pass.

use std::time::{Duration, Instant};

use crate::decision::backoff;
use crate::host::refs::Ask;
use crate::reconcile::outcome::Next;

/// The soonest that another pass follows for a retry.
const SOONEST: Duration = Duration::from_millis(100);

/// The longest time between two passes, however seldom the host is asked: windows close, a line becomes busy, and what runs
/// gets ill.
const SELDOMEST: Duration = Duration::from_secs(60);

/// How long until the next pass, which is made each `poll` and once a minute at least, or when something may be tried again. Spread
/// by `jitter` in `0.0..1.0`.
pub fn next_pass(poll: Duration, retry: Option<Duration>, jitter: f64) -> Duration {
    let regular = spread(poll.min(SELDOMEST), jitter);
    retry.map_or(regular, |retry| regular.min(retry.max(SOONEST)))
}

/// How long until the host's side looks whether there is something to tell.
pub fn next_turn(poll: Duration, jitter: f64) -> Duration {
    spread(poll, jitter)
}

fn spread(poll: Duration, jitter: f64) -> Duration {
    poll.mul_f64(0.9 + jitter / 5.0)
}

/// The times of the host's side.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// When the host is asked next, at the latest.
    ask: Instant,
    /// The host isn't asked before that, either.
    left_alone: bool,
    /// Turns in a row for which nothing could be had from the host.
    unreached: u32,
}

/// What a turn at the host came to, as far as the next one hangs on it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// When the host is asked next.
    pub next: Next,
    /// How often a host that lets nobody wait is asked.
    pub poll: Duration,
    /// For how long a wait at the host stands for asking; `None` if there is none.
    pub waits: Option<Duration>,
    /// How long the host wants to be left alone; zero if it doesn't say so.
    pub retry_after: Duration,
}

impl Schedule {
    /// The host is asked at once.
    pub fn new(now: Instant) -> Self {
        Self { ask: now, left_alone: false, unreached: 0 }
    }

    /// When the host is asked next.
    pub fn due(&self) -> Instant {
        self.ask
    }

    /// What a turn at this moment knows of the host, which is due each poll interval: it asks where no wait stands for that.
    pub fn ask(&self, now: Instant, waits: bool) -> Ask {
        let rest = self.ask.saturating_duration_since(now);
        match (rest.is_zero(), self.left_alone) {
            (false, true) => Ask::Later(rest),
            (false, false) if waits => Ask::IfMoved,
            _ => Ask::Host,
        }
    }

    /// What a turn at this moment may do for which there is something to tell: that needs no poll, unless the host is to be left
    /// alone or due to be asked anyway.
    pub fn report(&self, now: Instant) -> Ask {
        let rest = self.ask.saturating_duration_since(now);
        match (rest.is_zero(), self.left_alone) {
            (true, _) => Ask::Host,
            (false, true) => Ask::Later(rest),
            (false, false) => Ask::IfMoved,
        }
    }

    /// A turn has ended. All intervals are spread by `jitter` in `0.0..1.0`.
    pub fn asked(&mut self, now: Instant, asked: Asked, jitter: f64) {
        let poll = spread(asked.poll, jitter);
        match asked.next {
            Next::AfterPoll => (self.ask, self.unreached) = (now + asked.waits.unwrap_or(poll), 0),
            Next::AfterBackOff => {
                self.unreached += 1;
                self.ask = now + poll.max(backoff::wait(self.unreached, jitter));
            }
            Next::AsBefore => return self.leave_alone(now, asked.retry_after),
        }
        self.left_alone = self.unreached > 0;
        self.leave_alone(now, asked.retry_after);
    }

    /// A wait at the host ended: it is asked at once, or when it may be asked at all. `retry_after` is how long it then
    /// said that it wants to be left alone.
    pub fn called(&mut self, now: Instant, retry_after: Duration) {
        if !self.left_alone {
            self.ask = now;
        }
        self.leave_alone(now, retry_after);
    }

    fn leave_alone(&mut self, now: Instant, retry_after: Duration) {
        if !retry_after.is_zero() {
            (self.ask, self.left_alone) = (self.ask.max(now + retry_after), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);

    fn turn(next: Next) -> Asked {
        Asked { next, poll: POLL, waits: None, retry_after: Duration::ZERO }
    }

    /// A schedule after these turns, each at `now`; the jitter is in the middle, where the poll interval is what it says.
    fn after(now: Instant, turns: &[Asked]) -> Schedule {
        let mut schedule = Schedule::new(now);
        turns.iter().for_each(|turn| schedule.asked(now, *turn, 0.5));
        schedule
    }

    #[test]
    fn a_host_in_trouble_is_left_alone_for_longer_and_longer_and_asked_then() {
        let now = Instant::now();
        let schedule = after(now, &[turn(Next::AfterBackOff); 20]);
        assert_eq!(schedule.due(), now + backoff::LONGEST.mul_f64(0.75));
        assert_eq!(schedule.report(now + POLL), Ask::Later(backoff::LONGEST.mul_f64(0.75) - POLL));
        assert_eq!(schedule.report(now + backoff::LONGEST), Ask::Host);
        let again = after(now, &[turn(Next::AfterBackOff), turn(Next::AfterPoll)]);
        assert_eq!((again.due(), again.report(now)), (now + POLL, Ask::IfMoved));
    }

    #[test]
    fn a_wait_stands_for_asking_until_it_ends_and_for_so_long_at_most() {
        let now = Instant::now();
        let mut schedule = after(now, &[Asked { waits: Some(300 * SECOND), ..turn(Next::AfterPoll) }]);
        assert_eq!(schedule.due(), now + 300 * SECOND);
        assert_eq!(schedule.report(now + POLL), Ask::IfMoved, "what a job came to is told");
        assert_eq!(schedule.report(now + 300 * SECOND), Ask::Host, "it is due anyway");
        assert_eq!(schedule.ask(now + POLL, true), Ask::IfMoved);
        assert_eq!(schedule.ask(now + POLL, false), Ask::Host, "it broke off");
        assert_eq!(schedule.ask(now + 300 * SECOND, true), Ask::Host);
        schedule.called(now + SECOND, Duration::ZERO);
        assert_eq!((schedule.due(), schedule.report(now + SECOND)), (now + SECOND, Ask::Host));
    }

    #[test]
    fn a_host_that_wants_to_be_left_alone_is_whatever_ends() {
        let now = Instant::now();
        let mut schedule = after(now, &[turn(Next::AfterPoll)]);
        schedule.called(now, 3600 * SECOND);
        assert_eq!(schedule.report(now + POLL), Ask::Later(3590 * SECOND));
        schedule.called(now + SECOND, Duration::ZERO);
        assert_eq!(schedule.ask(now + POLL, false), Ask::Later(3590 * SECOND));
        assert_eq!(schedule.report(now + POLL), Ask::Later(3590 * SECOND), "it wants to be left alone still");
        let asks = Asked { retry_after: 3600 * SECOND, ..turn(Next::AsBefore) };
        assert_eq!(after(now, &[turn(Next::AfterPoll), asks]).due(), now + 3600 * SECOND);
    }

    #[test]
    fn a_retry_is_due_before_the_poll() {
        assert_eq!(next_pass(POLL, None, 0.5), POLL);
        assert_eq!(next_pass(POLL, Some(SECOND), 0.5), SECOND);
        assert_eq!(next_pass(POLL, Some(60 * SECOND), 0.5), POLL);
        assert_eq!(next_pass(POLL, Some(Duration::ZERO), 0.5), SOONEST);
    }

    #[test]
    fn a_host_that_is_asked_seldom_makes_no_device_that_is_looked_at_seldom() {
        let day = 24 * 3600 * SECOND;
        assert_eq!((next_pass(day, None, 0.5), next_turn(day, 0.5)), (SELDOMEST, day));
        assert_eq!((next_pass(day, Some(SECOND), 0.5), next_pass(SECOND, None, 0.5)), (SECOND, SECOND));
    }
}
