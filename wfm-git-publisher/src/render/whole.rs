//! A fleet as a whole, before anything is known of its devices.

use repo_model::problem::Problems;

use super::{Facts, Locks, merged, render};
use crate::fleet::Fleet;
use crate::parallel;

/// What is wrong with what single devices would get, each problem once; on so many threads.
pub fn problems_of(fleet: &Fleet, threads: usize) -> Problems {
    let devices = fleet.devices.values().collect();
    let problems = parallel::map(devices, threads, |device| {
        (&device.id, render(fleet, device, Facts::default(), &Locks::new()).problems())
    });
    merged(problems.iter().map(|(id, problems)| (*id, problems)))
}
