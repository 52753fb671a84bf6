//! Writes an archive's files below a directory in which containers may write too, at the same time.
//!
//! A container that mounts a directory of ours can put a link, a FIFO or a device in any place of it, again and again.
//! So all of this is done by [`Dir`], name by name in open directories, and each loop here has an end.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use repo_artifacts::{Archive, File};
use repo_git::durable::{self, Dir};
use repo_model::IntoSet;
use rustix::fs::FileType;

/// How often something in the way is removed: a container that puts it back each time must not keep us.
const TRIES: usize = 5;

/// The paths that an archive brings: its files, and its directories with a final `/`.
pub(super) fn inventory(archive: &Archive) -> BTreeSet<String> {
    archive.files().keys().cloned().chain(archive.dirs().iter().map(|dir| format!("{dir}/"))).into_set()
}

/// Makes `root` hold the archive's files, durably; those that are the same already are not touched. New ones are made
/// in `aside`, on the same file system, where no container can write.
pub(super) fn write(root: &Path, aside: &Path, archive: &Archive) -> io::Result<()> {
    durable::create_dir_all(root, 0o700)?;
    archive.dirs().iter().try_for_each(|dir| make(root, dir).map(drop))?;
    for (path, file) in archive.files() {
        let (dir, name) = split(path);
        let dir = make(root, dir)?;
        if !holds(&dir, name, file) {
            replace(&dir, name, file, aside).map_err(|error| named(path, error))?;
        }
    }
    Ok(())
}

/// Removes these paths; directories only if nothing else is in them.
pub(super) fn remove(root: &Path, paths: &BTreeSet<String>) -> io::Result<()> {
    for path in paths.iter().rev() {
        let (dir, name) = split(path.trim_end_matches('/'));
        let Some(dir) = find(root, dir)? else { continue };
        match dir.remove_file(name) {
            Err(error) if error.kind() == ErrorKind::IsADirectory => drop(dir.remove_empty_dir(name)),
            removed => drop(removed?),
        }
    }
    Ok(())
}

/// Whether a regular file is there, reached without a link.
pub(super) fn is_file(root: &Path, path: &str) -> bool {
    let (dir, name) = split(path);
    let found = find(root, dir).ok().flatten().and_then(|dir| dir.file_type(name).ok().flatten());
    found == Some(FileType::RegularFile)
}

/// What of `path` below `root` isn't what it seems: a link, or what is no directory on the way. `None`: all of it that is
/// there is real.
pub(super) fn link_in(root: &Path, path: &str) -> io::Result<Option<String>> {
    walk(root, path, |dir, name| dir.enter(name))
}

/// The same, and what is missing is made, as directories.
pub(super) fn make_mount(root: &Path, path: &str) -> io::Result<Option<String>> {
    walk(root, path, |dir, name| dir.make(name, 0o755).map(Some))
}

fn walk(root: &Path, path: &str, enter: impl Fn(&Dir, &str) -> io::Result<Option<Dir>>) -> io::Result<Option<String>> {
    let mut at = match Dir::open(root) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut rest = parts(path).peekable();
    let mut so_far = Vec::new();
    while let Some(part) = rest.next() {
        so_far.push(part);
        match enter(&at, part) {
            Ok(Some(next)) => at = next,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                let real = rest.peek().is_none() && at.file_type(part)? != Some(FileType::Symlink);
                return Ok((!real).then(|| so_far.join("/")));
            }
            Err(error) => return Err(named(&so_far.join("/"), error)),
        }
    }
    Ok(None)
}

/// Removes temporary files that a killed syncer left in a directory where no container can write.
pub(super) fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(durable::TEMP_PREFIX.as_bytes()) {
            let _ = durable::remove_file(&entry.path());
        }
    }
}

/// Opens `path` below `root`; what is missing is made, and a file or link in its place is replaced.
fn make(root: &Path, path: &str) -> io::Result<Dir> {
    parts(path).try_fold(Dir::open(root)?, |at, part| {
        let mut made = at.make(part, 0o755);
        for _ in 0..TRIES {
            let in_the_way = |error: &io::Error| matches!(error.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound);
            if !made.as_ref().is_err_and(in_the_way) {
                break;
            }
            let _ = at.remove_file(part);
            made = at.make(part, 0o755);
        }
        made.map_err(|error| named(path, error))
    })
}

