//! Whoever has the branch's key, or a program that is broken: signatures are good, and what they are on can't be so.

use repo_git::SigningKey;
use repo_model::Trailer;
use repo_model::envelope::MAX_JUMP;
use repo_testkit::hand::Draft;
use serde_json::{Value, json};

use super::forge::{Forge, Forgery, GOOD, all_are_found_after_a_checkpoint, forgery};

/// A commit that is made anew with its own key.
fn signed(
    name: &str,
    code: &'static str,
    (branch, back): (&'static str, usize),
    change: impl Fn(&mut Draft, &Forge) + 'static,
) -> Forgery<'static> {
    let make = move |forge: &Forge| Some(forge.draft(branch, back, |draft| change(draft, forge)));
    forgery(format!("{branch}~{back}: {name}"), code, branch, make)
}

fn envelope(draft: &mut Draft, change: impl FnOnce(&mut Value)) {
    draft.json("envelope.json", change);
    draft.seal_trailers();
}

fn desired() -> Vec<Forgery<'static>> {
    const MIDDLE: (&str, usize) = ("desired", 2);
    const TIP: (&str, usize) = ("desired", 0);
    let other = "11111111-2222-4333-8444-555555555555";
    vec![
        signed("a serial twice", "serial-rollback", TIP, |draft, _| draft.renumber(4)),
        signed("an older serial", "serial-rollback", TIP, |draft, _| draft.renumber(2)),
        signed("a serial that jumps", "serial-rollback", TIP, |draft, _| draft.renumber(MAX_JUMP + 100)),
        signed("a manifest version again", "serial-rollback", TIP, |draft, _| {
            draft.json("manifest.json", |manifest| manifest["manifestVersion"] = 4.into());
            draft.json("envelope.json", |envelope| envelope["manifestVersion"] = 4.into());
            draft.seal();
        }),
        signed("for another device", "wrong-device", MIDDLE, |draft, _| {
            envelope(draft, |envelope| envelope["device"]["id"] = GOOD.into());
        }),
        signed("for another fleet", "wrong-device", MIDDLE, move |draft, _| {
            envelope(draft, |envelope| envelope["fleet"] = other.into());
        }),
        signed("another device's trailer", "wrong-device", MIDDLE, |draft, _| draft.trailer(Trailer::Device, GOOD)),
        signed("another branch's trailer", "wrong-device", MIDDLE, |draft, _| draft.trailer(Trailer::Kind, "control")),
        signed("a trailer twice", "wrong-device", MIDDLE, |draft, _| draft.add_trailer(Trailer::Kind, "desired")),
        signed("a serial in its trailer alone", "manifest-invalid", MIDDLE, |draft, _| {
            draft.trailer(Trailer::Serial, "9")
        }),
        signed("a file that isn't listed", "manifest-invalid", MIDDLE, |draft, _| draft.put("more.txt", "x")),
        signed("a file that is missing", "manifest-invalid", MIDDLE, |draft, _| {
            drop(draft.files.remove(&draft.deployment()));
        }),
        signed("a document with other bytes", "digest-mismatch", MIDDLE, |draft, _| {
            let path = draft.deployment();
            let text = draft.text(&path).replace("servus", "hacked");
            draft.put(&path, text);
        }),
        signed("a manifest with other bytes", "digest-mismatch", MIDDLE, |draft, _| {
            draft.json("manifest.json", |manifest| manifest["deployments"] = json!([]));
        }),
        signed("a document that can't be read", "deployment-invalid", MIDDLE, |draft, _| {
            let path = draft.deployment();
            draft.put(&path, "[]");
            draft.seal();
        }),
        signed("a newer layout", "layout-too-new", MIDDLE, |draft, _| {
            envelope(draft, |envelope| envelope["layout"] = 2.into());
        }),
        signed("an unknown feature", "layout-too-new", MIDDLE, |draft, _| {
            envelope(draft, |envelope| envelope["requires"] = json!(["levitation"]));
        }),
        signed("a component without a lock", "manifest-invalid", MIDDLE, |draft, _| {
            envelope(draft, |envelope| {
                let described = envelope["deployments"].as_object_mut().unwrap().values_mut().next().unwrap();
                described["locks"] = json!({});
            });
        }),
        signed("a link", "manifest-invalid", MIDDLE, |draft, _| draft.put_as("120000", "link", "/etc/passwd")),
        signed("a program", "manifest-invalid", MIDDLE, |draft, _| draft.put_as("100755", "run", "x")),
        signed("the roster exchanged", "trust-invalid", MIDDLE, |draft, _| {
            draft.json("trust/1.json", |roster| roster["threshold"] = 2.into());
            draft.seal();
        }),
        signed("a roster that nobody signed", "trust-invalid", TIP, |draft, forge| {
            let mut roster: Value = serde_json::from_str(&draft.text("trust/1.json")).unwrap();
            roster["version"] = 2.into();
            roster["publishers"] = json!([{"key": forge.hand.public("evil")}]);
            draft.put("trust/2.json", format!("{roster}\n"));
            draft.seal();
            draft.key = Some(forge.hand.key("evil"));
        }),
        signed("a roster whose own roots didn't sign", "roster-unproven", TIP, |draft, forge| {
            let mut roster: Value = serde_json::from_str(&draft.text("trust/1.json")).unwrap();
            roster["version"] = 2.into();
            roster["issued"] = "2026-01-01T00:00:00Z".into();
            roster["roots"] = json!([forge.hand.public("mistyped")]);
            let root = SigningKey::load(&forge.hand.key("root")).unwrap();
            let roster = format!("{roster}\n");
            draft.put("trust/2.json.sig.0", root.sign("wfm-roster", roster.as_bytes()).unwrap());
            draft.put("trust/2.json", roster);
            draft.seal();
        }),
        signed("no roster", "trust-invalid", MIDDLE, |draft, _| {
            draft.files.retain(|path, _| !path.starts_with("trust/"));
            draft.seal();
        }),
        signed("a trailer with another manifest", "trailer-mismatch", MIDDLE, |draft, _| {
            draft.trailer(Trailer::ManifestDigest, &format!("sha256:{}", "0".repeat(64)));
        }),
        signed("a trailer with another version", "trailer-mismatch", MIDDLE, |draft, _| {
            draft.trailer(Trailer::ManifestVersion, "77");
        }),
        signed("an addition that is none", "trailer-mismatch", TIP, |draft, _| {
            let line = draft.message.lines().find(|line| line.starts_with("Deployment: change")).unwrap().to_owned();
            draft.message = draft.message.replace(&line, &line.replace("change", "add"));
        }),
        signed("a removal that isn't told", "change-untold", ("desired", 1), |draft, _| {
            let lines = draft.message.lines().filter(|line| !line.starts_with("Deployment: remove"));
            draft.message = lines.map(|line| format!("{line}\n")).collect();
        }),
        signed("a control character", "message-invalid", MIDDLE, |draft, _| {
            draft.message = draft.message.replacen("\n\n", " \u{1b}[2J\n\n", 1);
        }),
        signed("a text that is too long", "message-invalid", MIDDLE, |draft, _| {
            draft.message = draft.message.replacen("\n\n", &format!("{}\n\n", "x".repeat(1100)), 1);
        }),
        signed("two parents", "not-one-line", MIDDLE, |draft, forge| draft.parents.push(forge.hand.tip("bundle"))),
    ]
}

