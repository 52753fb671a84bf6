//! What `status` shows of reports that were made by hand, with stock Git and ssh-keygen.

use repo_model::Trailer;
use std::process::{Command, Stdio};

use repo_testkit::git::git;
use serde_json::Value;

use crate::support::{Lab, after};

/// A work tree in which a device's reports are made.
pub(crate) struct Reporter<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) device: &'a str,
}

impl Reporter<'_> {
    /// Commits files on a branch of the device's repository, signed with a key, without any code of ours.
    pub(crate) fn commit(&self, branch: &str, signer: &str, files: &[(&str, String)], trailers: &str) {
        self.commit_upon(&[], branch, signer, files, trailers);
    }

    /// The same on top of other commits.
    pub(crate) fn commit_upon(
        &self,
        parents: &[String],
        branch: &str,
        signer: &str,
        files: &[(&str, String)],
        trailers: &str,
    ) {
        let key = self.lab.dir().join(format!("{signer}.key"));
        Lab::device_key(signer).save(&key).unwrap();
        let repo = self.lab.repo(self.device);
        let index = self.lab.dir().join("index");
        let _ = std::fs::File::create(&index).map(|_| ());
        let mut entries = String::new();
        for (path, text) in files {
            let mut hash = repo_testkit::git::command(&repo);
            let mut child = hash
                .args(["hash-object", "-w", "--stdin"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
            let blob = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
            entries.push_str(&format!("100644 {}\t{path}\n", blob.trim()));
        }
        let tree = self.tree(&entries);
        let signing = format!("user.signingkey={}", key.display());
        let message = format!("by hand\n\n{trailers}");
        let mut args = vec!["-c", "gpg.format=ssh", "-c", &signing, "commit-tree", "-S", "-m", &message, &tree];
        args.extend(parents.iter().flat_map(|parent| ["-p", parent]));
        let commit = git(&repo, &args);
        git(&repo, &["update-ref", &format!("refs/heads/{branch}"), &commit]);
    }

    /// Builds a tree through a throw-away index, so that paths may have folders.
    fn tree(&self, entries: &str) -> String {
        let repo = self.lab.repo(self.device);
        let index = self.lab.dir().join("throw-away.index");
        let run = |args: &[&str], input: &str| {
            let mut command: Command = repo_testkit::git::command(&repo);
            command.env("GIT_INDEX_FILE", &index).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        run(&["read-tree", "--empty"], "");
        run(&["update-index", "--index-info"], &entries.replace("100644 ", "100644 blob "));
        run(&["write-tree"], "")
    }

    pub(crate) fn trailers(&self, kind: &str) -> String {
        let fleet = self.lab.json(self.device, "desired", "envelope.json")["fleet"].as_str().unwrap().to_owned();
        format!("Kind: {kind}\nFleet: {fleet}\nDevice: {}\n", self.device)
    }

    pub(crate) fn status(&self, signer: &str, state: &str, error: &str) {
        self.status_with(signer, (state, error), "0.2.0", &[]);
    }

    /// A status of a syncer in this version, with more files.
    pub(crate) fn status_with(
        &self,
        signer: &str,
        (state, error): (&str, &str),
        version: &str,
        more: &[(&str, String)],
    ) {
        let tip = self.lab.tip(self.device, "desired").unwrap();
        let (id, serial) = (self.deployment(), self.lab.serial(self.device));
        let envelope = self.lab.trailer(self.device, Trailer::EnvelopeDigest);
        let syncer = format!(
            r#"{{"layout":1,"version":"{version}","instance":"00000000-0000-0000-0000-000000000000",
               "adopted":{{"serial":{serial},"manifestVersion":1,"trust":1,"commit":"{tip}","envelope":"{envelope}"}},
               "conditions":[{{"type":"Stale","reason":"NoFreshness","message":"no proof of freshness"}}],"holds":[]}}"#
        );
        let document = format!(
            r#"{{"deploymentId":"{id}","deviceId":"{}","status":{{"state":"{state}"{error}}},
               "components":[{{"name":"hello","state":"{state}"{error}}}]}}"#,
            self.device
        );
        let trailers = format!("{}Serial: {serial}\nDesired-Commit: {tip}\n", self.trailers("status"));
        let path = format!("deployments/{id}.json");
        let mut files = vec![("syncer.json", syncer)];
        if !id.is_empty() {
            files.push((&path, document));
        }
        files.extend_from_slice(more);
        self.commit("status", signer, &files, &trailers);
    }

    /// A status that adopted the newest state, with these documents, and nothing wrong.
    pub(crate) fn status_of(&self, signer: &str, manifest_version: u64, more: &[(&str, String)]) {
        self.status_in("[]", signer, manifest_version, more);
    }

    /// The same with these conditions.
    pub(crate) fn status_in(&self, conditions: &str, signer: &str, manifest_version: u64, more: &[(&str, String)]) {
        let tip = self.lab.tip(self.device, "desired").unwrap();
        let serial = self.lab.serial(self.device);
        let envelope = self.lab.trailer(self.device, Trailer::EnvelopeDigest);
        let syncer = format!(
            r#"{{"layout":1,"version":"0.3.0","instance":"00000000-0000-0000-0000-000000000000","adopted":{{"serial":{serial},
               "manifestVersion":{manifest_version},"trust":1,"commit":"{tip}","envelope":"{envelope}"}},
               "conditions":{conditions},"holds":[]}}"#
        );
        let trailers = format!("{}Serial: {serial}\nDesired-Commit: {tip}\n", self.trailers("status"));
        let files = [&[("syncer.json", syncer)], more].concat();
        self.commit("status", signer, &files, &trailers);
    }

    pub(crate) fn heartbeat(&self, signer: &str, time: &str) {
        self.heartbeat_of(signer, time, r#""health":"healthy""#);
    }

    /// A heartbeat that says this of the health of its only component.
    pub(crate) fn heartbeat_of(&self, signer: &str, time: &str, health: &str) {
        let state = format!(
            r#"{{"layout":1,"time":"{time}","serial":1,"deployments":{{"{}":{{"components":{{"hello":
               {{"state":"installed",{health},"drift":"none","attempts":0}}}}}}}}}}"#,
            self.deployment()
        );
        self.commit("heartbeat", signer, &[("current-state.json", state)], &self.trailers("heartbeat"));
    }

    pub(crate) fn deployment(&self) -> String {
        let manifest = self.lab.json(self.device, "desired", "manifest.json");
        manifest["deployments"][0]["deploymentId"].as_str().unwrap_or_default().to_owned()
    }
}

