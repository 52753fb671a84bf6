//! What the host shows and a device must not believe: what runs keeps running, `status` says why, and the next good
//! commit cures it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use repo_testkit::git;

use crate::world::{DEVICE, World, command, finish, text};
use repo_testkit::hand::{Draft, Hand};

/// A device on which serial 1 runs, and a good serial 2 that it hasn't seen. Instead of that the host shows others.
struct Refusals {
    world: World,
    good: String,
}

impl Refusals {
    fn new() -> Self {
        let world = World::running();
        world.hand.want("greeter", &world.app, "not this");
        world.hand.publish();
        let good = world.hand.tip("desired");
        Self { world, good }
    }

    /// Shows what `change` makes of serial 2, which must be refused with this code and these words.
    fn refuse(&self, code: &str, words: &[&str], change: impl FnOnce(&mut Draft)) {
        let mut draft = self.world.hand.draft_of(&self.good);
        change(&mut draft);
        let bad = self.world.hand.commit(&draft);
        self.world.hand.move_branch("desired", &bad);
        self.world.assert_refused(code, &[words, &[&bad]].concat());
    }

    /// The good one is adopted after all.
    fn cure(self) {
        self.world.hand.move_branch("desired", &self.good);
        self.world.once().good();
        assert_eq!(self.world.greetings(), ["not this"]);
        self.world.assert_quiet();
    }
}

/// A state with this one change is refused with this code, and the message has these words.
fn refused(code: &str, words: &[&str], change: impl FnOnce(&World, &mut Draft)) {
    let refusals = Refusals::new();
    refusals.refuse(code, words, |draft| change(&refusals.world, draft));
    refusals.cure();
}

#[test]
fn a_tampered_deployment() {
    refused("digest-mismatch", &["deployments/", "envelope.json"], |_, draft| {
        let path = draft.deployment();
        draft.put(&path, draft.text(&path).replace("not this", "tampered"));
    });
}

#[test]
fn a_tampered_manifest() {
    refused("digest-mismatch", &["manifest.json"], |_, draft| {
        draft.json("manifest.json", |manifest| manifest["deployments"] = serde_json::json!([]));
    });
}

#[test]
fn a_deployment_that_the_manifest_gives_another_digest() {
    refused("digest-mismatch", &["deployments/", "manifest.json"], |_, draft| {
        let path = draft.deployment();
        draft.put(&path, draft.text(&path).replace("not this", "tampered"));
        draft.seal_envelope();
    });
}

#[test]
fn a_tampered_envelope() {
    refused("manifest-invalid", &["Envelope-Digest"], |_, draft| {
        draft.json("envelope.json", |envelope| envelope["policy"]["pollSeconds"] = 9.into());
    });
}

#[test]
fn an_envelope_that_is_none() {
    let refusals = Refusals::new();
    for envelope in ["", "{", "[]", "{\"layout\":1}", "{\"layout\":1,\"layout\":1}", "\u{feff}{}"] {
        refusals.refuse("manifest-invalid", &["envelope.json"], |draft| draft.put("envelope.json", envelope));
    }
    refusals.cure();
}

#[test]
fn an_envelope_that_two_readers_could_read_differently() {
    let refusals = Refusals::new();
    for (from, to, word) in [
        ("\"files\":{", "\"files\":{\"manifest.json\":\"sha256:00\",", "manifest.json"),
        ("\"policy\":{", "\"policy\":{\"future\":1,\"future\":2,", "future"),
        ("\"locks\":{", "\"locks\":{\"hello\":{},", "hello"),
    ] {
        refusals.refuse("manifest-invalid", &["envelope.json", "duplicate key", word], |draft| {
            let text = draft.text("envelope.json");
            assert!(text.contains(from), "{text}");
            draft.put("envelope.json", text.replacen(from, to, 1));
        });
    }
    refusals.refuse("manifest-invalid", &["layout 0"], |draft| {
        draft.json("envelope.json", |envelope| envelope["layout"] = 0.into());
        draft.seal_trailers();
    });
    refusals.cure();
}

/// What becomes of a deployment in the envelope.
type Change = fn(&mut serde_json::Value);

