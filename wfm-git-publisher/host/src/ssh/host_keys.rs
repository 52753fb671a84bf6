//! The keys by which clients recognise the host: made once, and the same ever since.

use std::fs;
use std::path::{Path, PathBuf};

use repo_git::durable::{self, FileError};
use repo_git::{KeyError, SigningKey};
use repo_model::KeyText;

use crate::lock::lock_dir;

/// The private half, readable by the host only.
const PRIVATE: &str = "ssh_host_ed25519_key";

/// What the public halves' names end in.
const PUBLIC: &str = "pub";

/// The host's keys can't be read or made.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// The directory or a public half can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The private half can't be read or written.
    #[error("cannot use the host's SSH key")]
    Key(#[from] KeyError),
    /// A public half is none.
    #[error("`{}` is no public key", path.display())]
    Public {
        path: PathBuf,
        #[source]
        source: repo_model::key::InvalidKey,
    },
}

/// Makes the host's key if there is none, and returns the file of its private half.
pub fn ensure(dir: &Path) -> Result<PathBuf, HostKeyError> {
    let _lock = lock_dir(dir).map_err(FileError::write(dir))?;
    let path = dir.join(PRIVATE);
    let key = if path.exists() {
        SigningKey::load(&path)?
    } else {
        let key = SigningKey::generate();
        key.save(&path)?;
        key
    };
    // Written after the private half, so that nobody pins a key that a power cut takes away.
    let public = path.with_extension(PUBLIC);
    let line = format!("{}\n", key.public());
    if fs::read(&public).ok().as_deref() != Some(line.as_bytes()) {
        durable::replace_file(&public, line.as_bytes(), 0o644).map_err(FileError::write(&public))?;
    }
    Ok(path)
}

/// The public halves, as join files carry them: of the key that is made here, and of any that an operator put beside it.
pub fn public(dir: &Path) -> Result<Vec<KeyText>, HostKeyError> {
    let failed = FileError::read(dir);
    let mut keys = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == PUBLIC) {
            let text = fs::read_to_string(&path).map_err(FileError::read(&path))?;
            keys.push(text.trim().parse().map_err(|source| HostKeyError::Public { path, source })?);
        }
    }
    keys.sort();
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_host_key_is_made_once_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("ssh");
        let path = ensure(&dir).unwrap();
        let keys = public(&dir).unwrap();
        assert_eq!(keys.len(), 1);
        assert_eq!(keys[0].as_str(), SigningKey::load(&path).unwrap().public().to_string());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ensure(&dir).unwrap(), path);
        assert_eq!(public(&dir).unwrap(), keys);
    }
}
