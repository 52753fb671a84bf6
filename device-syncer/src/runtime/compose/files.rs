//! Writes an archive's files below a directory in which containers may write too.
//!
//! A container that mounts a directory of ours can put a symlink where a directory was. So directories are opened one
//! by one without following links, and files are named through the open directory (`/proc/self/fd/N/name`).

use std::collections::BTreeSet;
use std::fs::{self, File as DiskFile};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use repo_artifacts::{Archive, File};
use repo_git::durable;
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;

/// The paths that an archive brings: its files, and its directories with a final `/`.
pub(super) fn inventory(archive: &Archive) -> BTreeSet<String> {
    archive.files().keys().cloned().chain(archive.dirs().iter().map(|dir| format!("{dir}/"))).collect()
}

/// Makes `root` hold the archive's files, durably; those that are the same already are not touched.
///
/// Temporary files that a killed syncer left in the archive's directories are removed.
pub(super) fn write(root: &Path, archive: &Archive) -> io::Result<()> {
    for dir in std::iter::once("").chain(archive.dirs().iter().map(String::as_str)) {
        sweep(&Directory::make(root, dir)?.path(""));
    }
    for (path, file) in archive.files() {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = Directory::make(root, dir)?;
        if !dir.holds(name, file) {
            durable::replace_file(&dir.path(name), &file.bytes, file.mode | 0o400)?;
        }
    }
    Ok(())
}

/// Removes these paths; directories only if nothing else is in them.
pub(super) fn remove(root: &Path, paths: &BTreeSet<String>) -> io::Result<()> {
    for path in paths.iter().rev() {
        let path = path.trim_end_matches('/');
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let Some(dir) = Directory::find(root, dir)? else { continue };
        match fs::symlink_metadata(dir.path(name)) {
            // An empty directory that comes back after a power cut harms no one, so this isn't synced.
            Ok(found) if found.is_dir() => drop(fs::remove_dir(dir.path(name))),
            Ok(_) => drop(durable::remove_file(&dir.path(name))?),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Makes sure that `path` exists below `root`, as a directory if there is nothing, and that no link leads out of it.
pub(super) fn check_mount(root: &Path, path: &str) -> io::Result<()> {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = Directory::make(root, dir)?;
    match fs::symlink_metadata(parent.path(name)) {
        Ok(found) if found.is_symlink() => Err(io::Error::other("a symlink took its place")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Directory::make(root, path).map(drop),
        Err(error) => Err(error),
    }
}

/// Removes temporary files that a killed syncer left here.
pub(super) fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if is_temporary(&entry.file_name().to_string_lossy()) {
            let _ = durable::remove_file(&entry.path());
        }
    }
}

/// `.tmp-<process>-<number>`, exactly as `durable` names them: an application may have a `.tmp-…` of its own.
fn is_temporary(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let rest = name.strip_prefix(durable::TEMP_PREFIX).and_then(|rest| rest.split_once('-'));
    rest.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// A directory that was reached without following a link.
struct Directory(OwnedFd);

impl Directory {
    /// Opens `path` below `root`; what is missing is made, and a file or link in its place is replaced.
    fn make(root: &Path, path: &str) -> io::Result<Self> {
        durable::create_dir_all(root, 0o700)?;
        let mut at = Self::open(root)?;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = match at.enter(part) {
                Ok(next) => next,
                Err(error) => {
                    if error != Errno::NOENT {
                        durable::remove_file(&at.path(part))?;
                    }
                    durable::create_dir_all(&at.path(part), 0o755)?;
                    at.enter(part)?
                }
            };
        }
        Ok(at)
    }

    /// Opens `path` below `root`, if all of it is there and real.
    fn find(root: &Path, path: &str) -> io::Result<Option<Self>> {
        let mut at = match Self::open(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            match at.enter(part) {
                Ok(next) => at = next,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(at))
    }

    fn open(root: &Path) -> io::Result<Self> {
        Ok(Self(open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    fn enter(&self, part: &str) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.0, part, flags, Mode::empty()).map(Self)
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join(name)
    }

    /// Whether the file is there with this content and mode.
    fn holds(&self, name: &str, file: &File) -> bool {
        let Ok(found) = openat(&self.0, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        else {
            return false;
        };
        let mut found = DiskFile::from(found);
        let same_shape = found.metadata().is_ok_and(|meta| {
            meta.is_file()
                && meta.len() == file.bytes.len() as u64
                && meta.permissions().mode() & 0o7777 == file.mode | 0o400
        });
        let mut bytes = Vec::new();
        same_shape && found.read_to_end(&mut bytes).is_ok() && bytes[..] == file.bytes[..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::compose::testing::archive;

    #[test]
    fn an_update_replaces_what_changed_and_keeps_what_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("files");
        let old = archive(&[("compose.yaml", "1"), ("conf/a", "1"), ("conf/gone", "1"), ("old/x", "1")]);
        write(&root, &old).unwrap();
        let before = fs::metadata(root.join("conf/a")).unwrap().modified().unwrap();
        durable::replace_file(&root.join("conf/theirs"), b"data", 0o600).unwrap();
        let new = archive(&[("compose.yaml", "2"), ("conf/a", "1"), ("new/deep/x", "1")]);
        remove(&root, &inventory(&old).difference(&inventory(&new)).cloned().collect()).unwrap();
        write(&root, &new).unwrap();
        assert_eq!(fs::read(root.join("compose.yaml")).unwrap(), b"2");
        assert_eq!(fs::metadata(root.join("conf/a")).unwrap().modified().unwrap(), before);
        assert!(root.join("conf/theirs").exists() && root.join("new/deep/x").exists());
        assert!(!root.join("conf/gone").exists() && !root.join("old").exists());
    }

    #[test]
    fn a_link_that_a_container_made_is_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("files"), dir.path().join("outside"));
        durable::create_dir_all(&outside, 0o755).unwrap();
        durable::create_dir_all(&root.join("a"), 0o755).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("a/conf")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", root.join("compose.yaml")).unwrap();
        remove(&root, &["a/conf/x".to_owned()].into()).unwrap();
        assert!(check_mount(&root, "a/conf").is_err());
        write(&root, &archive(&[("compose.yaml", "1"), ("a/conf/x", "1")])).unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(root.join("compose.yaml").symlink_metadata().unwrap().is_file());
        check_mount(&root, "a/conf").unwrap();
        check_mount(&root, "data/new").unwrap();
        assert!(root.join("data/new").is_dir());
    }
}
