//! What a device makes of a commit on `site`: the skeleton's with one thing changed each, and the code under which it is
//! refused.

use repo_model::message::Message;
use repo_model::site::{self, Reader, SITE, SiteList};
use repo_model::{Digest, FileTree, KeyText, json};
use serde_json::{Value, json};

use super::gate::{OTHER, changed};
use super::{key, time};

/// A commit on `site`, and who reads it.
#[derive(Clone)]
struct Draft {
    files: FileTree,
    message: String,
    has_parents: bool,
    signed_by: KeyText,
    /// The highest serial that is known, and the digest of its list.
    known: Option<(u64, Digest)>,
    now: &'static str,
}

type Case = (&'static str, Option<&'static str>, fn(&mut Draft));

impl Draft {
    fn text(&self) -> String {
        String::from_utf8(self.files[SITE].clone()).unwrap()
    }

    fn put(&mut self, text: impl Into<String>) {
        self.files.insert(SITE.to_owned(), text.into().into_bytes());
    }

    fn list(&mut self, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_str(&self.text()).unwrap();
        change(&mut value);
        self.put(format!("{value}\n"));
    }

    fn trailer(&mut self, begin: &str, line: &str) {
        let lines = self.message.lines().map(|one| if one.starts_with(begin) { line } else { one });
        self.message = lines.flat_map(|one| [one, "\n"]).collect();
    }
}

/// So many words, each with another set.
fn words(count: usize) -> Value {
    let word = |number| json!({"set": Digest::of(format!("{number}").as_bytes()), "by": "j.doe", "why": "x"});
    (0..count).map(word).collect()
}

/// In the order of the contract.
const CASES: &[Case] = &[
    ("nothing", None, |_| ()),
    ("a key that the site doesn't list", Some("signature-invalid"), |draft| draft.signed_by = key('P')),
    ("the same, whatever else is wrong", Some("signature-invalid"), |draft| {
        (draft.signed_by, draft.has_parents) = (key('P'), true);
    }),
    ("another key that it lists", None, |draft| draft.signed_by = key('T')),
    ("`Kind` of another branch", Some("wrong-device"), |draft| draft.trailer("Kind", "Kind: status")),
    ("`Kind` twice", Some("wrong-device"), |draft| draft.message.push_str("Kind: site\n")),
    ("`Fleet` of another one", Some("wrong-device"), |draft| draft.trailer("Fleet", &format!("Fleet: {OTHER}"))),
    ("`Device` of another one", Some("wrong-device"), |draft| draft.trailer("Device", "Device: press-05")),
    ("another trailer", None, |draft| draft.message.push_str("Serial: 9\n")),
    ("a parent", Some("Unreadable"), |draft| draft.has_parents = true),
    ("no `site.json`", Some("Unreadable"), |draft| draft.files.clear()),
    ("another file", Some("Unreadable"), |draft| drop(draft.files.insert("README".to_owned(), Vec::new()))),
    ("no JSON", Some("Unreadable"), |draft| draft.put("layout: 1\n")),
    ("`serial` twice", Some("Unreadable"), |draft| draft.put(draft.text().replacen('{', "{\"serial\":9,", 1))),
    ("a byte order mark", Some("Unreadable"), |draft| draft.put(format!("\u{feff}{}", draft.text()))),
    ("a key that nobody knows", None, |draft| draft.list(|list| list["future"] = 1.into())),
    ("layout 0", Some("Unreadable"), |draft| draft.list(|list| list["layout"] = 0.into())),
    ("layout 2, whatever else it says", Some("layout-too-new"), |draft| draft.put("{\"layout\":2}")),
    ("no `expires`", Some("Unreadable"), |draft| {
        draft.list(|list| drop(list.as_object_mut().unwrap().remove("expires")));
    }),
    ("no words at all", None, |draft| {
        draft.list(|list| list.as_object_mut().unwrap().retain(|key, _| key != "approvals" && key != "rejected"));
    }),
    ("a set that is no digest", Some("Unreadable"), |draft| {
        draft.list(|list| list["approvals"][0]["set"] = "4be1c0ffee12".into());
    }),
    ("nobody who says so", Some("Unreadable"), |draft| draft.list(|list| list["rejected"][0]["by"] = " ".into())),
    ("200 characters", None, |draft| draft.list(|list| list["approvals"][0]["why"] = "ü".repeat(200).into())),
    ("201 characters", Some("Unreadable"), |draft| {
        draft.list(|list| list["approvals"][0]["why"] = "x".repeat(201).into());
    }),
    ("100 words", None, |draft| draft.list(|list| list["approvals"] = words(99))),
    ("101 words", Some("Unreadable"), |draft| draft.list(|list| list["approvals"] = words(100))),
    ("for another fleet", Some("wrong-device"), |draft| draft.list(|list| list["fleet"] = OTHER.into())),
    ("for another device", Some("wrong-device"), |draft| draft.list(|list| list["device"] = "press-05".into())),
    ("serial 0", Some("serial-rollback"), |draft| {
        draft.known = None;
        draft.list(|list| list["serial"] = 0.into());
    }),
    ("serial 2^53", Some("serial-rollback"), |draft| draft.list(|list| list["serial"] = (1_u64 << 53).into())),
    ("serial 2^53-1", None, |draft| draft.list(|list| list["serial"] = ((1_u64 << 53) - 1).into())),
    ("serial 3.0", Some("Unreadable"), |draft| draft.list(|list| list["serial"] = 3.0.into())),
    ("none before", None, |draft| draft.known = None),
    ("a newer one before", Some("serial-rollback"), |draft| draft.known = Some((4, Digest::of(b"")))),
    ("the same one before", None, |draft| draft.known = Some((3, Digest::of(&draft.files[SITE])))),
    ("another one of the same serial before", Some("SiteForked"), |draft| {
        draft.known = Some((3, Digest::of(b"")));
    }),
    ("a second before its end", None, |draft| draft.now = "2026-11-28T11:59:59Z"),
    ("its end", Some("OutOfTime"), |draft| draft.now = "2026-11-28T12:00:00Z"),
    ("14 days and one for clocks", None, |draft| draft.now = "2026-11-13T12:00:00Z"),
    ("a second more", Some("OutOfTime"), |draft| draft.now = "2026-11-13T11:59:59Z"),
];

