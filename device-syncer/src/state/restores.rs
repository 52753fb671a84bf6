//! How often what was applied had to be restored. Lives as long as the process.
//!
//! What stops again as soon as it was started isn't started in a hot loop, and isn't called installed meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::decision::backoff;

/// What stayed for so long is no longer counted. Longer than any back-off.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// How often in a row, and when last, by project.
#[derive(Debug, Default)]
pub struct Restores(BTreeMap<String, (u32, Instant)>);

impl Restores {
    /// Notes that a project was restored now, and says how often that makes in a row.
    pub fn note(&mut self, project: &str) -> u32 {
        let count = self.count(project) + 1;
        self.0.insert(project.to_owned(), (count, Instant::now()));
        count
    }

    /// Whether it was restored so short a time ago that it isn't restored again yet: 5 s, twice as much each further time,
    /// 5 min at most.
    pub fn is_waiting(&self, project: &str) -> bool {
        let last = self.0.get(project);
        last.is_some_and(|(count, when)| when.elapsed() < backoff::wait(*count, 1.0))
    }

    /// Whether it was restored more than once in a row, and hasn't stayed since for as long as the next time would wait.
    pub fn is_unsteady(&self, project: &str) -> bool {
        self.count(project) > 1 && self.is_waiting(project)
    }

    /// How long until one may be restored again, of those whose time hadn't come at `since`, when a pass began.
    pub fn next(&self, since: Instant) -> Option<Duration> {
        let due = self.0.values().map(|(count, when)| *when + backoff::wait(*count, 1.0));
        due.filter(|due| *due > since).map(|due| due.saturating_duration_since(Instant::now())).min()
    }

    /// Forgets all, because a person asked to try again.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Moves every mark back, as if that much time had passed.
    #[cfg(test)]
    pub(crate) fn later(&mut self, time: Duration) {
        self.0.values_mut().for_each(|(_, when)| *when = when.checked_sub(time).unwrap());
    }

    fn count(&self, project: &str) -> u32 {
        self.0.get(project).filter(|(_, when)| when.elapsed() < FORGOTTEN).map_or(0, |(count, _)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A project that was restored that often, and last so many seconds ago.
    fn restored(count: u32, ago: u64) -> Restores {
        let mut all = Restores::default();
        for _ in 0..count {
            all.note("a");
        }
        all.later(Duration::from_secs(ago));
        all
    }

    #[test]
    fn each_further_time_waits_twice_as_long_and_what_stays_is_forgotten() {
        assert!(!Restores::default().is_waiting("a"));
        for (count, ago, waits, unsteady) in
            [(1, 4, true, false), (1, 6, false, false), (2, 9, true, true), (2, 11, false, false), (9, 290, true, true)]
        {
            let all = restored(count, ago);
            assert_eq!((all.is_waiting("a"), all.is_unsteady("a")), (waits, unsteady), "{count} {ago}");
            assert!(!all.is_waiting("b"));
        }
        assert_eq!(restored(3, 100).note("a"), 4);
        assert_eq!(restored(3, 601).note("a"), 1);
    }
}
