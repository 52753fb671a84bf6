//! Moving refs, each by a synced compare-and-swap that stock Git's own locks respect.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fmt, io};

use gix::refs::FullNameRef;

use super::{BatchError, Pack, ReadError, Repo};
use crate::durable::store::{RefLock, WrittenPack};
use crate::{CommitId, durable};

/// Where a ref must stand for a move to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The ref must not exist.
    Absent,
    /// It must stand at this very commit.
    At(CommitId),
    /// It may stand anywhere, or be damaged.
    Any,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::At(id) => write!(f, "at {id}"),
            Self::Any => f.write_str("anywhere"),
        }
    }
}

/// One move of one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefMove {
    /// The full name (`refs/heads/desired`).
    pub name: String,
    pub expected: Expected,
    /// Where it goes; `None` deletes it.
    pub new: Option<CommitId>,
}

/// A ref didn't move. Only where the disk refused can others of the list have moved, those before it.
#[derive(Debug, thiserror::Error)]
pub enum RefError {
    /// It stands elsewhere than expected.
    #[error("ref `{name}` was expected {expected}, but is {}", found.map_or("absent".to_owned(), |id| format!("at {id}")))]
    Moved {
        name: String,
        expected: Expected,
        /// Where it stands; `None` if it doesn't exist.
        found: Option<CommitId>,
    },
    /// Another process holds the ref's lock file.
    #[error("ref `{name}` is locked: `{lock}` exists")]
    Locked { name: String, lock: String },
    /// The name is not allowed.
    #[error("`{name}` is not a full ref name")]
    InvalidName { name: String },
    /// The ref's present value can't be read.
    #[error("cannot read ref `{name}`")]
    Read {
        name: String,
        #[source]
        source: ReadError,
    },
    #[error("cannot move ref `{name}`")]
    Io {
        name: String,
        #[source]
        source: io::Error,
    },
}

/// New commits can't be stored, or refs not moved to them.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Store(#[from] BatchError),
    #[error(transparent)]
    Move(#[from] RefError),
}

/// How long a lock that someone else holds is waited for. Stock Git holds one for milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);

impl Repo {
    /// Moves refs one after the other, in this order, each durable before the next begins. None moves if any is locked or
    /// stands elsewhere than expected.
    pub fn move_refs(&self, moves: &[RefMove]) -> Result<(), RefError> {
        let find = |name: &str| self.reference(name);
        Mover { root: &self.path, common: self.git.common_dir(), find: &find }.move_refs(moves)
    }

    /// Makes the packs durable that a stock Git put here (it syncs files, never directories): for its `update` hook, so
    /// that no ref ever gets to the disk before its objects.
    pub fn sync_pushed_packs(&self) -> io::Result<()> {
        durable::store::sync_packs(&self.pack_dir())?;
        durable::store::sync_packs(&self.git.common_dir().join("objects"))
    }

    /// Makes the refs durable that a stock Git moved.
    pub fn sync_pushed_refs(&self) -> io::Result<()> {
        let root = self.git.common_dir();
        durable::store::sync_refs(&root.join("refs"))?;
        // `packed-refs` lies here.
        durable::store::sync_ref_dir(root)
    }
}

/// Moves the refs of one repository.
pub(super) struct Mover<'a> {
    /// Where the temporary files of locks lie.
    pub(super) root: &'a Path,
    /// Where the refs lie.
    pub(super) common: &'a Path,
    /// Where a ref stands.
    pub(super) find: &'a dyn Fn(&str) -> Result<Option<CommitId>, ReadError>,
}

