//! When the next pass is due, and whether it asks the host.
//!
//! Looking at the device keeps its own time, whatever asking does: a host that is away, wants to be left alone or lets
//! wait delays what is asked of it, and no pass.

use std::time::{Duration, Instant};

use crate::decision::backoff;
use crate::host::refs::Ask;
use crate::reconcile::outcome::Next;

/// The soonest that another pass follows for a retry.
const SOONEST: Duration = Duration::from_millis(100);

/// The times of the next pass.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// When the device is observed next, at the latest.
    observe: Instant,
    /// When the host is asked next, at the latest.
    ask: Instant,
    /// The host isn't asked before that, either.
    left_alone: bool,
    /// Passes in a row for which nothing could be had from the host.
    unreached: u32,
}

/// What a pass came to, as far as the next one hangs on it.
#[derive(Debug, Clone, Copy)]
pub struct Passed {
    /// When the host is asked next.
    pub next: Next,
    /// How often the device is observed, and a host that lets nobody wait is asked.
    pub poll: Duration,
    /// For how long a wait at the host stands for asking; `None` if there is none.
    pub waits: Option<Duration>,
    /// How long until something may be tried again that couldn't be tried in that pass.
    pub retry: Option<Duration>,
    /// How long the host wants to be left alone; zero if it doesn't say so.
    pub retry_after: Duration,
}

impl Schedule {
    /// The first pass is due at once.
    pub fn new(now: Instant) -> Self {
        Self { observe: now, ask: now, left_alone: false, unreached: 0 }
    }

    /// When the next pass is due.
    pub fn due(&self) -> Instant {
        self.observe.min(self.ask)
    }

    /// What a pass at this moment knows of the host.
    pub fn ask(&self, now: Instant, waits: bool) -> Ask {
        let rest = self.ask.saturating_duration_since(now);
        match (rest.is_zero(), self.left_alone) {
            (false, true) => Ask::Later(rest),
            (false, false) if waits => Ask::IfMoved,
            _ => Ask::Host,
        }
    }

    /// The same of a pass that begins because something at the device changed: the host isn't asked any sooner for that.
    pub fn engine_changed(&self, now: Instant, waits: bool) -> Ask {
        match (self.ask(now, waits), self.ask.saturating_duration_since(now)) {
            (Ask::Host, rest) if !rest.is_zero() => Ask::Later(rest),
            (ask, _) => ask,
        }
    }

    /// The same of a pass that begins because a job ended: that is pushed without a poll, unless the host is to be left alone
    /// or due to be asked anyway.
    pub fn job_ended(&self, now: Instant) -> Ask {
        let rest = self.ask.saturating_duration_since(now);
        match (rest.is_zero(), self.left_alone) {
            (true, _) => Ask::Host,
            (false, true) => Ask::Later(rest),
            (false, false) => Ask::IfMoved,
        }
    }