#[test]
fn locks_that_are_absent_short_or_of_no_component() {
    let refusals = Refusals::new();
    let changes: [(&str, Change); 3] = [
        ("no lock for component `hello`", |described| drop(described.as_object_mut().unwrap().remove("locks"))),
        ("no lock for component `hello`", |described| described["locks"] = serde_json::json!({})),
        ("a lock for `ghost`", |described| described["locks"]["ghost"] = described["locks"]["hello"].clone()),
    ];
    for (word, change) in changes {
        refusals.refuse("manifest-invalid", &["envelope.json", word], |draft| {
            draft.json("envelope.json", |envelope| {
                change(envelope["deployments"].as_object_mut().unwrap().values_mut().next().unwrap());
            });
            draft.seal_trailers();
        });
    }
    refusals.cure();
}

#[test]
fn a_file_that_is_missing_or_not_listed() {
    let refusals = Refusals::new();
    refusals.refuse("manifest-invalid", &["manifest.json", "missing"], |draft| {
        draft.files.remove("manifest.json");
    });
    refusals.refuse("manifest-invalid", &["surprise.txt"], |draft| draft.put("surprise.txt", "x"));
    refusals.refuse("manifest-invalid", &["deployments/surprise.yaml", "manifest.json"], |draft| {
        draft.put("deployments/surprise.yaml", "x");
        draft.seal();
    });
    refusals.cure();
}

#[test]
fn trailers_that_contradict_the_tree_or_are_not_there_once() {
    let refusals = Refusals::new();
    for (key, value) in [("Kind", "bundle"), ("Serial", "3"), ("Device", "press-02"), ("Fleet", "none")] {
        refusals.refuse("manifest-invalid", &[key], |draft| draft.trailer(key, value));
        refusals.refuse("manifest-invalid", &[key, "exactly once"], |draft| draft.add_trailer(key, value));
    }
    refusals.refuse("manifest-invalid", &["Kind", "exactly once"], |draft| {
        draft.message = "no trailers".to_owned();
    });
    refusals.cure();
}

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
    assert!(run.stderr.contains("TrustInvalid") && run.stderr.contains("version 2 was believed before"), "{run:?}");
    assert_eq!(world.greetings(), ["two"]);
}

#[test]
fn a_serial_that_is_lower() {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.assert_cured();
    world.hand.move_branch("desired", &first);
    world.assert_refused("serial-rollback", &["serial 1 is below 2", &first]);
}

#[test]
fn a_serial_that_was_there_before_with_other_bytes() {
    refused("serial-rollback", &["serial 1", "other content"], |_, draft| draft.renumber(1));
}

#[test]
fn the_floor_holds_on_a_fresh_clone_too() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.forge(|draft| {
        draft.renumber(1);
        draft.parents.clear();
    });
    fs::remove_dir_all(world.clone()).unwrap();
    let run = world.once().ended(1);
    assert!(run.stderr.contains("SerialRollback") && run.stderr.contains("other content"), "{run:?}");
    assert_eq!(world.greetings(), ["hello"]);
}

#[test]
fn a_manifest_version_that_falls() {
    refused("serial-rollback", &["manifestVersion"], |_, draft| {
        draft.json("manifest.json", |manifest| manifest["manifestVersion"] = 1.into());
        draft.json("envelope.json", |envelope| envelope["manifestVersion"] = 1.into());
        draft.seal();
    });
}

#[test]
fn numbers_that_jump_too_far_or_are_too_large() {
    let refusals = Refusals::new();
    for serial in [1_000_002, (1 << 53) - 1, 1 << 53] {
        refusals.refuse("serial-rollback", &[&serial.to_string()], |draft| draft.renumber(serial));
    }
    refusals.cure();
    let world = World::running();
    world.hand.set_serial(1_000_000);
    world.assert_cured();
}

#[test]
fn a_layout_or_a_feature_that_is_newer_than_the_syncer() {
    let refusals = Refusals::new();
    refusals.refuse("layout-too-new", &["layout 2", "update it"], |draft| {
        draft.json("envelope.json", |envelope| envelope["layout"] = 2.into());
        draft.seal();
    });
    refusals.refuse("layout-too-new", &["teleport", "update it"], |draft| {
        draft.json("envelope.json", |envelope| envelope["requires"] = serde_json::json!(["teleport"]));
        draft.seal();
    });
    refusals.cure();
}

