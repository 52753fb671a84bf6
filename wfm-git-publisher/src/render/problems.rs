//! The same problem on many devices is reported once.

use std::collections::BTreeMap;

use repo_model::DeviceId;
use repo_model::problem::{Problem, Problems};

use crate::fleet::sorted;

/// Problems of devices, each once, with the devices that have it.
pub fn merged<'a>(all: impl IntoIterator<Item = (&'a DeviceId, &'a Problems)>) -> Problems {
    let mut devices: BTreeMap<String, (&Problem, Vec<&DeviceId>)> = BTreeMap::new();
    for (device, problems) in all {
        for problem in problems.iter() {
            let key = format!("{problem} {:?}", problem.hint);
            devices.entry(key).or_insert_with(|| (problem, Vec::new())).1.push(device);
        }
    }
    let merged = devices.into_values().map(|(problem, devices)| {
        let on = match devices.as_slice() {
            [one] => format!("on `{one}`"),
            [one, other] => format!("on `{one}` and `{other}`"),
            [one, rest @ ..] => format!("on `{one}` and {} other devices", rest.len()),
            [] => String::new(),
        };
        Problem { message: format!("{on}: {}", problem.message), ..problem.clone() }
    });
    sorted(Problems(merged.collect()))
}
