//! The host's side: a device repository made by hand, and commits on it that no honest publisher would make.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use repo_model::{DeploymentId, DeploymentName, Digest, Trailer};
use serde_json::Value;

use crate::application::App;
use crate::ssh_key::{keygen, public};
use crate::{git, text};

/// The script that makes either half from nothing but the contract.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/by_hand.sh");

/// What `by_hand.sh` made, or another publisher did, in one directory.
#[derive(Debug)]
pub struct Hand {
    dir: PathBuf,
}

/// One file of a tree that somebody writes.
#[derive(Debug, Clone, PartialEq)]
pub struct File {
    mode: &'static str,
    bytes: Vec<u8>,
    /// The object, if it is there already.
    object: Option<String>,
}

/// A commit before it is one: everything about it can be changed.
#[derive(Debug, Clone)]
pub struct Draft {
    pub files: BTreeMap<String, File>,
    pub message: String,
    pub parents: Vec<String>,
    /// The key that signs it; nobody without.
    pub key: Option<PathBuf>,
}

impl Hand {
    pub fn make(dir: PathBuf, device: &str) -> Self {
        let hand = Self { dir };
        hand.script("make", &[device]);
        hand
    }

    /// What is in a directory already: `repository.git`, and keys in files of their names.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn script(&self, command: &str, args: &[&str]) -> String {
        text(Command::new(SCRIPT).arg(command).arg(&self.dir).args(args).output().expect("the script runs"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn repository(&self) -> PathBuf {
        self.path("repository.git")
    }

    fn word(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("written by the script").trim().to_owned()
    }

    pub fn fleet(&self) -> String {
        self.word("fleet")
    }

    pub fn serial(&self) -> u64 {
        self.word("serial").parse().expect("a number")
    }

    pub fn set_serial(&self, serial: u64) {
        fs::write(self.path("serial"), serial.to_string()).expect("written");
    }

    pub fn enroll(&self, key: &str) {
        self.script("enroll", &[key]);
    }

    /// Wants the application, with a greeting that is written in YAML.
    pub fn want(&self, name: &str, app: &App, greeting: &str) {
        self.script("app", &[name, &app.repository, &app.revision, &app.manifest, &app.content, greeting]);
    }

    pub fn drop(&self, name: &str) {
        self.script("drop", &[name]);
    }

    pub fn publish(&self) {
        self.script("publish", &[]);
    }

    /// Writes a status commit as the device would, signed by this key file.
    pub fn status(&self, key: &Path, state: &str) {
        status(&self.repository(), key, state);
    }

    pub fn deployment_id(&self, name: &str) -> DeploymentId {
        let name: DeploymentName = name.parse().expect("a name");
        let device = self.word("device").parse().expect("a device's id");
        DeploymentId::derive(self.fleet().parse().expect("a UUID"), &name, &device)
    }

    /// Changes the document of a deployment; nothing is published yet.
    pub fn edit(&self, name: &str, change: impl FnOnce(String) -> String) {
        let path = self.path(&format!("desired/deployments/{}.yaml", self.deployment_id(name)));
        let document = fs::read_to_string(&path).expect("it is wanted");
        fs::write(path, change(document)).expect("written");
    }

    /// Changes what the envelope says of a deployment; nothing is published yet.
    pub fn describe(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let path = self.path(&format!("described/{}.json", self.deployment_id(name)));
        let mut described = serde_json::from_slice(&fs::read(&path).expect("it is wanted")).expect("JSON");
        change(&mut described);
        fs::write(path, described.to_string()).expect("written");
    }

    pub fn tip(&self, branch: &str) -> String {
        git::tip(&self.repository(), branch).unwrap_or_else(|| panic!("`{branch}` exists"))
    }

    pub fn move_branch(&self, branch: &str, commit: &str) {
        git::git(&self.repository(), &["update-ref", &format!("refs/heads/{branch}"), commit]);
    }

    /// Publishes what `change` makes of the next serial, so that no device ever sees that as it was.
    pub fn forge(&self, change: impl FnOnce(&mut Draft)) -> String {
        let moves = self.script("prepare", &[]);
        let desired = moves.lines().find_map(|line| line.strip_prefix("update refs/heads/desired "));
        let desired = desired.expect("`desired` moves");
        let mut draft = self.draft_of(desired);
        change(&mut draft);
        let commit = self.commit(&draft);
        let moves = format!("{}\n", moves.replace(desired, &commit));
        feed(git::command(&self.repository()).args(["update-ref", "--stdin"]), moves.as_bytes());
        commit
    }

    /// Puts in the place of a branch's tip what `change` makes of it.
    pub fn forge_on(&self, branch: &str, change: impl FnOnce(&mut Draft)) -> String {
        let mut draft = self.draft(branch);
        change(&mut draft);
        let commit = self.commit(&draft);
        self.move_branch(branch, &commit);
        commit
    }

    /// A branch's tip as a draft, to be signed by the publisher.
    pub fn draft(&self, branch: &str) -> Draft {
        self.draft_of(&self.tip(branch))
    }

    /// A commit as a draft, to be signed by the publisher.
    pub fn draft_of(&self, commit: &str) -> Draft {
        let repository = self.repository();
        let listed = git::git(&repository, &["ls-tree", "-r", "--format=%(objectname) %(path)", commit]);
        let (ids, paths): (Vec<_>, Vec<_>) = listed
            .lines()
            .map(|line| line.split_once(' ').expect("two words"))
            .map(|(id, path)| (id.to_owned(), path.to_owned()))
            .unzip();
        let file = |(id, bytes): (String, Option<Vec<u8>>)| File {
            mode: "100644",
            bytes: bytes.expect("it is there"),
            object: Some(id),
        };
        let files = git::objects(&repository, &ids);
        let head = git::git(&repository, &["log", "-1", "--format=%P%n%B", commit]);
        let (parents, message) = head.split_once('\n').expect("two parts");
        Draft {
            files: paths.into_iter().zip(ids.into_iter().zip(files).map(file)).collect(),
            message: message.to_owned(),
            parents: parents.split_whitespace().map(str::to_owned).collect(),
            key: Some(self.path("publisher")),
        }
    }

    pub fn commit(&self, draft: &Draft) -> String {
        let tree = self.tree(&draft.files);
        let mut command = git::command(&self.repository());
        if let Some(key) = &draft.key {
            command.args(["-c", "gpg.format=ssh", "-c"]).arg(format!("user.signingkey={}", key.display()));
        }
        command.arg("commit-tree");
        command.args(draft.key.iter().map(|_| "-S"));
        command.args(draft.parents.iter().flat_map(|parent| ["-p", parent]));
        feed(command.args(["-F", "-", &tree]), draft.message.as_bytes())
    }

    /// Whatever stock git would refuse to check out can be written all the same.
    fn tree(&self, files: &BTreeMap<String, File>) -> String {
        let mut entries = Vec::new();
        let mut below: BTreeMap<&str, BTreeMap<String, File>> = BTreeMap::new();
        for (path, file) in files {
            match path.split_once('/') {
                Some((directory, rest)) => {
                    drop(below.entry(directory).or_default().insert(rest.to_owned(), file.clone()))
                }
                None if file.mode == "160000" => {
                    entries.push(format!("160000 commit {}\t{path}", String::from_utf8_lossy(&file.bytes)));
                }
                None => {
                    let object = file.object.clone().unwrap_or_else(|| self.object("blob", &file.bytes));
                    entries.push(format!("{} blob {object}\t{path}", file.mode));
                }
            }
        }
        entries.extend(below.iter().map(|(name, files)| format!("040000 tree {}\t{name}", self.tree(files))));
        let mut command = git::command(&self.repository());
        let lines: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
        feed(command.args(["mktree", "--missing"]), lines.as_bytes())
    }

    /// Stores an object as it is.
    pub fn object(&self, kind: &str, bytes: &[u8]) -> String {
        let mut command = git::command(&self.repository());
        feed(command.args(["hash-object", "-w", "--literally", "--stdin", "-t", kind]), bytes)
    }

    pub fn raw(&self, commit: &str) -> String {
        git::git(&self.repository(), &["cat-file", "commit", commit])
    }

    /// A key that nobody knows.
    pub fn stranger(&self) -> PathBuf {
        self.key("stranger")
    }

    /// A new key, made once under this name.
    pub fn key(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        if !path.exists() {
            keygen(&path, "ed25519", "");
        }
        path
    }

    pub fn public(&self, name: &str) -> String {
        public(&self.key(name)).split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// Writes version `version` of the roster into the tree that will be published, signed by these keys as the roots of
    /// the version before, in that order.
    pub fn roster(&self, version: u64, change: impl FnOnce(&mut Value), signed_by: &[&str]) {
        let mut roster: Value =
            serde_json::from_slice(&fs::read(self.path("desired/trust/1.json")).expect("a roster")).expect("JSON");
        roster["version"] = version.into();
        change(&mut roster);
        let path = self.path(&format!("desired/trust/{version}.json"));
        fs::write(&path, format!("{roster}\n")).expect("written");
        for (index, name) in signed_by.iter().enumerate() {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-Y", "sign", "-n", "wfm-roster", "-f"]).arg(self.key(name)).arg(&path);
            text(keygen.stderr(Stdio::null()).output().expect("it runs"));
            fs::rename(path.with_extension("json.sig"), path.with_extension(format!("json.sig.{index}")))
                .expect("moved");
        }
    }

    /// The line of an `allowed_signers` file, as the contract says how to make one.
    pub fn allowed_signers(&self, device: &str, key: &str) -> PathBuf {
        let path = self.path("allowed_signers");
        let publisher = self.public("publisher");
        let lines = format!("publisher namespaces=\"git\" {publisher}\n{device} namespaces=\"git\" {key}\n");
        fs::write(&path, lines).expect("written");
        path
    }
}

impl Draft {
    pub fn put(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.put_as("100644", path, bytes);
    }

    /// An entry of any kind; a submodule's bytes are the commit's id.
    pub fn put_as(&mut self, mode: &'static str, path: &str, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path.to_owned(), File { mode, bytes: bytes.into(), object: None });
    }

    pub fn text(&self, path: &str) -> String {
        String::from_utf8(self.files[path].bytes.clone()).expect("text")
    }

    /// Changes a JSON document; whatever depends on its bytes is left as it was.
    pub fn json(&mut self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_slice(&self.files[path].bytes).expect("JSON");
        change(&mut value);
        self.put(path, format!("{value}\n"));
    }

    /// Sets the value of a trailer.
    pub fn trailer(&mut self, key: Trailer, value: &str) {
        let begin = format!("{key}: ");
        let line = |line: &str| if line.starts_with(&begin) { format!("{begin}{value}") } else { line.to_owned() };
        self.message = self.message.lines().map(line).collect::<Vec<_>>().join("\n");
    }

    pub fn add_trailer(&mut self, key: impl std::fmt::Display, value: &str) {
        self.message = format!("{}\n{key}: {value}", self.message.trim_end());
    }

    /// Makes all digests agree again: what is left is wrong on purpose.
    pub fn seal(&mut self) {
        let files = |draft: &Self| {
            let digests = draft.files.iter().filter(|(path, _)| *path != "envelope.json");
            digests.map(|(path, file)| (path.clone(), Digest::of(&file.bytes).to_string())).collect::<BTreeMap<_, _>>()
        };
        if self.files.contains_key("manifest.json") {
            let documents = files(self);
            self.json("manifest.json", |manifest| {
                for entry in manifest["deployments"].as_array_mut().into_iter().flatten() {
                    let id = entry["deploymentId"].as_str().expect("an id").to_owned();
                    if let Some(digest) = documents.get(&format!("deployments/{id}.yaml")) {
                        entry["digest"] = digest.as_str().into();
                        entry["url"] = format!("/api/v1/deployments/{id}/{digest}").into();
                    }
                }
            });
        }
        self.seal_envelope();
    }

    /// Makes the envelope and the trailers agree with the files as they are.
    pub fn seal_envelope(&mut self) {
        let files: BTreeMap<_, _> = self
            .files
            .iter()
            .filter(|(path, _)| *path != "envelope.json")
            .map(|(path, file)| (path.clone(), Digest::of(&file.bytes).to_string()))
            .collect();
        self.json("envelope.json", |envelope| envelope["files"] = serde_json::json!(files));
        self.seal_trailers();
    }

    /// Makes the trailers agree with the envelope as it is.
    pub fn seal_trailers(&mut self) {
        let bytes = self.files["envelope.json"].bytes.clone();
        let envelope: Value = serde_json::from_slice(&bytes).expect("JSON");
        self.trailer(Trailer::EnvelopeDigest, &Digest::of(&bytes).to_string());
        self.trailer(Trailer::Serial, &envelope["serial"].to_string());
    }

    /// Another serial, and all that follows from it.
    pub fn renumber(&mut self, serial: u64) {
        self.json("manifest.json", |manifest| manifest["manifestVersion"] = serial.into());
        self.json("envelope.json", |envelope| {
            envelope["serial"] = serial.into();
            envelope["manifestVersion"] = serial.into();
        });
        self.seal();
    }

    /// The path of the only deployment.
    pub fn deployment(&self) -> String {
        self.files.keys().find(|path| path.starts_with("deployments/")).expect("a deployment").clone()
    }
}

/// A device's half by hand: a key of ssh-keygen, and a status written by stock Git.
#[derive(Debug)]
pub struct HandMadeDevice {
    key: PathBuf,
}

impl HandMadeDevice {
    /// One with a new key in the directory `dir`, which is made.
    pub fn with_key(dir: &Path) -> Self {
        fs::create_dir(dir).expect("made");
        let key = dir.join("key");
        keygen(&key, "ed25519", "");
        Self { key }
    }

    pub fn line(&self) -> String {
        public(&self.key)
    }

    /// Commits this state of everything on `status` of a device repository in which something was published.
    pub fn status(&self, repository: &Path, state: &str) {
        status(repository, &self.key, state);
    }
}

fn status(repository: &Path, key: &Path, state: &str) {
    let mut script = Command::new(SCRIPT);
    text(script.arg("status").arg(repository).arg(key).arg(state).output().expect("the script runs"));
}

/// Runs a command with this input, and gives its output without the last newline.
fn feed(command: &mut Command, input: &[u8]) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("git");
    child.stdin.take().expect("a pipe").write_all(input).expect("written");
    text(child.wait_with_output().expect("git"))
}
