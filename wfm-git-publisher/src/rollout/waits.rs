//! What a rollout waits for, as people and programs see it.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use repo_model::{DeviceId, text};
use serde::{Deserialize, Serialize};

use super::next::Waiting;

/// How many devices are named for a person.
const MAX_NAMED: usize = 5;

/// What a rollout waits for, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    pub rollout: u32,
    /// Why, and what to do where somebody has to do something.
    pub why: String,
    /// For whom, and how they are.
    pub devices: BTreeMap<DeviceId, String>,
    /// When it may go on without anybody saying anything, at the earliest; absent where only devices or persons can.
    pub again: Option<Timestamp>,
}

impl From<&Waiting> for Waits {
    fn from(waiting: &Waiting) -> Self {
        let Waiting { rollout, devices, again, .. } = waiting;
        Self { rollout: *rollout, why: waiting.to_string(), devices: devices.clone(), again: *again }
    }
}

impl Waits {
    /// Why and for whom, but not until when.
    pub fn what(&self) -> String {
        let named = self.devices.iter().take(MAX_NAMED).map(|(device, how)| format!("{device}: {}", text::line(how)));
        let more = self.devices.len().checked_sub(MAX_NAMED).filter(|more| *more > 0);
        let named: Vec<_> = named.chain(more.map(|more| format!("{more} more"))).collect();
        if named.is_empty() { self.why.clone() } else { format!("{} ({})", self.why, named.join("; ")) }
    }
}

impl fmt::Display for Waits {
    /// Goes on after the rollout's number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        self.again.map_or(Ok(()), |again| write!(f, "; look again at {again:.0}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::next::Why;
    use super::*;

    #[test]
    fn of_many_devices_the_first_ones_are_named_and_what_they_say_of_themselves_stays_in_its_line() {
        let of = |count: u32| {
            let device = |number: u32| (format!("press-{number}").parse().unwrap(), "failed: a\nb".to_owned());
            let devices = (1..=count).map(device).collect();
            Waits::from(&Waiting { rollout: 12, why: Why::Budget, devices, again: Some(Timestamp::UNIX_EPOCH) })
        };
        let [none, few, many] = [0, 1, 7].map(|count| of(count).to_string());
        let (why, end) = ("waits, because `disruptionBudget` leaves no room", "; look again at 1970-01-01T00:00:00Z");
        assert_eq!(none, format!("{why}{end}"));
        assert!(few.starts_with(&format!("{why} (press-1: failed: a")) && few.ends_with(&format!("){end}")), "{few}");
        assert!(!few.contains('\n'), "{few}");
        assert_eq!(many.matches("press-").count(), 5);
        assert!(many.ends_with(&format!("; 2 more){end}")), "{many}");
    }
}
