//! Who signed a commit, and the rosters that say whose signature counts.

use std::fs;
use std::process::Command;

use repo_testkit::hand::Draft;

use super::{Refusals, refused};
use crate::world::{World, text};

#[test]
fn a_commit_that_nobody_signed() {
    refused("signature-invalid", &["no signature"], |_, draft| draft.key = None);
}

#[test]
fn a_commit_that_a_stranger_signed() {
    refused("signature-invalid", &["roster 1"], |world, draft| draft.key = Some(world.hand.stranger()));
}

#[test]
fn a_commit_that_the_device_or_a_root_signed() {
    let refusals = Refusals::new();
    let world = &refusals.world;
    refusals.refuse("signature-invalid", &["roster 1"], |draft| {
        let key = world.path("device.key");
        fs::copy(world.home().join("status.key"), &key).unwrap();
        draft.key = Some(key);
    });
    refusals.refuse("signature-invalid", &["roster 1"], |draft| draft.key = Some(world.hand.path("root")));
    refusals.cure();
}

/// The header lines of a commit's signature.
fn signature(raw: &str) -> String {
    let begin = raw.find("gpgsig ").expect("it is signed");
    let end = raw[begin..].find("\n\n").map_or(raw.len(), |at| begin + at);
    raw[begin..end].to_owned()
}

#[test]
fn a_commit_with_the_signature_of_another() {
    let world = World::running();
    let signed = signature(&world.hand.raw(&world.hand.tip("desired")));
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.publish();
    let raw = world.hand.raw(&world.hand.tip("desired"));
    let raw = raw.replace(&signature(&raw), &signed);
    let forged = world.hand.object("commit", format!("{raw}\n").as_bytes());
    world.hand.move_branch("desired", &forged);
    world.assert_refused("signature-invalid", &[&forged]);
    world.assert_cured();
}

#[test]
fn a_signature_made_for_another_purpose() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.publish();
    let raw = world.hand.raw(&world.hand.tip("desired"));
    let payload = world.path("payload");
    fs::write(&payload, raw.replace(&format!("{}\n", signature(&raw)), "") + "\n").unwrap();
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-Y", "sign", "-n", "file", "-f"]).arg(world.hand.path("publisher")).arg(&payload);
    text(keygen.output().unwrap());
    let made = fs::read_to_string(payload.with_extension("sig")).unwrap();
    let header = format!("gpgsig {}", made.trim_end().replace('\n', "\n "));
    let forged = world.hand.object("commit", format!("{}\n", raw.replace(&signature(&raw), &header)).as_bytes());
    world.hand.move_branch("desired", &forged);
    world.assert_refused("signature-invalid", &[&forged]);
    world.assert_cured();
}

#[test]
fn a_publisher_key_that_has_expired_adopts_nothing_more() {
    let world = World::running();
    let end = |roster: &mut serde_json::Value| roster["publishers"][0]["notAfter"] = "2026-01-01T00:00:00Z".into();
    world.hand.roster(2, end, &["root"]);
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.publish();
    world.assert_refused("signature-invalid", &["roster 2"]);
    // A third version lets it sign again.
    world.hand.roster(3, |_| (), &["root"]);
    world.assert_cured();
    assert_eq!(world.report()["adopted"]["trust"], 3);
    fs::remove_dir_all(world.clone()).unwrap();
    world.once().good();
}

#[test]
fn a_roster_that_was_replaced() {
    let refusals = Refusals::new();
    let world = &refusals.world;
    refusals.refuse("trust-invalid", &["trust/1.json", "pinned"], |draft| {
        let key = world.hand.public("stranger");
        draft.json("trust/1.json", |roster| roster["publishers"][0]["key"] = key.into());
        draft.seal();
    });
    refusals.refuse("trust-invalid", &["trust/1.json", "missing"], |draft| {
        draft.files.remove("trust/1.json");
        draft.seal();
    });
    refusals.cure();
}

/// A second version of the roster in the tree of a draft, signed by nobody.
fn second_roster(world: &World, draft: &mut Draft) {
    let key = world.hand.public("stranger");
    let mut roster: serde_json::Value = serde_json::from_str(&draft.text("trust/1.json")).unwrap();
    roster["version"] = 2.into();
    roster["publishers"][0]["key"] = key.into();
    draft.put("trust/2.json", format!("{roster}\n"));
}

