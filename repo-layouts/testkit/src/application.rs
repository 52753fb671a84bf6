//! Compose archives in the registry of the tests.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use crate::{program, registry, text};

/// An application in the registry.
#[derive(Debug, Clone)]
pub struct App {
    /// `oci://…`, without its tag.
    pub repository: String,
    /// Its tag.
    pub revision: String,
    /// The digest of its manifest.
    pub manifest: String,
    /// The digest of its archive.
    pub content: String,
}

/// Packs a directory and pushes it, once for all tests of a run: a registry that gets the same layer twice at a time may
/// not have it for a moment.
pub fn push(directory: &Path, name: &str, revision: &str) -> App {
    let (push_app, run) = (program("push-app"), std::env::var("NEXTEST_RUN_ID"));
    let known = format!("pushed-{}", run.unwrap_or_else(|_| std::process::id().to_string()));
    let mut known =
        File::options().read(true).append(true).create(true).open(push_app.with_file_name(known)).expect("a file");
    known.lock().expect("locked");
    let (repository, mut lines) = (format!("oci://{}/tests/{name}", registry()), String::new());
    let reference = format!("{repository}:{revision}");
    known.read_to_string(&mut lines).expect("text");
    let found = lines.lines().find_map(|line| line.strip_prefix(&reference)).map(str::to_owned);
    let digests = found.unwrap_or_else(|| {
        let mut push = Command::new(&push_app);
        let said = text(push.arg(directory).args([&reference, "--plain-http"]).output().expect("push-app runs"));
        let digest =
            |word| said.lines().find_map(|line: &str| line.strip_prefix(word)).expect("a digest").trim().to_owned();
        let digests = format!(" {} {}", digest("manifest "), digest("content "));
        writeln!(known, "{reference}{digests}").expect("written");
        digests
    });
    let (manifest, content) = digests.trim().split_once(' ').expect("two digests");
    App { repository, revision: revision.to_owned(), manifest: manifest.to_owned(), content: content.to_owned() }
}
