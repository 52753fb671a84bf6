//! Trouble between the publisher and a host that isn't ours: limits hold, one repository's trouble is its own, and the
//! next publish makes up for it.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use repo_testkit::faults::fault_proxy::{Direction, Fault, FaultProxy};
use repo_testkit::foreign_host::Options;

use crate::remote::{PASSWORD, Site, said};

/// Short limits, so that silence doesn't take long.
const LIMITS: &str = "  timeouts: {connect: 1s, answer: 1s, stall: 1s, total: 3s}\n";

/// Limits within which every other repository answers.
const PATIENT: &str = "  timeouts: {connect: 10s, answer: 10s, stall: 10s, total: 60s}\n";

/// Whoever reads this repository's refs waits for ever, as on a network file system that is gone.
fn stick(site: &Site, device: &str) {
    let refs = site.remote(device).join("packed-refs");
    let _ = fs::remove_file(&refs);
    assert!(std::process::Command::new("mkfifo").arg(refs).status().unwrap().success());
}

fn unstick(site: &Site, device: &str) {
    fs::remove_file(site.remote(device).join("packed-refs")).unwrap();
}

#[test]
fn whatever_the_network_does_limits_hold_and_the_next_publish_heals() {
    let account = Some(("publisher".to_owned(), PASSWORD.to_owned()));
    let site = Site::with(&["press-01"], Options { account, ..Options::default() });
    let secret = site.lab.dir().join("secret");
    fs::write(&secret, format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let proxy = FaultProxy::start(site.host.address());
    let url = site.host.url_by(proxy.address());
    let settings = |limits| {
        site.settings(&url, &format!("  user: publisher\n  secretFile: {}\n{limits}", secret.display()));
    };
    settings("");
    site.lab.publish_all();
    for (number, fault) in [
        Fault::HalfOpen,
        Fault::Throttle(1),
        Fault::Throttle(600),
        Fault::StallAfter(Direction::Down, 0),
        Fault::StallAfter(Direction::Down, 2500),
        Fault::StallAfter(Direction::Up, 1500),
        Fault::StallAfter(Direction::Up, 3000),
        Fault::CutAfter(Direction::Down, 500),
        Fault::ResetAfter(Direction::Down, 500),
    ]
    .into_iter()
    .enumerate()
    {
        site.greet(&format!("hello {number}"));
        settings(LIMITS);
        proxy.set(fault);
        let begin = Instant::now();
        let outcome = site.lab.publish();
        assert!(begin.elapsed() < Duration::from_secs(60), "{fault:?}: {:?}", begin.elapsed());
        assert_eq!(outcome.published(), 1, "{fault:?}: it is here whatever the network does");
        let text = said(&outcome, "press-01");
        assert!(text.contains(&format!("{url}/fleet/press-01.git")) && !text.contains(PASSWORD), "{fault:?}: {text}");
        // What hangs in the network is let go, as when a router forgets it.
        proxy.set(Fault::Refuse);
        proxy.set(Fault::None);
        settings("");
        site.lab.publish_all();
        site.assert_same("press-01");
    }
}

#[test]
fn one_stuck_repository_stops_no_other() {
    let site = Site::new(&["packer-01", "press-01", "press-02"]);
    site.settings(&site.host.url(), &format!("  connections: 1\n{PATIENT}"));
    site.lab.publish_all();
    site.lab.edit("deployments/hello.yaml", "hello from the packer", "hi packer");
    site.greet("with a stuck neighbour");
    stick(&site, "packer-01");
    let outcome = site.lab.publish();
    assert_eq!((outcome.published(), outcome.pushed()), (3, 2), "{outcome:?}");
    let text = said(&outcome, "packer-01");
    assert!(text.contains("fleet/packer-01.git") && text.contains("doesn't answer within 10 s"), "{text}");
    ["press-01", "press-02"].iter().for_each(|device| site.assert_same(device));
    // Who asks how devices are hears it too, and the others' reports.
    let table = site.lab.run(&["status"]).good();
    let (table, blocked) = table.split_once("\nNot published:\n").unwrap();
    assert_eq!(table.matches("doesn't answer").count(), 1, "{table}");
    assert!(blocked.contains("packer-01  -           not-pushed") && !blocked.contains("press-0"), "{blocked}");
    let failed = site.lab.run(&["publish"]).failed(1);
    assert!(failed.contains("device `packer-01`") && !failed.contains("press-0"), "{failed}");
    unstick(&site, "packer-01");
    site.lab.publish_all();
    site.assert_same("packer-01");
}

#[test]
fn a_host_whose_repositories_are_all_stuck_is_given_up_after_a_few() {
    let devices = ["packer-01", "press-01", "press-02"];
    let site = Site::new(&devices);
    site.settings(&site.host.url(), &format!("  connections: 1\n{PATIENT}"));
    devices.iter().for_each(|device| stick(&site, device));
    let outcome = site.lab.publish();
    assert_eq!(outcome.published(), 3);
    for device in ["packer-01", "press-01"] {
        assert!(said(&outcome, device).contains("doesn't answer within 10 s"), "{}", said(&outcome, device));
    }
    assert!(said(&outcome, "press-02").contains("the host failed for `press-01`"), "{}", said(&outcome, "press-02"));
    devices.iter().for_each(|device| unstick(&site, device));
    site.lab.publish_all();
    devices.iter().for_each(|device| site.assert_same(device));
}