pub(crate) fn status(lab: &Lab) -> Value {
    let text = lab.run(&["status", "press-01", "--output", "json"]).good();
    serde_json::from_str::<Value>(&text).unwrap()["devices"][0].clone()
}

fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    lab
}

#[test]
fn a_status_made_by_hand_is_shown() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    assert_eq!(status(&lab)["deployments"][0]["reason"], "the device adopted nothing yet");
    device.status("press-01", "installed", "");
    device.heartbeat("press-01", &after(-60));
    let shown = status(&lab);
    assert_eq!((shown["desiredSerial"].as_u64(), shown["adoptedSerial"].as_u64()), (Some(1), Some(1)));
    assert_eq!(shown["conditions"][0]["type"], "Stale");
    assert_eq!(shown["doubts"], serde_json::json!([]));
    let row = &shown["deployments"][0];
    assert_eq!(
        (&row["deployment"], &row["desired"], &row["actual"], &row["state"]),
        (&"hello".into(), &"1.0.0".into(), &"healthy".into(), &"installed".into())
    );
    assert_eq!(row["reason"], Value::Null);
    assert!(row["age"].as_i64().unwrap() >= 0);
    let table = lab.run(&["status"]).good();
    let line = table.lines().find(|line| line.starts_with("press-01")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[..6], ["press-01", "hello", "degraded", "1.0.0", "healthy", "installed"], "{table}");
    assert!(table.contains("Stale NoFreshness: no proof of freshness"), "{table}");
}

