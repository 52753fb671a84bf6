//! New hardware takes the place of a device, by the code that it shows.

use std::time::Duration;

use repo_testkit::device::Device;
use repo_testkit::{comes_within, git};
use serde_json::json;

use super::Site;
use crate::audit::findings;
use crate::epochs::{branches, transitions};
use crate::hosted::ID;

/// Lets a device enrol, whichever command takes it in.
pub(super) fn take_in(site: &Site, name: &str, command: impl Fn(&str) -> Vec<String>) -> Device {
    let device = site.device(name);
    let mut enrolling = site.enroll(&device);
    let code = enrolling.says("code");
    let args = command(&code);
    site.fleet.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((enrolling.says("device"), enrolling.ends()), (ID.to_owned(), Some(0)));
    device
}

#[test]
fn new_hardware_takes_the_place_of_a_device_and_the_history_of_both_is_whole() {
    let site = Site::new().open();
    let fleet = &site.fleet;
    fleet.push_application();
    let approve = |code: &str| ["device", "approve", code, "--id", ID].map(str::to_owned).to_vec();
    let old = take_in(&site, "old", approve);
    fleet.run(&["publish"]);
    old.pass();
    fleet.change("deployments/hello.yaml", "hello from the press", "servus from the press");
    fleet.run(&["publish"]);
    old.pass();
    let repository = fleet.repository(ID);
    let (end, told) = (git::tip(&repository, "status").expect("it reported"), transitions(&repository));
    let serial = fleet.serial(ID);

    let replace = |code: &str| ["device", "replace", ID, code].map(str::to_owned).to_vec();
    let new = take_in(&site, "new", replace);
    // The old one is out at once, and what it runs goes on.
    let is_out = || old.once().output().expect("it runs").status.code() == Some(1);
    // The host notices within half a second; its key, which the published state lists still, lets it in no more.
    assert!(comes_within(Duration::from_secs(60), is_out) && is_out());
    assert!(old.environments()[0].contains("servus from the press"));
    fleet.run(&["publish"]);
    new.pass();
    assert!(new.environments()[0].contains("servus from the press"));
    assert!(fleet.serial(ID) > serial, "serials go on");
    let status = fleet.status(ID);
    assert_eq!((&status["doubts"], &status["deployments"][0]["state"]), (&json!([]), &json!("installed")), "{status}");

    // Both histories, by stock git.
    assert_eq!(branches(&repository), ["status-1", "status"]);
    assert_eq!(git::tip(&repository, "status-1"), Some(end.clone()));
    let all = transitions(&repository);
    assert_eq!(all[..told.len()], told);
    assert!(all[told.len()..].iter().any(|one| one.contains("installing > installed")), "{all:?}");
    let begins = "--format=%P;%(trailers:key=Epoch,key=Previous,separator=%x2C)";
    let first = git::git(&repository, &["log", "--reverse", begins, "status"]);
    assert_eq!(first.lines().next(), Some(&*format!(";Epoch: 2,Previous: {end}")));
    let signers = format!("gpg.ssh.allowedSignersFile={}", fleet.home().join("allowed_signers").display());
    for branch in ["status-1", "status"] {
        let signed = git::git(&repository, &["-c", &signers, "log", "--format=%G?", branch]);
        assert!(signed.lines().all(|line| line == "G"), "{branch}: {signed}");
    }
    // And by the audit, which tells that another installation goes on; without the epoch it isn't whole.
    let found = findings(fleet);
    assert!(found.len() == 1 && found[0].contains("installation-new"), "{found:?}");
    git::git(&repository, &["update-ref", "-d", "refs/heads/status-1"]);
    let found = findings(fleet);
    assert!(found.iter().any(|one| one.contains("\"epoch-missing\" \"status-1\"")), "{found:?}");
    git::git(&repository, &["update-ref", "refs/heads/status-1", &end]);
    // The old hardware comes on again, with its old word for who it is.
    assert_eq!(old.once().output().expect("it runs").status.code(), Some(1));
    assert_eq!(git::tip(&repository, "status-1"), Some(end));
    new.pass();
    assert_eq!(branches(&repository), ["status-1", "status"]);
}
