//! What `/metrics` says of devices: who has what was published, and how long publishes take to arrive.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs::File;
use std::time::{Duration, SystemTime};

use wfm_git_host::accounts::Role;

use crate::host::{Login, Site};
use crate::reports::Reporter;
use crate::support::{BEGIN, Lab};

const DEVICES: [&str; 2] = ["press-01", "packer-01"];

/// How many devices stand so.
fn count(site: &Site, auditor: &Login, state: &str) -> i64 {
    site.metric(&format!("wfm_devices{{state=\"{state}\"}}"), auditor)
}

/// Nothing was heard of a device for so long.
fn was_silent(lab: &Lab, device: &str, hours: u64) {
    let file = File::open(lab.repo(device).join("refs/heads/status")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
}

#[test]
fn devices_that_are_off_or_gone_say_nothing_of_how_quick_publishes_arrive() {
    let lab = Lab::with(&DEVICES);
    lab.publish_at(*BEGIN - 2000);
    for device in DEVICES {
        Reporter { lab: &lab, device }.status_with(device, ("installed", ""), "0.2.0", &[]);
    }
    // Two publishes that nobody has yet: the older one counts.
    for (from, to, second) in [("5m", "6m", *BEGIN - 1500), ("6m", "7m", *BEGIN - 10)] {
        lab.edit("fleet.yaml", &format!("report: {from}"), &format!("report: {to}"));
        lab.commit();
        lab.publish_at(second);
    }
    let mut site = Site::on(lab, "");
    let auditor = site.login("audit", Role::Auditor, None);
    let lag = site.metric("wfm_publish_lag_seconds", &auditor);
    assert!((1500..2000).contains(&lag), "{lag}");
    assert_eq!((count(&site, &auditor, "behind"), count(&site, &auditor, "offline")), (2, 0));

    was_silent(&site.lab, "press-01", 2);
    site.restart();
    assert_eq!((count(&site, &auditor, "behind"), count(&site, &auditor, "offline")), (1, 1));

    site.lab.remove("devices/packer-01.yaml");
    site.lab.commit();
    site.lab.publish();
    site.restart();
    assert_eq!(count(&site, &auditor, "gone"), 1);
    assert_eq!((count(&site, &auditor, "behind"), count(&site, &auditor, "offline")), (0, 1));
    assert_eq!(site.metric("wfm_publish_lag_seconds", &auditor), 0);
}
