//! Clients that are not stock git: go-git. (libgit2 comes through the publisher's own remotes.)

use std::path::Path;
use std::process::{Command, Output};

use repo_testkit::git;

use super::{DEVICE, Login, Report, Site, printed, said};
use crate::support::Lab;

/// The program of `.ci/tools/go-git-client`, which `.ci/setup clients` builds.
fn go_git(site: &Site, login: &Login, args: &[&str], dir: &Path) -> Output {
    let program =
        std::env::var("MARGO_TEST_GO_GIT").expect("MARGO_TEST_GO_GIT is set: run the tests by `./justw test`");
    let url = site.url("devices/press-01.git");
    let mut command = Command::new(program);
    command.env("CA_FILE", &site.ca).env("USER_NAME", &login.name).env("USER_SECRET", &login.secret);
    command.args([args[0], &url]).arg(dir).args(&args[1..]).output().expect("go-git-client runs")
}

#[test]
fn go_git_lists_clones_and_pushes_and_is_refused_with_a_reason() {
    let site = Site::new();
    let device = site.device();
    let dir = site.lab.dir().join("go-git.git");
    let listed = printed(&go_git(&site, &device, &["list"], &dir));
    assert!(listed.contains(&format!("{}\trefs/heads/desired", site.lab.tip(DEVICE, "desired").unwrap())), "{listed}");
    let cloned = go_git(&site, &device, &["clone"], &dir);
    assert!(cloned.status.success(), "{}", said(&cloned));
    git::git(&dir, &["fsck", "--strict"]);
    let key = Lab::device_key(DEVICE);
    let report = Report { device: DEVICE, kind: "status", parents: &[], signer: Some(&key) };
    let commit = report.commit(&site, &dir, "1");
    git::git(&dir, &["update-ref", "refs/heads/status", &commit]);
    let refused = go_git(&site, &device, &["push", "refs/heads/status:refs/heads/main"], &dir);
    assert!(!refused.status.success() && said(&refused).contains("may only push"), "{}", said(&refused));
    let pushed = go_git(&site, &device, &["push", "refs/heads/status:refs/heads/status"], &dir);
    assert!(pushed.status.success(), "{}", said(&pushed));
    assert_eq!(site.lab.tip(DEVICE, "status"), Some(commit));
    let stranger = Login { name: device.name.clone(), secret: "wrong".to_owned() };
    let denied = go_git(&site, &stranger, &["list"], &dir);
    assert!(said(&denied).contains("authentication required"), "{}", said(&denied));
}
