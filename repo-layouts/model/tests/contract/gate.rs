//! What a device makes of a commit on `desired`: the skeleton with one thing changed each, and the code under which it is
//! refused.

use jiff::Timestamp;
use repo_model::desired::{Reader, accept};
use repo_model::envelope::ENVELOPE;
use repo_model::margo::manifest::MANIFEST;
use repo_model::message::Message;
use repo_model::roster::{Trust, roster_path};
use repo_model::{DeviceId, Digest, FileTree, FleetId, KeyText};
use serde_json::{Value, json};

pub(crate) const OTHER: &str = "11111111-2222-4333-8444-555555555555";

/// What the skeleton is made of.
pub(crate) struct Base {
    pub(crate) tree: FileTree,
    pub(crate) freshness: FileTree,
    pub(crate) fleet: FleetId,
    pub(crate) device: DeviceId,
    pub(crate) publisher: KeyText,
    /// The commit that the proof of freshness is of.
    pub(crate) commit: String,
}

/// A commit on `desired`, and who reads it.
#[derive(Clone)]
struct Draft {
    files: FileTree,
    message: String,
    signed_by: KeyText,
    now: Timestamp,
    /// The floor: serial and envelope, `manifestVersion` and manifest, version and bytes of the roster.
    floor: [(u64, Option<Digest>); 3],
}

/// What is changed, under which code it is refused (none: it is believed), and how.
type Case = (&'static str, Option<&'static str>, fn(&mut Draft));

impl Draft {
    fn of(base: &Base) -> Self {
        let roster = Digest::of(&base.tree[&roster_path(1)]);
        let mut draft = Self {
            files: base.tree.clone(),
            message: String::new(),
            signed_by: base.publisher.clone(),
            now: "2026-11-21T12:00:00Z".parse().unwrap(),
            floor: [(6, None), (4, None), (1, Some(roster))],
        };
        draft.name();
        draft
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.files[path].clone()).unwrap()
    }

    fn put(&mut self, path: &str, text: impl Into<String>) {
        self.files.insert(path.to_owned(), text.into().into_bytes());
    }

    fn json(&mut self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_str(&self.text(path)).unwrap();
        change(&mut value);
        self.put(path, format!("{value}\n"));
    }

    /// Changes the envelope; the trailers agree with it.
    fn envelope(&mut self, change: impl FnOnce(&mut Value)) {
        self.json(ENVELOPE, change);
        self.name();
    }

    /// Puts another text in the place of one in the envelope; the trailers agree with it.
    fn envelope_text(&mut self, from: &str, to: &str) {
        let text = self.text(ENVELOPE);
        assert!(text.contains(from), "{from}");
        self.put(ENVELOPE, text.replacen(from, to, 1));
        self.name();
    }

    /// Changes what the envelope says of the deployment.
    fn described(&mut self, change: impl FnOnce(&mut Value)) {
        self.envelope(|envelope| change(envelope["deployments"].as_object_mut().unwrap().values_mut().next().unwrap()));
    }

    fn document_path(&self) -> String {
        self.files.keys().find(|path| path.starts_with("deployments/")).unwrap().clone()
    }

    /// Puts another text in the place of one in the deployment; all digests agree with it.
    fn document(&mut self, from: &str, to: &str) {
        let path = self.document_path();
        let text = self.text(&path);
        assert!(text.contains(from), "{from} in {text}");
        self.put(&path, text.replacen(from, to, 1));
        self.seal();
    }

    /// Changes the manifest; the envelope agrees with it.
    fn manifest(&mut self, change: impl FnOnce(&mut Value)) {
        self.json(MANIFEST, change);
        self.list();
    }

    /// Makes manifest, envelope and trailers agree with the documents.
    fn seal(&mut self) {
        let path = self.document_path();
        let digest = Digest::of(&self.files[&path]).to_string();
        self.manifest(|manifest| {
            let entry = &mut manifest["deployments"][0];
            let id = entry["deploymentId"].as_str().unwrap().to_owned();
            (entry["digest"], entry["url"]) =
                (digest.as_str().into(), format!("/api/v1/deployments/{id}/{digest}").into());
            entry.as_object_mut().unwrap().remove("sizeBytes");
        });
    }

    /// Makes `files` and the trailers agree with the tree.
    fn list(&mut self) {
        let files = self.files.iter().filter(|(path, _)| *path != ENVELOPE);
        let files: Value = files.map(|(path, bytes)| (path.clone(), Digest::of(bytes).to_string())).collect();
        self.envelope(|envelope| envelope["files"] = files);
    }

    /// Makes the trailers agree with the envelope.
    fn name(&mut self) {
        let envelope: Value = serde_json::from_str(&self.text(ENVELOPE)).unwrap_or_default();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.message = Message::new("a state")
            .trailer("Kind", "desired")
            .trailer("Fleet", text(&envelope["fleet"]))
            .trailer("Device", text(&envelope["device"]["id"]))
            .trailer("Serial", text(&envelope["serial"]))
            .trailer("Manifest-Version", text(&envelope["manifestVersion"]))
            .trailer("Envelope-Digest", Digest::of(&self.files[ENVELOPE]))
            .to_string();
    }

    fn add(&mut self, trailer: &str) {
        self.message = format!("{}{trailer}\n", self.message);
    }

    fn accept(&self, base: &Base) -> Option<&'static str> {
        let pinned = Trust::pin("pinned", &base.tree[&roster_path(1)], base.fleet).unwrap();
        let reader = Reader {
            fleet: base.fleet,
            device: &base.device,
            trust: &pinned,
            serial: self.floor[0],
            manifest_version: self.floor[1],
            roster: (self.floor[2].0, self.floor[2].1.unwrap()),
            now: self.now,
        };
        let message = Message::parse(&self.message);
        accept(&self.files, &message, &self.signed_by, &reader, &|_, _| None).err().map(|refusal| refusal.code)
    }
}

