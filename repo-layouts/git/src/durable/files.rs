//! Files and directories of both programs, outside the object store.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open};

use super::TEMP_PREFIX;
use super::group::sync;
use super::points::{SyncPoint, at};

/// Replaces a file: its old bytes or the new ones are there after a power cut, never a mix. `mode` is exact, whatever
/// the umask.
pub fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace_file_with(path, mode, |file| file.write_all(bytes))
}

/// The same for more than memory shall hold: `fill` writes it.
pub(crate) fn replace_file_with<E: From<io::Error>>(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    let (temp, mut file) = Temp::file(parent(path), mode)?;
    at(SyncPoint::FileData, || fill(&mut file).and_then(|()| Ok(sync(vec![file])?)))?;
    at(SyncPoint::FileRename, || fs::rename(&temp.0, path))?;
    temp.moved();
    Ok(at(SyncPoint::FileDir, || sync_dir(parent(path)))?)
}

/// Makes a directory and its missing parents, and syncs the parent of each new one. `mode` is for the new ones.
///
/// Links on the way are followed: where others write, [`Dir`](super::Dir) does this.
pub fn create_dir_all(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        create_dir_all(above, mode)?;
    }
    match at(SyncPoint::DirCreate, || make_dir(path, mode)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => at(SyncPoint::DirParent, || sync_dir(parent(path))),
    }
}

/// Makes a directory at a place where nothing is, with these directories, outer ones first, and files with their modes
/// in it: all of it is there after a power cut, or nothing. Missing parents of it are made, too.
pub fn create_tree(path: &Path, directories: &[&str], files: &[(&str, u32, &[u8])]) -> io::Result<()> {
    create_dir_all(parent(path), 0o755)?;
    let temp = Temp::dir(parent(path))?;
    directories.iter().try_for_each(|directory| make_dir(&temp.0.join(directory), 0o755))?;
    for (name, mode, bytes) in files {
        new_file(&temp.0.join(name), *mode)?.write_all(bytes)?;
    }
    fs::set_permissions(&temp.0, Permissions::from_mode(0o755))?;
    sync_tree(&temp.0)?;
    rename(&temp.0, path)?;
    temp.moved();
    Ok(())
}

/// Overwrites bytes of an existing file in place and syncs them.
pub fn write_slot(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    at(SyncPoint::SlotWrite, || file.write_all_at(bytes, offset))?;
    at(SyncPoint::SlotData, || file.sync_data())
}

/// Removes a file for good; `Ok(false)` when there is none.
pub fn remove_file(path: &Path) -> io::Result<bool> {
    match at(SyncPoint::FileRemove, || fs::remove_file(path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(()) => at(SyncPoint::FileRemoveDir, || sync_dir(parent(path))).map(|()| true),
    }
}

/// Renames a file or directory for good; what is inside must be synced already ([`sync_tree`]).
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    at(SyncPoint::DirRename, || fs::rename(from, to))?;
    at(SyncPoint::DirRenameParents, || {
        sync_dir(parent(to))?;
        if parent(from) == parent(to) { Ok(()) } else { sync_dir(parent(from)) }
    })
}

/// Exchanges two files or directories beside each other for good, in one step: at no moment one of the names is missing.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let exchange = || rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).map_err(io::Error::from);
    at(SyncPoint::DirRename, exchange)?;
    at(SyncPoint::DirRenameParents, || sync_dir(parent(one)))
}

/// How many files are open at the same time while a tree is synced.
const OPEN: usize = 64;

/// Syncs every file and directory at and below `dir`; symlinks are not followed.
pub fn sync_tree(dir: &Path) -> io::Result<()> {
    let mut paths = Vec::new();
    list_tree(dir, &mut paths)?;
    paths.chunks(OPEN).try_for_each(|some| at(SyncPoint::TreeSync, || sync_paths(some)))
}

fn list_tree(dir: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list_tree(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    paths.push(dir.to_owned());
    Ok(())
}

/// Syncs a file that another program wrote.
pub fn sync_file(path: &Path) -> io::Result<()> {
    at(SyncPoint::TreeSync, || sync_paths(&[path]))
}

/// Removes a directory and all below it for good; `Ok(false)` when there is none.
pub fn remove_dir_all(path: &Path) -> io::Result<bool> {
    match at(SyncPoint::TreeRemove, || fs::remove_dir_all(path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(()) => at(SyncPoint::TreeRemoveParent, || sync_dir(parent(path))).map(|()| true),
    }
}

/// The directory that holds this name; `.` for a bare file name.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        Some(_) => Path::new("."),
        None => path,
    }
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    sync_paths(&[dir])
}

/// Syncs files and directories together.
pub(super) fn sync_paths(paths: &[impl AsRef<Path>]) -> io::Result<()> {
    sync(paths.iter().map(File::open).collect::<io::Result<_>>()?)
}

/// A temporary file or directory that is removed when dropped. An equal name left behind by an earlier life of this
/// process id is passed over.
#[derive(Debug)]
pub(crate) struct Temp(pub(crate) PathBuf);

impl Temp {
    pub(super) fn file(dir: &Path, mode: u32) -> io::Result<(Self, File)> {
        Self::make(dir, |path| new_file(path, mode))
    }

    /// The same in a directory that is made, with this mode, if it isn't there.
    pub(super) fn file_below(dir: &Path, dir_mode: u32, mode: u32) -> io::Result<(Self, File)> {
        match Self::file(dir, mode) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                create_dir_all(dir, dir_mode)?;
                Self::file(dir, mode)
            }
            made => made,
        }
    }

    /// A directory that only its owner can enter.
    pub(crate) fn dir(dir: &Path) -> io::Result<Self> {
        Self::make(dir, |path| make_dir(path, 0o700)).map(|(temp, ())| temp)
    }

    /// Forgets what has another name now: whatever takes the old one is not ours.
    pub(super) fn moved(mut self) {
        self.0.clear();
    }

    fn make<T>(dir: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(Self, T)> {
        loop {
            let path = temp_path(dir);
            match make(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|made| (Self(path), made)),
            }
        }
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.0).or_else(|_| fs::remove_dir_all(&self.0));
        }
    }
}

fn temp_path(dir: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    dir.join(format!("{TEMP_PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    set_dir_mode(path, mode)
}

/// Gives a directory this mode; a link that took its place is refused.
pub(super) fn set_dir_mode(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    set_open_mode(&open(path, flags, Mode::empty())?.into(), mode)
}

fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    set_open_mode(&file, mode)?;
    Ok(file)
}

/// Gives a file this mode, unless it has it.
pub(super) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    if has_mode(&fs::metadata(path)?, mode) { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(mode)) }
}

/// Whether something was made with all of its mode, of which the umask may have taken something away: to write it costs
/// more than to look.
pub(super) fn has_mode(found: &Metadata, mode: u32) -> bool {
    found.permissions().mode() & 0o7777 == mode
}

/// Gives an open file or directory this mode.
pub(super) fn set_open_mode(file: &File, mode: u32) -> io::Result<()> {
    if has_mode(&file.metadata()?, mode) { Ok(()) } else { file.set_permissions(Permissions::from_mode(mode)) }
}
