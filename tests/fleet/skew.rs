//! Publishers and syncers of neighbouring versions, and homes that another version left behind. The older programs are
//! those of `MARGO_OLDER_PROGRAMS`, which `./justw skew` builds from history: so these tests run only there.

use std::path::PathBuf;

use repo_testkit::cluster::{Cluster, HELM_4};
use repo_testkit::use_program;

use crate::charts::{ORCHESTRATOR, add_helm, releases, values, want_charts};
use crate::operator_words::told;
use crate::site::{Site, registry_name};

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

/// What a deployment says that a device of 0.2 must not ignore, and what of it is listed as required.
const GATES: [(&str, &str); 3] =
    [("windows: {zone: UTC}\n", "windows"), ("drift: report\n", "drift"), ("approval: site\n", "approval")];

/// Says it of the deployment, or takes it back.
fn say(site: &Site, gate: &str, is_said: bool) {
    let (fleet, text) = (&site.fleet, site.fleet.read(DEPLOYMENT));
    let without = text.replace(&format!("\n{gate}"), "\n");
    fleet.write(DEPLOYMENT, &(without + if is_said { gate } else { "" }));
    fleet.commit(&format!("{gate} {is_said}"));
}

/// A pass that refuses the state because of this feature, and touches nothing.
fn assert_refuses(site: &Site, feature: &str) {
    let device = &site.devices[0];
    let (calls, runs) = (device.calls(), device.environments());
    let refused = device.syncer(&["once"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("requires `{feature}`, which this program doesn't know: update it")), "{said}");
    assert_eq!((device.calls(), device.environments()), (calls, runs), "what runs is left alone");
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn an_older_syncer_that_has_reported_is_given_nothing_that_it_must_not_ignore() {
    use_program(SYNCER, Some(&older()));
    let site = Site::new(&["press-01"]);
    let (fleet, device) = (&site.fleet, &site.devices[0]);
    site.publish();
    site.pass();
    for (gate, feature) in GATES {
        say(&site, gate, true);
        let (serial, marks) = (fleet.serial(&device.id), device.marks());
        let output = fleet.try_run(&["publish"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("its syncer is version 0.2.0, and `{feature}` needs 0.3.0")), "{said}");
        site.pass();
        assert_eq!((fleet.serial(&device.id), device.marks()), (serial, marks), "{feature}");
        say(&site, gate, false);
    }
    follow(&site);
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn an_older_syncer_that_has_not_reported_refuses_what_it_must_not_ignore_until_that_is_taken_back() {
    use_program(SYNCER, Some(&older()));
    for (gate, feature) in GATES {
        let site = Site::new(&["press-01"]);
        say(&site, gate, true);
        site.publish();
        assert_refuses(&site, feature);
        say(&site, gate, false);
        follow(&site);
    }
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn a_device_that_goes_back_to_an_older_syncer_keeps_what_runs_with_gates_until_they_are_taken_back() {
    for (gate, feature) in &GATES[..2] {
        let site = Site::new(&["press-01"]);
        let device = &site.devices[0];
        let settings = device.home().join("device.yaml");
        let before = std::fs::read(&settings).expect("settings");
        device.set("clock", "{rtc: true}");
        say(&site, gate, true);
        site.publish();
        site.pass();
        installed(&site, "hello from the press");
        // What an older one can't read in it goes first.
        std::fs::write(&settings, before).expect("written");
        use_program(SYNCER, Some(&older()));
        assert_refuses(&site, feature);
        say(&site, gate, false);
        follow(&site);
        use_program(SYNCER, None);
    }
}

/// A device with a cluster, on which nothing but charts is wanted; they aren't published yet.
fn with_charts() -> (Site, Cluster) {
    let site = Site::new(&["press-01"]);
    let cluster = Cluster::new(HELM_4, format!("skew-{}", registry_name(site.dir.path())));
    add_helm(&site.devices[0], &cluster);
    site.publish();
    site.pass();
    want_charts(&site, &cluster);
    (site, cluster)
}

/// An installation, an update, nothing to do, and a removal, of charts.
fn follow_charts(site: &Site, cluster: &Cluster) {
    let fleet = &site.fleet;
    install_charts(site, cluster);
    fleet.change(ORCHESTRATOR, "servus", "grüezi");
    site.publish();
    site.pass();
    assert_eq!(releases(cluster), ["database deployed 2", "services deployed 2"]);
    assert_eq!(values(cluster, "services")["greeting"], "grüezi");
    site.pass();
    assert_eq!(releases(cluster), ["database deployed 2", "services deployed 2"], "nothing is to do");
    std::fs::remove_file(fleet.dir().join(ORCHESTRATOR)).expect("removed");
    fleet.commit("nothing is wanted");
    fleet.run(&["publish", "--allow-removals"]);
    site.pass();
    assert_eq!(releases(cluster), Vec::<String>::new());
}

fn install_charts(site: &Site, cluster: &Cluster) {
    site.fleet.run(&["publish", "--allow-removals"]);
    // Twice: an older publisher reads what a pass has told by the one before.
    site.pass();
    site.pass();
    assert_eq!(releases(cluster), ["database deployed 1", "services deployed 1"]);
    assert_eq!(values(cluster, "services")["greeting"], "servus");
    assert_eq!(told(&site.fleet, "press-01", "orchestrator"), ("installed".to_owned(), String::new()));
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn an_older_syncer_follows_a_newer_publisher_with_charts() {
    use_program(SYNCER, Some(&older()));
    let (site, cluster) = with_charts();
    follow_charts(&site, &cluster);
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn a_newer_syncer_follows_an_older_publisher_with_charts() {
    use_program(PUBLISHER, Some(&older()));
    let (site, cluster) = with_charts();
    follow_charts(&site, &cluster);
}

#[test]
#[ignore = "needs programs of before: ./justw skew"]
fn charts_of_an_older_fleet_and_device_are_taken_over_and_given_back_and_none_is_made_anew() {
    use_program(SYNCER, Some(&older()));
    use_program(PUBLISHER, Some(&older()));
    let (site, cluster) = with_charts();
    install_charts(&site, &cluster);
    use_program(SYNCER, None);
    install_charts(&site, &cluster);
    use_program(PUBLISHER, None);
    install_charts(&site, &cluster);
    use_program(SYNCER, Some(&older()));
    follow_charts(&site, &cluster);
}
