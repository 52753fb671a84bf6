//! Files as `git bundle` writes and reads them: one ref with all of its history, kept apart from the repository.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::incoming::Incoming;
use super::{FetchError, FetchLimits};
use crate::pack::PackWriter;
use crate::repo::Reach;
use crate::{CommitId, ReadError, Repo, durable};

/// The first line of version 2 (gitformat-bundle).
const SIGNATURE: &str = "# v2 git bundle";

/// The longest line of the head, in bytes.
const MAX_LINE: u64 = 4096;

/// A bundle can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("cannot write the bundle `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read the bundle `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// An object that belongs into it can't be read.
    #[error("cannot read all objects")]
    Objects(#[from] ReadError),
    #[error("`{}` is no bundle of `{name}` alone: {problem}", path.display())]
    Other { path: PathBuf, name: String, problem: &'static str },
    #[error("cannot take the objects of the bundle `{}`", path.display())]
    Pack {
        path: PathBuf,
        #[source]
        source: FetchError,
    },
}

impl Repo {
    /// Writes a bundle of a commit with all that it reaches, under the full name of a ref, and without prerequisites, so that
    /// `git clone` reads it. Durable when it returns; the same commit gives the same bytes.
    pub fn write_bundle(&self, path: &Path, name: &str, tip: CommitId) -> Result<(), BundleError> {
        let mut reach = Reach::new(self)?;
        reach.add(tip.0)?;
        let ids = reach.into_found();
        let written = durable::replace_file_with(path, 0o600, |file| {
            let mut file = BufWriter::new(file);
            write!(file, "{SIGNATURE}\n{tip} {name}\n\n")?;
            let mut pack = PackWriter::new(&mut file, ids.len())?;
            for id in &ids {
                let (kind, data) = self.object(*id)?;
                pack.add(*id, kind, &data)?;
            }
            pack.finish()?;
            Ok(file.flush()?)
        });
        written.map_err(|failed| match failed {
            Failed::Read(source) => source.into(),
            Failed::Io(source) => BundleError::Write { path: path.to_owned(), source },
        })
    }

    /// Takes the objects of a bundle that has this ref alone and needs nothing else, and says where the ref stands. No ref of
    /// this repository moves.
    pub fn fetch_bundle(&self, path: &Path, name: &str, limits: &FetchLimits) -> Result<CommitId, BundleError> {
        let read = |source| BundleError::Read { path: path.to_owned(), source };
        let other = |problem| BundleError::Other { path: path.to_owned(), name: name.to_owned(), problem };
        let mut file = BufReader::new(File::open(path).map_err(read)?);
        let tip = head(&mut file, name).map_err(read)?.map_err(other)?;
        let pack = |source| BundleError::Pack { path: path.to_owned(), source };
        Incoming::take(self, limits, &mut file, &[tip]).map_err(pack)?;
        Ok(tip)
    }
}

/// Where the ref stands by the head that these bytes begin with, and what comes after that.
#[cfg(feature = "fuzz")]
pub(super) fn fuzz<'a>(mut bytes: &'a [u8], name: &str) -> Option<(CommitId, &'a [u8])> {
    let tip = head(&mut bytes, name).ok()?.ok()?;
    Some((tip, bytes))
}

/// Reads the lines before the pack; the error inside is what else it is.
fn head(file: &mut impl BufRead, name: &str) -> io::Result<Result<CommitId, &'static str>> {
    if line(file)? != SIGNATURE {
        return Ok(Err("it doesn't begin as one of version 2"));
    }
    let first = line(file)?;
    if first.starts_with('-') {
        return Ok(Err("it needs commits that aren't in it"));
    }
    let Some(tip) = first.split_once(' ').filter(|(_, found)| *found == name).and_then(|(id, _)| id.parse().ok())
    else {
        return Ok(Err("it has another ref"));
    };
    Ok(if line(file)?.is_empty() { Ok(tip) } else { Err("it has more refs") })
}

/// A line without its end.
fn line(file: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    file.by_ref().take(MAX_LINE).read_line(&mut line)?;
    match line.pop() {
        Some('\n') => Ok(line),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Why a bundle isn't written.
enum Failed {
    Read(ReadError),
    Io(io::Error),
}

impl From<ReadError> for Failed {
    fn from(source: ReadError) -> Self {
        Self::Read(source)
    }
}

impl From<io::Error> for Failed {
    fn from(source: io::Error) -> Self {
        Self::Io(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_ref_of_this_name_that_needs_nothing_is_taken() {
        const ID: &str = "1e9f3c2b4a5d6e7f8091a2b3c4d5e6f708192a3b";
        let read = |text: String| head(&mut text.as_bytes(), "refs/heads/status-1");
        let tip = read(format!("{SIGNATURE}\n{ID} refs/heads/status-1\n\nPACK")).unwrap();
        assert_eq!(tip.map(|tip| tip.to_string()), Ok(ID.to_owned()));
        for (text, problem) in [
            (format!("# v3 git bundle\n{ID} refs/heads/status-1\n\n"), "begin as one"),
            (format!("{SIGNATURE}\n-{ID} before\n{ID} refs/heads/status-1\n\n"), "aren't in it"),
            (format!("{SIGNATURE}\n{ID} refs/heads/status-2\n\n"), "another ref"),
            (format!("{SIGNATURE}\nxyz refs/heads/status-1\n\n"), "another ref"),
            (format!("{SIGNATURE}\n{ID} refs/heads/status-1\n{ID} HEAD\n\n"), "more refs"),
        ] {
            let said = read(text.clone()).unwrap().unwrap_err();
            assert!(said.contains(problem), "{text}: {said}");
        }
        for cut in [String::new(), SIGNATURE.to_owned(), format!("{SIGNATURE}\n{ID} refs/heads/status-1\n")] {
            assert!(read(cut).is_err());
        }
        assert!(read("x".repeat(2 * MAX_LINE as usize)).is_err());
    }
}
