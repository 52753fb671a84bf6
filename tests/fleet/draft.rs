//! Commits made with stock Git that neither program would make.

use std::path::{Path, PathBuf};
use std::process::Command;

use repo_model::desired::assemble;
use repo_model::envelope::Envelope;
use repo_model::{FileTree, Trailer};
use repo_testkit::git;
use tempfile::TempDir;

use repo_testkit::text;

/// A commit before it is one: everything about it can be changed.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) files: FileTree,
    pub(crate) message: String,
    pub(crate) parents: Vec<String>,
    /// The key that signs it; nobody without.
    pub(crate) key: Option<PathBuf>,
}

impl Draft {
    /// The tip of a branch as it is, signed by `key`.
    pub(crate) fn of(repository: &Path, branch: &str, key: Option<PathBuf>) -> Self {
        let names = git::git(repository, &["ls-tree", "-r", "--name-only", branch]);
        let names: Vec<_> = names.lines().map(str::to_owned).collect();
        let specs: Vec<_> = names.iter().map(|name| format!("{branch}:{name}")).collect();
        let files = git::objects(repository, &specs).into_iter().map(|bytes| bytes.expect("a file of the tip"));
        let message = git::git(repository, &["log", "-1", "--format=%B", branch]);
        let parents = git::git(repository, &["log", "-1", "--format=%P", branch]);
        let parents = parents.split_whitespace().map(str::to_owned).collect();
        Self { files: names.into_iter().zip(files).collect(), message: message.trim_end().to_owned(), parents, key }
    }

    /// The one on top of the tip of `desired`, with the next serial and whatever `change` does to its documents, put
    /// together as a publisher does.
    pub(crate) fn next(repository: &Path, key: PathBuf, change: impl Fn(&str) -> String) -> Self {
        let mut draft = Self::of(repository, "desired", Some(key));
        let mut envelope: Envelope = serde_json::from_slice(&draft.files["envelope.json"]).expect("an envelope");
        let old = (envelope.serial, envelope.manifest_version);
        envelope.serial += 1;
        envelope.manifest_version += 1;
        let documents = draft.files.iter().filter_map(|(path, bytes)| {
            let id = path.strip_prefix("deployments/")?.strip_suffix(".yaml")?.parse().ok()?;
            Some((id, change(&String::from_utf8_lossy(bytes)).into_bytes()))
        });
        let documents = documents.collect();
        let is_trust = |(path, _): &(&String, &Vec<u8>)| path.starts_with("trust/");
        let trust = draft.files.iter().filter(is_trust).map(|(path, bytes)| (path.clone(), bytes.clone())).collect();
        let assembled = assemble(envelope, &documents, &trust);
        draft.files = assembled.tree;
        draft.set(Trailer::Serial, &(old.0 + 1).to_string());
        draft.set(Trailer::ManifestVersion, &(old.1 + 1).to_string());
        draft.set(Trailer::ManifestDigest, &assembled.manifest_digest.to_string());
        draft.set(Trailer::EnvelopeDigest, &assembled.envelope_digest.to_string());
        draft.parents = git::tip(repository, "desired").into_iter().collect();
        draft
    }

    /// Gives a trailer another value.
    pub(crate) fn set(&mut self, trailer: Trailer, value: &str) {
        let lines = self.message.lines().map(|line| match line.split_once(": ") {
            Some((key, _)) if key == trailer.as_str() => format!("{key}: {value}"),
            _ => line.to_owned(),
        });
        self.message = lines.collect::<Vec<_>>().join("\n");
    }

    /// Writes it and lets the branch point to it.
    pub(crate) fn put(&self, repository: &Path, branch: &str) -> String {
        let dir = TempDir::new().expect("a temporary directory");
        let index = dir.path().join("index");
        let run = |command: &mut Command| text(command.env("GIT_INDEX_FILE", &index).output().expect("git runs"));
        for (path, bytes) in &self.files {
            let file = dir.path().join("file");
            std::fs::write(&file, bytes).expect("written");
            let blob = git::git(repository, &["hash-object", "-w", &file.display().to_string()]);
            let entry = format!("100644,{blob},{path}");
            run(git::command(repository).args(["update-index", "--add", "--cacheinfo", &entry]));
        }
        let tree = run(git::command(repository).arg("write-tree"));
        let mut commit = git::command(repository);
        if let Some(key) = &self.key {
            let key = format!("user.signingkey={}", key.display());
            commit.args(["-c", "gpg.format=ssh", "-c", &key, "commit-tree", "-S"]);
        } else {
            commit.arg("commit-tree");
        }
        commit.args(self.parents.iter().flat_map(|parent| ["-p", parent]));
        let id = run(commit.args(["-m", &self.message, &tree]));
        git::git(repository, &["update-ref", &format!("refs/heads/{branch}"), &id]);
        id
    }
}
