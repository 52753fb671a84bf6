//! What a device makes of a proof of freshness: one for the skeleton with one thing changed each, and the code under which it
//! is refused. And texts of keys.

use repo_model::envelope::ENVELOPE;
use repo_model::freshness::{FRESHNESS, Freshness, Subject};
use repo_model::message::Message;
use repo_model::{Digest, FileTree, KeyText};
use serde_json::{Value, json};

use super::gate::{Base, OTHER};

/// The document, the commit's message, and whether it has a parent.
type Proof = (Value, String, bool);

/// What becomes of a good one.
type Change = fn(&mut Proof);

/// Proofs of freshness for the skeleton's state, but for their signatures and for what time it is.
pub(crate) fn proofs(base: &Base) -> Vec<Value> {
    let text = String::from_utf8(base.freshness[FRESHNESS].clone()).unwrap();
    let plain: Proof = (
        serde_json::from_str(&text).unwrap(),
        Message::new("fresh")
            .trailer("Kind", "freshness")
            .trailer("Fleet", base.fleet)
            .trailer("Device", &base.device)
            .to_string(),
        false,
    );
    let cases: &[(&str, Option<&str>, Change)] = &[
        ("nothing", None, |_| ()),
        ("a key that nobody knows", None, |(proof, ..)| proof["future"] = 1.into()),
        ("another trailer", None, |(_, message, _)| message.push_str("Serial: 9\n")),
        ("another fleet", Some("signature-invalid"), |(proof, ..)| proof["fleet"] = OTHER.into()),
        ("another device", Some("signature-invalid"), |(proof, ..)| proof["device"] = "press-05".into()),
        ("another commit", Some("signature-invalid"), |(proof, ..)| proof["tip"] = "0".repeat(40).into()),
        ("another envelope", Some("signature-invalid"), |(proof, ..)| {
            proof["envelopeDigest"] = Digest::of(b"").to_string().into();
        }),
        ("another serial", Some("signature-invalid"), |(proof, ..)| proof["serial"] = 8.into()),
        ("no `issued`", Some("signature-invalid"), |(proof, ..)| drop(proof.as_object_mut().unwrap().remove("issued"))),
        ("a parent", Some("signature-invalid"), |(.., has_parents)| *has_parents = true),
        ("`Kind` twice", Some("signature-invalid"), |(_, message, _)| message.push_str("Kind: freshness\n")),
        ("`Fleet` of another one", Some("signature-invalid"), |(_, message, _)| {
            *message = message
                .lines()
                .map(|line| if line.starts_with("Fleet") { format!("Fleet: {OTHER}\n") } else { format!("{line}\n") })
                .collect();
        }),
        ("no `Device`", Some("signature-invalid"), |(_, message, _)| {
            *message = message.replace("Device: press-04\n", "")
        }),
        ("a second more than 24 hours", Some("ProofRefused"), |(proof, ..)| {
            proof["expires"] = "2026-11-22T12:00:01Z".into()
        }),
        ("no time at all", Some("ProofRefused"), |(proof, ..)| proof["expires"] = proof["issued"].clone()),
        ("it ends before it begins", Some("ProofRefused"), |(proof, ..)| {
            proof["expires"] = "2026-11-21T11:00:00Z".into()
        }),
    ];
    let envelope = Digest::of(&base.tree[ENVELOPE]);
    let subject = Subject { fleet: base.fleet, device: &base.device, tip: &base.commit, envelope, serial: 7 };
    let vector = |(what, code, change): &(&str, Option<&str>, fn(&mut Proof))| {
        let mut draft = plain.clone();
        change(&mut draft);
        let (proof, message, has_parents) = draft;
        let files = FileTree::from([(FRESHNESS.to_owned(), proof.to_string().into_bytes())]);
        let read = Freshness::read(&files, &Message::parse(&message), has_parents, &subject);
        assert_eq!(read.err().map(|refusal| refusal.code), *code, "{what}");
        json!({"what": what, "code": code, "proof": proof, "message": message, "hasParents": has_parents})
    };
    cases.iter().map(vector).collect()
}

/// Texts of keys, and how they are kept; `null` for what is none.
pub(crate) fn keys() -> Vec<Value> {
    let good = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hcmdvTWFyZ29NYXJnb01hcmdvTWFyZ29NYXJnb00D";
    let with_comment = format!("{good} press-04");
    let wide = format!("  {}  ", good.replace(' ', "\t"));
    let all = [good, &with_comment, &wide, "ssh-rsa AAAAB3NzaC1yc2E=", "", "ssh-ed25519", "ssh-ed25519 BBBB", "AAAA"];
    all.map(|text| json!([text, text.parse::<KeyText>().ok()])).into()
}
