//! A person's word about a rollout: its file in the fleet, as one commit.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use repo_git::durable::{self, FileError};
use repo_model::DeviceId;
use repo_model::problem::Problems;

use super::edit::{set_list, set_word};
use crate::fleet::{Promoted, RolloutWords, SourceFile, read_rollout, rollout_path};
use crate::repos::{GitError, StockGit};

/// What a person says of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutWord {
    /// Nothing more is released, or it goes on.
    Paused(bool),
    /// The waves up to this one are agreed to.
    Approved(u32),
    /// This stop is lifted.
    Resumed(u32),
    /// The rest goes at once.
    PromotedAll,
    /// These devices go at once, beside those that do already.
    Promoted(BTreeSet<DeviceId>),
}

/// What is said of a rollout now.
#[derive(Debug)]
pub struct RolloutSaid {
    /// The path of its file in the fleet repository.
    pub file: String,
    /// Whether that was said already.
    pub was_there: bool,
    pub words: RolloutWords,
}

/// A rollout's file can't be changed.
#[derive(Debug, thiserror::Error)]
pub enum RolloutWordError {
    #[error("`{file}` can't be read")]
    Unreadable { file: String, problems: Problems },
    /// It has changes that aren't committed.
    #[error("`{file}` has changes that are not committed")]
    Dirty { file: String },
    /// It is written in a way that can't be edited.
    #[error("`{file}` can't be edited without changing more than `{key}`")]
    Edit { file: String, key: &'static str },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit the rollout's file")]
    Git(#[from] GitError),
}

/// Writes a person's word about a rollout into its file, comments stay, and commits that. What is said already is no commit.
pub fn say(root: &Path, rollout: u32, word: &RolloutWord) -> Result<RolloutSaid, RolloutWordError> {
    let (git, file) = (StockGit::new(root), rollout_path(rollout));
    let path = root.join(&file);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        read => Some(read.map_err(FileError::read(&path))?),
    };
    let before = text.as_deref().map_or(Ok(RolloutWords::default()), |text| read(&file, text))?;
    let wanted = word.added_to(before.clone());
    let (was_there, is_dirty) = (wanted == before, text.is_some() && git.is_dirty(&file)?);
    // One that was cut off before its commit is committed by the same again; other changes are the operator's.
    let committed = || git.run(&["show", &format!("HEAD:{file}")]).ok();
    let is_cut_off = || {
        let committed = committed();
        let before = committed.as_deref().map_or(Ok(RolloutWords::default()), |text| read(&file, text));
        let edited = word.edit(committed.as_deref().unwrap_or_default(), &before.ok()?);
        (edited == text).then_some(())
    };
    if is_dirty && !(was_there && is_cut_off().is_some()) {
        return Err(RolloutWordError::Dirty { file });
    }
    if !was_there {
        let failed = || RolloutWordError::Edit { file: file.clone(), key: word.key() };
        let edited = word.edit(text.as_deref().unwrap_or_default(), &before).ok_or_else(failed)?;
        if read(&file, &edited).ok().as_ref() != Some(&wanted) {
            return Err(failed());
        }
        durable::create_dir_all(path.parent().unwrap_or(root), 0o755).map_err(FileError::write(&path))?;
        durable::replace_file(&path, edited.as_bytes(), 0o644).map_err(FileError::write(&path))?;
    }
    if is_dirty || !was_there {
        git.commit(&[&file], &format!("rollout {rollout}: {}", word.said()))?;
    }
    Ok(RolloutSaid { file, was_there, words: wanted })
}

fn read(file: &str, text: &str) -> Result<RolloutWords, RolloutWordError> {
    let read = read_rollout(&SourceFile::plain(file, text));
    read.map_err(|problems| RolloutWordError::Unreadable { file: file.to_owned(), problems })
}

impl RolloutWord {
    fn key(&self) -> &'static str {
        match self {
            Self::Paused(_) => "paused",
            Self::Approved(_) => "approved",
            Self::Resumed(_) => "resumed",
            Self::PromotedAll | Self::Promoted(_) => "promoted",
        }
    }