/// Opens `path` below `root`, if all of it is there and real.
fn find(root: &Path, path: &str) -> io::Result<Option<Dir>> {
    let missing = |error: &io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    let mut at = match Dir::open(root) {
        Err(error) if missing(&error) => return Ok(None),
        opened => opened?,
    };
    for part in parts(path) {
        match at.enter(part) {
            Ok(Some(next)) => at = next,
            Err(error) if !missing(&error) => return Err(named(path, error)),
            _ => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// Whether the file is there with this content and mode.
fn holds(dir: &Dir, name: &str, file: &File) -> bool {
    let Ok(Some(found)) = dir.open_file(name) else { return false };
    let len = file.bytes.len() as u64;
    let same_shape =
        found.metadata().is_ok_and(|meta| meta.len() == len && meta.permissions().mode() & 0o7777 == file.mode | 0o400);
    let mut bytes = Vec::new();
    same_shape && found.take(len + 1).read_to_end(&mut bytes).is_ok() && bytes[..] == file.bytes[..]
}

fn replace(dir: &Dir, name: &str, file: &File, aside: &Path) -> io::Result<()> {
    let replace = || dir.replace_file(name, &file.bytes, file.mode | 0o400, aside);
    match replace() {
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            dir.remove_empty_dir(name)?;
            replace()
        }
        replaced => replaced,
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn named(path: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{path}`: {error}"))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mknodat};

    use super::*;
    use crate::runtimes::compose::testing::archive;

    #[test]
    fn an_update_replaces_what_changed_and_keeps_what_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("files");
        let old = archive(&[("compose.yaml", "1"), ("conf/a", "1"), ("conf/gone", "1"), ("old/x", "1")]);
        write(&root, dir.path(), &old).unwrap();
        let before = fs::metadata(root.join("conf/a")).unwrap().modified().unwrap();
        durable::replace_file(&root.join("conf/theirs"), b"data", 0o600).unwrap();
        let new = archive(&[("compose.yaml", "2"), ("conf/a", "1"), ("new/deep/x", "1")]);
        remove(&root, &inventory(&old).difference(&inventory(&new)).cloned().collect()).unwrap();
        write(&root, dir.path(), &new).unwrap();
        assert_eq!(fs::read(root.join("compose.yaml")).unwrap(), b"2");
        assert_eq!(fs::metadata(root.join("conf/a")).unwrap().modified().unwrap(), before);
        assert!(root.join("conf/theirs").exists() && root.join("new/deep/x").exists());
        assert!(!root.join("conf/gone").exists() && !root.join("old").exists());
    }

    fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    #[test]
    fn a_link_that_a_container_made_is_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("files"), dir.path().join("outside"));
        durable::create_dir_all(&outside, 0o755).unwrap();
        durable::create_dir_all(&root.join("a"), 0o755).unwrap();
        durable::replace_file(&outside.join("x"), b"outside", 0o600).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("a/conf")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", root.join("compose.yaml")).unwrap();
        remove(&root, &["a/conf/x".to_owned()].into()).unwrap();
        for path in ["a/conf", "a/conf/deep"] {
            assert_eq!(link_in(&root, path).unwrap().as_deref(), Some("a/conf"));
            assert_eq!(make_mount(&root, path).unwrap().as_deref(), Some("a/conf"));
        }
        assert!(!is_file(&root, "a/conf/x") && !is_file(&root, "compose.yaml"));
        write(&root, dir.path(), &archive(&[("compose.yaml", "1"), ("a/conf/x", "1")])).unwrap();
        assert_eq!(fs::read(outside.join("x")).unwrap(), b"outside");
        assert!(root.join("compose.yaml").symlink_metadata().unwrap().is_file());
        assert!(is_file(&root, "a/conf/x"));
        for path in ["", "a/conf", "a/conf/x", "data/new"] {
            assert_eq!(make_mount(&root, path).unwrap(), None, "{path}");
        }
        assert!(root.join("data/new").is_dir());
        assert_eq!(link_in(&root, "data/not/yet").unwrap(), None);
    }

    #[test]
    fn whatever_a_container_put_in_the_place_of_a_file_or_directory_is_replaced_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("files");
        let app = archive(&[("compose.yaml", "1"), ("conf/a", "1"), ("deep/er/b", "1")]);
        durable::create_dir_all(&root.join("conf/a"), 0o755).unwrap();
        fifo(&root.join("compose.yaml"));
        fifo(&root.join("deep"));
        write(&root, dir.path(), &app).unwrap();
        let sparse = fs::File::options().write(true).open(root.join("conf/a")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let _socket = {
            durable::remove_file(&root.join("deep/er/b")).unwrap();
            std::os::unix::net::UnixListener::bind(root.join("deep/er/b")).unwrap()
        };
        write(&root, dir.path(), &app).unwrap();
        for path in ["compose.yaml", "conf/a", "deep/er/b"] {
            assert_eq!(fs::read(root.join(path)).unwrap(), b"1", "{path}");
        }
        // What is in a directory is the application's own: it is named, and stays.
        durable::remove_file(&root.join("conf/a")).unwrap();
        durable::create_dir_all(&root.join("conf/a/theirs"), 0o755).unwrap();
        assert!(write(&root, dir.path(), &app).unwrap_err().to_string().contains("`conf/a`"));
        fifo(&root.join("gone"));
        remove(&root, &["gone".to_owned(), "conf/a".to_owned()].into()).unwrap();
        assert!(!root.join("gone").exists() && root.join("conf/a/theirs").exists());
    }
}