#[test]
fn unknown_keys_are_ignored() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.forge(|draft| {
        draft.json("envelope.json", |envelope| envelope["policy"]["future"] = 1.into());
        draft.add_trailer("Future", "yes");
        draft.seal();
    });
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
}

#[test]
fn the_state_of_another_device_or_fleet() {
    let refusals = Refusals::new();
    refusals.refuse("wrong-device", &["press-02", DEVICE], |draft| {
        draft.json("envelope.json", |envelope| envelope["device"]["id"] = "press-02".into());
        draft.trailer("Device", "press-02");
        draft.seal();
    });
    let other = "11111111-2222-4333-8444-555555555555";
    refusals.refuse("wrong-device", &[other], |draft| {
        draft.json("envelope.json", |envelope| envelope["fleet"] = other.into());
        draft.trailer("Fleet", other);
        draft.seal();
    });
    refusals.cure();
}

#[test]
fn the_repository_of_another_fleet() {
    let world = World::running();
    let other = Hand::make(world.path("other-hand"), DEVICE);
    other.enroll(&world.key());
    other.set_serial(7);
    other.publish();
    let here = world.hand.tip("desired");
    git::git(&world.hand.repository(), &["fetch", "-q", &other.repository().display().to_string(), "+desired:desired"]);
    world.assert_refused("trust-invalid", &["trust/1.json"]);
    world.hand.move_branch("desired", &here);
    world.assert_cured();
}

#[test]
fn an_old_proof_of_freshness_is_told_and_stops_nothing() {
    let world = World::running();
    let before = world.marks();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let expire = |draft: &mut Draft| {
        draft.json("freshness.json", |proof| {
            proof["issued"] = "2026-01-01T00:00:00Z".into();
            proof["expires"] = "2026-01-02T00:00:00Z".into();
        });
    };
    let fresh = world.hand.tip("freshness");
    world.hand.forge_on("freshness", expire);
    world.once().ended(1).says(&["Expired"]);
    assert_eq!(world.conditions(), ["Stale Expired"]);
    assert_ne!(world.marks().1, before.1, "the newer state is applied all the same");
    assert_eq!(world.greetings(), ["servus"]);
    world.assert_quiet();
    world.hand.move_branch("freshness", &fresh);
    world.once().good();
    assert_eq!(world.conditions(), Vec::<String>::new());
    assert_eq!(world.subject(), "Stale cleared (serial 2)");
    world.assert_idle();
}

#[test]
fn a_proof_of_freshness_that_nobody_vouches_for_is_none() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    for change in [
        (|world, draft| draft.key = Some(world.hand.stranger())) as fn(&World, &mut Draft),
        |_, draft| draft.key = None,
        |_, draft| draft.trailer("Kind", "bundle"),
        |_, draft| draft.json("freshness.json", |proof| proof["device"] = "press-02".into()),
        |_, draft| draft.json("freshness.json", |proof| proof["serial"] = 1.into()),
        |_, draft| draft.files.clear(),
    ] {
        let honest = world.hand.tip("freshness");
        world.hand.forge_on("freshness", |draft| {
            draft.json("freshness.json", |proof| proof["expires"] = "2026-01-02T00:00:00Z".into());
            change(&world, draft);
        });
        world.once().good();
        assert_eq!(world.conditions(), Vec::<String>::new(), "it neither helps nor harms");
        world.hand.move_branch("freshness", &honest);
    }
}

/// Rewrites the host's history: serial 2 goes, and serial 3 descends from serial 1 alone.
fn rewritten(change: impl FnOnce(&World, &mut Draft)) -> World {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.assert_cured();
    world.told();
    world.hand.move_branch("desired", &first);
    world.hand.want("greeter", &world.app, "rewritten");
    world.hand.forge(|draft| change(&world, draft));
    world
}

#[test]
fn a_rewritten_history() {
    let world = rewritten(|_, _| ());
    let run = world.assert_refused("history-rewritten", &["accept-history"]);
    assert!(run.stderr.contains(&world.hand.tip("desired")), "{run:?}");
}

