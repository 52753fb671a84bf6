//! The roster in use: proposed, signed and published by commands, and what each of them refuses.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::path::{Path, PathBuf};

use repo_git::SigningKey;
use repo_testkit::git::git;
use repo_testkit::ssh_key::keygen;
use serde_json::Value;

use crate::support::{Lab, Ran};

const DAY: i64 = 24 * 60 * 60;

fn lab() -> Lab {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab
}

fn trust(lab: &Lab, args: &[&str]) -> Ran {
    lab.run(&[&["trust"], args].concat())
}

fn json(lab: &Lab, args: &[&str]) -> Value {
    let said = trust(lab, &[args, &["--output", "json"]].concat()).good();
    serde_json::from_str(&said).unwrap()
}

fn at(home: &Path, name: &str) -> String {
    home.join(name).display().to_string()
}

fn key(lab: &Lab, name: &str) -> String {
    at(lab.home.root(), &format!("keys/{name}"))
}

fn public(path: impl AsRef<Path>) -> String {
    SigningKey::load(path.as_ref()).unwrap().public().to_string()
}

/// A root key that somebody made elsewhere.
fn other_root(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.dir().join(name);
    Lab::device_key(name).save(&path).unwrap();
    fs::write(path.with_extension("pub"), format!("{} {name}\n", Lab::device_key(name).public())).unwrap();
    path
}

fn sign(lab: &Lab, key: impl AsRef<Path>) {
    trust(lab, &["sign", "--key", key.as_ref().to_str().unwrap()]).good();
}

/// The files of the rosters in the newest state of the device, without the folder.
fn at_the_device(lab: &Lab) -> Vec<String> {
    let files = lab.git("press-01", &["ls-tree", "-r", "--name-only", "desired", "trust/"]);
    files.lines().map(|path| path.trim_start_matches("trust/").to_owned()).collect()
}

fn signer_of(lab: &Lab) -> String {
    let signers = format!("gpg.ssh.allowedSignersFile={}", lab.home.allowed_signers().display());
    lab.git("press-01", &["-c", &signers, "log", "-1", "--format=%G? %GS", "desired"])
}

#[test]
fn a_new_key_is_proposed_signed_and_published_and_the_old_one_counts_for_90_days_more() {
    let lab = lab();
    let old = public(key(&lab, "publisher"));
    let proposed = json(&lab, &["propose", "--new-publisher"]);
    assert_eq!((&proposed["version"], proposed["changes"].as_array().unwrap().len()), (&2.into(), 2), "{proposed}");
    let next = public(key(&lab, "publisher.next"));
    assert_eq!(public(key(&lab, "publisher")), old, "nothing changed so far");
    // Proposed again, the key that was made stays.
    trust(&lab, &["propose", "--new-publisher"]).good();
    assert_eq!(public(key(&lab, "publisher.next")), next);
    let shown = trust(&lab, &["show"]).good();
    assert!(shown.contains("Proposed as roster 2: ") && shown.contains("adds publisher SHA256:"), "{shown}");
    assert!(shown.contains("signed by 0 of the roots of roster 1, and needs 1"), "{shown}");
    sign(&lab, key(&lab, "root"));
    assert_eq!(json(&lab, &["show"])["proposal"]["complete"], true);
    let published = json(&lab, &["publish"]);
    assert_eq!(
        (&published["version"], &published["isNew"], &published["allowed"]),
        (&2.into(), &true.into(), &true.into())
    );
    assert_eq!(
        (public(key(&lab, "publisher")), Path::new(&key(&lab, "publisher.next")).exists()),
        (next.clone(), false)
    );
    assert_eq!(fs::read_dir(lab.home.proposals()).unwrap().count(), 0);
    lab.publish_all();
    assert_eq!(at_the_device(&lab), ["1.json", "1.json.sig.0", "2.json", "2.json.own.0", "2.json.sig.0"]);
    assert_eq!(
        (signer_of(&lab), lab.trailer("press-01", repo_model::Trailer::Serial)),
        ("G publisher".to_owned(), "2".to_owned())
    );
    let shown = json(&lab, &["show"]);
    let publishers = shown["publishers"].as_array().unwrap();
    let ends: Vec<_> = publishers
        .iter()
        .map(|one| {
            let end: jiff::Timestamp = one["notAfter"].as_str().unwrap().parse().unwrap();
            (one["key"].as_str().unwrap(), (end.as_second() - *crate::support::BEGIN + DAY / 2) / DAY)
        })
        .collect();
    assert_eq!(ends, [(old.as_str(), 90), (next.as_str(), 400)]);
    assert_eq!(shown["versions"][1]["signedBy"], serde_json::json!({ "before": [0], "own": [0] }));
    assert_eq!(json(&lab, &["show", "--diff", "1"])["changes"].as_array().unwrap().len(), 2);
    let said = trust(&lab, &["show", "--diff", "3"]).failed(1);
    assert!(said.contains("there is no roster 3") && said.contains("there are 1 to 2"), "{said}");
    // With nothing left to do it does nothing.
    let tip = lab.control(&["rev-parse", "control"]);
    assert_eq!(json(&lab, &["publish"])["isNew"], false);
    assert_eq!(lab.control(&["rev-parse", "control"]), tip);
}

