//! `audit clone`: all repositories of a host in one step, with an auditor's account.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_testkit::git::git;
use serde_json::Value;
use wfm_git_host::accounts::{Role, Store};

use super::honest::{DEVICES, Honest};
use crate::host::{Login, Site};
use crate::hosted::hosted;
use crate::support::{Lab, Ran};

/// A host of a fleet whose devices report, and an auditor at another machine.
struct Auditor {
    site: Site,
    dir: PathBuf,
}

impl Auditor {
    fn new() -> Self {
        Self::of(Honest::new().lab)
    }

    fn of(lab: Lab) -> Self {
        let site = Site::on(lab, "");
        let dir = site.lab.dir().join("auditor");
        std::fs::create_dir(&dir).unwrap();
        let auditor = Self { site, dir };
        auditor.take(&auditor.site.login("audit", Role::Auditor, None));
        auditor
    }

    /// Keeps the secret of an account as the one that is used.
    fn take(&self, login: &Login) {
        let file = self.dir.join("audit.secret");
        repo_git::durable::replace_file(&file, login.secret.as_bytes(), 0o600).unwrap();
    }

    fn clones(&self) -> PathBuf {
        self.dir.join("clones")
    }

    fn run(&self, more: &[&str]) -> Ran {
        let (url, ca) = (format!("https://{}", self.site.address), self.site.ca.display().to_string());
        let args = ["audit", "clone", &url, "clones", "--secret-file", "audit.secret", "--ca-file", &ca];
        self.site.lab.run_in(&self.dir, &[&args, more].concat())
    }

    fn outcomes(&self) -> Vec<String> {
        let said: Value = serde_json::from_str(&self.run(&["--output", "json"]).out).unwrap();
        let all = said["repositories"].as_array().unwrap().iter();
        all.map(|one| format!("{} {}", one["device"].as_str().unwrap(), one["outcome"].as_str().unwrap())).collect()
    }

    fn audit(&self) -> Ran {
        self.site.lab.run_in(&self.dir, &["audit", "clones", "--roster", "clones/roster.json"])
    }
}

fn refs(repository: &Path) -> String {
    git(repository, &["for-each-ref", "--format=%(objectname) %(refname)"])
}

#[test]
fn an_auditors_account_clones_all_that_there_is_and_later_what_is_new() {
    let auditor = Auditor::new();
    let page = auditor.run(&[]).good();
    assert!(page.contains("2 repositories. Have the digest of the first roster confirmed, sha256:"), "{page}");
    // As a mirror of stock Git's, which finds nothing wrong with it.
    for device in DEVICES {
        let clone = auditor.clones().join(format!("{device}.git"));
        assert_eq!(refs(&clone), refs(&auditor.site.lab.repo(device)));
        git(&clone, &["fsck", "--strict"]);
        let signers = format!("gpg.ssh.allowedSignersFile={}", auditor.clones().join("allowed_signers").display());
        let signed = git(&clone, &["-c", &signers, "log", "--format=%G?", "desired"]);
        assert!(signed.lines().all(|line| line == "G") && signed.lines().count() > 2, "{signed}");
    }
    assert!(auditor.audit().good().contains("Nothing is wrong."));
    assert_eq!(auditor.outcomes(), ["packer-01 current", "press-01 current"]);
    // What press-01 alone has.
    auditor.site.lab.edit("deployments/hello.yaml", "servus", "grüezi");
    auditor.site.lab.commit();
    auditor.site.lab.publish_all();
    assert_eq!(auditor.outcomes(), ["packer-01 current", "press-01 fetched"]);
    assert_eq!(refs(&auditor.clones().join("press-01.git")), refs(&auditor.site.lab.repo("press-01")));
}