    fn added_to(&self, words: RolloutWords) -> RolloutWords {
        match self {
            Self::Paused(paused) => RolloutWords { paused: *paused, ..words },
            // What was agreed to stays so.
            Self::Approved(wave) => RolloutWords { approved: words.approved.max(*wave), ..words },
            Self::Resumed(stop) => RolloutWords { resumed: *stop, ..words },
            Self::PromotedAll => RolloutWords { promoted: Promoted::All, ..words },
            Self::Promoted(devices) => {
                let promoted = match words.promoted {
                    Promoted::All => Promoted::All,
                    Promoted::No => Promoted::Devices(devices.clone()),
                    Promoted::Devices(before) => Promoted::Devices(before.into_iter().chain(devices.clone()).collect()),
                };
                RolloutWords { promoted, ..words }
            }
        }
    }

    /// The text of a file that means `before` with this word; `None` if it can't be edited.
    fn edit(&self, text: &str, before: &RolloutWords) -> Option<String> {
        let after = self.added_to(before.clone());
        let word = |text: &str, word: String| match text.is_empty() {
            true => Some(format!("{}: {word}\n", self.key())),
            false => set_word(text, self.key(), &word),
        };
        match (self, &after.promoted) {
            (Self::Paused(paused), _) => word(text, paused.to_string()),
            (Self::Approved(_), _) => word(text, after.approved.to_string()),
            (Self::Resumed(stop), _) => word(text, stop.to_string()),
            (_, Promoted::Devices(devices)) => {
                let items: Vec<_> = devices.iter().map(|device| format!("\"{device}\"")).collect();
                match text.is_empty() {
                    true => Some(format!(
                        "promoted:\n{}",
                        items.iter().map(|item| format!("  - {item}\n")).collect::<String>()
                    )),
                    false => set_list(text, self.key(), &items),
                }
            }
            (_, _) if text.is_empty() => word(text, "true".to_owned()),
            (_, _) => word(&set_list(text, self.key(), &[])?, "true".to_owned()),
        }
    }

    fn said(&self) -> String {
        match self {
            Self::Paused(true) => "pause".to_owned(),
            Self::Paused(false) => "end the pause".to_owned(),
            Self::Approved(wave) => format!("approve wave {wave}"),
            Self::Resumed(stop) => format!("resume after stop {stop}"),
            Self::PromotedAll => "promote the rest".to_owned(),
            Self::Promoted(devices) => {
                let devices: Vec<_> = devices.iter().map(ToString::to_string).collect();
                format!("promote {}", devices.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promoted(devices: &[&str]) -> RolloutWord {
        RolloutWord::Promoted(devices.iter().map(|id| id.parse().unwrap()).collect())
    }

    /// The text after each of these words, begun with nothing.
    fn after(words: &[RolloutWord], begin: &str) -> String {
        words.iter().fold(begin.to_owned(), |text, word| {
            let before = if text.is_empty() { RolloutWords::default() } else { read("x.yaml", &text).unwrap() };
            let edited = word.edit(&text, &before).unwrap_or_else(|| panic!("{word:?} into {text}"));
            assert_eq!(read("x.yaml", &edited).unwrap(), word.added_to(before), "{edited}");
            edited
        })
    }

    #[test]
    fn every_word_is_read_as_it_was_said_and_what_is_there_stays() {
        let all =
            [RolloutWord::Paused(true), RolloutWord::Approved(2), RolloutWord::Resumed(1), promoted(&["press-07"])];
        let text = after(&all, "");
        assert_eq!(text, "paused: true\napproved: 2\nresumed: 1\npromoted:\n  - \"press-07\"\n");
        assert_eq!(after(&[RolloutWord::Approved(1)], &text), text, "what was agreed to stays so");
        let more = after(&[promoted(&["press-01"])], &text);
        assert!(more.ends_with("promoted:\n  - \"press-01\"\n  - \"press-07\"\n"), "{more}");
        assert!(after(&[RolloutWord::PromotedAll], &more).ends_with("promoted: true\n"));
        assert_eq!(after(&[promoted(&["1"])], ""), "promoted:\n  - \"1\"\n");
        assert_eq!(after(&[RolloutWord::PromotedAll], ""), "promoted: true\n");
        let kept = after(&[RolloutWord::Paused(false)], "# wait for Anna\npaused: true # she is away\n");
        assert_eq!(kept, "# wait for Anna\npaused: false # she is away\n");
    }
}
