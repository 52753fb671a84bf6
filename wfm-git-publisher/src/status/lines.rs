//! A file of the home's index that tells by a key what was read before.
//!
//! One line for each, the newest last: its digest, its key, and what was read, in JSON. Lines are only added, and aren't synced: one
//! that is torn, damaged, or of another basis doesn't have the digest that it should have, and counts as none. Losing them costs time
//! and nothing else. Once most of them are old the file is made anew.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use repo_git::durable;
use repo_model::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{debug, info};

use crate::parallel;

/// How many bytes of the file may be of old lines, beside as many as are of those that count.
pub(super) const OLD: usize = 1 << 20;

/// The longest line: of what is longer than that nothing is kept.
const LONGEST: usize = 64 << 10;

/// The lines of a file that count.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    path: PathBuf,
    /// What all of them depend on.
    basis: Digest,
    known: HashMap<&'a str, &'a str>,
    /// How many bytes of the file are of lines that count no more, and how many lines never did.
    old: usize,
    strange: usize,
}

/// A file, for [`Lines::open`]; empty if there is none.
pub(super) fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

impl<'a> Lines<'a> {
    /// The lines of this [`text`], checked on so many threads.
    pub(super) fn open(path: PathBuf, basis: Digest, text: &'a str, threads: usize) -> Self {
        let lines: Vec<_> = text.split('\n').filter(|line| !line.is_empty()).collect();
        let parts = lines.chunks((lines.len() / threads.max(1)).max(1)).collect();
        let check = |line: &&'a str| Some((checked(line, &basis)?, *line));
        let check = |lines: &[&'a str]| lines.iter().map(check).collect::<Vec<_>>();
        let checked = parallel::map(parts, threads, check).into_iter().flatten();
        let (mut known, mut old, mut strange) = (HashMap::with_capacity(lines.len()), 0, 0);
        for one in checked {
            match one {
                Some((key, line)) => old += known.insert(key, line).map_or(0, length),
                None => strange += 1,
            }
        }
        if strange > 0 {
            let file = path.display();
            info!(%file, lines = strange, "what was read before is damaged, or was read by another program or roster: it is read anew");
        }
        Self { path, basis, known, old, strange }
    }

    /// What was read, by its key.
    pub(super) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_str(self.known.get(key)?.splitn(3, ' ').nth(2)?).ok()
    }

    /// A line for [`keep`](Self::keep); `None` if it can't be kept. `key`: without spaces and line breaks.
    pub(super) fn line(&self, key: &str, read: &impl Serialize) -> Option<String> {
        let text = format!("{key} {}", serde_json::to_string(read).ok()?);
        Some(format!("{} {text}", digest(&self.basis, &text))).filter(|line| line.len() < LONGEST)
    }

    /// Keeps these lines, too; how many bytes they have. That they can't be kept costs time and nothing else.
    pub(super) fn keep(mut self, anew: &[String]) -> usize {
        let before = anew.iter().filter_map(|line| self.known.remove(key(line)?));
        self.old += before.map(length).sum::<usize>();
        let lines = together(anew.iter().map(String::as_str));
        let kept = match self.strange == 0 && self.old <= self.length() + lines.len() + OLD {
            true if lines.is_empty() => Ok(()),
            true => self.add(&lines),
            false => self.replace(&lines),
        };
        if let Err(error) = kept {
            debug!(%error, file = %self.path.display(), "what was read isn't kept");
        }
        lines.len()
    }

    /// How many bytes the lines have.
    pub(super) fn length(&self) -> usize {
        self.known.values().copied().map(length).sum()
    }

    /// Adds lines, all of them at once, so that another process adds its own before or after them.
    fn add(&self, lines: &str) -> io::Result<()> {
        match OpenOptions::new().append(true).open(&self.path) {
            Ok(mut file) => file.write_all(lines.as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.replace(lines),
            Err(error) => Err(error),
        }
    }

    /// Makes the file anew, of the lines that count and these.
    fn replace(&self, lines: &str) -> io::Result<()> {
        let lines = together(self.known.values().copied()) + lines;
        durable::replace_file(&self.path, lines.as_bytes(), 0o600)
    }
}

/// The key of a line; `None` if it isn't one of this program and basis.
fn checked<'a>(line: &'a str, basis: &Digest) -> Option<&'a str> {
    let (said, text) = line.split_once(' ')?;
    (said == digest(basis, text).to_string()).then(|| key(line))?
}

fn key(line: &str) -> Option<&str> {
    line.split(' ').nth(1)
}

fn digest(basis: &Digest, text: &str) -> Digest {
    Digest::of(&[basis.as_bytes(), text.as_bytes()].concat())
}

/// How many bytes of the file a line has.
fn length(line: &str) -> usize {
    line.len() + 1
}

/// Each line begins anew, wherever the one before ended.
fn together<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.flat_map(|line| ["\n", line]).collect()
}
