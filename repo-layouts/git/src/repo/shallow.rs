//! Where the history in a repository ends before its beginning (gitformat-shallow).

use std::collections::HashSet;
use std::io;

use gix::ObjectId;

use super::{Reach, ReadError, Repo};
use crate::{CommitId, durable};

impl Repo {
    /// The oldest commit of the first-parent history of `tip` for which all from it to `tip` comes to at most `bytes`,
    /// unpacked; `tip` if that is more by itself, and `None` if all of the history that is here comes to no more.
    pub fn history_within(&self, tip: CommitId, bytes: u64) -> Result<Option<CommitId>, ReadError> {
        let (mut reach, mut sum, mut oldest) = (Reach::new(self)?, 0, tip);
        for commit in self.history(tip, None, usize::MAX)? {
            sum += reach.add_one(commit)?;
            if sum > bytes {
                return Ok(Some(oldest));
            }
            oldest = commit;
        }
        Ok(None)
    }

    /// How many of these commits, each on the one before, come to at most `bytes` unpacked, beside what `known` and its tree
    /// hold: one at least.
    pub fn count_within(&self, known: Option<CommitId>, line: &[CommitId], bytes: u64) -> Result<usize, ReadError> {
        let (mut reach, mut sum) = (Reach::new(self)?, 0);
        match known.map(|known| reach.leave_out(known)) {
            // Another's commit needn't be here.
            None | Some(Ok(()) | Err(ReadError::Missing { .. } | ReadError::Kind { .. })) => {}
            Some(Err(error)) => return Err(error),
        }
        for (count, commit) in line.iter().enumerate() {
            sum += reach.add_one(*commit)?;
            if sum > bytes {
                return Ok(count.max(1));
            }
        }
        Ok(line.len())
    }

    /// Puts this into the file of boundaries. The caller holds the writer's lock.
    pub(crate) fn write_shallow(&self, contents: &[u8]) -> io::Result<()> {
        let file = self.path().join("shallow");
        let before = match std::fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        if before == contents {
            Ok(())
        } else if contents.is_empty() {
            durable::remove_file(&file).map(drop)
        } else {
            durable::replace_file(&file, contents, 0o644)
        }
    }
}

/// The file's contents for these boundaries.
pub(super) fn lines(boundaries: &HashSet<ObjectId>) -> Vec<u8> {
    let mut lines: Vec<_> = boundaries.iter().map(|id| format!("{id}\n")).collect();
    lines.sort();
    lines.concat().into_bytes()
}
