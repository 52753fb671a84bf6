//! `audit clone` over SSH: the machine's own ssh, stock sshd, and an auditor's key.

use std::path::Path;

use repo_testkit::git::git;
use serde_json::Value;

use super::ssh::{SshSite, options};
use super::{DEVICE, OTHER, said};
use crate::support::Ran;

fn clone(site: &SshSite, key: &Path, into: &str) -> Ran {
    let url = format!("ssh://{}:{}", site.at.0, site.at.1);
    let words: Vec<_> = std::iter::once("ssh".to_owned()).chain(options(key)).collect();
    let words: Vec<_> = words.iter().flat_map(|word| ["--ssh-command", word]).collect();
    let args = ["audit", "clone", &url, into, "--output", "json"];
    site.site.lab.run_in(site.site.lab.dir(), &[&args[..], &words].concat())
}

#[test]
fn an_auditor_clones_all_over_ssh_and_no_device_learns_which_others_there_are() {
    let site = SshSite::new();
    let (auditor, device, stranger) = (site.person("audit", "auditor"), site.device(DEVICE), site.key("stranger"));
    let done: Value = serde_json::from_str(&clone(&site, &auditor, "clones").good()).unwrap();
    let outcomes: Vec<_> = done["repositories"].as_array().unwrap().iter().map(|one| one["outcome"].clone()).collect();
    assert_eq!(outcomes, ["cloned", "cloned"], "{done}");
    let lab = &site.site.lab;
    for name in [DEVICE, OTHER] {
        let at = lab.dir().join(format!("clones/{name}.git"));
        let refs = |dir: &Path| git(dir, &["for-each-ref", "--format=%(objectname) %(refname)"]);
        assert_eq!(refs(&at), refs(&lab.repo(name)));
    }
    let again: Value = serde_json::from_str(&clone(&site, &auditor, "clones").good()).unwrap();
    assert_eq!((&again["repositories"][0]["outcome"], &again["fleet"]), (&"current".into(), &Value::Null));
    let audited = lab.run_in(lab.dir(), &["audit", "clones", "--roster", "clones/roster.json"]);
    assert!(audited.good().contains("Nothing is wrong."));
    // For a device it isn't there, a stranger isn't let in, and nothing but that word asks for it.
    for (key, why) in [(&device, "refuses: "), (&stranger, "doesn't let us in")] {
        let refused = clone(&site, key, "others").failed(1);
        assert!(refused.contains(why) && refused.contains("hint: the account has to be an auditor's"), "{refused}");
        assert!(!lab.dir().join("others").exists());
    }
    for command in ["wfm-audit x", "WFM-AUDIT", "wfm-audit;ls", " wfm-audit"] {
        let asked = site.ask(&auditor, &[command]);
        assert!(!asked.status.success(), "{command}: {}", said(&asked));
        assert!(!String::from_utf8_lossy(&asked.stdout).contains("allowedSigners"), "{command}");
    }
}
