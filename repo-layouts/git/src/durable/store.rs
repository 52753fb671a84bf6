//! Packs and refs: the synced steps of the object store.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::files::{Temp, create_dir_all, parent, set_mode, sync_dir, sync_paths};
use super::group::sync;
use super::points::{SyncPoint, at};
use crate::pack::{FinishedPack, PackWriter};

/// Packs are never changed once they are there.
pub(crate) const PACK_MODE: u32 = 0o444;

/// Writes a pack of `count` objects, which `fill` adds, into `objects/pack`; durable when it returns.
pub(crate) fn write_pack<E: From<io::Error>>(
    pack_dir: &Path,
    count: usize,
    fill: impl FnOnce(&mut PackWriter<BufWriter<File>>) -> Result<(), E>,
) -> Result<String, E> {
    let (pack, file) = temp_in(pack_dir)?;
    let mut writer = PackWriter::new(BufWriter::new(file), count)?;
    fill(&mut writer)?;
    let (out, finished) = writer.finish()?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    WrittenPack::with_index(pack_dir, (pack, file), &finished)?.store()?;
    Ok(finished.checksum.to_string())
}

/// A new file in a directory of packs, which is made if it isn't there.
fn temp_in(pack_dir: &Path) -> io::Result<(Temp, File)> {
    Temp::file_below(pack_dir, 0o755, PACK_MODE)
}

/// A pack and its index, written under temporary names.
#[derive(Debug)]
pub(crate) struct WrittenPack {
    pack_dir: PathBuf,
    pack: Temp,
    index: Temp,
    /// What is to be synced before they get their names.
    files: Vec<File>,
    checksum: String,
}

impl WrittenPack {
    /// Writes a pack that is in memory, and syncs nothing.
    pub(crate) fn new(pack_dir: &Path, bytes: &[u8], finished: &FinishedPack) -> io::Result<Self> {
        let (pack, mut file) = temp_in(pack_dir)?;
        file.write_all(bytes)?;
        Self::with_index(pack_dir, (pack, file), finished)
    }

    /// Writes the index of a pack that is written.
    fn with_index(pack_dir: &Path, (pack, file): (Temp, File), finished: &FinishedPack) -> io::Result<Self> {
        let (index, mut index_file) = temp_in(pack_dir)?;
        index_file.write_all(&finished.index()?)?;
        let (pack_dir, checksum) = (pack_dir.to_owned(), finished.checksum.to_string());
        Ok(Self { pack_dir, pack, index, files: vec![file, index_file], checksum })
    }

    /// Stores it by itself; durable when it returns.
    pub(crate) fn store(mut self) -> io::Result<()> {
        at(SyncPoint::PackData, || sync(self.files()))?;
        self.install()
    }

    fn files(&mut self) -> Vec<File> {
        std::mem::take(&mut self.files)
    }

    /// Gives the files, which are synced, their names; durable when it returns.
    pub(crate) fn install(self) -> io::Result<()> {
        name_pack(&self.pack_dir, &self.pack.0, &self.index.0, &self.checksum)?;
        [self.pack, self.index].into_iter().for_each(Temp::moved);
        Ok(())
    }
}

/// Syncs a pack and its index that the engine wrote, and moves them into `objects/pack`.
pub(crate) fn install_pack(pack_dir: &Path, pack: &Path, index: &Path, name: &str) -> io::Result<()> {
    at(SyncPoint::PackData, || {
        [pack, index].iter().try_for_each(|path| set_mode(path, PACK_MODE))?;
        sync_paths(&[pack, index])
    })?;
    name_pack(pack_dir, pack, index, name)
}

/// Moves a pack and its index into `objects/pack`. The index goes last: it is what makes readers look. Files of the same name are
/// replaced, because after a power cut they may be damaged.
fn name_pack(pack_dir: &Path, pack: &Path, index: &Path, name: &str) -> io::Result<()> {
    at(SyncPoint::PackRename, || fs::rename(pack, pack_dir.join(format!("pack-{name}.pack"))))?;
    at(SyncPoint::IndexRename, || fs::rename(index, pack_dir.join(format!("pack-{name}.idx"))))?;
    sync_packs(pack_dir)
}

