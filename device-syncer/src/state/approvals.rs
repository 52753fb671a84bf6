//! What persons at the device said of changes: `approvals.json`, which `approve` and `reject` write.

use std::path::{Path, PathBuf};

use repo_model::error_chain;
use serde::{Deserialize, Serialize};

use crate::config::Home;
use crate::decision::approval::Word;
use crate::state::json_file::{self, FileError};

/// The most words that are kept; the oldest go.
const MOST: usize = 100;

/// `approvals.json` of the home, written by `approve` and `reject`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalsFile {
    words: Vec<Word>,
}

/// `approvals.json` can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("`{}` isn't what `device-syncer approve` wrote: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
}

/// What they said so far, one word of each deployment; or why it can't be read.
pub fn read(home: &Home) -> Result<Vec<Word>, String> {
    words(&home.approvals()).map_err(|error| error_chain(&error))
}

fn words(path: &Path) -> Result<Vec<Word>, ApprovalError> {
    let file = json_file::read(path)?;
    file.map(|ApprovalsFile { words }| words)
        .map_err(|problem| ApprovalError::Content { path: path.to_owned(), problem })
}

/// Notes a word, in place of the one of before for the same deployment. What can't be read approved nothing, and is replaced.
pub fn note(home: &Home, word: Word) -> Result<(), ApprovalError> {
    let _lock = json_file::lock(home)?;
    let path = home.approvals();
    let mut words = match words(&path) {
        Err(ApprovalError::Content { .. }) => Vec::new(),
        words => words?,
    };
    words.retain(|known| known.change.deployment != word.change.deployment);
    words.push(word);
    words.drain(..words.len().saturating_sub(MOST));
    Ok(json_file::write(&path, &ApprovalsFile { words })?)
}

#[cfg(test)]
mod tests {
    use repo_git::durable;
    use tempfile::TempDir;

    use super::*;
    use crate::decision::approval::{ChangeSet, Review};
    use crate::testing::id;

    fn word(name: &str, by: &str) -> Word {
        let (change, at) = (ChangeSet::removal(id(name)), "2026-11-23T15:00:00Z".parse().unwrap());
        Word { review: Review::Approved, change, by: by.to_owned(), why: "x".to_owned(), at }
    }

    #[test]
    fn one_word_of_each_deployment_is_kept_and_a_hundred_in_all() {
        let dir = TempDir::new().unwrap();
        let home = Home::new(dir.path());
        assert_eq!(read(&home), Ok(Vec::new()));
        note(&home, word("a", "j.doe")).unwrap();
        note(&home, word("b", "j.doe")).unwrap();
        note(&home, word("a", "a.roe")).unwrap();
        assert_eq!(read(&home), Ok(vec![word("b", "j.doe"), word("a", "a.roe")]));
        (0..100).for_each(|at| note(&home, word(&format!("c{at}"), "j.doe")).unwrap());
        let words = read(&home).unwrap();
        assert_eq!((words.len(), &words[99]), (100, &word("c99", "j.doe")));
        assert!(!words.contains(&word("a", "a.roe")), "the oldest");
    }

    #[test]
    fn what_can_not_be_read_approves_nothing_until_the_next_word() {
        let dir = TempDir::new().unwrap();
        let home = Home::new(dir.path());
        for content in ["", "{", "{\"words\": [{}]}", "{\"words\": [], \"more\": 1}"] {
            durable::replace_file(&home.approvals(), content.as_bytes(), 0o600).unwrap();
            assert!(read(&home).unwrap_err().contains("isn't what `device-syncer approve` wrote"), "{content}");
            note(&home, word("a", "j.doe")).unwrap();
            assert_eq!(read(&home), Ok(vec![word("a", "j.doe")]));
        }
    }
}