#[test]
fn a_rewritten_history_that_says_it_continues_something_else() {
    let world = rewritten(|_, draft| draft.add_trailer("Continues", &format!("sha256:{:064} 2", 0)));
    world.assert_refused("history-rewritten", &[]);
    let world = rewritten(|world, draft| {
        let envelope = world.report()["adopted"]["envelope"].as_str().unwrap().to_owned();
        draft.add_trailer("Continues", &format!("{envelope} 1"));
    });
    world.assert_refused("history-rewritten", &[]);
}

/// What the device adopted, as `Continues` names it.
fn adopted(world: &World) -> String {
    let report = world.report();
    format!("{} {}", report["adopted"]["envelope"].as_str().unwrap(), report["adopted"]["serial"])
}

#[test]
fn a_rewritten_history_that_continues_what_was_adopted_is_adopted_with_an_event() {
    let world = rewritten(|world, draft| draft.add_trailer("Continues", &adopted(world)));
    world.once().good().says(&["HistoryContinued"]);
    assert_eq!(world.greetings(), ["rewritten"]);
    assert_eq!(world.conditions(), ["SecurityEvent HistoryContinued"]);
    world.assert_cured();
    assert_eq!(world.conditions(), Vec::<String>::new());
}

#[test]
fn a_commit_after_the_one_that_continues_is_adopted_too() {
    let world = rewritten(|world, draft| draft.add_trailer("Continues", &adopted(world)));
    world.assert_cured();
    assert_eq!(world.conditions(), ["SecurityEvent HistoryContinued"]);
}

#[test]
fn a_stranger_can_not_continue_a_history() {
    let world = rewritten(|world, draft| {
        draft.add_trailer("Continues", &adopted(world));
        draft.key = Some(world.hand.stranger());
    });
    world.hand.want("greeter", &world.app, "on top of it");
    world.hand.publish();
    world.assert_refused("history-rewritten", &[]);
}

#[test]
fn a_host_that_was_restored_three_versions_back() {
    let world = World::running();
    let old = (world.hand.tip("desired"), world.hand.tip("status"), world.hand.tip("freshness"));
    for n in 2..=4 {
        world.hand.want("greeter", &world.app, &format!("\"{n}\""));
        world.hand.publish();
        world.once().good();
    }
    let newest = world.hand.tip("status");
    world.hand.move_branch("desired", &old.0);
    world.hand.move_branch("status", &old.1);
    world.hand.move_branch("freshness", &old.2);
    world.assert_refused("serial-rollback", &["serial 1 is below 4"]);
    let known = git::try_git(&world.hand.repository(), &["merge-base", "--is-ancestor", &newest, "status"]);
    assert!(known.status.success(), "the device gives the host back what it had to say");
    assert_eq!(world.greetings(), ["4"]);
    // The publisher learns from `status` what the device adopted, and goes on from there.
    let continues = adopted(&world);
    world.hand.want("greeter", &world.app, "restored");
    world.hand.forge(|draft| draft.add_trailer("Continues", &continues));
    world.once().good();
    assert_eq!(world.greetings(), ["restored"]);
    assert_eq!(world.conditions(), ["SecurityEvent HistoryContinued"]);
    world.assert_cured();
}

#[test]
fn a_host_that_lost_desired() {
    let world = World::running();
    let tip = world.hand.tip("desired");
    git::git(&world.hand.repository(), &["update-ref", "-d", "refs/heads/desired"]);
    let containers = world.containers();
    world.once().ended(1).says(&["HistoryRewritten", "gone from the host"]);
    assert_eq!(world.conditions(), ["Stalled HistoryRewritten"]);
    assert_eq!(world.containers(), containers);
    world.assert_quiet();
    world.hand.move_branch("desired", &tip);
    world.once().good();
    assert_eq!(world.conditions(), Vec::<String>::new());
}

/// Every file below a directory with its size.
fn listing(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(listing(&path)),
            false => found.push((path.clone(), fs::metadata(&path).unwrap().len())),
        }
    }
    found.sort();
    found
}

