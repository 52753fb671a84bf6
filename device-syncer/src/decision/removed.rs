//! What went of late: a limit on removals counts that with what would go, so that few at a time aren't many in the end.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::hold::Clocks;

/// For so long a removal counts, in seconds.
const DAY: u64 = 24 * 3600;

/// What goes on going is noted anew so rarely, in seconds.
const RARELY: u64 = 600;

/// When a deployment went, or was about to, that nobody had seen before; an entry of `removed.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// The boot during which that was; empty where it wasn't known.
    pub boot_id: String,
    /// The seconds since that boot.
    pub seconds: u64,
    /// What the wall clock showed, and whether somebody vouched for that.
    pub time: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_vouched_for: bool,
}

impl Removed {
    /// By all clocks, so that whichever is known later tells how old it is.
    pub fn at(clocks: &Clocks) -> Self {
        let (boot_id, seconds) = clocks.boot.clone().unwrap_or_default();
        Self { boot_id, seconds, time: clocks.now, is_vouched_for: clocks.is_vouched_for }
    }

    /// Whether it was noted just now.
    pub fn is_new(&self, clocks: &Clocks) -> bool {
        let is_young = |at: u64| at.saturating_sub(self.seconds) < RARELY;
        clocks.boot.as_ref().is_some_and(|(boot_id, at)| self.boot_id == *boot_id && is_young(*at))
    }

    /// Whether it counts still: until the device has been up for a day since, or a wall clock says that a day is over for which
    /// somebody vouches, then and now. During the boot in which it was, that says nothing.
    pub fn counts(&self, clocks: &Clocks) -> bool {
        let is_vouched_for = self.is_vouched_for && clocks.is_vouched_for;
        let day = SignedDuration::from_hours(24);
        match &clocks.boot {
            Some((boot_id, at)) if self.boot_id == *boot_id => at.saturating_sub(self.seconds) < DAY,
            Some((_, at)) if *at >= DAY => false,
            _ => !(is_vouched_for && clocks.now.duration_since(self.time) >= day),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::decision::device_state::DeviceState;
    use crate::testing::id;

    fn clocks(time: &str, is_vouched_for: bool, boot: &str, seconds: u64) -> Clocks {
        Clocks { now: time.parse().unwrap(), is_vouched_for, boot: Some((boot.to_owned(), seconds)) }
    }

    #[test]
    fn a_removal_counts_for_a_day_and_no_wrong_clock_makes_that_shorter() {
        let (begin, later) = ("2026-11-23T15:00:00Z", "2027-11-23T15:00:00Z");
        let note = |is_vouched_for| {
            let mut state = DeviceState::default();
            state.note_removed(&[id("a")].into(), &clocks(begin, is_vouched_for, "first", 1000));
            state
        };
        for (was_vouched_for, now, expected) in [
            (true, clocks(later, true, "first", 1000 + DAY - 1), true),
            (true, clocks("1970-01-01T00:00:00Z", false, "first", 1000 + DAY), false),
            (true, clocks("2026-11-24T14:59:59Z", true, "second", 10), true),
            (true, clocks("2026-11-24T15:00:00Z", true, "second", 10), false),
            (true, clocks(later, false, "second", DAY - 1), true),
            (false, clocks(later, true, "second", DAY - 1), true),
            (false, clocks(begin, false, "second", DAY), false),
            (true, Clocks { boot: None, ..clocks(later, false, "", 0) }, true),
        ] {
            let mut state = note(was_vouched_for);
            assert_eq!(
                state.recently_removed(&now) == BTreeSet::from([id("a")]),
                expected,
                "{was_vouched_for} {now:?}"
            );
            state.note_removed(&BTreeSet::new(), &now);
            assert_eq!(state.removed.is_empty(), !expected, "nothing is kept for longer");
        }
        let mut state = note(true);
        let first = state.clone();
        state.note_removed(&[id("a")].into(), &clocks(begin, true, "first", 1599));
        assert_eq!(state, first, "what takes long to go isn't noted with each pass");
        state.note_removed(&[id("a")].into(), &clocks(begin, true, "first", 1600));
        assert_eq!(state.removed[&id("a")].seconds, 1600, "it may have come back meanwhile");
        assert_eq!(DeviceState::of_tree(&first.to_tree()).unwrap(), first);
    }
}