/// The vectors of `site.json`: the list is that of `repo-layouts/device/site`.
pub(crate) fn vectors(list: &SiteList, change: &Value) -> Value {
    let message = Message::new("approved: digitron")
        .trailer("Kind", "site")
        .trailer("Fleet", list.fleet)
        .trailer("Device", &list.device)
        .to_string();
    let files = FileTree::from([(SITE.to_owned(), json::to_bytes(list))]);
    let known = Some((2, Digest::of(b"the list before")));
    let plain = Draft { files, message, has_parents: false, signed_by: key('S'), known, now: "2026-11-21T12:00:00Z" };
    let keys = [key('S'), key('T')];
    let mut wrong = Vec::new();
    let cases: Vec<_> = CASES
        .iter()
        .map(|(what, code, change)| {
            let mut draft = plain.clone();
            change(&mut draft);
            let Draft { files, message, has_parents, signed_by, known, now } = &draft;
            let reader = Reader { fleet: list.fleet, device: &list.device, keys: &keys, known: *known, now: time(now) };
            let read = site::accept(files, &Message::parse(message), *has_parents, signed_by, &reader);
            let found = read.err().map(|refusal| refusal.code);
            if found != *code {
                wrong.push(format!("{what}: {found:?}, expected {code:?}"));
            }
            let known = |known: Option<(u64, Digest)>| {
                json!(known.map(|(serial, digest)| json!({"serial": serial, "digest": digest})))
            };
            let mut case = json!({"what": what, "code": code});
            for (key, new, differs) in [
                ("files", changed(&plain.files, files), *files != plain.files),
                ("message", json!(message), *message != plain.message),
                ("hasParents", json!(has_parents), *has_parents),
                ("signedBy", json!(signed_by), *signed_by != plain.signed_by),
                ("now", json!(now), *now != plain.now),
                ("known", known(draft.known), draft.known != plain.known),
            ] {
                if differs {
                    case[key] = new;
                }
            }
            case
        })
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
    json!({
        "reader": {"fleet": list.fleet, "device": list.device, "keys": keys},
        "base": {"tree": "repo-layouts/device/site", "message": plain.message, "hasParents": false, "signedBy": plain.signed_by,
            "now": plain.now, "known": {"serial": 2, "digest": Digest::of(b"the list before")}},
        "change": change, "set": Digest::of(&json::canonical(change)),
        "cases": cases,
    })
}
