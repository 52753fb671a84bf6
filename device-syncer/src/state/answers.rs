//! What this device answered to what the fleet asked for: `answers/<number>.json` of the home, each for 24 hours. They lie beside
//! the clone, so that no history keeps what containers print.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use repo_git::durable;
use repo_model::ask::{Answer, DIRECTORY, answer_path, read_answers};
use repo_model::{FileTree, IntoMap, IntoSet, error_chain, json};

use crate::config::Home;

/// The answers that stand, as `heartbeat` has them.
pub fn files(home: &Home, now: Timestamp) -> FileTree {
    let mut files = all(home);
    let (mut answers, _) = read_answers(&files);
    answers.retain(|_, answer| answer.stands(now));
    let standing = answers.into_keys().map(answer_path).into_set();
    files.retain(|path, _| standing.contains(path));
    files
}

/// The answers that stand, by number.
pub fn read(home: &Home, now: Timestamp) -> BTreeMap<u64, Answer> {
    let (mut answers, _) = read_answers(&all(home));
    answers.retain(|_, answer| answer.stands(now));
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

/// Removes what doesn't stand any more, or can't be read. Nobody may be writing one meanwhile.
pub fn forget_old(home: &Home, now: Timestamp) {
    let standing = read(home, now);
    for name in names(home) {
        let number = name.strip_suffix(".json").and_then(|number| number.parse().ok());
        if !number.is_some_and(|number: u64| standing.contains_key(&number)) {
            remove_file(home.answers().join(name));
        }
    }
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
