//! Devices counted by a label, by application or by version.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::table as columns;
use crate::fleet::Fleet;
use crate::status::{Counts, DeviceStatus, Health, Membership};

/// The devices that have something in common.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    /// What that is; absent for those that have nothing of the kind.
    group: Option<String>,
    devices: usize,
    health: Counts,
}

/// Counts the enrolled ones among these devices by a label, or by the `application` or `version` that is meant for them: then a device
/// counts in each group with the worst of its deployments there.
pub(super) fn of(fleet: &Fleet, devices: &[DeviceStatus], by: &str) -> Vec<Group> {
    let mut groups: BTreeMap<Option<String>, Counts> = BTreeMap::new();
    for status in devices.iter().filter(|status| status.membership == Membership::Enrolled) {
        for (group, health) in groups_of(fleet, status, by) {
            groups.entry(group).or_default().add(health);
        }
    }
    groups.into_iter().map(|(group, health)| Group { group, devices: health.total(), health }).collect()
}

fn groups_of(fleet: &Fleet, status: &DeviceStatus, by: &str) -> BTreeMap<Option<String>, Health> {
    let mut groups: BTreeMap<_, Health> = BTreeMap::new();
    let mut add = |group: Option<String>, health: Health| {
        let worst = groups.entry(group).or_insert(health);
        *worst = (*worst).max(health);
    };
    if !["application", "version"].contains(&by) {
        let labels = fleet.devices.get(&status.device).map(|device| &device.labels);
        add(labels.and_then(|labels| labels.get(by)).cloned(), status.health);
        return groups;
    }
    for row in &status.deployments {
        let Some(application) = &row.application else { continue };
        let version = row.version.as_ref().filter(|_| by == "version").map(|version| format!("@{version}"));
        add(Some(format!("{application}{}", version.unwrap_or_default())), row.health);
    }
    if groups.is_empty() {
        groups.insert(None, status.health);
    }
    groups
}

/// A line for each group, with how many are how, the worst first.
pub(super) fn table(groups: &[Group]) -> String {
    let row = |group: &Group| {
        let name = group.group.clone().unwrap_or_else(|| "(none)".to_owned());
        [name, group.devices.to_string(), group.health.to_string()]
    };
    let head = ["GROUP", "DEVICES", "HEALTH"].map(str::to_owned);
    columns(&std::iter::once(head).chain(groups.iter().map(row)).collect::<Vec<_>>())
}