#[test]
fn a_roster_is_published_only_with_enough_signatures_of_the_roots_before_and_of_its_own() {
    let lab = lab();
    let (second, third) = (other_root(&lab, "second"), other_root(&lab, "third"));
    let (second_public, third_public) = (second.with_extension("pub"), third.with_extension("pub"));
    let add = ["--add-root", second_public.to_str().unwrap(), "--add-root", third_public.to_str().unwrap()];
    trust(&lab, &[&["propose", "--threshold", "2"], &add[..]].concat()).good();
    let tip = lab.control(&["rev-parse", "control"]);
    let refused = |expected: &str| {
        let said = trust(&lab, &["publish"]).failed(1);
        assert!(said.contains(expected) && said.contains("trust sign"), "{said}");
        assert_eq!(lab.control(&["rev-parse", "control"]), tip, "nothing changed");
        assert!(lab.home.proposals().join("2.json").exists());
    };
    sign(&lab, &second);
    refused("signed by 0 of the roots of version 1, and needs 1");
    sign(&lab, key(&lab, "root"));
    // The own threshold is two, and both count.
    let shown = json(&lab, &["show"]);
    assert_eq!(shown["proposal"]["signatures"]["own"]["by"].as_array().unwrap().len(), 2);
    fs::remove_file(lab.home.proposals().join("2.json.own.1")).unwrap();
    refused("signed by 1 of its own roots, and needs 2");
    // Somebody else's, or one of other bytes, counts nowhere.
    fs::copy(lab.home.proposals().join("2.json.own.0"), lab.home.proposals().join("2.json.own.1")).unwrap();
    refused("signed by 1 of its own roots, and needs 2");
    sign(&lab, &third);
    trust(&lab, &["publish"]).good();
    lab.publish_all();
    let expected = ["2.json", "2.json.own.0", "2.json.own.2", "2.json.sig.0"];
    assert_eq!(at_the_device(&lab)[2..], expected, "what proves nothing isn't published");
    // The first root alone signs nothing more, and the other two shut it out.
    trust(&lab, &["propose", "--drop-root", &key(&lab, "root")]).good();
    sign(&lab, key(&lab, "root"));
    let said = trust(&lab, &["publish"]).failed(1);
    assert!(said.contains("signed by 1 of the roots of version 2, and needs 2"), "{said}");
    sign(&lab, &second);
    sign(&lab, &third);
    trust(&lab, &["publish"]).good();
    trust(&lab, &["propose", "--not-after", "500"]).good();
    let said = trust(&lab, &["sign", "--key", &key(&lab, "root")]).failed(1);
    assert!(said.contains("is a root key neither of roster 3 nor of roster 4"), "{said}");
}

#[test]
fn a_signature_of_stock_openssh_does_too_and_anything_else_is_refused_with_what_to_do() {
    let lab = lab();
    let root = lab.dir().join("by-hand");
    keygen(&root, "ed25519", "a passphrase");
    trust(&lab, &["propose", "--add-root", root.with_extension("pub").to_str().unwrap()]).good();
    let file = json(&lab, &["show"])["proposal"]["file"].as_str().unwrap().to_owned();
    let stick = lab.dir().join("2.json");
    fs::copy(&file, &stick).unwrap();
    let made = lab.dir().join("2.json.sig");
    let ssh_keygen = |key: &str, namespace: &str| {
        let _ = fs::remove_file(&made);
        let mut command = std::process::Command::new("ssh-keygen");
        command.args(["-q", "-Y", "sign", "-n", namespace, "-f", key]).arg(&stick);
        repo_testkit::text(command.output().unwrap());
    };
    let take = || trust(&lab, &["sign", "--signature", made.to_str().unwrap()]);
    let said = trust(&lab, &["sign", "--key", root.to_str().unwrap()]).failed(1);
    assert!(said.contains("protected by a passphrase"), "{said}");
    ssh_keygen(&key(&lab, "root"), "git");
    assert!(take().failed(1).contains("is for the namespace `git`"));
    ssh_keygen(&key(&lab, "publisher"), "wfm-roster");
    assert!(take().failed(1).contains("neither of roster 1 nor of roster 2"));
    ssh_keygen(&key(&lab, "root"), "wfm-roster");
    let said = take().good();
    assert!(said.contains("Then: wfm-git-publisher trust publish"), "{said}");
    fs::write(&stick, "something else\n").unwrap();
    ssh_keygen(&key(&lab, "root"), "wfm-roster");
    assert!(take().failed(1).contains("sign exactly this file"));
    let said = trust(&lab, &["sign"]).failed(2);
    assert!(said.contains("--key") || said.contains("--signature"), "{said}");
    trust(&lab, &["publish"]).good();
    let said = trust(&lab, &["sign", "--key", &key(&lab, "root")]).failed(1);
    assert!(said.contains("no roster is proposed after version 2") && said.contains("trust propose"), "{said}");
}

