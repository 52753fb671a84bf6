//! Files and directories in places where others write at the same time.
//!
//! Whoever may write in a directory can put a link, a FIFO or a device in any place of it, at any instant. So here nothing
//! below such a directory is named by a path: a directory is held open, the next one is entered by its name without
//! following a link, and files are made where nobody else writes, and moved in.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, open, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::files::{Temp, set_open_mode};
use super::group::sync;
use super::points::{SyncPoint, at};

/// A directory that is held open, wherever its name leads by now. Every name given to it is of something in it.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens a directory whose path nobody else can change; links in it are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens the directory of this name; `None` when there is nothing. Anything else, a link too, is
    /// [`ErrorKind::NotADirectory`].
    pub fn enter(&self, name: &str) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.0, plain(name)?, flags, Mode::empty()) {
            Ok(found) => Ok(Some(Self(found))),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(ErrorKind::NotADirectory.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same; what is missing is made, durably, with exactly this mode.
    pub fn make(&self, name: &str, mode: u32) -> io::Result<Self> {
        if let Some(there) = self.enter(name)? {
            return Ok(there);
        }
        let made = at(SyncPoint::DirCreate, || {
            match mkdirat(&self.0, name, Mode::from_raw_mode(mode)) {
                Err(Errno::EXIST) => {}
                made => made?,
            }
            let made = self.enter(name)?.ok_or(ErrorKind::NotFound)?;
            set_open_mode(&made.readable()?, mode).map(|()| made)
        })?;
        at(SyncPoint::DirParent, || self.sync())?;
        Ok(made)
    }

    /// What has this name; `None` when there is nothing.
    pub fn file_type(&self, name: &str) -> io::Result<Option<FileType>> {
        match statat(&self.0, plain(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the regular file of this name for reading; `None` when there is nothing, or anything else.
    ///
    /// Never waits: what it is is known before it is opened, because to open a FIFO may last for ever, and to open some
    /// devices does something. The caller bounds how much is read, for the file may grow meanwhile.
    pub fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        let found =
            match openat(&self.0, plain(name)?, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(None),
                found => found?,
            };
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        // A lease on the file would make an opening wait, too.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(Some(open(by_number(&found), flags, Mode::empty())?.into()))
    }

    /// Replaces the file of this name, or whatever is there but a directory ([`ErrorKind::IsADirectory`]): its old bytes
    /// or the new ones are there after a power cut. It is made in `aside`, a directory of the same file system in which
    /// nobody else writes.
    pub fn replace_file(&self, name: &str, bytes: &[u8], mode: u32, aside: &Path) -> io::Result<()> {
        let name = plain(name)?;
        let (temp, mut file) = Temp::file(aside, mode)?;
        at(SyncPoint::FileData, || file.write_all(bytes).and_then(|()| sync(vec![file])))?;
        at(SyncPoint::FileRename, || renameat(CWD, &temp.0, &self.0, name))?;
        temp.moved();
        at(SyncPoint::FileDir, || self.sync())
    }

    /// Removes whatever has this name, durably, unless it is a directory ([`ErrorKind::IsADirectory`]); `Ok(false)` when
    /// there is nothing.
    pub fn remove_file(&self, name: &str) -> io::Result<bool> {
        let name = plain(name)?;
        match at(SyncPoint::FileRemove, || unlinkat(&self.0, name, AtFlags::empty())) {
            Err(Errno::NOENT) => Ok(false),
            removed => {
                removed.map_err(Into::into).and_then(|()| at(SyncPoint::FileRemoveDir, || self.sync())).map(|()| true)
            }
        }
    }

    /// Removes the empty directory of this name; not synced, because an empty one that comes back harms nobody.
    pub fn remove_empty_dir(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, plain(name)?, AtFlags::REMOVEDIR)?)
    }

    fn sync(&self) -> io::Result<()> {
        sync(vec![self.readable()?])
    }

    /// The same directory, for what can't be done with a descriptor that only names it.
    fn readable(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.0, ".", flags, Mode::empty())?.into())
    }
}

/// One name, which leads neither further down nor up.
fn plain(name: &str) -> io::Result<&str> {
    if matches!(name, "" | "." | "..") || name.contains('/') { Err(ErrorKind::InvalidInput.into()) } else { Ok(name) }
}

fn by_number(file: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn world() -> (tempfile::TempDir, Dir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let [inside, outside] = ["inside", "outside"].map(|name| dir.path().join(name));
        super::super::create_dir_all(&inside, 0o755).unwrap();
        super::super::create_dir_all(&outside, 0o700).unwrap();
        let open = Dir::open(&inside).unwrap();
        (dir, open, outside)
    }

    #[test]
    fn a_link_is_neither_entered_nor_given_a_mode_nor_written_through() {
        let (dir, inside, outside) = world();
        symlink(&outside, dir.path().join("inside/link")).unwrap();
        assert_eq!(inside.enter("link").unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(inside.make("link", 0o777).unwrap_err().kind(), ErrorKind::NotADirectory);
        assert!(inside.open_file("link").unwrap().is_none());
        inside.replace_file("link", b"new", 0o644, dir.path()).unwrap();
        assert_eq!(fs::read(dir.path().join("inside/link")).unwrap(), b"new");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left aside");
    }

    #[test]
    fn a_link_that_took_the_place_of_a_new_directory_gives_its_mode_to_nobody() {
        let (dir, _, outside) = world();
        let place = dir.path().join("inside/place");
        symlink(&outside, &place).unwrap();
        assert!(super::super::files::set_dir_mode(&place, 0o777).is_err());
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_is_no_regular_file_is_never_opened() {
        let (dir, inside, _) = world();
        let fifo = dir.path().join("inside/fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("inside/socket")).unwrap();
        for name in ["fifo", "socket", "nothing"] {
            assert!(inside.open_file(name).unwrap().is_none(), "{name}");
        }
        assert!(inside.remove_file("fifo").unwrap() && !inside.remove_file("fifo").unwrap());
        inside.make("sub", 0o755).unwrap();
        assert_eq!(inside.remove_file("sub").unwrap_err().kind(), ErrorKind::IsADirectory);
        let error = inside.replace_file("sub", b"", 0o644, dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        inside.remove_empty_dir("sub").unwrap();
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        let (dir, inside, _) = world();
        for name in ["", ".", "..", "../outside", "/etc", "a/b"] {
            assert!(inside.enter(name).is_err() && inside.make(name, 0o755).is_err(), "{name}");
            assert!(inside.replace_file(name, b"", 0o644, dir.path()).is_err(), "{name}");
            assert!(inside.remove_file(name).is_err() && inside.remove_empty_dir(name).is_err(), "{name}");
        }
    }
}