/// The tip has too much for these limits: nothing of it stays on the disk.
fn too_much(limits: &str, words: &[&str], change: impl FnOnce(&mut Draft)) {
    let world = World::running();
    world.settings(limits);
    world.hand.want("greeter", &world.app, "\"not this\"");
    let tip = world.hand.forge(|draft| {
        change(draft);
        draft.seal();
    });
    world.assert_refused("FetchFailed", &[words, &[&tip]].concat());
    let left = |(path, size): &(PathBuf, u64)| {
        *size > 20_000 || path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp"))
    };
    assert_eq!(listing(&world.clone()).into_iter().filter(left).collect::<Vec<_>>(), []);
    assert!(git::try_git(&world.clone(), &["cat-file", "-e", &tip]).status.code() != Some(0));
    // The way from the accepted commit still leads over it: the tip alone is fetched, and that is told.
    world.assert_cured();
    assert_eq!(world.conditions(), ["AncestryUnverified ShallowHistory"]);
    world.once().good();
    assert_eq!(world.conditions(), ["AncestryUnverified ShallowHistory"]);
    world.assert_cured();
    assert_eq!(world.conditions(), Vec::<String>::new());
}

#[test]
fn a_pack_that_is_too_large() {
    let noise = repo_testkit::noise(1_200_000, 0);
    too_much("limits: {packBytes: 100000}\n", &["100000 bytes"], |draft| draft.put("noise", noise));
}

#[test]
fn a_pack_with_too_many_objects() {
    too_much("limits: {packObjects: 50}\n", &["more than the 50 allowed"], |draft| {
        (0..100).for_each(|n| draft.put(&format!("many/{n}"), n.to_string()));
    });
}

/// A `git` whose `upload-pack` tells the refs, and answers each fetch with a pack that never ends: one object of 2^34
/// bytes announced, and deflated noise. Everything else is stock Git's.
const ENDLESS: &str = r#"#!/bin/sh
[ "$1" = upload-pack ] || exec GIT "$@"
packet() { printf '%04x%s\n' $((${#1} + 5)) "$1"; }
for line in 'version 2' 'agent=endless' 'ls-refs' 'fetch=shallow'; do packet "$line"; done
printf 0000
while length=$(dd bs=1 count=4 2>/dev/null) && [ -n "$length" ]; do
    case $length in
    0000)
        if [ "$command" = command=ls-refs ]; then
            GIT -C "$3" for-each-ref --format='%(objectname) %(refname)' | while read -r line; do packet "$line"; done
            printf 0000
        else
            packet packfile
            { printf 'PACK\0\0\0\002\0\0\0\001\260\200\200\200\200\004\170\234'; gzip -1 </dev/urandom | tail -c +11; } |
                while printf 'fff0\001' && dd bs=65515 count=1 iflag=fullblock 2>/dev/null; do :; done
            exit
        fi ;;
    0001) ;;
    *)
        line=$(dd bs=1 count=$((0x$length - 4)) 2>/dev/null)
        case $line in command=*) command=$line ;; esac ;;
    esac
done
"#;

#[test]
fn a_pack_that_never_ends() {
    let world = World::running();
    world.settings("limits: {packBytes: 1000000}\n");
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.publish();
    let (calls, containers, before) = (world.fake.calls(), world.containers(), listing(&world.clone().join("objects")));
    let path = std::env::var("PATH").unwrap();
    let git = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|git| git.exists()).unwrap();
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("git"), ENDLESS.replace("GIT", &git.display().to_string())).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let once = || {
        let mut syncer = command(&world.home(), &["once"]);
        finish(syncer.env("PATH", format!("{}:{path}", bin.display())).spawn().unwrap())
    };
    once().ended(1).says(&["FetchFailed", "larger than the 1000000 bytes allowed", &world.hand.tip("desired")]);
    assert_eq!(world.conditions(), ["Stalled FetchFailed"]);
    assert_eq!((world.fake.calls(), world.containers()), (calls, containers));
    // What it had to say is all that is new on the disk.
    let new = listing(&world.clone())
        .into_iter()
        .filter(|(path, size)| *size > 10_000 && !before.contains(&(path.clone(), *size)));
    assert_eq!(new.collect::<Vec<_>>(), []);
    let marks = world.marks();
    once().ended(1);
    assert_eq!(world.marks(), marks, "and it is said once");
    world.once().good();
    assert_eq!(world.greetings(), ["not this"]);
    world.assert_idle();
}

