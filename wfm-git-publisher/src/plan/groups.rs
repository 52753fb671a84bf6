//! What a plan says of many devices, each thing once.

use std::collections::BTreeMap;

use repo_model::DeviceId;

use super::shown::Shown;
use super::statements::{Detail, StatementKind, statements};
use crate::fleet::{Fleet, counted};

/// The most devices that are named one by one.
const MAX_NAMED: usize = 3;

/// The most values of one parameter that are told although one device alone has them.
const MAX_VALUES: usize = 5;

/// One statement, and the devices that it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub kind: StatementKind,
    pub line: String,
    /// In the order of what they say first; each device is in all parts that concern it.
    pub parts: Vec<Part>,
}

/// The details that are the same on the same devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub details: Vec<String>,
    pub devices: Vec<DeviceId>,
}

/// Everything that is said of these devices, by kind, and each thing once.
pub fn groups(all: &[Shown]) -> Vec<Group> {
    let mut groups: BTreeMap<_, Vec<(&DeviceId, Vec<Detail>)>> = BTreeMap::new();
    for shown in all {
        for one in statements(shown) {
            groups.entry((one.kind, one.line)).or_default().push((shown.device(), one.details));
        }
    }
    groups.into_iter().map(|((kind, line), said)| Group { kind, line, parts: parts(&said) }).collect()
}

fn parts(said: &[(&DeviceId, Vec<Detail>)]) -> Vec<Part> {
    let folded = folded(said);
    // Where it was said first, and of whom.
    let mut devices_of: BTreeMap<String, (usize, Vec<DeviceId>)> = BTreeMap::new();
    let mut without = Vec::new();
    for (device, details) in said {
        if details.is_empty() {
            without.push((*device).clone());
        }
        for detail in details {
            let text = folded.get(detail.text.as_str()).unwrap_or(&detail.text);
            let first = devices_of.len();
            devices_of.entry(text.clone()).or_insert((first, Vec::new())).1.push((*device).clone());
        }
    }
    let mut order: Vec<_> = devices_of.into_iter().collect();
    order.sort_by_key(|(_, (first, _))| *first);
    let mut parts: Vec<Part> = Vec::new();
    let mut index: BTreeMap<Vec<DeviceId>, usize> = BTreeMap::new();
    for (text, (_, devices)) in order {
        let at = *index.entry(devices.clone()).or_insert(parts.len());
        match parts.get_mut(at) {
            Some(part) => part.details.push(text),
            None => parts.push(Part { details: vec![text], devices }),
        }
    }
    parts.extend((!without.is_empty()).then_some(Part { details: Vec::new(), devices: without }));
    parts
}

/// What is said instead of the values that one device alone has, by what they say.
fn folded<'a>(said: &'a [(&DeviceId, Vec<Detail>)]) -> BTreeMap<&'a str, String> {
    let mut values: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for detail in said.iter().flat_map(|(_, details)| details) {
        if let Some(what) = &detail.what {
            *values.entry(what).or_default().entry(&detail.text).or_default() += 1;
        }
    }
    let mut folded = BTreeMap::new();
    for values in values.into_values() {
        let own: Vec<_> = values.into_iter().filter(|(_, devices)| *devices == 1).map(|(text, _)| text).collect();
        if let [example, others @ ..] = own.as_slice()
            && own.len() > MAX_VALUES
        {
            let text = format!("{example}, and {} other values (`plan --each` tells them)", others.len());
            folded.extend(own.iter().map(|one| (*one, text.clone())));
        }
    }
    folded
}

/// Tells devices by what they have in common.
#[derive(Debug)]
pub struct Describe<'a> {
    fleet: &'a Fleet,
    /// How many devices have a label.
    counts: BTreeMap<(&'a str, &'a str), usize>,
}

impl<'a> Describe<'a> {
    pub fn new(fleet: &'a Fleet) -> Self {
        let mut counts = BTreeMap::new();
        for (name, value) in fleet.devices.values().flat_map(|device| &device.labels) {
            *counts.entry((name.as_str(), value.as_str())).or_default() += 1;
        }
        Self { fleet, counts }
    }

    /// The ids of a few; of more how many there are, the label that they and no others have, and the first ids.
    pub fn devices(&self, devices: &[DeviceId]) -> String {
        let named = devices.iter().take(MAX_NAMED).map(DeviceId::as_str).collect::<Vec<_>>().join(", ");
        if devices.len() <= MAX_NAMED {
            return named;
        }
        let is_all =
            devices.len() == self.fleet.devices.len() && devices.iter().all(|one| self.fleet.devices.contains_key(one));
        let all = if is_all { "all " } else { "" };
        let label = self.label(devices).filter(|_| !is_all).map(|label| format!("{label}: ")).unwrap_or_default();
        format!("{all}{} ({label}{named} and {} more)", counted(devices.len()), devices.len() - MAX_NAMED)
    }

    /// The first label that all of them have, and no other device.
    fn label(&self, devices: &[DeviceId]) -> Option<String> {
        let labels = |device| Some(&self.fleet.devices.get(device)?.labels);
        let mut shared = labels(devices.first()?)?.iter();
        let (name, value) = shared.find(|(name, value)| {
            self.counts.get(&(name.as_str(), value.as_str())) == Some(&devices.len())
                && devices.iter().all(|device| labels(device).and_then(|all| all.get(*name)) == Some(*value))
        })?;
        Some(format!("{name}={value}"))
    }
}