#[test]
fn a_repository_that_fails_holds_up_no_other_one_and_what_a_host_rewrites_is_said() {
    let auditor = Auditor::new();
    auditor.run(&[]).good();
    // An end of an epoch that the host doesn't have any more stays, because it may be archived.
    auditor.site.lab.git("press-01", &["update-ref", "refs/heads/status-1", "status~5"]);
    assert_eq!(auditor.outcomes(), ["packer-01 current", "press-01 fetched"]);
    auditor.site.lab.git("press-01", &["update-ref", "-d", "refs/heads/status-1"]);
    assert_eq!(auditor.outcomes(), ["packer-01 current", "press-01 current"]);
    assert!(refs(&auditor.clones().join("press-01.git")).contains("refs/heads/status-1"));
    // The host goes back to an older state, which is well signed, and plants a ref.
    let before = refs(&auditor.clones().join("press-01.git"));
    auditor.site.lab.git("press-01", &["update-ref", "refs/heads/status", "status~1"]);
    auditor.site.lab.git("press-01", &["update-ref", "refs/heads/planted", "desired"]);
    let ran = auditor.run(&[]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    let row = |ran: &Ran, device: &str| ran.out.lines().find(|line| line.starts_with(device)).unwrap().to_owned();
    assert!(row(&ran, "press-01").contains("status is rewritten"), "{}", ran.out);
    assert!(row(&ran, "packer-01").ends_with("current"), "{}", ran.out);
    let clone = auditor.clones().join("press-01.git");
    assert!(refs(&clone).contains("refs/heads/planted"), "the audit has to see it");
    assert!(auditor.audit().out.contains("foreign-ref"));
    let old = before.lines().find(|line| line.ends_with("refs/heads/status")).unwrap().split(' ').next().unwrap();
    git(&clone, &["cat-file", "-e", old]);
    // One whose objects are gone at the host.
    let objects = auditor.site.lab.repo("press-01").join("objects");
    std::fs::rename(&objects, objects.with_extension("away")).unwrap();
    std::fs::remove_dir_all(&clone).unwrap();
    let ran = auditor.run(&[]);
    assert_eq!(ran.code, Some(1));
    assert!(row(&ran, "press-01").contains("  failed  "), "{}{}", ran.out, ran.err);
    assert!(row(&ran, "packer-01").ends_with("current"), "{}", ran.out);
}

#[test]
fn another_first_roster_is_never_taken_and_no_device_learns_which_others_there_are() {
    let auditor = Auditor::new();
    auditor.run(&[]).good();
    let roster = auditor.clones().join("roster.json");
    let kept = std::fs::read_to_string(&roster).unwrap();
    std::fs::write(&roster, kept.replacen('{', "{ ", 1)).unwrap();
    let refused = auditor.run(&[]).failed(1);
    assert!(refused.contains("the host shows another first roster than `clones/roster.json`"), "{refused}");
    assert_ne!(std::fs::read_to_string(&roster).unwrap(), kept);
    let store = Store::new(auditor.site.lab.home.accounts());
    let issued =
        store.add_for_site(&"j.doe".parse().unwrap(), vec!["press-01".parse().unwrap()], None, Timestamp::now());
    let person = Login { name: "j.doe".to_owned(), secret: issued.unwrap().secret.reveal().to_owned() };
    for login in [auditor.site.device(), person] {
        auditor.take(&login);
        let refused = auditor.run(&[]).failed(1);
        assert!(refused.contains("404") && refused.contains("has to be an auditor's"), "{refused}");
    }
    auditor.take(&Login { name: "nobody".to_owned(), secret: "a".repeat(43) });
    let refused = auditor.run(&[]).failed(1);
    assert!(refused.contains("401"), "{refused}");
}

#[test]
fn where_the_fleet_is_hosted_its_repository_comes_with_the_others_and_later_what_is_new() {
    let auditor = Auditor::of(hosted());
    let (bare, clone) = (auditor.site.lab.home.hosted_fleet(), auditor.clones().join("fleet"));
    assert!(auditor.run(&[]).good().contains("The fleet repository, for `audit report --fleet-clone`, is cloned."));
    assert_eq!(refs(&clone), refs(&bare));
    git(&bare, &["tag", "-m", "yes", "approve/somebody", "main"]);
    auditor.run(&[]).good();
    assert!(refs(&clone).contains("refs/tags/approve/somebody"));
    assert!(auditor.audit().good().contains("Nothing is wrong."), "it is none of the devices' repositories");
    let report = ["audit", "report", "clones", "--roster", "clones/roster.json", "--fleet-clone", "clones/fleet"];
    assert!(auditor.site.lab.run_in(&auditor.dir, &report).good().contains("## Who agreed"));
}