#[test]
fn a_proposal_that_somebody_signed_is_given_up_only_if_that_is_said() {
    let lab = lab();
    trust(&lab, &["propose", "--not-after", "300"]).good();
    sign(&lab, key(&lab, "root"));
    let said = trust(&lab, &["propose", "--not-after", "200"]).failed(1);
    assert!(said.contains("2 signatures of it would be lost") && said.contains("--anew"), "{said}");
    trust(&lab, &["propose", "--not-after", "200", "--anew"]).good();
    let signed = json(&lab, &["show"])["proposal"]["signatures"].clone();
    assert_eq!((&signed["before"]["by"], &signed["own"]["by"]), (&serde_json::json!([]), &serde_json::json!([])));
    for (args, expected) in [
        (&["--not-after", "0"][..], "is in the past, or more than ten years away"),
        (&["--not-after", "2020-01-01T00:00:00Z"], "is in the past"),
        (&["--drop-publisher", "SHA256:nobody"], "roster 1 has no publisher SHA256:nobody"),
        (&["--add-root", "SHA256:nobody"], "is a fingerprint"),
        (&["--add-root", "no such file"], "is no key that can be used"),
        (&[], "changes nothing of roster 1"),
    ] {
        let said = trust(&lab, &[&["propose"], args].concat()).failed(1);
        assert!(said.contains(expected) && said.contains("hint: "), "{args:?}: {said}");
    }
    // Signatures of its own roots can't be avoided by leaving out what asks for them.
    let path = lab.home.proposals().join("2.json");
    let mut roster: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    roster.as_object_mut().unwrap().remove("issued");
    fs::write(&path, format!("{roster}\n")).unwrap();
    let said = trust(&lab, &["publish"]).failed(1);
    assert!(said.contains("`issued` is missing"), "{said}");
}

#[test]
fn what_was_cut_off_before_the_new_key_took_its_place_is_completed_by_the_same_command() {
    let lab = lab();
    let old = key(&lab, "publisher");
    trust(&lab, &["propose", "--new-publisher", "--drop-publisher", &old]).good();
    sign(&lab, key(&lab, "root"));
    let (before, next) = (fs::read(&old).unwrap(), fs::read(key(&lab, "publisher.next")).unwrap());
    trust(&lab, &["publish"]).good();
    // As it is where the power went between the commit and the key.
    fs::write(key(&lab, "publisher.next"), &next).unwrap();
    fs::set_permissions(key(&lab, "publisher.next"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(&old, before).unwrap();
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("is not allowed by roster 2") && said.contains("trust publish"), "{said}");
    let said = trust(&lab, &["propose", "--not-after", "300"]).failed(1);
    assert!(said.contains("published only in part") && said.contains("trust publish"), "{said}");
    trust(&lab, &["publish"]).good();
    assert_eq!(fs::read(&old).unwrap(), next);
    lab.publish_all();
    assert_eq!(signer_of(&lab), "G publisher");
}

#[test]
fn a_lost_publishers_key_is_replaced_by_the_roots_alone() {
    let lab = lab();
    let shown = json(&lab, &["show"]);
    let lost = shown["publishers"][0]["fingerprint"].as_str().unwrap();
    fs::remove_file(lab.home.publisher_key()).unwrap();
    trust(&lab, &["propose", "--new-publisher", "--drop-publisher", lost]).good();
    sign(&lab, key(&lab, "root"));
    trust(&lab, &["publish"]).good();
    lab.publish_all();
    assert_eq!((signer_of(&lab), lab.serial("press-01")), ("G publisher".to_owned(), 2));
}

#[test]
fn a_roster_that_its_own_roots_did_not_sign_is_not_published_however_it_came_into_the_ledger() {
    let lab = lab();
    trust(&lab, &["propose", "--not-after", "300"]).good();
    sign(&lab, key(&lab, "root"));
    let control = lab.home.control();
    let files: Vec<_> = ["2.json", "2.json.sig.0"].map(|name| (name, lab.home.proposals().join(name))).into();
    let index = lab.dir().join("index");
    let run = |args: &[&str]| {
        let mut command = repo_testkit::git::command(&control);
        repo_testkit::text(command.env("GIT_INDEX_FILE", &index).args(args).output().unwrap())
    };
    run(&["read-tree", "control"]);
    for (name, path) in files {
        let blob = run(&["hash-object", "-w", path.to_str().unwrap()]);
        run(&["update-index", "--add", "--cacheinfo", &format!("100644,{},trust/{name}", blob.trim())]);
    }
    let tree = run(&["write-tree"]);
    let signing = format!("user.signingkey={}", key(&lab, "publisher"));
    let commit = ["-c", "gpg.format=ssh", "-c", &signing, "commit-tree", "-S", "-p", "control", "-m", "by hand"];
    let id = git(&control, &[&commit[..], &[tree.trim()]].concat());
    git(&control, &["update-ref", "refs/heads/control", &id]);
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("is signed by 0 of its own roots, and needs 1"), "{said}");
    assert!(said.contains("hint: take the commit that brought it off `control.git` again"), "{said}");
}