/// In the order of the steps in *What a device checks*.
const GATE: &[Case] = &[
    ("nothing", None, |_| ()),
    // 2: the envelope
    ("a key that nobody knows, anywhere in the envelope", None, |draft| {
        draft.envelope(|envelope| {
            envelope["future"] = json!({"a": 1});
            envelope["policy"]["future"] = 1.into();
            envelope["device"]["future"] = 1.into();
        });
        draft.described(|described| described["policy"] = json!({"future": true}));
    }),
    ("a restart, for which no feature is required", None, |draft| {
        draft.described(|described| described["policy"] = json!({"restart": 3}));
    }),
    ("a site's policy, as far as that hands it over, for which no feature is required", None, |draft| {
        let mirrors = json!({"docker.io": ["mirror.plant.local:5000/vendor"]});
        let site = json!({"ports": [[8000, 8099]], "registries": {"mirrors": mirrors}, "future": {"a": 1}});
        draft.envelope(|envelope| envelope["policy"]["site"] = site);
    }),
    ("the last state of a retired device, for which no feature is required", None, |draft| {
        draft.envelope(|envelope| envelope["device"]["retired"] = true.into());
    }),
    ("a word for retired that is neither true nor false", Some("manifest-invalid"), |draft| {
        draft.envelope(|envelope| envelope["device"]["retired"] = "yes".into());
    }),
    ("a key that nobody knows, twice", Some("manifest-invalid"), |draft| {
        draft.envelope_text("{", "{\"future\":1,\"future\":2,");
    }),
    ("a file twice in `files`", Some("manifest-invalid"), |draft| {
        let twice = format!("\"files\":{{\"{MANIFEST}\":\"{}\",", Digest::of(b""));
        draft.envelope_text("\"files\":{", &twice);
    }),
    ("a byte order mark", Some("manifest-invalid"), |draft| draft.envelope_text("{", "\u{feff}{")),
    ("a second JSON text", Some("manifest-invalid"), |draft| draft.envelope_text("\n", "\n{}\n")),
    ("the envelope is gone", Some("manifest-invalid"), |draft| drop(draft.files.remove(ENVELOPE))),
    ("layout 2, whatever else it says", Some("layout-too-new"), |draft| draft.put(ENVELOPE, "{\"layout\":2}")),
    ("layout 0", Some("manifest-invalid"), |draft| draft.envelope(|envelope| envelope["layout"] = 0.into())),
    ("layout as text", Some("manifest-invalid"), |draft| draft.envelope(|envelope| envelope["layout"] = "1".into())),
    ("a feature that is required and not known", Some("layout-too-new"), |draft| {
        draft.envelope(|envelope| envelope["requires"] = json!(["teleport"]));
    }),
    ("a feature that is required and not used", None, |draft| {
        draft.envelope(|envelope| envelope["requires"] = json!(["depends-on"]));
    }),
    ("serial -1", Some("manifest-invalid"), |draft| draft.envelope(|envelope| envelope["serial"] = (-1).into())),
    ("serial 7.0", Some("manifest-invalid"), |draft| draft.envelope(|envelope| envelope["serial"] = 7.0.into())),
    ("serial as text", Some("manifest-invalid"), |draft| draft.envelope(|envelope| envelope["serial"] = "7".into())),
    ("serial 2^64", Some("manifest-invalid"), |draft| {
        draft.envelope_text("\"serial\":7", "\"serial\":18446744073709551616");
    }),
    ("a digest in upper case", Some("manifest-invalid"), |draft| {
        draft.envelope(|envelope| envelope["files"][MANIFEST] = Digest::of(b"").to_string().to_uppercase().into());
    }),
    ("a status key that is none", Some("manifest-invalid"), |draft| {
        draft.envelope(|envelope| envelope["device"]["statusKeys"] = json!(["press-04"]));
    }),
    ("a status key of another type, which never counts", None, |draft| {
        draft.envelope(|envelope| envelope["device"]["statusKeys"] = json!(["ssh-rsa AAAAB3NzaC1yc2E="]));
    }),
    // 3: who signed it
    ("the roster is gone", Some("trust-invalid"), |draft| {
        draft.files.remove(&roster_path(1));
        draft.list();
    }),
    ("a second roster that the roots didn't sign", Some("trust-invalid"), |draft| {
        let second = draft.text(&roster_path(1)).replace("\"version\":1", "\"version\":2");
        draft.put(&roster_path(2), second);
        draft.list();
    }),
    ("a key that isn't in the roster", Some("signature-invalid"), |draft| {
        draft.signed_by = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==".parse().unwrap();
    }),
    ("a key at the moment of its `notAfter`", Some("signature-invalid"), |draft| {
        draft.now = "2028-01-01T00:00:00Z".parse().unwrap();
    }),
    // 4: for whom it is, and the trailers
    ("another fleet", Some("wrong-device"), |draft| draft.envelope(|envelope| envelope["fleet"] = OTHER.into())),
    ("another device", Some("wrong-device"), |draft| {
        draft.envelope(|envelope| envelope["device"]["id"] = "press-05".into());
    }),
    ("`Kind` twice", Some("manifest-invalid"), |draft| draft.add("Kind: desired")),
    ("`Fleet` twice", Some("manifest-invalid"), |draft| draft.add(&format!("Fleet: {OTHER}"))),
    ("`Device` twice", Some("manifest-invalid"), |draft| draft.add("Device: press-04")),
    ("`Serial` twice", Some("manifest-invalid"), |draft| draft.add("Serial: 7")),
    ("`Envelope-Digest` twice", Some("manifest-invalid"), |draft| draft.add("Envelope-Digest: none")),
    ("`kind` in lower case, which is another trailer", None, |draft| draft.add("kind: status")),
    ("`Manifest-Version` twice, which is for auditors", None, |draft| draft.add("Manifest-Version: 9")),
    ("`Kind` of another branch", Some("manifest-invalid"), |draft| {
        draft.message = draft.message.replace("Kind: desired", "Kind: bundle");
    }),
    ("another serial in the trailer", Some("manifest-invalid"), |draft| {
        draft.message = draft.message.replace("Serial: 7", "Serial: 07");
    }),
    ("no trailers", Some("manifest-invalid"), |draft| draft.message = "a state\n".to_owned()),
    ("text behind the trailers", Some("manifest-invalid"), |draft| draft.message += "\nand more\n"),
    // 5: the files
    ("a file that is listed and missing", Some("manifest-invalid"), |draft| {
        let path = draft.document_path();
        draft.files.remove(&path);
    }),
    ("a file that isn't listed", Some("manifest-invalid"), |draft| draft.put("surprise", "")),
    ("the manifest isn't listed", Some("manifest-invalid"), |draft| {
        draft.files.remove(MANIFEST);
        draft.list();
    }),
    ("other bytes than `files` says", Some("digest-mismatch"), |draft| {
        let path = draft.document_path();
        draft.put(&path, "other");
    }),
    ("the envelope lists itself", Some("digest-mismatch"), |draft| {
        draft.envelope(|envelope| envelope["files"][ENVELOPE] = Digest::of(b"").to_string().into());
    }),
    // 6: the floor
    ("serial 0", Some("serial-rollback"), |draft| draft.envelope(|envelope| envelope["serial"] = 0.into())),
    ("serial 2^53", Some("serial-rollback"), |draft| {
        draft.floor[0].0 = (1 << 53) - 1;
        draft.envelope(|envelope| envelope["serial"] = (1_u64 << 53).into());
    }),
    ("serial 2^53-1, above a floor that is near", None, |draft| {
        draft.floor[0].0 = (1 << 53) - 2;
        draft.envelope(|envelope| envelope["serial"] = ((1_u64 << 53) - 1).into());
    }),
    ("a serial below the floor", Some("serial-rollback"), |draft| draft.floor[0] = (8, None)),
    ("the floor's serial with another envelope", Some("serial-rollback"), |draft| {
        draft.floor[0] = (7, Some(Digest::of(b"other")));
    }),
    ("the floor's serial with the same envelope", None, |draft| {
        draft.floor[0] = (7, Some(Digest::of(&draft.files[ENVELOPE])));
    }),
    ("a serial a million above the floor", None, |draft| {
        draft.envelope(|envelope| envelope["serial"] = 1_000_006.into());
    }),
    ("a serial further above the floor", Some("serial-rollback"), |draft| {
        draft.envelope(|envelope| envelope["serial"] = 1_000_007.into());
    }),
    ("a manifestVersion below the floor", Some("serial-rollback"), |draft| draft.floor[1] = (6, None)),
    ("the floor's manifestVersion with another manifest", Some("serial-rollback"), |draft| {
        draft.floor[1] = (5, Some(Digest::of(b"other")));
    }),
    ("the floor's manifestVersion with the same manifest", None, |draft| {
        draft.floor[1] = (5, Some(Digest::of(&draft.files[MANIFEST])));
    }),
    ("a roster below the floor", Some("trust-invalid"), |draft| draft.floor[2].0 = 2),
    ("the floor's roster with other bytes", Some("trust-invalid"), |draft| draft.floor[2].1 = Some(Digest::of(b""))),
    ("a roster below the floor and a document that is none", Some("trust-invalid"), |draft| {
        draft.floor[2].0 = 2;
        draft.document("id:", "ID:");
    }),
    ("a serial below the floor and another digest in the manifest", Some("serial-rollback"), |draft| {
        draft.floor[0] = (8, None);
        draft.manifest(|manifest| wrong_digest(&mut manifest["deployments"][0]));
    }),
    // 7: the documents
    ("another digest in the manifest", Some("digest-mismatch"), |draft| {
        draft.manifest(|manifest| wrong_digest(&mut manifest["deployments"][0]));
    }),
    ("another manifestVersion in the manifest", Some("manifest-invalid"), |draft| {
        draft.manifest(|manifest| manifest["manifestVersion"] = 6.into());
    }),
    ("a key in the manifest that Margo doesn't know", Some("manifest-invalid"), |draft| {
        draft.manifest(|manifest| manifest["future"] = 1.into());
    }),
    ("a deployment that the manifest lists and the tree lacks", Some("manifest-invalid"), |draft| {
        let path = draft.document_path();
        draft.files.remove(&path);
        draft.list();
    }),
    ("a deployment in the tree that the manifest doesn't list", Some("manifest-invalid"), |draft| {
        draft.put(&format!("deployments/{OTHER}.yaml"), draft.text(&draft.document_path()));
        draft.list();
    }),
    ("a deployment that the envelope doesn't describe", Some("manifest-invalid"), |draft| {
        draft.envelope(|envelope| envelope["deployments"] = json!({}));
    }),
    ("a deployment that the envelope alone describes", Some("manifest-invalid"), |draft| {
        draft.envelope(|envelope| envelope["deployments"][OTHER] = json!({"id": "other", "locks": {}}));
    }),
    ("another id in the document than in its name", Some("deployment-invalid"), |draft| {
        let id = draft.document_path()["deployments/".len()..].trim_end_matches(".yaml").to_owned();
        draft.document(&id, OTHER);
    }),
    ("no `locks`", Some("manifest-invalid"), |draft| {
        draft.described(|described| drop(described.as_object_mut().unwrap().remove("locks")));
    }),
    ("a component without a lock", Some("manifest-invalid"), |draft| {
        draft.described(|described| described["locks"] = json!({}));
    }),
    ("a lock of no component", Some("manifest-invalid"), |draft| {
        draft.described(|described| described["locks"]["ghost"] = described["locks"]["digitron"].clone());
    }),
    ("a lock without `content`", Some("manifest-invalid"), |draft| {
        draft.described(|described| drop(described["locks"]["digitron"].as_object_mut().unwrap().remove("content")));
    }),
    ("`dependsOn` of nobody, which waits", None, |draft| depends_on(draft, &["ghost"])),
    ("`dependsOn` of itself, which waits", None, |draft| depends_on(draft, &["digitron"])),
    ("a word on approval that nobody knows, for which a person is asked", None, |draft| {
        draft.envelope(|envelope| envelope["policy"]["approval"] = "two-persons".into());
    }),
    ("drift that is ignored of a chart's objects", None, |draft| {
        drift_ignore(
            draft,
            r#"[{"kind": "Deployment", "name": "web", "pointer": "/spec/replicas"}, {"kind": "Secret", "pointer": ""}]"#,
        );
    }),
    ("ignored drift whose pointer is none", Some("manifest-invalid"), |draft| {
        drift_ignore(draft, r#"[{"kind": "Deployment", "pointer": "spec.replicas"}]"#);
    }),
    ("ignored drift whose pointer ends in the middle of an escape", Some("manifest-invalid"), |draft| {
        drift_ignore(draft, r#"[{"kind": "ConfigMap", "pointer": "/data/a~"}]"#);
    }),
    (
        "ignored drift with a key that nobody knows, which may mean less than it seems",
        Some("manifest-invalid"),
        |draft| {
            drift_ignore(draft, r#"[{"kind": "Deployment", "pointer": "", "namespace": "plant"}]"#);
        },
    ),
    ("windows, and a deployment's own", None, |draft| windows(draft, GOOD_WINDOWS)),
    ("windows by a clock that nobody knows, which are closed", None, |draft| {
        windows(draft, r#"{"zone": "Mars/Base"}"#)
    }),
    ("windows without a zone", Some("manifest-invalid"), |draft| windows(draft, r#"{"downtime": []}"#)),
    ("windows with a key that nobody knows", Some("manifest-invalid"), |draft| {
        windows(draft, r#"{"zone": "UTC", "moon": "full"}"#);
    }),
    ("windows whose start restricts day and weekday", Some("manifest-invalid"), |draft| {
        windows(draft, r#"{"zone": "UTC", "apply": {"deny": [{"start": "0 2 1 * 6", "lengthSeconds": 60}]}}"#);
    }),
    ("windows that are shorter than a minute", Some("manifest-invalid"), |draft| {
        windows(draft, r#"{"zone": "UTC", "downtime": [{"start": "0 2 * * *", "lengthSeconds": 59}]}"#);
    }),
    ("`dependsOn` with a name that can't be one", Some("manifest-invalid"), |draft| depends_on(draft, &["Not-One"])),
    ("a key in a document that Margo doesn't know", Some("deployment-invalid"), |draft| {
        draft.document("spec:\n", "spec:\n  future: 1\n");
    }),
    ("vendors' keys on spec", None, |draft| {
        draft.document("spec:\n", "spec:\n  x-acme-extensions: {a: [1]}\n");
    }),
    ("vendors' keys on the profile", None, |draft| {
        draft.document("deploymentProfile:\n", "deploymentProfile:\n    x-acme-extensions: {a: [1]}\n");
    }),
    ("vendors' keys on a component", None, |draft| {
        draft.document("components:\n    - ", "components:\n    - x-acme-extensions: {a: [1]}\n      ");
    }),
    ("vendors' keys that aren't a mapping", Some("deployment-invalid"), |draft| {
        draft.document("spec:\n", "spec:\n  x-acme-extensions: 1\n");
    }),
    ("vendors' keys on the document", Some("deployment-invalid"), |draft| {
        draft.document("spec:\n", "x-acme-extensions: {}\nspec:\n");
    }),
    ("vendors' keys on metadata", Some("deployment-invalid"), |draft| {
        draft.document("metadata:\n", "metadata:\n  x-acme-extensions: {}\n");
    }),
    ("vendors' keys on a component's properties", Some("deployment-invalid"), |draft| {
        draft.document("properties:\n", "properties:\n        x-acme-extensions: {}\n");
    }),
    ("vendors' keys with a name that isn't theirs", Some("deployment-invalid"), |draft| {
        draft.document("spec:\n", "spec:\n  x-Acme-extensions: {}\n");
    }),
    ("a value that is a list", None, |draft| with_value(draft, "[1, \"a\"]")),
    ("a value of 128 bits", None, |draft| with_value(draft, "170141183460469231731687303715884105727")),
    ("a value that is a list of lists", Some("deployment-invalid"), |draft| with_value(draft, "[[1]]")),
    ("a value that is a mapping", Some("deployment-invalid"), |draft| with_value(draft, "{a: 1}")),
    ("no value", Some("deployment-invalid"), |draft| with_value(draft, "null")),
    ("an infinite value", Some("deployment-invalid"), |draft| with_value(draft, ".inf")),
    ("a value of more than 128 bits", Some("deployment-invalid"), |draft| {
        with_value(draft, "170141183460469231731687303715884105728");
    }),
    ("a value with U+0000", Some("deployment-invalid"), |draft| with_value(draft, "\"a\\0b\"")),
    ("a target that is no component", Some("deployment-invalid"), |draft| {
        draft.document(
            "parameters:\n",
            "parameters:\n    more: {value: 1, targets: [{pointer: MORE, components: [ghost]}]}\n",
        );
    }),
    ("two values for one place", Some("deployment-invalid"), |draft| {
        draft.document(
            "parameters:\n",
            "parameters:\n    more: {value: 1, targets: [{pointer: ENV.GREETING, components: [digitron]}]}\n",
        );
    }),
    ("a variable's name that steers a tool, which is the component's own", None, |draft| {
        draft.document(
            "parameters:\n",
            "parameters:\n    more: {value: 1, targets: [{pointer: LD_PRELOAD, components: [digitron]}]}\n",
        );
    }),
    ("a device file with a path, which is the component's own", None, |draft| {
        draft.described(|described| described["valuesFrom"]["password"]["deviceFile"] = "../secret".into());
    }),
    ("an `ask` that nobody has to know, with a word of a newer fleet", None, |draft| {
        ask(draft, r#"{"number": 7, "what": "some-later-word", "deployment": "digitron"}"#);
    }),
    ("an `ask` without a number", Some("manifest-invalid"), |draft| ask(draft, r#"{"what": "sync"}"#)),
    ("an encrypted value that nobody can read, which is the component's own", None, |draft| encrypted(draft, false)),
    ("a value from a file that is encrypted, too", Some("manifest-invalid"), |draft| encrypted(draft, true)),
];

fn wrong_digest(entry: &mut Value) {
    let digest = Digest::of(b"other").to_string();
    let id = entry["deploymentId"].as_str().unwrap().to_owned();
    (entry["digest"], entry["url"]) = (digest.as_str().into(), format!("/api/v1/deployments/{id}/{digest}").into());
}

fn encrypted(draft: &mut Draft, keeps_file: bool) {
    draft.envelope(|envelope| envelope["requires"] = json!(["encrypted-values"]));
    draft.described(|described| {
        let password = &mut described["valuesFrom"]["password"];
        password["encrypted"] = "no age file".into();
        if !keeps_file {
            password.as_object_mut().unwrap().remove("deviceFile");
        }
    });
}

fn ask(draft: &mut Draft, ask: &str) {
    draft.envelope(|envelope| envelope["policy"]["ask"] = serde_json::from_str(ask).unwrap());
}

fn depends_on(draft: &mut Draft, names: &[&str]) {
    draft.envelope(|envelope| envelope["requires"] = json!(["depends-on"]));
    draft.described(|described| described["policy"] = json!({ "dependsOn": names }));
}

fn drift_ignore(draft: &mut Draft, all: &str) {
    let all: Value = serde_json::from_str(all).unwrap();
    draft.envelope(|envelope| envelope["requires"] = json!(["drift-ignore"]));
    draft.described(|described| described["policy"] = json!({ "driftIgnore": all }));
}

const GOOD_WINDOWS: &str = r#"{"zone": "Europe/Vienna", "apply": {"allow": [{"start": "0 2 * * 6", "lengthSeconds": 14400}],
    "deny": [{"start": "0 0 24 12 *", "lengthSeconds": 259200}]}, "downtime": [{"start": "*/30 8-18/2 1,7 * *", "lengthSeconds": 60}],
    "fetch": {"deny": [{"start": "0 6 * * 1-5", "lengthSeconds": 43200}]},
    "talk": {"allow": [{"start": "0 5 * * *", "lengthSeconds": 7200}]}, "lastStartSeconds": 600, "overrun": "some-later-word"}"#;

/// For the device and for the deployment.
fn windows(draft: &mut Draft, windows: &str) {
    let windows: Value = serde_json::from_str(windows).unwrap();
    draft.envelope(|envelope| {
        envelope["requires"] = json!(["windows"]);
        envelope["policy"]["windows"] = windows.clone();
    });
    draft.described(|described| described["policy"] = json!({ "windows": windows }));
}

fn with_value(draft: &mut Draft, yaml: &str) {
    draft.document("value: servus", &format!("value: {yaml}"));
}

/// The vectors of `gate.json`: the skeleton's tree is in `repo-layouts/device/desired`.
pub(crate) fn vectors(base: &Base) -> Value {
    let plain = Draft::of(base);
    let mut wrong = Vec::new();
    let gate = GATE.iter().map(|(what, code, change)| {
        let mut draft = plain.clone();
        change(&mut draft);
        let found = draft.accept(base);
        if found != *code {
            wrong.push(format!("{what}: {found:?}, expected {code:?}"));
        }
        let mut case = json!({"what": what, "code": code});
        let changed = changed(&plain.files, &draft.files);
        for (key, new, differs) in [
            ("files", changed.clone(), changed != json!({})),
            ("message", draft.message.as_str().into(), draft.message != plain.message),
            ("signedBy", json!(draft.signed_by), draft.signed_by != plain.signed_by),
            ("now", json!(draft.now), draft.now != plain.now),
            ("floor", floor(&draft), draft.floor != plain.floor),
        ] {
            if differs {
                case[key] = new;
            }
        }
        case
    });
    let cases: Vec<_> = gate.collect();
    assert_eq!(wrong, Vec::<String>::new());
    json!({
        "reader": {"fleet": base.fleet, "device": base.device, "pinnedRoster": 1},
        "base": {"tree": "repo-layouts/device/desired", "message": plain.message, "signedBy": plain.signed_by,
            "now": plain.now, "floor": floor(&plain)},
        "cases": cases,
        "state": {"tip": base.commit, "serial": 7, "envelopeDigest": Digest::of(&base.tree[ENVELOPE])},
        "freshness": super::proofs::proofs(base),
        "keys": super::proofs::keys(),
    })
}

/// The files that are other ones, and `null` for those that are gone.
pub(crate) fn changed(before: &FileTree, after: &FileTree) -> Value {
    let text = |bytes: &Vec<u8>| Value::from(String::from_utf8(bytes.clone()).unwrap());
    let new = after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes));
    let gone = before.keys().filter(|path| !after.contains_key(*path)).map(|path| (path.clone(), Value::Null));
    new.map(|(path, bytes)| (path.clone(), text(bytes))).chain(gone).collect()
}

fn floor(draft: &Draft) -> Value {
    let [serial, manifest, roster] = draft.floor;
    json!({"serial": serial.0, "envelope": serial.1, "manifestVersion": manifest.0, "manifest": manifest.1,
        "roster": roster.0, "rosterDigest": roster.1})
}
