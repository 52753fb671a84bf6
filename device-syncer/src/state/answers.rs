//! What this device answered to what the fleet asked for: `answers/<number>.json` of the home, each for 24 hours. They lie beside
//! the clone, so that no history keeps what containers print.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_git::durable::{self, Stamp};
use repo_model::ask::{Answer, DIRECTORY, answer_path, read_answers, stands};
use repo_model::{FileTree, IntoMap, IntoSet, error_chain, json};

use crate::config::Home;

/// Answers by their paths on `heartbeat`, each with what another one in its place would change.
pub type Stamps = BTreeMap<String, Stamp>;

/// What is known of the files: as long as none changed, none is read again.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<String, File>);

#[derive(Debug, Clone, Copy)]
struct File {
    stamp: Stamp,
    /// When the answer in it was given; absent where none in it can be read.
    given: Option<Timestamp>,
}

impl Known {
    /// The answers that stand now.
    pub fn standing(&mut self, home: &Home, now: Timestamp) -> Stamps {
        let before = std::mem::take(&mut self.0);
        for name in names(home) {
            let (path, file) = (format!("{DIRECTORY}{name}"), home.answers().join(name));
            let Some(stamp) = Stamp::of(&file) else { continue };
            let known = before.get(&path).copied().filter(|known| known.stamp == stamp);
            let known = known.unwrap_or_else(|| File { stamp, given: given(&path, &file) });
            self.0.insert(path, known);
        }
        let stands = |(path, file): (&String, &File)| {
            file.given.filter(|given| stands(*given, now)).map(|_| (path.clone(), file.stamp))
        };
        self.0.iter().filter_map(stands).into_map()
    }

    /// Removes what doesn't stand any more, or can't be read. Nobody may be writing one meanwhile. Returns what stands.
    pub fn forget_old(&mut self, home: &Home, now: Timestamp) -> Stamps {
        let standing = self.standing(home, now);
        for name in names(home) {
            if !standing.contains_key(&format!("{DIRECTORY}{name}")) {
                remove_file(home.answers().join(name));
            }
        }
        standing
    }
}

/// When the answer in a file was given.
fn given(path: &str, file: &Path) -> Option<Timestamp> {
    let (answers, _) = read_answers(&FileTree::from([(path.to_owned(), fs::read(file).ok()?)]));
    answers.into_values().next().map(|answer| answer.time)
}

/// The answers that stand, as `heartbeat` has them.
pub fn files(home: &Home, now: Timestamp) -> FileTree {
    let mut files = all(home);
    let standing = of(&files, now).into_keys().map(answer_path).into_set();
    files.retain(|path, _| standing.contains(path));
    files
}

/// The answers that stand, by number.
pub fn read(home: &Home, now: Timestamp) -> BTreeMap<u64, Answer> {
    of(&all(home), now)
}

fn of(files: &FileTree, now: Timestamp) -> BTreeMap<u64, Answer> {
    let (mut answers, _) = read_answers(files);
    answers.retain(|_, answer| stands(answer.time, now));
    answers
}

/// Keeps an answer, durable when it returns. Of those that refuse only the newest stands.
pub fn write(home: &Home, answer: &Answer) -> io::Result<()> {
    if answer.is_refusal() {
        let (before, _) = read_answers(&all(home));
        before.values().filter(|one| one.is_refusal()).for_each(|one| remove(home, one.number));
    }
    durable::create_dir_all(&home.answers(), 0o700)?;
    durable::replace_file(&path(home, answer.number), &json::to_bytes(answer), 0o600)
}

/// Every file there is, under its path on `heartbeat`.
fn all(home: &Home) -> FileTree {
    let read = |name: String| Some((format!("{DIRECTORY}{name}"), fs::read(home.answers().join(name)).ok()?));
    names(home).into_iter().filter_map(read).into_map()
}

fn names(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.answers()).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn path(home: &Home, number: u64) -> PathBuf {
    home.answers().join(format!("{number}.json"))
}

fn remove(home: &Home, number: u64) {
    remove_file(path(home, number));
}

/// One that can't be removed is no longer told all the same.
fn remove_file(path: PathBuf) {
    if let Err(error) = durable::remove_file(&path) {
        tracing::warn!(path = %path.display(), error = error_chain(&error), "can't remove an old answer");
    }
}
