//! The command: what it prints and ends with, and what a checkpoint saves it and what that doesn't hide.

use repo_testkit::git::git;
use serde_json::Value;

use super::forge::{BAD, Forge, GOOD, Sign};
use super::honest::{DEVICES, Honest};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// An auditor has clones made by stock Git, whose packs have deltas, and nothing else.
#[test]
fn clones_of_stock_git_and_a_digest_are_enough() {
    let honest = Honest::new();
    let (clones, digest) = (honest.lab.dir().join("clones"), sha256(&honest));
    for device in DEVICES {
        let to = clones.join(format!("{device}.git"));
        git(&honest.lab.repo(device), &["clone", "--quiet", "--mirror", ".", &to.display().to_string()]);
        git(&to, &["repack", "--quiet", "-adf"]);
        git(&to, &["pack-refs", "--all"]);
    }
    let empty = honest.lab.dir().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let audit = |args: &[&str]| honest.lab.run_in(&empty, &[&["audit"], args].concat());
    let (clones, roster) = (clones.display().to_string(), honest.roster().display().to_string());
    for start in [&digest, &roster] {
        let said = parsed(&audit(&[&clones, "--roster", start, "--output", "json"]).good());
        assert_eq!((&said["good"], said["findings"].as_array().unwrap().len()), (&true.into(), 0), "{said:#}");
        assert_eq!(said["roster"], digest.as_str());
        let rows = said["repositories"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!((row["desired"].as_u64() > Some(2), &row["adopted"]), (true, &row["desired"]), "{row}");
        }
        assert!(said["unproven"].as_array().unwrap().len() > 3);
    }
    let page = audit(&[&clones, "--roster", &digest]).good();
    for words in ["press-01", "Nothing is wrong. What this can't prove:", "- when anything happened"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // One alone, by its own directory.
    let one = format!("{clones}/{GOOD}.git");
    assert_eq!(
        parsed(&audit(&[&one, "--roster", &digest, "--output", "json"]).good())["repositories"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // Another fleet's roster believes nothing.
    let said = audit(&[&clones, "--roster", &digest.replace(&digest[7..15], "00000000")]);
    assert!(said.out.contains("trust-invalid") && said.code == Some(1), "{}{}", said.out, said.err);
    let missing = audit(&[&clones, "--roster", "nowhere.json"]).failed(1);
    assert!(missing.contains("cannot read the roster `nowhere.json`") && missing.contains("hint: "), "{missing}");
    let nothing = audit(&[".", "--roster", &digest]).failed(1);
    assert!(nothing.contains("no bare repository"), "{nothing}");
    audit(&["."]).failed(2);
}

/// The digest of the first roster, as a join file has it.
fn sha256(honest: &Honest) -> String {
    repo_model::Digest::of(&std::fs::read(honest.roster()).unwrap()).to_string()
}

#[test]
fn a_finding_is_named_with_repository_branch_commit_and_what_to_do() {
    let forge = Forge::new();
    let commit = forge.text("status", 2, Sign::By("stranger", "git"), |text| text);
    let run = |args: &[&str]| forge.run(args);
    let said = run(&["--output", "json"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let said = parsed(&said.out);
    let finding = &said["findings"][0];
    assert_eq!(said["good"], false);
    for (key, value) in [("code", "signature-invalid"), ("level", "error"), ("device", BAD), ("branch", "status")] {
        assert_eq!(finding[key], value, "{finding:#}");
    }
    assert_eq!(finding["commit"], commit.as_str());
    assert!(finding["repository"].as_str().unwrap().ends_with("/press-01.git"), "{finding:#}");
    assert!(finding["advice"].as_str().unwrap().contains("who can push there"), "{finding:#}");
    let page = run(&[]).out;
    let line = page.lines().find(|line| line.starts_with("signature-invalid")).unwrap();
    assert!(
        line.contains(&commit[..12]) && line.contains("status") && line.contains("which is no key of this device"),
        "{line}"
    );
}

#[test]
fn a_checkpoint_leaves_what_is_new_and_shows_what_does_not_go_on_from_it() {
    let mut honest = Honest::new();
    let (devices, digest) = (honest.lab.home.devices(), sha256(&honest));
    let file = honest.lab.dir().join("checkpoint.json");
    let audit = |honest: &Honest, more: &[&str]| {
        let args = ["audit", &devices.display().to_string(), "--roster", &digest, "--output", "json"];
        honest.lab.run(&[&args, more].concat())
    };
    let checkpoint = file.display().to_string();
    let checkpoint = ["--checkpoint", checkpoint.as_str()];
    let commits = |said: &Value| {
        let rows = said["repositories"].as_array().unwrap();
        rows.iter().map(|row| row["commits"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    // One report before the first state, three for each, and four branches of one commit.
    let first = parsed(&audit(&honest, &checkpoint).good());
    assert_eq!(commits(&first), [3 + 13 + 4, 4 + 13 + 4], "packer-01 has no second deployment");
    assert_eq!(commits(&parsed(&audit(&honest, &checkpoint).good())), [4, 4], "nothing is new");
    honest.go_on();
    assert_eq!(commits(&parsed(&audit(&honest, &checkpoint).good())), [1 + 3 + 4, 1 + 3 + 4]);
    let covered = std::fs::read(&file).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions()) & 0o777,
        0o600
    );
    // An older state of everything, with good signatures, is as good as any to who has no checkpoint.
    let good = honest.lab.dir().join("good");
    crate::support::copy(&devices, &good);
    for branch in ["desired", "status"] {
        honest.lab.git(BAD, &["update-ref", &format!("refs/heads/{branch}"), &format!("{branch}~1")]);
    }
    let codes = |said: &Value| {
        let findings = said["findings"].as_array().unwrap();
        findings
            .iter()
            .map(|one| format!("{} {}", one["code"].as_str().unwrap(), one["branch"].as_str().unwrap_or("-")))
            .collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let ran = audit(&honest, &checkpoint);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        let found = codes(&parsed(&ran.out));
        for rewritten in ["history-rewritten desired", "history-rewritten status"] {
            assert!(found.contains(&rewritten.to_owned()), "{found:?}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), covered, "it is told until it is over");
    }
    // Branches that are replaced go back, too.
    crate::support::copy(&good, &devices);
    for (branch, path, key) in [("heartbeat", "current-state.json", "time"), ("site", "site.json", "serial")] {
        let mut text = honest.lab.json(BAD, branch, path);
        text[key] = if key == "time" { crate::support::after(1).into() } else { 1.into() };
        crate::reports::Reporter { lab: &honest.lab, device: BAD }.commit(
            branch,
            if branch == "site" { "site" } else { BAD },
            &[(path, text.to_string())],
            &crate::reports::Reporter { lab: &honest.lab, device: BAD }.trailers(branch),
        );
    }
    let found = codes(&parsed(&audit(&honest, &checkpoint).out));
    assert_eq!(found, ["went-back heartbeat", "went-back site"]);
    // A repository that isn't there any more, and another start.
    std::fs::remove_dir_all(honest.lab.repo(BAD)).unwrap();
    assert_eq!(codes(&parsed(&audit(&honest, &checkpoint).out)), ["repository-missing -"]);
    let other = digest.replace(&digest[7..15], "00000000");
    let args = ["audit", &devices.display().to_string(), "--roster", &other, checkpoint[0], checkpoint[1]];
    let refused = honest.lab.run(&args).failed(1);
    assert!(refused.contains("was made with the roster"), "{refused}");
    for (text, words) in [("{", "is no checkpoint"), (r#"{"layout":2}"#, "has layout 2")] {
        std::fs::write(&file, text).unwrap();
        let refused = audit(&honest, &checkpoint).failed(1);
        assert!(refused.contains(words), "{refused}");
    }
}