#[test]
fn the_root_key_goes_to_a_medium_and_the_reminders_end() {
    let lab = lab();
    let (stick, root) = (lab.dir().join("stick"), key(&lab, "root"));
    fs::create_dir(&stick).unwrap();
    let offline = |dir: &Path| trust(&lab, &["offline", dir.to_str().unwrap()]);
    let hint = format!("wfm-git-publisher --home {} trust offline", lab.home.root().display());
    assert!(lab.run(&["status"]).err.contains(&hint));
    for (dir, expected) in [
        (lab.home.keys(), "is in the publisher's home"),
        (lab.dir().join("nowhere"), "nowhere"),
        (lab.dir().join("fleet/fleet.yaml"), "is no directory"),
    ] {
        let said = offline(&dir).failed(1);
        assert!(said.contains(expected) && Path::new(&root).exists(), "{said}");
    }
    let before = fs::read(&root).unwrap();
    std::os::unix::fs::symlink(&root, stick.join("root")).unwrap();
    let said = offline(&stick).failed(1);
    assert!(said.contains("is in the publisher's home") && Path::new(&root).exists(), "{said}");
    fs::remove_file(stick.join("root")).unwrap();
    Lab::device_key("another fleet's").save(&stick.join("root")).unwrap();
    assert!(offline(&stick).failed(1).contains("has another key already"));
    fs::remove_file(stick.join("root")).unwrap();
    let ran = offline(&stick);
    assert!(ran.err.contains("carry it off this machine"), "{}", ran.err);
    ran.good();
    assert_eq!((fs::read(stick.join("root")).unwrap(), Path::new(&root).exists()), (before.clone(), false));
    assert!(!lab.run(&["status"]).err.contains("root key"));
    offline(&stick).good();
    // As it is where the power went before it was removed here.
    fs::copy(stick.join("root"), &root).unwrap();
    offline(&stick).good();
    assert!(!Path::new(&root).exists());
    fs::remove_file(stick.join("root")).unwrap();
    assert!(offline(&stick).failed(1).contains("there is no root key at"));
    fs::write(stick.join("root"), before).unwrap();
    fs::set_permissions(stick.join("root"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    trust(&lab, &["propose", "--new-publisher"]).good();
    sign(&lab, stick.join("root"));
    trust(&lab, &["publish"]).good();
    lab.publish_all();
}

#[test]
fn the_end_of_the_publishers_key_is_told_90_days_before_and_more_urgently_30_and_7_days_before() {
    let lab = lab();
    for (days, told) in [
        ("92", None),
        ("80", Some(": 79 days are left\n")),
        ("20", Some(": only 19 days are left\n")),
        ("5", Some(": only 4 days are left, and devices that are away for longer than that will wait\n")),
    ] {
        trust(&lab, &["propose", "--not-after", days]).good();
        sign(&lab, key(&lab, "root"));
        trust(&lab, &["publish"]).good();
        let said = lab.run(&["status"]).err;
        assert!(told.is_none_or(|told| said.contains(told)), "{days}: {said}");
        assert_eq!(said.contains("days are left"), told.is_some(), "{days}: {said}");
    }
}
