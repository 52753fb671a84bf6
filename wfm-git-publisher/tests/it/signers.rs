//! Who has to agree to changes of the fleet: with stock Git's signatures, and as the program says it.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use repo_model::Trailer;
use std::fs;
use std::path::{Path, PathBuf};

use repo_git::SigningKey;
use repo_testkit::git::git;
use serde_json::Value;
use wfm_git_publisher::publish::PublishError;

use crate::support::{BEGIN, Lab, PROGRAM, Ran};

fn key(name: &str) -> SigningKey {
    Lab::device_key(name)
}

/// The file with the secret key of a person, as `user.signingKey` names it.
fn key_file(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.dir().join(format!("{name}.key"));
    key(name).save(&path).unwrap();
    fs::write(lab.dir().join(format!("{name}.key.pub")), key(name).public().to_string()).unwrap();
    path
}

/// Stock Git at work for a person.
fn git_as(lab: &Lab, dir: &Path, name: &str, args: &[&str]) -> String {
    let signing = format!("user.signingKey={}", key_file(lab, name).display());
    git(dir, &[&["-c", "gpg.format=ssh", "-c", &signing], args].concat())
}

/// Commits everything, signed by a person.
fn commit_as(lab: &Lab, name: &str) -> String {
    git(&lab.fleet, &["add", "--all"]);
    git_as(lab, &lab.fleet, name, &["commit", "--quiet", "-S", "--allow-empty", "--message", "a signed change"]);
    git(&lab.fleet, &["rev-parse", "HEAD"])
}

/// Approves what `HEAD` names, as stock Git does it.
fn tag_as(lab: &Lab, name: &str, tag: &str, message: &str) {
    git_as(lab, &lab.fleet, name, &["tag", "-s", "-m", message, tag]);
}

/// Anna or ben for anything, both of them for who they are.
fn signers(lab: &Lab) -> String {
    let person = |name: &str| format!("  {name}: [{}]\n", key(name).public());
    let rules =
        "  - {paths: [\"**\"], need: 1, of: [anna, ben]}\n  - {paths: [signers.yaml], need: 2, of: [anna, ben]}\n";
    let text = format!("people:\n{}{}rules:\n{rules}", person("anna"), person("ben"));
    lab.write("signers.yaml", &text);
    text
}

/// A fleet whose operators agreed on who they are.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    assert_eq!(covered(&lab), None, "nobody has to agree to anything");
    signers(&lab);
    let commit = lab.commit();
    lab.publish_all();
    assert_eq!(covered(&lab), Some(commit));
    lab
}

/// What the ledger says was covered last.
fn covered(lab: &Lab) -> Option<String> {
    let names = lab.control(&["ls-tree", "--name-only", "control"]);
    names.lines().find(|name| *name == "covered.json")?;
    let covered: Value = serde_json::from_str(&lab.control(&["show", "control:covered.json"])).unwrap();
    Some(covered["commit"].as_str().unwrap().to_owned())
}

fn edit(lab: &Lab, greeting: &str) {
    let text = lab.read("deployments/hello.yaml");
    let line = text.lines().find(|line| line.trim_start().starts_with("greeting:")).unwrap();
    let with = format!("  greeting: {greeting}");
    lab.write("deployments/hello.yaml", text.replace(line, &with));
}

/// Nothing is published; returns why.
#[track_caller]
fn refused(lab: &Lab) -> String {
    let (before, ledger) = (lab.refs("press-01"), lab.control(&["rev-parse", "control"]));
    let error = lab.try_publish_at(*BEGIN, false).expect_err("it is published");
    let PublishError::NotCovered { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!((lab.refs("press-01"), lab.control(&["rev-parse", "control"])), (before, ledger));
    source.to_string()
}

#[test]
fn what_a_person_lets_pass_needs_those_whom_the_rules_name_for_it() {
    let lab = Lab::with(&["press-01"]);
    let text = signers(&lab);
    lab.write("signers.yaml", text + "  - {paths: [allowed], need: 1, of: [ben]}\n");
    lab.commit();
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "id: hello\n", "id: hello-anew\n");
    commit_as(&lab, "anna");
    assert!(lab.run(&["publish"]).failed(1).contains("`hello-anew` would replace `hello`"));
    lab.run(&["allow", "hello-anew", "-m", "begins anew"]).good();
    git_as(&lab, &lab.fleet, "anna", &["commit", "--quiet", "-S", "--amend", "--no-edit"]);
    let error = lab.run(&["publish"]).failed(1);
    assert!(error.contains("changes `allowed/") && error.contains("wants 1 of ben to agree"), "{error}");
    tag_as(&lab, "ben", "approve/ben", "yes");
    lab.run(&["publish"]).good();
    assert_eq!(lab.documents("press-01").into_keys().collect::<Vec<_>>(), ["hello-anew"]);
}