impl Mover<'_> {
    pub(super) fn move_refs(&self, moves: &[RefMove]) -> Result<(), RefError> {
        let mut locks = self.lock_moves(moves)?;
        prepare(moves, &mut locks, None)?;
        self.finish(moves, locks)
    }

    /// Stores a pack before the first ref moves. What the locks of the refs hold is synced together with it.
    pub(super) fn store_and_move(&self, pack: &Pack, moves: &[RefMove]) -> Result<(), WriteError> {
        let mut locks = self.lock_moves(moves)?;
        let mut written = pack.write(self.root, &self.common.join("objects/pack"))?;
        prepare(moves, &mut locks, written.as_mut())?;
        if let Some(written) = written {
            written.install().map_err(|source| BatchError::store(self.root, source))?;
        }
        Ok(self.finish(moves, locks)?)
    }

    fn lock_moves(&self, moves: &[RefMove]) -> Result<Vec<RefLock>, RefError> {
        moves.iter().map(|step| self.lock_move(step)).collect()
    }

    fn finish(&self, moves: &[RefMove], locks: Vec<RefLock>) -> Result<(), RefError> {
        moves.iter().zip(locks).try_for_each(|(step, lock)| self.move_ref(step, lock))
    }

    fn lock_move(&self, step: &RefMove) -> Result<RefLock, RefError> {
        let name = &step.name;
        let valid = <&FullNameRef>::try_from(name.as_str()).is_ok() && name.starts_with("refs/");
        if !valid {
            return Err(RefError::InvalidName { name: name.clone() });
        }
        let lock = self.lock_ref(name, name)?;
        self.compare(step).map(|()| lock)
    }

    fn move_ref(&self, step: &RefMove, lock: RefLock) -> Result<(), RefError> {
        let moved = match step.new {
            Some(_) => lock.replace_prepared(),
            None => {
                self.forget_packed(&step.name)?;
                lock.delete()
            }
        };
        moved.map_err(|source| RefError::Io { name: step.name.clone(), source })
    }

    fn compare(&self, step: &RefMove) -> Result<(), RefError> {
        let RefMove { name, expected, .. } = step;
        if *expected == Expected::Any {
            return Ok(());
        }
        let found = (self.find)(name).map_err(|source| RefError::Read { name: name.clone(), source })?;
        let wanted = match expected {
            Expected::At(id) => Some(*id),
            _ => None,
        };
        if found == wanted { Ok(()) } else { Err(RefError::Moved { name: name.clone(), expected: *expected, found }) }
    }

    /// Locks `file` in the Git directory for the sake of ref `name`, waiting a little for whoever has it.
    fn lock_ref(&self, name: &str, file: &str) -> Result<RefLock, RefError> {
        let target = self.common.join(file);
        let start = Instant::now();
        loop {
            let taken = RefLock::take(self.root, &target);
            match taken.map_err(|source| RefError::Io { name: name.to_owned(), source })? {
                Some(lock) => return Ok(lock),
                None if start.elapsed() < PATIENCE => sleep(Duration::from_millis(2)),
                None => {
                    return Err(RefError::Locked { name: name.to_owned(), lock: format!("{}.lock", target.display()) });
                }
            }
        }
    }

    /// Takes a ref out of `packed-refs`, where a stock Git may have put it.
    fn forget_packed(&self, name: &str) -> Result<(), RefError> {
        let fail = |source| RefError::Io { name: name.to_owned(), source };
        let packed = self.common.join("packed-refs");
        if !packed.exists() {
            return Ok(());
        }
        let lock = self.lock_ref(name, "packed-refs")?;
        let text = std::fs::read(&packed).map_err(fail)?;
        match without(&text, name) {
            Some(rest) => lock.replace(&rest).map_err(fail),
            None => Ok(()),
        }
    }
}

/// Writes into the locks where their refs go, and syncs it, together with a pack that is written.
fn prepare(moves: &[RefMove], locks: &mut [RefLock], pack: Option<&mut WrittenPack>) -> Result<(), RefError> {
    let contents = |(step, lock)| step_contents(step).map(|contents| (lock, contents));
    let contents = moves.iter().zip(locks).filter_map(contents).collect();
    let first = moves.first().map_or("", |step| &step.name);
    RefLock::prepare(contents, pack).map_err(|source| RefError::Io { name: first.to_owned(), source })
}

/// What the file of a ref holds; `None` if it goes.
fn step_contents(step: &RefMove) -> Option<Vec<u8>> {
    step.new.map(|id| format!("{id}\n").into_bytes())
}

/// `packed-refs` without this ref and the line that says what its tag points at; `None` if it isn't there.
fn without(packed: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut rest = Vec::with_capacity(packed.len());
    let mut dropping = false;
    for line in packed.split_inclusive(|byte| *byte == b'\n') {
        if !line.starts_with(b"^") {
            dropping = line.trim_ascii_end().get(41..) == Some(name.as_bytes());
        }
        if !dropping {
            rest.extend(line);
        }
    }
    (rest.len() < packed.len()).then_some(rest)
}
