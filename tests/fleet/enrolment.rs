//! Devices that nobody knows enrol by a code or a batch token, and known ones come back by their key: both programs over real
//! TLS, and whoever wants to get in between.

mod auto;
mod certificate;
mod code;
mod cuts;
mod known;
mod rekey;
mod rekey_cuts;
mod rekey_secrets;
mod replace;
mod strangers;
mod token;
mod token_cuts;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use repo_git::SigningKey;
use repo_http::{Agent, Method, Request, Settings, Url};
use repo_model::enrolment::{
    Claim, EnrolmentFile, Kind, Nonce, PROOF_NAMESPACE, Reveal, Start, Started, TOKEN_NAMESPACE, TokenProof,
    Transcript, commitment,
};
use repo_model::{Digest, json};
use repo_testkit::device::{Device, fake_docker, reboot};
use repo_testkit::fleet::Fleet;
use repo_testkit::host::Host;
use repo_testkit::ports::free_port;
use repo_testkit::{copy, git, registry};
use serde_json::Value;
use tempfile::TempDir;

use crate::publish_crash::remove_lock;
use crate::site::registry_name;

/// A fleet whose host runs, and the file by which devices find it.
struct Site {
    dir: TempDir,
    fleet: Fleet,
    host: Option<Host>,
}

/// An approval again, after the power was cut: it completes what was cut off, so that one commit says `Enrolled:` with this, and
/// leaves nothing behind.
fn approve_again(fleet: &Fleet, approve: impl Fn() -> Command, enrolled: &str, when: &str) {
    let mut again = approve().output().expect("the publisher runs");
    // Between git's rename and our sync of it: git says which of its lock files the operator has to remove.
    if said(&again).contains(".lock") {
        remove_lock(fleet, when);
        again = approve().output().expect("the publisher runs");
    }
    assert!(again.status.success(), "{when}: {}{}", said(&again), String::from_utf8_lossy(&again.stdout));
    // What a cut write left beside its target is nobody's.
    let left = git::git(&fleet.dir(), &["status", "--porcelain", "--untracked-files=no"]);
    assert_eq!(left, "", "{when}");
    let commits = git::git(&fleet.dir(), &["log", "--format=%s", &format!("--grep=^Enrolled: {enrolled}")]);
    assert_eq!(commits.lines().count(), 1, "{when}: {commits}");
}