#[test]
fn nothing_is_published_before_those_agreed_who_have_to_and_every_command_says_so() {
    let lab = lab();
    let agreed = covered(&lab).unwrap();
    edit(&lab, "unasked");
    let commit = lab.commit();
    let error = refused(&lab);
    let line = lab.read("signers.yaml").lines().position(|line| line.contains("\"**\"")).unwrap() + 1;
    let words = format!("commit {commit} changes `deployments/hello.yaml`, and signers.yaml:{line}:");
    assert!(error.starts_with(&words) && error.contains(&format!("rules[0] of commit {agreed}")), "{error}");

    let publish = lab.run(&["publish"]).failed(1);
    assert!(
        publish.contains(&words)
            && publish.contains(&format!("hint: who agrees says so: `wfm-git-publisher approve {commit}`")),
        "{publish}"
    );
    let plan = lab.run(&["plan", "--output", "json"]);
    assert!(plan.code == Some(1) && plan.err.contains(&words), "{}", plan.err);
    let json: Value = serde_json::from_str(&plan.out).unwrap();
    assert_eq!(json["blocked"][0]["code"], "not-covered");
    let missing = &json["notCovered"][0];
    assert_eq!((&missing["path"], &missing["commit"]), (&"deployments/hello.yaml".into(), &commit.clone().into()));
    assert_eq!(
        (&missing["rule"]["key"], &missing["need"], &missing["of"][1]),
        (&"rules[0]".into(), &1.into(), &"ben".into())
    );
    let status: Value = serde_json::from_str(&lab.run(&["status", "--output", "json"]).good()).unwrap();
    assert_eq!(status["blocked"][0]["code"], "not-covered");
    assert!(status["blocked"][0]["message"].as_str().unwrap().contains(&words), "{status}");

    // A tag of another name, an unsigned one, and a stranger's change nothing.
    git(&lab.fleet, &["tag", "-a", "-m", "yes", "approve/unsigned"]);
    tag_as(&lab, "mallory", "approve/mallory", "yes");
    tag_as(&lab, "anna", "v12", "a release");
    let release = git(&lab.fleet, &["rev-parse", "refs/tags/v12"]);
    git(&lab.fleet, &["update-ref", "refs/tags/approve/v12", &release]);
    let error = refused(&lab);
    assert!(error.contains(&format!("the key {} is nobody's", key("mallory").public().fingerprint())), "{error}");
    tag_as(&lab, "ben", "approve/ben", "yes");
    assert_eq!(lab.publish_all().published(), 1);
    assert_eq!(covered(&lab), Some(commit));
    // It was in the ledger before anything was published.
    let log = lab.control(&["log", "--format=%s", "-3", "control"]);
    assert_eq!(log, "published 1 serial\nreserve 1 serial\nwhat of the fleet is agreed to");
    assert_eq!(lab.trailer("press-01", Trailer::OperatorKey), "unverified", "the commit itself has no signature");
    assert!(
        serde_json::from_str::<Value>(&lab.run(&["status", "--output", "json"]).good()).unwrap()["blocked"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    // The file names the operators, too.
    edit(&lab, "signed");
    commit_as(&lab, "anna");
    assert_eq!(lab.publish_all().published(), 1);
    assert_eq!(lab.trailer("press-01", Trailer::OperatorKey), key("anna").public().fingerprint());
}

#[test]
fn a_tag_that_is_moved_to_another_commit_approves_nothing() {
    let lab = lab();
    edit(&lab, "agreed");
    let good = lab.commit();
    tag_as(&lab, "anna", "approve/anna", "yes");
    edit(&lab, "something else");
    lab.commit();
    assert!(refused(&lab).contains("changes `deployments/hello.yaml`"));
    // The same signature under a tag on this commit is none.
    let raw = git(&lab.fleet, &["cat-file", "tag", "approve/anna"]) + "\n";
    let forged = raw.replace(&good, &git(&lab.fleet, &["rev-parse", "HEAD"]));
    fs::write(lab.dir().join("forged"), forged).unwrap();
    let forged = git(&lab.fleet, &["hash-object", "-t", "tag", "-w", &lab.dir().join("forged").display().to_string()]);
    git(&lab.fleet, &["update-ref", "refs/tags/approve/anna", &forged]);
    assert!(refused(&lab).contains("nobody did"));
    // What was approved can still be published by itself, once its tag is there again.
    tag_as(&lab, "anna", "approve/again", "yes");
    assert_eq!(lab.publish_all().published(), 1);
}

#[test]
fn a_merge_is_asked_about_what_it_brings_and_a_rename_about_where_it_came_from() {
    let lab = lab();
    git(&lab.fleet, &["checkout", "--quiet", "-b", "work"]);
    edit(&lab, "of the branch");
    commit_as(&lab, "mallory");
    git(&lab.fleet, &["checkout", "--quiet", "-"]);
    git(&lab.fleet, &["merge", "--quiet", "--no-ff", "-m", "merged by a forge", "work"]);
    let merge = git(&lab.fleet, &["rev-parse", "HEAD"]);
    let error = refused(&lab);
    assert!(error.starts_with(&format!("commit {merge} changes `deployments/hello.yaml`")), "{error}");
    tag_as(&lab, "anna", "approve/merge", "yes");
    assert_eq!(lab.publish_all().published(), 1);
    // What people signed one by one, a forge makes one commit of that nobody did.
    git(&lab.fleet, &["checkout", "--quiet", "-b", "next"]);
    for greeting in ["of anna", "of anna still"] {
        edit(&lab, greeting);
        commit_as(&lab, "anna");
    }
    git(&lab.fleet, &["checkout", "--quiet", "-"]);
    git(&lab.fleet, &["merge", "--quiet", "--squash", "next"]);
    let squash = lab.commit();
    let error = refused(&lab);
    assert!(error.starts_with(&format!("commit {squash} changes `deployments/hello.yaml`")), "{error}");
    tag_as(&lab, "ben", "approve/squash", "yes");
    assert_eq!(lab.publish_all().published(), 1);
    lab.rename("deployments/hello.yaml", "deployments/moved.yaml");
    lab.commit();
    let error = refused(&lab);
    assert!(error.contains("`deployments/hello.yaml`") && error.contains("`deployments/moved.yaml`"), "{error}");
    commit_as(&lab, "ben");
    assert_eq!(lab.publish_all().published(), 0, "the same by another name");
}

#[test]
fn the_file_itself_goes_or_changes_only_as_it_says() {
    let lab = lab();
    let text = lab.read("signers.yaml");
    lab.remove("signers.yaml");
    edit(&lab, "free");
    commit_as(&lab, "anna");
    let error = refused(&lab);
    assert!(
        error.contains("changes `signers.yaml`") && error.contains("wants 2 of anna, ben to agree: only anna did"),
        "{error}"
    );
    // Mallory adds themself.
    let mallory = text
        .replace("rules:", &format!("  mallory: [{}]\nrules:", key("mallory").public()))
        .replace("of: [anna, ben]", "of: [mallory]")
        .replace("need: 2", "need: 1");
    lab.write("signers.yaml", &mallory);
    commit_as(&lab, "mallory");
    assert!(refused(&lab).contains("is nobody's"));
    // A broken one never counts, whoever agrees.
    lab.write("signers.yaml", "people: {}\n");
    commit_as(&lab, "anna");
    tag_as(&lab, "ben", "approve/broken", "yes");
    let error = refused(&lab);
    assert!(error.contains("can't be used") && error.contains("signers.yaml:1:"), "{error}");
    assert!(lab.run(&["validate"]).failed(1).contains("signers.yaml:1:"));
    // Without it nobody has to agree, once both agreed to that.
    lab.remove("signers.yaml");
    commit_as(&lab, "anna");
    tag_as(&lab, "ben", "approve/gone", "yes");
    assert_eq!(lab.publish_all().published(), 1);
    assert_eq!(covered(&lab), None);
    edit(&lab, "free again");
    lab.commit();
    assert_eq!(lab.publish_all().published(), 1);
}

#[test]
fn what_takes_something_back_needs_a_word_of_now() {
    let lab = lab();
    edit(&lab, "old");
    let old = commit_as(&lab, "anna");
    tag_as(&lab, "ben", "approve/old", "yes");
    lab.publish_all();
    edit(&lab, "new");
    let new = commit_as(&lab, "anna");
    lab.publish_all();
    git(&lab.fleet, &["reset", "--quiet", "--hard", &old]);
    let error = refused(&lab);
    assert!(error.contains(&format!("commit {old} doesn't go on from {new}, which was covered last")), "{error}");
    for name in ["anna", "ben"] {
        tag_as(&lab, name, &format!("approve/{name}"), &format!("yes\n\nPublished: {new}"));
    }
    assert_eq!(lab.publish_all().published(), 1);
    assert_eq!(covered(&lab), Some(old));
    // What goes on from there again was signed as it is; a branch that only moves forward has a new commit here.
    git(&lab.fleet, &["reset", "--quiet", "--hard", &new]);
    assert_eq!(lab.publish_all().published(), 1);
}

#[test]
fn a_lost_ledger_forgets_nobody() {
    let lab = lab();
    let agreed = covered(&lab).unwrap();
    edit(&lab, "agreed");
    let last = commit_as(&lab, "anna");
    lab.publish_all();
    assert_ne!(agreed, last);
    fs::remove_dir_all(lab.home.control()).unwrap();
    lab.remove("signers.yaml");
    edit(&lab, "whatever");
    lab.commit();
    let error = lab.try_publish_at(*BEGIN, false).expect_err("it is published").to_string();
    assert!(error.contains("isn't agreed to"), "{error}");
    git(&lab.fleet, &["reset", "--quiet", "--hard", &last]);
    lab.publish_all();
    assert_eq!(covered(&lab), Some(last));
}

#[test]
fn an_approval_is_a_tag_that_stock_git_verifies_and_goes_where_the_branch_goes() {
    let lab = lab();
    let bare = lab.dir().join("hosted.git");
    git(lab.dir(), &["clone", "--quiet", "--bare", "fleet", &bare.display().to_string()]);
    git(&lab.fleet, &["remote", "add", "origin", &bare.display().to_string()]);
    edit(&lab, "by somebody");
    let commit = lab.commit();
    let no_key = lab.run(&["approve"]).failed(1);
    assert!(no_key.contains("hint: name it with --key FILE"), "{no_key}");
    let anna = key_file(&lab, "anna").display().to_string();
    let approve = ["approve", "--key", &anna, "--output", "json"];
    let said: Value = serde_json::from_str(&lab.run(&approve).good()).unwrap();
    let tag = format!("approve/{}/olga-example-invalid", &commit[..12]);
    assert_eq!(
        (&said["tag"], &said["person"], &said["pushed"]),
        (&tag.clone().into(), &"anna".into(), &"origin".into())
    );
    assert_eq!(said["key"], key("anna").public().fingerprint());
    let allowed = lab.dir().join("allowed");
    fs::write(&allowed, format!("anna namespaces=\"git\" {}\n", key("anna").public())).unwrap();
    git(&bare, &["-c", &format!("gpg.ssh.allowedSignersFile={}", allowed.display()), "verify-tag", &tag]);
    // Again it is the same.
    let object = git(&bare, &["rev-parse", &tag]);
    assert_eq!(serde_json::from_str::<Value>(&lab.run(&approve).good()).unwrap(), said);
    assert_eq!(git(&bare, &["rev-parse", &tag]), object);
    assert_eq!(lab.publish_all().published(), 1);
    // A stranger's is made, and told to be one; a key of another kind leaves nothing behind.
    edit(&lab, "by a stranger");
    lab.commit();
    let mallory = key_file(&lab, "mallory").display().to_string();
    let ran = lab.run(&["approve", "--no-push", "--key", &mallory]);
    assert!(
        ran.code == Some(0) && ran.err.contains("lists no such key now") && ran.out.contains("not pushed"),
        "{}",
        ran.err
    );
    refused(&lab);
    let ecdsa = lab.dir().join("ecdsa").display().to_string();
    let made = std::process::Command::new("ssh-keygen").args(["-q", "-t", "ecdsa", "-N", "", "-f", &ecdsa]).status();
    assert!(made.unwrap().success());
    edit(&lab, "by another kind");
    let commit = lab.commit();
    let error = lab.run(&["approve", "--key", &ecdsa]).failed(1);
    assert!(error.contains("hint: sign with an ssh-ed25519 key"), "{error}");
    assert_eq!(git(&lab.fleet, &["tag", "--points-at", &commit]), "");
}

/// The guide, word for word.
#[test]
fn the_guide_to_operators_signatures_works_as_it_stands() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let (bin, ssh) = (lab.dir().join("bin"), lab.dir().join(".ssh"));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&ssh).unwrap();
    std::os::unix::fs::symlink(PROGRAM, bin.join("wfm-git-publisher")).unwrap();
    for name in ["anna", "ben"] {
        key(name).save(&ssh.join(name)).unwrap();
        fs::write(ssh.join(format!("{name}.pub")), format!("{} {name}\n", key(name).public())).unwrap();
    }
    let page = include_str!("../../../docs/operators-signatures.md");
    let blocks = page.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let script = blocks.collect::<String>();
    assert!(script.matches("wfm-git-publisher").count() > 10, "{script}");
    let mut command = std::process::Command::new("bash");
    for (name, value) in lab.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let ran = Ran::of(command.args(["-euxc", &script]).current_dir(&lab.fleet).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    for words in ["commit -S", "1 published", "Good \"git\" signature for ben"] {
        assert!(ran.out.contains(words) || ran.err.contains(words), "{words}: {}{}", ran.out, ran.err);
    }
    assert_eq!(covered(&lab), Some(git(&lab.fleet, &["rev-parse", "HEAD"])));
}
