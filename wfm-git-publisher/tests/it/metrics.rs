//! What `/metrics` says of devices: who has what was published, and how long publishes take to arrive.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use wfm_git_host::accounts::Role;

use crate::host::{Login, Site};
use crate::reports::Reporter;
use crate::support::{BEGIN, Lab};
use crate::waves::stopped;

const DEVICES: [&str; 2] = ["press-01", "packer-01"];

/// How many devices stand so.
fn count(site: &Site, auditor: &Login, state: &str) -> i64 {
    site.metric(&format!("wfm_devices{{state=\"{state}\"}}"), auditor)
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
    let deployments = |state: &str| site.metric(&format!("wfm_deployments{{state=\"{state}\"}}"), &auditor);
    assert_eq!((deployments("installed"), deployments("failed")), (2, 0));

    site.lab.was_heard("press-01", 2 * 3600);
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

#[test]
fn a_device_that_has_everything_and_is_not_heard_of_is_not_counted_as_current() {
    let lab = Lab::with(&DEVICES);
    lab.publish_at(*BEGIN - 2000);
    for device in DEVICES {
        Reporter { lab: &lab, device }.status_with(device, ("installed", ""), "0.3.0", &[]);
    }
    let mut site = Site::on(lab, "");
    let auditor = site.login("audit", Role::Auditor, None);
    assert_eq!((count(&site, &auditor, "current"), count(&site, &auditor, "offline")), (2, 0));
    site.lab.was_heard("press-01", 2 * 3600);
    site.restart();
    assert_eq!((count(&site, &auditor, "current"), count(&site, &auditor, "offline")), (1, 1));
}

#[test]
fn a_device_that_its_windows_let_say_nothing_is_not_offline_until_it_could_have_spoken() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_at(*BEGIN - 2000);
    Reporter { lab: &lab, device: "press-01" }.status_with("press-01", ("installed", ""), "0.3.0", &[]);
    let opens = (Timestamp::now() + SignedDuration::from_hours(18)).to_zoned(TimeZone::UTC).strftime("%M %H * * *");
    let windows =
        format!("report: 6m\n  windows: {{zone: UTC, talk: {{allow: [{{start: \"{opens}\", length: 1h}}]}}}}");
    lab.edit("fleet.yaml", "report: 5m", &windows);
    lab.commit();
    lab.publish_at(*BEGIN - 10);
    let status = lab.run(&["status"]).out;
    assert!(status.contains("its windows let it say nothing to the host until "), "{status}");
    let mut site = Site::on(lab, "");
    let auditor = site.login("audit", Role::Auditor, None);
    // They were open 6 hours ago, and are so again in 18.
    for (hours, behind, offline) in [(2, 1, 0), (5, 1, 0), (10, 0, 1), (40, 0, 1)] {
        site.lab.was_heard("press-01", hours * 3600);
        site.restart();
        assert_eq!((count(&site, &auditor, "behind"), count(&site, &auditor, "offline")), (behind, offline), "{hours}");
    }
}

#[test]
fn rollouts_are_counted_by_their_state_and_their_devices_by_whether_they_were_released() {
    let site = Site::on(stopped().0, "");
    let auditor = site.login("audit", Role::Auditor, None);
    let of = |name: &str, state: &str| site.metric(&format!("{name}{{state=\"{state}\"}}"), &auditor);
    assert_eq!((of("wfm_rollouts", "running"), of("wfm_rollouts", "stopped")), (0, 1));
    let (released, waiting) = (of("wfm_rollout_devices", "released"), of("wfm_rollout_devices", "waiting"));
    assert!(released == 1 && waiting > 1, "{released} {waiting}");
}