    /// A pass has ended. All intervals are spread by `jitter` in `0.0..1.0`.
    pub fn passed(&mut self, now: Instant, pass: Passed, jitter: f64) {
        let poll = pass.poll.mul_f64(0.9 + jitter / 5.0);
        self.observe = now + pass.retry.map_or(poll, |retry| poll.min(retry.max(SOONEST)));
        match pass.next {
            Next::AfterPoll => (self.ask, self.unreached) = (now + pass.waits.unwrap_or(poll), 0),
            Next::AfterBackOff => {
                self.unreached += 1;
                self.ask = now + poll.max(backoff::wait(self.unreached, jitter));
            }
            Next::AsBefore => return self.leave_alone(now, pass.retry_after),
        }
        self.left_alone = self.unreached > 0;
        self.leave_alone(now, pass.retry_after);
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

    fn pass(next: Next) -> Passed {
        Passed { next, poll: POLL, waits: None, retry: None, retry_after: Duration::ZERO }
    }

    /// A schedule after these passes, each at `now`; the jitter is in the middle, where the poll interval is what it says.
    fn after(now: Instant, passes: &[Passed]) -> Schedule {
        let mut schedule = Schedule::new(now);
        passes.iter().for_each(|pass| schedule.passed(now, *pass, 0.5));
        schedule
    }

    #[test]
    fn the_device_is_looked_at_each_poll_interval_whatever_the_host_does() {
        let now = Instant::now();
        let away = [pass(Next::AfterBackOff); 20];
        let alone = Passed { retry_after: 3600 * SECOND, ..pass(Next::AfterPoll) };
        let waits = Passed { waits: Some(300 * SECOND), ..pass(Next::AfterPoll) };
        for passes in [&[pass(Next::AfterPoll)][..], &away, &[alone], &[waits], &[alone, pass(Next::AsBefore)]] {
            assert_eq!(after(now, passes).due(), now + POLL, "{passes:?}");
        }
    }

    #[test]
    fn a_host_in_trouble_is_left_alone_for_longer_and_longer_and_asked_then() {
        let now = Instant::now();
        let schedule = after(now, &[pass(Next::AfterBackOff); 20]);
        assert_eq!(schedule.ask(now + POLL, false), Ask::Later(backoff::LONGEST.mul_f64(0.75) - POLL));
        assert_eq!(schedule.job_ended(now + POLL), Ask::Later(backoff::LONGEST.mul_f64(0.75) - POLL));
        assert_eq!(schedule.ask(now + backoff::LONGEST, false), Ask::Host);
        assert_eq!(after(now, &[pass(Next::AfterBackOff), pass(Next::AfterPoll)]).ask(now, false), Ask::Host);
    }

    #[test]
    fn a_wait_stands_for_asking_until_it_ends_and_for_so_long_at_most() {
        let now = Instant::now();
        let mut schedule = after(now, &[Passed { waits: Some(300 * SECOND), ..pass(Next::AfterPoll) }]);
        assert_eq!(schedule.ask(now + POLL, true), Ask::IfMoved);
        assert_eq!(schedule.ask(now + POLL, false), Ask::Host, "it broke off");
        assert_eq!(
            schedule.engine_changed(now + POLL, false),
            Ask::Later(290 * SECOND),
            "an observation doesn't ask again"
        );
        assert_eq!(schedule.engine_changed(now + POLL, true), Ask::IfMoved);
        assert_eq!(schedule.job_ended(now + POLL), Ask::IfMoved, "what a job came to is told");
        assert_eq!(schedule.job_ended(now + 300 * SECOND), Ask::Host);
        assert_eq!(schedule.engine_changed(now + 300 * SECOND, false), Ask::Host, "it is due anyway");
        assert_eq!(schedule.ask(now + 300 * SECOND, true), Ask::Host);
        schedule.called(now + SECOND, Duration::ZERO);
        assert_eq!((schedule.due(), schedule.ask(now + SECOND, false)), (now + SECOND, Ask::Host));
    }

    #[test]
    fn the_end_of_a_wait_never_puts_a_pass_off() {
        let now = Instant::now();
        let mut schedule = after(now, &[pass(Next::AfterPoll)]);
        schedule.called(now, 3600 * SECOND);
        assert_eq!(schedule.due(), now + POLL);
        assert_eq!(schedule.ask(now + POLL, false), Ask::Later(3590 * SECOND));
        schedule.called(now + SECOND, Duration::ZERO);
        assert_eq!(schedule.ask(now + POLL, false), Ask::Later(3590 * SECOND), "it wants to be left alone still");
    }

    #[test]
    fn a_retry_is_due_before_the_poll() {
        let now = Instant::now();
        assert_eq!(after(now, &[Passed { retry: Some(SECOND), ..pass(Next::AfterPoll) }]).due(), now + SECOND);
        assert_eq!(after(now, &[Passed { retry: Some(60 * SECOND), ..pass(Next::AfterPoll) }]).due(), now + POLL);
        let due = Passed { retry: Some(Duration::ZERO), ..pass(Next::AfterPoll) };
        assert_eq!(after(now, &[due]).due(), now + SOONEST);
    }
}
