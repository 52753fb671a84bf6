//! When failed steps may be tried again. Lives as long as the process, and a new revision empties it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::decision::backoff;

/// Failures in a row, and the moment before which nothing is tried, by project.
#[derive(Debug, Default)]
pub struct Retries(BTreeMap<String, (u32, Instant)>);

impl Retries {
    /// Whether a project's time hasn't come yet.
    pub fn is_waiting(&self, project: &str) -> bool {
        self.0.get(project).is_some_and(|(_, until)| Instant::now() < *until)
    }

    /// Notes one more failure; `jitter` is 0 to 1.
    pub fn failed(&mut self, project: &str, jitter: f64) {
        self.resume(project, self.count(project) + 1, jitter);
    }

    /// Starts with failures that an earlier process had.
    pub fn resume(&mut self, project: &str, failures: u32, jitter: f64) {
        self.0.insert(project.to_owned(), (failures, Instant::now() + backoff::wait(failures, jitter)));
    }

    /// Forgets a project's failures.
    pub fn succeeded(&mut self, project: &str) {
        self.0.remove(project);
    }

    /// Forgets all failures, so that everything is tried at once.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Failures in a row of a project.
    pub fn count(&self, project: &str) -> u32 {
        self.0.get(project).map_or(0, |(failures, _)| *failures)
    }

    /// Each project's failures in a row, and how long it isn't tried.
    pub fn all(&self) -> impl Iterator<Item = (&str, u32, Duration)> {
        self.0.iter().map(|(project, (failures, until))| {
            (project.as_str(), *failures, until.saturating_duration_since(Instant::now()))
        })
    }

    /// Moves every moment back, as if that much time had passed.
    #[cfg(test)]
    pub(crate) fn later(&mut self, time: Duration) {
        self.0.values_mut().for_each(|(_, until)| *until = until.checked_sub(time).unwrap());
    }

    /// How long until the next one's time comes, for those whose time hadn't come at `since`, when a pass began: what
    /// that could have tried and left alone waits for something else.
    pub fn next(&self, since: Instant) -> Option<Duration> {
        let coming = self.0.values().filter(|(_, until)| *until > since);
        coming.map(|(_, until)| until.saturating_duration_since(Instant::now())).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pass_left_alone_although_its_time_had_come_makes_no_other_pass_due() {
        let (mut retries, before) = (Retries::default(), Instant::now());
        assert_eq!(retries.next(before), None);
        retries.failed("a", 0.0);
        let soonest = retries.next(before).expect("its time comes");
        assert!(soonest <= backoff::FIRST / 2);
        assert_eq!(retries.next(before + backoff::FIRST), None);
        assert!(retries.is_waiting("a"));
    }
}
