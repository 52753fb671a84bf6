//! When the publisher looked at what devices say, so that while nobody listened counts as nobody's silence.

use std::fs;

use serde::{Deserialize, Serialize};

use super::home::{Home, HomeError};

/// The moments of the last looks, in Unix seconds, the oldest first. A look at a host that didn't answer is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Looks(Vec<i64>);

/// Looks that follow sooner aren't noted, in seconds.
const SPACING: i64 = 60;

/// So much of the time between two looks counts at most, in seconds: the publisher, or its host, may have been down in it.
/// A device reports at least twice in it unless its fleet says otherwise.
const MOST: i64 = 600;

/// More than a day of them.
const KEPT: usize = 1500;

impl Looks {
    /// Those that are noted in the home; none where that can't be read.
    pub fn read(home: &Home) -> Self {
        let text = fs::read(home.looks()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Notes one at this moment.
    pub fn note(&mut self, home: &Home, now: i64) -> Result<(), HomeError> {
        if !self.add(now) {
            return Ok(());
        }
        home.write(&home.looks(), &serde_json::to_vec(self).unwrap_or_default(), 0o600)
    }

    /// Whether it makes a difference.
    fn add(&mut self, now: i64) -> bool {
        let before = self.0.len();
        // By a clock that was ahead.
        self.0.retain(|look| *look <= now);
        if before == self.0.len() && self.0.last().is_some_and(|last| now - last < SPACING) {
            return false;
        }
        self.0.push(now);
        let more = self.0.len().saturating_sub(KEPT);
        self.0.drain(..more);
        true
    }

    /// For how many seconds until now something that moved last at `moved` was quiet although it could be heard: the time
    /// between looks at the end of which `may_talk` says that it may speak.
    pub fn silence(&self, moved: i64, now: i64, may_talk: &dyn Fn(i64) -> bool) -> u64 {
        let looks = self.0.iter().copied().filter(|look| (moved..now).contains(look)).chain([now]);
        // Before the first look after it moved nobody knows.
        let (mut quiet, mut last) = (0, None);
        for look in looks {
            if let Some(last) = last.replace(look).filter(|_| may_talk(look)) {
                quiet += (look - last).clamp(0, MOST);
            }
        }
        u64::try_from(quiet).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(all: impl IntoIterator<Item = i64>) -> Looks {
        Looks(all.into_iter().collect())
    }

    #[test]
    fn time_counts_between_looks_and_only_so_much_of_it() {
        let often = looks((0..=60).map(|n| n * 60));
        assert_eq!(often.silence(0, 3660, &|_| true), 3660);
        assert_eq!(often.silence(1800, 3660, &|_| true), 1860);
        // The publisher was down for a day.
        let down = looks((0..=10).map(|n| n * 60).chain([90_000]));
        assert_eq!(down.silence(0, 90_060, &|_| true), 600 + 600 + 60);
        assert_eq!(looks([]).silence(0, 90_000, &|_| true), 0, "unknown since when: since now");
        assert_eq!(often.silence(5000, 4000, &|_| true), 0, "a clock that went back");
    }

    #[test]
    fn outside_of_the_windows_in_which_it_talks_no_time_counts() {
        let looks = looks((0..=60).map(|n| n * 60));
        assert_eq!(looks.silence(0, 3600, &|moment| moment > 1800), 1800);
        assert_eq!(looks.silence(0, 3600, &|_| false), 0);
    }

    #[test]
    fn looks_are_noted_once_a_minute_and_those_of_a_wrong_clock_go() {
        let mut all = looks([0]);
        assert!(!all.add(59) && all.add(60) && all.add(1000) && all.add(900));
        assert_eq!(all, looks([0, 60, 900]));
        (0..3000).for_each(|n| _ = all.add(2000 + n * 60));
        assert_eq!(all.0.len(), KEPT);
    }
}