/// The only document of `status`.
fn document(draft: &mut Draft, change: impl FnOnce(&mut Value)) {
    let path = draft.deployment();
    draft.json(&path, change);
}

fn syncer(draft: &mut Draft, change: impl FnOnce(&mut Value)) {
    draft.json("syncer.json", change);
}

fn status() -> Vec<Forgery<'static>> {
    const TIP: (&str, usize) = ("status", 0);
    const MIDDLE: (&str, usize) = ("status", 3);
    let digest = || json!(format!("sha256:{}", "0".repeat(64)));
    vec![
        signed("a commit that was never published", "desired-unknown", TIP, |draft, forge| {
            let unknown = forge.hand.tip("bundle");
            draft.trailer(Trailer::DesiredCommit, &unknown);
            syncer(draft, |syncer| syncer["adopted"]["commit"] = unknown.into());
        }),
        signed("another serial in its trailer", "adopted-mismatch", TIP, |draft, _| {
            draft.trailer(Trailer::Serial, "4")
        }),
        signed("another serial", "adopted-mismatch", TIP, |draft, _| {
            syncer(draft, |syncer| syncer["adopted"]["serial"] = 9.into());
        }),
        signed("another envelope", "adopted-mismatch", TIP, move |draft, _| {
            syncer(draft, |syncer| syncer["adopted"]["envelope"] = digest());
        }),
        signed("another manifest version", "adopted-mismatch", TIP, |draft, _| {
            syncer(draft, |syncer| syncer["adopted"]["manifestVersion"] = 4.into());
        }),
        signed("another roster", "adopted-mismatch", TIP, |draft, _| {
            syncer(draft, |syncer| syncer["adopted"]["trust"] = 2.into());
        }),
        signed("a document that runs ahead", "adopted-mismatch", TIP, |draft, _| {
            document(draft, |document| document["adoptedManifestVersion"] = 9.into());
        }),
        signed("a document that falls back", "went-back", TIP, |draft, _| {
            document(draft, |document| document["adoptedManifestVersion"] = 1.into());
        }),
        signed("an older state", "went-back", TIP, |draft, forge| {
            let old = forge.line("desired")[1].clone();
            let version: Value = serde_json::from_str(&forge.git(&["show", &format!("{old}:envelope.json")])).unwrap();
            let envelope = forge.git(&["log", "-1", "--format=%(trailers:key=Envelope-Digest,valueonly)", &old]);
            draft.trailer(Trailer::DesiredCommit, &old);
            draft.trailer(Trailer::Serial, "4");
            syncer(draft, |syncer| {
                syncer["adopted"] = json!({"commit": old, "envelope": envelope.trim(), "serial": 4, "trust": 1,
                    "manifestVersion": version["manifestVersion"]});
            });
        }),
        signed("a document of another device", "wrong-device", TIP, |draft, _| {
            document(draft, |document| document["deviceId"] = GOOD.into());
        }),
        signed("another device's trailer", "wrong-device", MIDDLE, |draft, _| draft.trailer(Trailer::Device, GOOD)),
        signed("another branch's trailer", "wrong-device", MIDDLE, |draft, _| {
            draft.trailer(Trailer::Kind, "heartbeat")
        }),
        signed("a document at another path", "report-invalid", MIDDLE, |draft, _| {
            let path = draft.deployment();
            let bytes = draft.text(&path);
            draft.put("deployments/x.json", bytes);
        }),
        signed("no report", "report-invalid", MIDDLE, |draft, _| drop(draft.files.remove("syncer.json"))),
        signed("a newer layout", "layout-too-new", MIDDLE, |draft, _| {
            syncer(draft, |syncer| syncer["layout"] = 2.into())
        }),
        signed("a state that its component hasn't", "state-mismatch", TIP, |draft, _| {
            document(draft, |document| document["components"][0]["state"] = "failed".into());
        }),
        signed("a state that no transition leads to", "transition-impossible", TIP, |draft, _| {
            document(draft, |document| {
                document["components"][0]["state"] = "failed".into();
                document["status"]["state"] = "failed".into();
            });
        }),
        signed("a transition from another state", "transition-impossible", TIP, |draft, _| {
            draft.message = draft.message.replace("installing > installed", "removed > installed");
        }),
        signed("a transition less", "transition-impossible", MIDDLE, |draft, _| {
            let lines = draft.message.lines().filter(|line| !line.starts_with("State: "));
            draft.message = lines.map(|line| format!("{line}\n")).collect();
        }),
        signed("nothing of a deployment", "component-missing", TIP, |draft, _| {
            draft.files.retain(|path, _| !path.starts_with("deployments/"));
        }),
        forgery("status: another installation in between", "history-forked", "status", |forge| {
            let other = "99999999-2222-4333-8444-555555555555";
            forge.draft("status", 2, |draft| syncer(draft, |syncer| syncer["instance"] = other.into()));
            // The one that goes on as if nothing had been.
            Some(forge.line("status")[1].clone())
        }),
        signed("a file that isn't known", "foreign-file", TIP, |draft, _| draft.put("more.txt", "x")),
        signed("two parents", "not-one-line", MIDDLE, |draft, forge| draft.parents.push(forge.hand.tip("bundle"))),
        forgery("status: a commit dropped from the middle", "transition-impossible", "status", |forge| {
            let line = forge.line("status");
            forge.put_upon("status", &line[..3], line[4].clone());
            None
        }),
        forgery("status: two commits in the other order", "transition-impossible", "status", |forge| {
            let line = forge.line("status");
            let order = [line[1].clone(), line[0].clone()];
            forge.put_upon("status", &order, line[2].clone());
            None
        }),
        forgery("status: a commit told twice", "transition-impossible", "status", |forge| {
            let line = forge.line("status");
            forge.put_upon("status", &line[..1], line[0].clone());
            None
        }),
    ]
}