#[test]
fn a_roster_that_the_roots_did_not_sign() {
    let refusals = Refusals::new();
    let world = &refusals.world;
    refusals.refuse("trust-invalid", &["trust/2.json", "needs 1"], |draft| {
        second_roster(world, draft);
        draft.seal();
        draft.key = Some(world.hand.stranger());
    });
    refusals.refuse("trust-invalid", &["trust/2.json"], |draft| {
        second_roster(world, draft);
        let other = draft.files["trust/1.json.sig.0"].clone();
        draft.files.insert("trust/2.json.sig.0".to_owned(), other);
        draft.seal();
        draft.key = Some(world.hand.stranger());
    });
    refusals.cure();
}

#[test]
fn a_roster_with_fewer_signatures_than_its_threshold_or_with_a_gap() {
    let world = World::running();
    let roots = [world.hand.public("root"), world.hand.public("second-root")];
    let two_roots = |roster: &mut serde_json::Value| {
        roster["roots"] = serde_json::json!(roots);
        roster["threshold"] = 2.into();
    };
    world.hand.roster(2, two_roots, &["root"]);
    world.assert_cured();
    assert_eq!(world.report()["adopted"]["trust"], 2);

    world.hand.roster(3, two_roots, &["root"]);
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.publish();
    world.assert_refused("trust-invalid", &["trust/3.json", "1 of the roots", "needs 2"]);
    world.hand.roster(3, two_roots, &["root", "second-root"]);
    world.assert_cured();
    assert_eq!(world.report()["adopted"]["trust"], 3);

    world.hand.roster(5, two_roots, &["root", "second-root"]);
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.publish();
    world.assert_refused("trust-invalid", &["trust/4.json", "missing"]);
}

#[test]
fn a_key_of_another_type_may_be_listed_and_nothing_that_it_signed_counts() {
    let world = World::running();
    let mut keygen = Command::new("ssh-keygen");
    text(keygen.args(["-q", "-t", "ecdsa", "-N", "", "-f"]).arg(world.hand.path("ecdsa")).output().unwrap());
    let (root, other) = (world.hand.public("root"), world.hand.public("ecdsa"));
    let listed = |roster: &mut serde_json::Value| {
        roster["roots"] = serde_json::json!([root, other]);
        roster["publishers"].as_array_mut().unwrap().push(serde_json::json!({"key": other}));
    };
    world.hand.roster(2, listed, &["root"]);
    world.assert_cured();
    assert_eq!(world.report()["adopted"]["trust"], 2);
    let good = world.hand.tip("desired");
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.forge(|draft| draft.key = Some(world.hand.path("ecdsa")));
    world.assert_refused("signature-invalid", &["unknown algorithm"]);
    world.hand.move_branch("desired", &good);
    world.hand.roster(3, listed, &["ecdsa", "ecdsa"]);
    world.hand.publish();
    world.assert_refused("trust-invalid", &["trust/3.json", "0 of the roots"]);
}

#[test]
fn a_roster_from_before_is_refused_without_the_clone_too() {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.hand.key("second-publisher");
    let key = world.hand.public("second-publisher");
    world.hand.roster(2, |roster| roster["publishers"][0]["key"] = key.as_str().into(), &["root"]);
    world.hand.want("greeter", &world.app, "two");
    world.hand.forge(|draft| draft.key = Some(world.hand.path("second-publisher")));
    world.once().good();
    assert_eq!(world.report()["adopted"]["trust"], 2);
    // Whoever has the first publisher's key, which the second roster took back, shows a tree without that roster.
    fs::remove_dir_all(world.clone()).unwrap();
    fs::remove_file(world.hand.path("desired/trust/2.json")).unwrap();
    fs::remove_file(world.hand.path("desired/trust/2.json.sig.0")).unwrap();
    world.hand.move_branch("desired", &first);
    world.hand.want("greeter", &world.app, "stolen");
    world.hand.publish();
    let run = world.once().ended(1);
    assert!(run.stderr.contains("TrustInvalid") && run.stderr.contains("`trust/2.json` is missing"), "{run:?}");
    // Where the roster that is kept beside the clone is lost, too, the floor still knows of it.
    fs::remove_file(world.home().join("roster.json")).unwrap();
    let run = world.once().ended(1);
    assert!(run.stderr.contains("TrustInvalid") && run.stderr.contains("version 2 was believed before"), "{run:?}");
    assert_eq!(world.greetings(), ["two"]);
}