#[test]
fn what_does_not_run_well_is_shown_with_its_reason() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status("press-01", "installed", "");
    let unwell =
        r#""health":"degraded","crashLooping":true,"reason":"service `web` is restarting after it exited with 3""#;
    device.heartbeat_of("press-01", &after(-60), unwell);
    let row = status(&lab)["deployments"][0].clone();
    assert_eq!((&row["actual"], &row["state"]), (&"degraded".into(), &"installed".into()));
    assert_eq!(row["reason"], "service `web` is restarting after it exited with 3");
    let table = lab.run(&["status"]).good();
    let line = table.lines().find(|line| line.starts_with("press-01")).unwrap();
    assert!(
        line.contains("crash-looping") && line.ends_with("service `web` is restarting after it exited with 3"),
        "{table}"
    );
}

#[test]
fn a_failure_is_shown_with_its_reason_and_a_newer_serial_with_the_older_one() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status(
        "press-01",
        "failed",
        r#","error":{"code":"health-timeout","source":"hello","message":"not up in 120 s"}"#,
    );
    assert_eq!(status(&lab)["deployments"][0]["reason"], "health-timeout: not up in 120 s");
    device.status("press-01", "installed", "");
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    lab.publish_all();
    let shown = status(&lab);
    assert_eq!((shown["desiredSerial"].as_u64(), shown["adoptedSerial"].as_u64()), (Some(2), Some(1)));
    assert_eq!(shown["deployments"][0]["reason"], "the device has serial 1");
}

#[test]
fn a_report_that_no_key_of_the_device_signed_is_a_doubt_and_nothing_more() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status("packer-01", "installed", "");
    device.heartbeat("packer-01", &after(-60));
    let shown = status(&lab);
    assert_eq!((&shown["adoptedSerial"], &shown["deployments"][0]["state"]), (&Value::Null, &Value::Null));
    let doubts = shown["doubts"].to_string();
    assert!(doubts.contains("`status` can't be believed: it is signed by SHA256:"), "{doubts}");
    assert!(doubts.contains("`heartbeat` can't be believed"), "{doubts}");
}

/// A report of one branch or device, moved to another one by whoever can write there.
#[test]
fn a_report_from_elsewhere_is_not_believed() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.heartbeat("press-01", &after(-60));
    let heartbeat = lab.tip("press-01", "heartbeat").unwrap();
    lab.git("press-01", &["update-ref", "refs/heads/status", &heartbeat]);
    assert!(status(&lab)["doubts"].to_string().contains("its trailer `Kind` is not `status`"));
    let packer = Reporter { lab: &lab, device: "packer-01" };
    packer.heartbeat("press-01", &after(-60));
    git(&lab.repo("press-01"), &["fetch", "--quiet", lab.repo("packer-01").to_str().unwrap(), "+heartbeat:heartbeat"]);
    assert!(status(&lab)["doubts"].to_string().contains("its trailer `Device` is not `press-01`"));
}

#[test]
fn a_status_is_judged_by_the_desired_commit_that_it_names() {
    let lab = lab();
    let device = Reporter { lab: &lab, device: "press-01" };
    device.status("press-01", "installed", "");
    let line = format!("{} new", Lab::device_key("a new disk").public());
    let said = lab.run(&["device", "enroll", "press-01", &line]).failed(1);
    assert!(said.contains("--replace"), "{said}");
    lab.run(&["device", "enroll", "press-01", &line, "--replace"]).good();
    lab.publish_all();
    assert_eq!(status(&lab)["deployments"][0]["state"], "installed", "the old key could say this of serial 1");
    device.status("press-01", "failed", "");
    assert_eq!(status(&lab)["deployments"][0]["state"], Value::Null, "and can't say anything of serial 2");
    device.status("a new disk", "installing", "");
    assert_eq!(status(&lab)["deployments"][0]["state"], "installing");
}

#[test]
fn a_deployment_that_is_no_longer_wanted_keeps_its_name_in_the_table() {
    let lab = lab();
    Reporter { lab: &lab, device: "press-01" }.status("press-01", "installed", "");
    let id = Reporter { lab: &lab, device: "press-01" }.deployment();
    // The fleet doesn't know the name any more, only the history does.
    lab.remove("deployments/hello.yaml");
    lab.commit();
    lab.publish_all();
    let table = lab.run(&["status", "press-01"]).good();
    let row = table.lines().find(|line| line.contains("(gone)")).unwrap();
    assert!(row.starts_with("press-01  hello ") && !table.contains(&id), "{table}");
    assert_eq!(status(&lab)["deployments"][0]["deploymentId"], id.as_str());
}
