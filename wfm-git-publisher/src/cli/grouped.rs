//! Devices of which the same is to be said, in one line.

use std::collections::BTreeMap;
use std::fmt::Display;

use repo_model::DeviceId;

use super::table;

/// The most devices of a group that are named.
const MAX_NAMED: usize = 10;

/// A table with a line for each state and reason, the worst first; nothing without devices.
pub(super) fn grouped<'a, T: Ord + Display>(devices: impl Iterator<Item = (T, &'a str, &'a DeviceId)>) -> String {
    let mut groups: BTreeMap<(T, &str), Vec<&DeviceId>> = BTreeMap::new();
    for (state, why, device) in devices {
        groups.entry((state, why)).or_default().push(device);
    }
    if groups.is_empty() {
        return String::new();
    }
    let row = |((state, why), devices): (&(T, &str), &Vec<&DeviceId>)| {
        [state.to_string(), devices.len().to_string(), named(devices), (*why).to_owned()]
    };
    let head = ["STATE", "DEVICES", "WHICH", "WHY"].map(str::to_owned);
    table(&std::iter::once(head).chain(groups.iter().rev().map(row)).collect::<Vec<_>>())
}

/// The first of these devices, and how many more there are.
pub(super) fn named<D: Display>(devices: &[D]) -> String {
    let named: Vec<_> = devices.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = devices.len().checked_sub(MAX_NAMED).filter(|more| *more > 0);
    named.join(", ") + &more.map(|more| format!(" and {more} more")).unwrap_or_default()
}
