//! The cache of archives and charts: content-addressed, written durably, verified again on every read.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use repo_git::durable;
use repo_model::{Digest, IntoSet};

/// Archives by the digest of their bytes, in `<dir>/sha256/<hex>`.
#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// A cache in this directory, which is made when something is put.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into().join("sha256") }
    }

    /// Where the bytes with this digest lie, if they are here.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.dir.join(digest.hex())
    }

    /// The bytes with this digest. Bytes that rotted on the disk are removed and not returned.
    pub fn get(&self, digest: &Digest) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(digest);
        match fs::read(&path) {
            Ok(bytes) if Digest::of(&bytes) == *digest => Ok(Some(bytes)),
            Ok(_) => durable::remove_file(&path).map(|_| None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores bytes durably under their digest, which it returns.
    pub fn put(&self, bytes: &[u8]) -> io::Result<Digest> {
        let digest = Digest::of(bytes);
        durable::create_dir_all(&self.dir, 0o700)?;
        durable::replace_file(&self.path(&digest), bytes, 0o600)?;
        Ok(digest)
    }

    /// Removes everything else, leftovers of a crash included.
    pub fn prune(&self, keep: &BTreeSet<Digest>) -> io::Result<()> {
        let keep: BTreeSet<String> = keep.iter().map(Digest::hex).into_set();
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| keep.contains(name)) {
                durable::remove_file(&entry.path())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_what_rotted_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        let digest = cache.put(b"archive").unwrap();
        assert_eq!(cache.get(&digest).unwrap().unwrap(), b"archive");
        durable::replace_file(&dir.path().join("sha256").join(digest.hex()), b"rotten", 0o600).unwrap();
        assert_eq!(cache.get(&digest).unwrap(), None);
        assert_eq!(fs::read_dir(dir.path().join("sha256")).unwrap().count(), 0);
    }

    #[test]
    fn pruning_leaves_what_is_kept_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        cache.prune(&BTreeSet::new()).unwrap();
        let (kept, gone) = (cache.put(b"kept").unwrap(), cache.put(b"gone").unwrap());
        durable::replace_file(&dir.path().join("sha256/.tmp-left"), b"half", 0o600).unwrap();
        cache.prune(&BTreeSet::from([kept])).unwrap();
        assert!(cache.get(&kept).unwrap().is_some() && cache.get(&gone).unwrap().is_none());
        assert_eq!(fs::read_dir(dir.path().join("sha256")).unwrap().count(), 1);
    }
}