#[test]
fn a_tree_with_anything_but_plain_files() {
    let refusals = Refusals::new();
    for (path, mode, what) in [
        ("deployments/link.yaml", "120000", "symbolic link"),
        ("deployments/run.yaml", "100755", "executable"),
        ("submodule", "160000", "submodule"),
        ("..", "100644", ".."),
        (".git", "100644", ".git"),
        ("deployments/../x", "100644", ".."),
    ] {
        refusals.refuse("manifest-invalid", &[what], |draft| {
            draft.put_as(mode, path, if mode == "160000" { refusals.good.clone() } else { "target".to_owned() });
            draft.seal();
        });
    }
    refusals.cure();
}

/// The document of the only deployment is replaced by what `change` makes of it, and all digests agree.
fn invalid_document(refusals: &Refusals, words: &[&str], change: impl FnOnce(String) -> Vec<u8>) {
    refusals.refuse("deployment-invalid", words, |draft| {
        let path = draft.deployment();
        draft.put(&path, change(draft.text(&path)));
        draft.seal();
    });
}

#[test]
fn a_document_that_is_no_deployment() {
    let refusals = Refusals::new();
    invalid_document(&refusals, &["metadata"], |text| text.replace("metadata:", "metaphor:").into());
    invalid_document(&refusals, &["spec", "duplicate"], |text| format!("{text}spec: {{}}\n").into());
    invalid_document(&refusals, &["tab"], |text| text.replace("  name: greeter", "\tname: greeter").into());
    invalid_document(&refusals, &["components"], |text| {
        text.replace("components:\n      - ", "components:\n        ").into()
    });
    invalid_document(&refusals, &["UTF-8"], |text| {
        text.replace("not this", "\u{1}").into_bytes().iter().map(|c| if *c == 1 { 0xff } else { *c }).collect()
    });
    invalid_document(&refusals, &[], |text| text.replace(": hello\n", ": other\n").replace("id: \"", "id: \"0").into());
    invalid_document(&refusals, &[], |_| Vec::new());
    refusals.cure();
}

#[test]
fn a_document_with_a_byte_order_mark_or_in_another_encoding() {
    let refusals = Refusals::new();
    invalid_document(&refusals, &["deployments/", "byte order mark"], |text| format!("\u{feff}{text}").into());
    for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
        let wide = |text: &str| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        invalid_document(&refusals, &["deployments/"], |text| wide(&text));
        invalid_document(&refusals, &["deployments/"], |text| wide(&format!("\u{feff}{text}")));
    }
    refusals.cure();
}

#[test]
fn a_document_with_a_key_that_nobody_knows() {
    let refusals = Refusals::new();
    let after = |text: &str, line: &str, more: &str| {
        assert!(text.contains(line), "{line} in {text}");
        text.replacen(line, &format!("{line}{more}"), 1).into_bytes()
    };
    for (line, more, key) in [
        ("metadata:\n", "  surprise: 1\n", "surprise"),
        ("spec:\n", "  surprise: {deep: [1]}\n", "surprise"),
        ("    type: compose\n", "    surprise: 1\n", "surprise"),
        ("spec:\n", "  x-Extensions: {}\n", "x-Extensions"),
    ] {
        invalid_document(&refusals, &["deployments/", key, "unknown"], |text| after(&text, line, more));
    }
    invalid_document(&refusals, &["surprise", "unknown"], |text| format!("surprise: 1\n{text}").into());
    // Wrong types, and a second document.
    invalid_document(&refusals, &["deployments/"], |text| text.replace("type: compose", "type: [compose]").into());
    invalid_document(&refusals, &["deployments/"], |text| format!("{text}---\n{text}").into());
    invalid_document(&refusals, &["deployments/"], |text| format!("- {}", text.replace('\n', "\n  ")).into());
    refusals.cure();
}

#[test]
fn a_document_that_would_never_end() {
    let refusals = Refusals::new();
    let bomb = (1..12).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        let before = vec![format!("*a{}", n - 1); 10].join(", ");
        format!("{text}a{n}: &a{n} [{before}]\n")
    });
    invalid_document(&refusals, &[], |text| format!("{bomb}{text}").into());
    invalid_document(&refusals, &[], |text| format!("deep: {}{}\n{text}", "[".repeat(5000), "]".repeat(5000)).into());
    invalid_document(&refusals, &[], |text| format!("{text}# {}\n", "x".repeat(3 << 20)).into());
    refusals.cure();
}