/// Syncs the names in `objects/pack`.
pub(crate) fn sync_packs(pack_dir: &Path) -> io::Result<()> {
    at(SyncPoint::PackDir, || sync_dir(pack_dir))
}

/// Syncs a directory of refs and those below it.
pub(crate) fn sync_refs(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_refs(&entry.path())?;
        }
    }
    sync_ref_dir(dir)
}

/// Syncs the names in one directory of refs.
pub(crate) fn sync_ref_dir(dir: &Path) -> io::Result<()> {
    at(SyncPoint::RefDir, || sync_dir(dir))
}

/// Removes a pack's file or a loose object that another pack replaces; not synced, because it may come back.
pub(crate) fn remove_replaced(path: &Path) -> io::Result<()> {
    match at(SyncPoint::PackRemove, || fs::remove_file(path)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The lock of one ref (or of `packed-refs`), as stock Git makes and respects it.
///
/// The lock file is a second name of a temporary file in the repository's root. That tells our own lock files from
/// those of a stock Git which may be alive: ours may be removed at once when their process is gone.
#[derive(Debug)]
pub(crate) struct RefLock {
    target: PathBuf,
    lock: Temp,
    /// Removed when the lock is dropped.
    _twin: Temp,
    /// What is to be written and synced before the move.
    file: Option<File>,
}

impl RefLock {
    /// Takes the lock; `None` when someone else has it.
    pub(crate) fn take(git_dir: &Path, target: &Path) -> io::Result<Option<Self>> {
        let (twin, file) = Temp::file(git_dir, 0o644)?;
        let mut lock = target.as_os_str().to_owned();
        lock.push(".lock");
        let link = || fs::hard_link(&twin.0, &lock);
        let linked = match link() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                create_dir_all(parent(target), 0o755).and_then(|()| link())
            }
            linked => linked,
        };
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
            Ok(()) => {
                Ok(Some(Self { target: target.to_owned(), lock: Temp(lock.into()), _twin: twin, file: Some(file) }))
            }
        }
    }

    /// Gives the file these contents, durably.
    pub(crate) fn replace(mut self, contents: &[u8]) -> io::Result<()> {
        Self::prepare(vec![(&mut self, contents.to_owned())], None)?;
        self.replace_prepared()
    }

    /// Writes what some files will hold into their lock files, and syncs it, together with a pack that is written.
    pub(crate) fn prepare(locks: Vec<(&mut Self, Vec<u8>)>, pack: Option<&mut WrittenPack>) -> io::Result<()> {
        let write = |(lock, contents): (&mut Self, Vec<u8>)| {
            let mut file = lock.file.take()?;
            Some(file.write_all(&contents).map(|()| file))
        };
        let prepare = |packed: Vec<File>| {
            at(SyncPoint::RefLock, || {
                let locks = locks.into_iter().filter_map(write);
                sync(packed.into_iter().map(Ok).chain(locks).collect::<io::Result<_>>()?)
            })
        };
        match pack {
            Some(pack) => at(SyncPoint::PackData, || prepare(pack.files())),
            None => prepare(Vec::new()),
        }
    }

    /// Gives the file the contents that were prepared, durably.
    pub(crate) fn replace_prepared(self) -> io::Result<()> {
        at(SyncPoint::RefMove, || fs::rename(&self.lock.0, &self.target))?;
        self.lock.moved();
        at(SyncPoint::RefDir, || sync_dir(parent(&self.target)))
    }

    /// Removes the file, durably.
    pub(crate) fn delete(self) -> io::Result<()> {
        match at(SyncPoint::RefDelete, || fs::remove_file(&self.target)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => at(SyncPoint::RefDir, || sync_dir(parent(&self.target))),
        }
    }

    /// Whether a lock file is one of ours, given the inodes of the temporary files in the repository's root.
    pub(crate) fn is_ours(lock: &Path, temps: &[u64]) -> bool {
        fs::symlink_metadata(lock).is_ok_and(|meta| temps.contains(&meta.ino()))
    }
}