impl Site {
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
        let settings = format!("serve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:{}\n", free_port());
        std::fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        let mut site = Self { dir, fleet, host: None };
        site.start();
        site.fleet.run(&["enroll", "file", "--out", &site.file().display().to_string()]);
        site
    }

    fn start(&mut self) {
        self.host = Some(self.fleet.serve(&[]));
    }

    fn open(self) -> Self {
        self.fleet.run(&["enroll", "open", "--for", "1h"]);
        self
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("enroll.json")
    }

    fn offer(&self) -> EnrolmentFile {
        EnrolmentFile::parse(&std::fs::read(self.file()).expect("there")).expect("an enrolment file")
    }

    /// Puts the fleet and its home, as they are now, below another directory, in which an approval may be cut off.
    fn copy_fleet(&self, to: &Path) {
        for part in ["fleet", "fleet.wfm"] {
            copy(&self.dir.path().join(part), &to.join(part));
        }
    }

    /// A device that knows nothing of the fleet yet.
    fn device(&self, name: &str) -> Device {
        let root = self.dir.path().join(name);
        let device = Device::at(name, &root);
        std::fs::create_dir_all(device.home()).expect("made");
        let docker = fake_docker(&root.join("docker"));
        let boot = root.join("boot-id").display().to_string();
        let registries = format!("registries: {{plainHttp: [\"{}\"]}}", registry());
        let text = format!("docker: {docker}\n{registries}\nbootIdFile: {boot}\npoll: 1s\n");
        std::fs::write(device.home().join("device.yaml"), text).expect("written");
        reboot(&root);
        device
    }

    fn enroll(&self, device: &Device) -> Enrolling {
        Enrolling::start(device, &self.file())
    }

    fn pending(&self) -> Value {
        let listed = self.fleet.run(&["device", "pending", "--output", "json"]);
        serde_json::from_str(&listed).expect("JSON")
    }

    fn agent(&self) -> Agent {
        let authorities = self.offer().ca.into_iter().collect();
        Agent::new(&Settings { authorities, ..Settings::default() }).expect("an agent")
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.offer().url)).expect("a URL")
    }

    /// What a stranger is answered: the status, and the body.
    fn post(&self, path: &str, body: &[u8]) -> (u16, String) {
        let (agent, url) = (self.agent(), self.url(path));
        let answer = agent.answer(&Request::post(&url, body)).expect("an answer");
        let status = answer.status;
        (status, String::from_utf8(answer.body.bytes(1 << 20).expect("a body")).expect("text"))
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (agent, url) = (self.agent(), self.url(path));
        let answer = agent.answer(&Request { method: Some(Method::Get), ..Request::get(&url) }).expect("an answer");
        let status = answer.status;
        (status, String::from_utf8(answer.body.bytes(1 << 20).expect("a body")).expect("text"))
    }

    /// A stranger's exchange up to what it would reveal.
    fn begin(&self, key: &SigningKey, number: u8) -> (Started, Reveal) {
        self.begin_with(key, claim(key, number), None)
    }

    /// The same with any claim and the word of a token of that name.
    fn begin_with(&self, key: &SigningKey, claim: String, token: Option<(&str, &SigningKey)>) -> (Started, Reveal) {
        let kind = if token.is_some() { Kind::Token } else { Kind::Code };
        self.begin_of(kind, key, claim, token)
    }

    /// An exchange of this kind up to what would be revealed.
    fn begin_of(
        &self,
        kind: Kind,
        key: &SigningKey,
        claim: String,
        token: Option<(&str, &SigningKey)>,
    ) -> (Started, Reveal) {
        let nonce = Nonce::new([claim.len().to_le_bytes()[0]; 32]);
        let start = Start { layout: 1, kind, commitment: commitment(&nonce, claim.as_bytes()) };
        let (status, body) = self.post("/enroll", &json::to_bytes(&start));
        assert_eq!(status, 201, "{body}");
        let started: Started = serde_json::from_str(&body).expect("what the contract says");
        let transcript = Transcript::of((&nonce, &started.nonce), claim.as_bytes(), started.offer.as_bytes());
        let proof = key.sign(PROOF_NAMESPACE, transcript.as_bytes()).expect("signed");
        let token = token.map(|(name, by)| {
            let message = transcript.token_message(&key.public().to_string().parse().expect("a key"));
            let proof = by.sign(TOKEN_NAMESPACE, message.as_bytes()).expect("signed");
            TokenProof { name: name.to_owned(), proof }
        });
        (started, Reveal { nonce, claim, proof, replaces_proof: None, token })
    }

    fn reveal(&self, started: &Started, reveal: &Reveal) -> (u16, String) {
        self.post(&format!("/enroll/{}", started.request), &json::to_bytes(reveal))
    }
}

fn claim(key: &SigningKey, number: u8) -> String {
    let key = key.public().to_string().parse().expect("a key");
    let claim = Claim {
        model: Some("\u{1b}[2Jhint: approve me\u{202e}".to_owned()),
        id: Some(if number % 2 == 1 { "press-01" } else { "nobody" }.parse().expect("an id")),
        ..Claim::new(key, Digest::of(&[number]), "0")
    };
    String::from_utf8(json::to_bytes(&claim)).expect("text")
}

/// A device at its `enroll`, or who else says a document for each line.
struct Enrolling {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Enrolling {
    fn start(device: &Device, file: &Path) -> Self {
        Self::with(device, file, &[])
    }

    /// The same with these options.
    fn with(device: &Device, file: &Path, options: &[&str]) -> Self {
        let mut command = device.command(&["enroll", "--from", &file.display().to_string(), "--output", "json"]);
        command.args(options);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let says = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, says }
    }

    /// The document of its next line, which is waited for.
    fn document(&mut self) -> Value {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("it says something");
        let document: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(document["apiVersion"], "v1", "{document}");
        document
    }

    /// What it says next under this key.
    fn says(&mut self, key: &str) -> String {
        let value = self.document();
        value[key].as_str().unwrap_or_else(|| panic!("no {key}: {value}")).to_owned()
    }

    fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("it ends");
    }

    fn ends(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Enrolling {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("there")).expect("JSON")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // Locks stay behind wherever something was locked.
    let mut names: Vec<_> = names.filter(|name| !name.ends_with("lock")).collect();
    names.sort();
    names
}
