//! Publishers and syncers of neighbouring versions, and homes that another version left behind. The older programs are
//! those of `MARGO_OLDER_PROGRAMS`, which `./justw skew` builds from history: so these tests run only there.

use std::path::PathBuf;

use repo_testkit::use_program;

use crate::operator_words::told;
use crate::site::Site;

const SYNCER: &str = "device-syncer";
const PUBLISHER: &str = "wfm-git-publisher";
const DEPLOYMENT: &str = repo_testkit::fleet::DEPLOYMENT;

fn older() -> PathBuf {
    std::env::var_os("MARGO_OLDER_PROGRAMS").expect("MARGO_OLDER_PROGRAMS is set: run `./justw skew`").into()
}

fn installed(site: &Site, greeting: &str) {
    let (fleet, device) = (&site.fleet, &site.devices[0]);
    assert_eq!(told(fleet, &device.id, "hello"), ("installed".to_owned(), String::new()));
    let status = fleet.status(&device.id);
    assert_eq!(status["doubts"], serde_json::json!([]), "{status}");
    assert!(device.environments()[0].contains(greeting), "{:?}", device.environments());
}

/// An installation, an update, nothing to do, and a removal.
fn follow(site: &Site) {
    let (fleet, device) = (&site.fleet, &site.devices[0]);
    site.publish();
    site.pass();
    // Twice: an older publisher reads what a pass has told by the one before.
    site.pass();
    installed(site, "hello from the press");
    fleet.change(DEPLOYMENT, "hello from the press", "servus from the press");
    site.publish();
    site.pass();
    installed(site, "servus from the press");
    let marks = device.marks();
    site.pass();
    assert_eq!(device.marks(), marks, "nothing is to do");
    std::fs::remove_file(fleet.dir().join(DEPLOYMENT)).expect("removed");
    fleet.commit("nothing is wanted");
    fleet.run(&["publish", "--allow-removals"]);
    site.pass();
    assert_eq!(device.environments(), Vec::<String>::new());
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn an_older_syncer_follows_a_newer_publisher() {
    use_program(SYNCER, Some(&older()));
    follow(&Site::new(&["press-01"]));
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn a_newer_syncer_follows_an_older_publisher() {
    use_program(PUBLISHER, Some(&older()));
    follow(&Site::new(&["press-01"]));
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn what_an_older_fleet_and_device_left_is_taken_over_and_nothing_is_made_anew() {
    use_program(SYNCER, Some(&older()));
    use_program(PUBLISHER, Some(&older()));
    let site = Site::new(&["press-01"]);
    let device = &site.devices[0];
    site.publish();
    site.pass();
    installed(&site, "hello from the press");
    let calls = device.calls();
    // The device first, then the publisher, as a site may update them.
    use_program(SYNCER, None);
    site.pass();
    installed(&site, "hello from the press");
    use_program(PUBLISHER, None);
    site.publish();
    site.pass();
    installed(&site, "hello from the press");
    assert_eq!(device.calls(), calls, "no container is touched");
    follow(&site);
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn a_device_that_goes_back_to_an_older_syncer_goes_on() {
    let site = Site::new(&["press-01"]);
    let device = &site.devices[0];
    site.publish();
    site.pass();
    let calls = device.calls();
    use_program(SYNCER, Some(&older()));
    site.pass();
    assert_eq!(device.calls(), calls, "no container is touched");
    follow(&site);
}
