//! How much of `status` one push brings. A device that was away for long tells it in parts, oldest first: each that arrives
//! stays, however slow the link is and however little the host takes at once.

use repo_git::{CommitId, ReadError, Repo};
use repo_model::KeyText;

use crate::host::verify::key_text;

/// The most commits in one push. With [`BYTES`] far below what a host of ours takes: 20,000 objects and 16 MiB.
const COMMITS: usize = 500;

/// The most bytes in one push, unpacked; packed it is some third of that.
const BYTES: u64 = 1 << 20;

/// How many commits the next push may bring, by what became of those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PushSize {
    next: usize,
    /// What no push exceeds any more, because more was too much for the host or the link.
    most: usize,
}

impl Default for PushSize {
    fn default() -> Self {
        Self { next: COMMITS, most: COMMITS }
    }
}

impl PushSize {
    /// The commits that one push brings, of those that the host doesn't know, each on the one before. It ends with one that a key
    /// of `allowed` signed where there is one, because a host judges a push by where it ends.
    pub(super) fn part<'a>(
        self,
        repo: &Repo,
        known: Option<CommitId>,
        line: &'a [CommitId],
        allowed: &[KeyText],
    ) -> Result<&'a [CommitId], ReadError> {
        let most = &line[..line.len().min(self.next)];
        let count = repo.count_within(known, most, BYTES)?;
        let is_allowed = |id: &CommitId| {
            let signer = repo.commit(*id).map(|commit| commit.signer().ok());
            signer.is_ok_and(|signer| signer.is_some_and(|key| allowed.contains(&key_text(&key))))
        };
        let before = line[..count].iter().rposition(is_allowed);
        let end = before.or_else(|| Some(count + line[count..].iter().position(is_allowed)?));
        Ok(end.map_or(line, |end| &line[..=end]))
    }

    /// Whether one push may bring all of these.
    pub(super) fn lets(self, repo: &Repo, known: Option<CommitId>, line: &[CommitId]) -> Result<bool, ReadError> {
        Ok(line.len() <= self.next && repo.count_within(known, line, BYTES)? == line.len())
    }

    /// What was pushed arrived.
    pub(super) fn arrived(&mut self) {
        self.next = self.next.saturating_mul(2).min(self.most);
    }

    /// So many commits didn't arrive, which may be their number. Returns whether fewer can be tried.
    pub(super) fn failed(&mut self, commits: usize) -> bool {
        let fewer = commits > 1;
        *self = match fewer {
            true => Self { next: commits / 2, most: commits / 2 },
            // It isn't their number.
            false => Self { next: 1, most: COMMITS },
        };
        fewer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_halved_and_one_that_is_refused_alone_is_not_too_much() {
        let mut size = PushSize::default();
        assert!(size.failed(500) && size.failed(250));
        assert_eq!(size, PushSize { next: 125, most: 125 });
        size.arrived();
        assert_eq!(size.next, 125, "more was too much");
        assert!(size.failed(3) && !size.failed(1));
        let mut sizes = Vec::new();
        for _ in 0..10 {
            sizes.push(size.next);
            size.arrived();
        }
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 500]);
    }
}
