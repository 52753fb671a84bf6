//! Moving refs, each by a synced compare-and-swap that stock Git's own locks respect.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fmt, io};

use gix::refs::FullNameRef;

use super::packed::{PACKED_REFS, PackedRefs, read_packed, without};
use super::plain::plain;
use super::{BatchError, Pack, ReadError, Repo, RepoLock};
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

    /// Puts refs that have files of their own into `packed-refs`, where [`Bare::store_and_move`](super::Bare::store_and_move) moves
    /// them together. Under the lock.
    pub fn pack_refs(&self, lock: &RepoLock, names: &[impl AsRef<str>]) -> Result<(), RefError> {
        debug_assert_eq!(lock.path, self.path, "the lock is of another repository");
        let find = |name: &str| self.reference(name);
        Mover { root: &self.path, common: self.git.common_dir(), find: &find }.pack(names)
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

impl RefMove {
    /// Whether the ref, which stands here, is where the move expects it.
    fn compare(&self, found: Option<CommitId>) -> Result<(), RefError> {
        let Self { name, expected, .. } = self;
        let is_expected = match expected {
            Expected::Absent => found.is_none(),
            Expected::At(id) => found == Some(*id),
            Expected::Any => true,
        };
        if is_expected { Ok(()) } else { Err(RefError::Moved { name: name.clone(), expected: *expected, found }) }
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

    /// Stores a pack before the first ref moves: all of them together where none has a file of its own. What the locks hold is synced
    /// together with the pack.
    pub(super) fn store_and_move(&self, pack: &Pack, moves: &[RefMove]) -> Result<(), WriteError> {
        let store = |written: Option<WrittenPack>| match written {
            Some(written) => written.install().map_err(|source| BatchError::store(self.root, source)),
            None => Ok(()),
        };
        let write = || pack.write(self.root, &self.common.join("objects/pack"));
        if let Some((mut lock, contents)) = self.lock_packed(moves)? {
            let mut written = write()?;
            let prepared = RefLock::prepare(vec![(&mut lock, contents)], written.as_mut());
            prepared.map_err(|source| failed(moves, source))?;
            store(written)?;
            lock.replace_prepared().map_err(|source| failed(moves, source))?;
            // A stock Git that didn't look for the lock may have given one a file meanwhile, which counts.
            let mut overtaken = moves.iter().filter(|step| self.has_file(step));
            return Ok(overtaken.try_for_each(|step| {
                let expected = step.new.map_or(Expected::Absent, Expected::At);
                self.compare(&RefMove { expected, ..step.clone() })
            })?);
        }
        let mut locks = self.lock_moves(moves)?;
        let mut written = write()?;
        prepare(moves, &mut locks, written.as_mut())?;
        store(written)?;
        Ok(self.finish(moves, locks)?)
    }

    fn lock_moves(&self, moves: &[RefMove]) -> Result<Vec<RefLock>, RefError> {
        moves.iter().map(|step| self.lock_move(step)).collect()
    }

    /// Locks `packed-refs` to move all of these there, and says what it will hold; `None` if one of them has a file of its own, which
    /// counts more, or goes.
    fn lock_packed(&self, moves: &[RefMove]) -> Result<Option<(RefLock, Vec<u8>)>, RefError> {
        let has_file = || moves.iter().any(|step| self.has_file(step));
        let new = moves.iter().map(|step| Some((step.name.as_str(), step.new?)));
        let Some(new) = new.collect::<Option<Vec<_>>>().filter(|new| !new.is_empty() && !has_file()) else {
            return Ok(None);
        };
        moves.iter().try_for_each(check_name)?;
        let first = &moves[0].name;
        let lock = self.lock_ref(first, PACKED_REFS)?;
        // A stock Git that moves one of them has its lock, and gives it a file.
        moves.iter().try_for_each(|step| self.wait_for_lock(&step.name))?;
        if has_file() {
            return Ok(None);
        }
        let text = read_packed(self.common).map_err(|source| failed(moves, source))?;
        let Some(packed) = PackedRefs::read(&text) else { return Ok(None) };
        moves.iter().try_for_each(|step| step.compare(packed.find(&step.name)))?;
        Ok(Some((lock, packed.with(new))))
    }

    fn has_file(&self, step: &RefMove) -> bool {
        self.common.join(&step.name).exists()
    }

    /// Waits a little for whoever holds the lock of a ref.
    fn wait_for_lock(&self, name: &str) -> Result<(), RefError> {
        let lock = lock_of(&self.common.join(name));
        let start = Instant::now();
        while Path::new(&lock).exists() {
            if start.elapsed() >= PATIENCE {
                return Err(RefError::Locked { name: name.to_owned(), lock });
            }
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Puts refs that have files of their own into `packed-refs`, and removes their files then. One that names another ref stays.
    fn pack(&self, names: &[impl AsRef<str>]) -> Result<(), RefError> {
        let loose = names.iter().map(AsRef::as_ref).filter(|name| self.common.join(name).exists());
        let locks = loose.map(|name| Ok((name, self.lock_ref(name, name)?))).collect::<Result<Vec<_>, RefError>>()?;
        let tips = locks.into_iter().filter_map(|(name, lock)| Some((name, lock, plain(self.common, [name])[0]??)));
        let tips: Vec<_> = tips.collect();
        let Some((first, ..)) = tips.first() else { return Ok(()) };
        let fail = |name: &str, source| RefError::Io { name: name.to_owned(), source };
        let lock = self.lock_ref(first, PACKED_REFS)?;
        let text = read_packed(self.common).map_err(|source| fail(first, source))?;
        let Some(packed) = PackedRefs::read(&text) else { return Ok(()) };
        let contents = packed.with(tips.iter().map(|(name, _, tip)| (*name, *tip)));
        lock.replace(&contents).map_err(|source| fail(first, source))?;
        tips.into_iter().try_for_each(|(name, lock, _)| lock.delete().map_err(|source| fail(name, source)))
    }

    fn finish(&self, moves: &[RefMove], locks: Vec<RefLock>) -> Result<(), RefError> {
        moves.iter().zip(locks).try_for_each(|(step, lock)| self.move_ref(step, lock))
    }

    fn lock_move(&self, step: &RefMove) -> Result<RefLock, RefError> {
        check_name(step)?;
        let lock = self.lock_ref(&step.name, &step.name)?;
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
        if step.expected == Expected::Any {
            return Ok(());
        }
        let name = &step.name;
        step.compare((self.find)(name).map_err(|source| RefError::Read { name: name.clone(), source })?)
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
                None => return Err(RefError::Locked { name: name.to_owned(), lock: lock_of(&target) }),
            }
        }
    }

    /// Takes a ref out of `packed-refs`, where a stock Git may have put it.
    fn forget_packed(&self, name: &str) -> Result<(), RefError> {
        let fail = |source| RefError::Io { name: name.to_owned(), source };
        if !self.common.join(PACKED_REFS).exists() {
            return Ok(());
        }
        let lock = self.lock_ref(name, PACKED_REFS)?;
        match without(&read_packed(self.common).map_err(fail)?, name) {
            Some(rest) => lock.replace(&rest).map_err(fail),
            None => Ok(()),
        }
    }
}

/// Writes into the locks where their refs go, and syncs it, together with a pack that is written.
fn prepare(moves: &[RefMove], locks: &mut [RefLock], pack: Option<&mut WrittenPack>) -> Result<(), RefError> {
    let contents = |(step, lock)| step_contents(step).map(|contents| (lock, contents));
    let contents = moves.iter().zip(locks).filter_map(contents).collect();
    RefLock::prepare(contents, pack).map_err(|source| failed(moves, source))
}

/// An error of all of them, under the name of the first.
fn failed(moves: &[RefMove], source: io::Error) -> RefError {
    RefError::Io { name: moves.first().map(|step| step.name.clone()).unwrap_or_default(), source }
}

fn check_name(step: &RefMove) -> Result<(), RefError> {
    let name = &step.name;
    let is_valid = <&FullNameRef>::try_from(name.as_str()).is_ok() && name.starts_with("refs/");
    if is_valid { Ok(()) } else { Err(RefError::InvalidName { name: name.clone() }) }
}

/// The lock file of a ref's file, for people.
fn lock_of(target: &Path) -> String {
    format!("{}.lock", target.display())
}

/// What the file of a ref holds; `None` if it goes.
fn step_contents(step: &RefMove) -> Option<Vec<u8>> {
    step.new.map(|id| format!("{id}\n").into_bytes())
}