fn singles() -> Vec<Forgery<'static>> {
    let hour = |hours: i64| (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours)).to_string();
    let fresh = move |from: i64, to: i64| {
        move |draft: &mut Draft, _: &Forge| {
            draft.json("freshness.json", |proof| {
                proof["issued"] = hour(from).into();
                proof["expires"] = hour(to).into();
            });
        }
    };
    let of = |branch: &'static str| (branch, 0);
    vec![
        signed("two weeks long", "proof-refused", of("freshness"), fresh(0, 300)),
        signed("from the future", "proof-refused", of("freshness"), fresh(100, 120)),
        signed("long over", "not-fresh", of("freshness"), fresh(-48, -25)),
        signed("of an unknown commit", "proof-unknown", of("freshness"), |draft, forge| {
            let unknown = forge.hand.tip("bundle");
            draft.json("freshness.json", |proof| proof["tip"] = unknown.into());
        }),
        signed("of another serial", "proof-refused", of("freshness"), |draft, _| {
            draft.json("freshness.json", |proof| proof["serial"] = 99.into());
        }),
        signed("of an older commit", "not-fresh", of("freshness"), |draft, forge| {
            let old = forge.line("desired")[1].clone();
            let digest = forge.git(&["log", "-1", "--format=%(trailers:key=Envelope-Digest,valueonly)", &old]);
            draft.json("freshness.json", |proof| {
                proof["tip"] = old.into();
                proof["envelopeDigest"] = digest.trim().into();
                proof["serial"] = 4.into();
            });
        }),
        signed("with a parent", "not-one-line", of("freshness"), |draft, forge| {
            draft.parents.push(forge.hand.tip("desired"));
        }),
        signed("for another device", "wrong-device", of("freshness"), |draft, _| draft.trailer(Trailer::Device, GOOD)),
        signed("another archive", "digest-mismatch", of("bundle"), |draft, _| draft.put("bundle.tar.gz", "x")),
        signed("with a parent", "not-one-line", of("bundle"), |draft, forge| {
            draft.parents.push(forge.hand.tip("desired"));
        }),
        signed("for another device", "wrong-device", of("bundle"), |draft, _| draft.trailer(Trailer::Device, GOOD)),
        signed("from the future", "time-ahead", of("heartbeat"), move |draft, _| {
            draft.json("current-state.json", |state| state["time"] = hour(200).into());
        }),
        signed("with an older state", "went-back", of("heartbeat"), |draft, _| {
            draft.json("current-state.json", |state| state["serial"] = 2.into());
        }),
        signed("with a state that was never published", "desired-unknown", of("heartbeat"), |draft, _| {
            draft.json("current-state.json", |state| state["serial"] = 9.into());
        }),
        signed("with an input that nobody wants", "input-mismatch", of("heartbeat"), |draft, _| {
            draft.json("current-state.json", |state| {
                let running = state["deployments"].as_object_mut().unwrap().values_mut().next().unwrap();
                running["components"]["hello"]["inputDigest"] = format!("sha256:{}", "1".repeat(64)).into();
            });
        }),
        signed("with a parent", "not-one-line", of("heartbeat"), |draft, forge| {
            draft.parents.push(forge.hand.tip("status"));
        }),
        signed("that can't be read", "report-invalid", of("heartbeat"), |draft, _| {
            draft.put("current-state.json", "[]")
        }),
        signed("for another device", "wrong-device", of("site"), |draft, _| draft.trailer(Trailer::Device, GOOD)),
        signed("with another device in it", "wrong-device", of("site"), |draft, _| {
            draft.json("site.json", |list| list["device"] = GOOD.into());
        }),
        signed("that can't be read", "site-invalid", of("site"), |draft, _| draft.put("site.json", "[]")),
    ]
}

#[test]
fn what_is_signed_for_desired_and_can_not_be_is_found() {
    all_are_found_after_a_checkpoint(&Forge::new(), &desired());
}

#[test]
fn what_a_device_signs_and_can_not_be_is_found() {
    all_are_found_after_a_checkpoint(&Forge::new(), &status());
}

#[test]
fn what_is_signed_on_the_branches_of_one_commit_and_can_not_be_is_found() {
    all_are_found_after_a_checkpoint(&Forge::new(), &singles());
}
