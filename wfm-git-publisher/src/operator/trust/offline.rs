//! `trust offline`: the root key leaves this machine.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use repo_git::durable::{self, FileError};
use repo_git::{KeyError, PublicKey, SigningKey, sign as signatures};

use super::LOCK_WAIT;
use super::error::TrustError;
use crate::repos::Home;

/// Where the root key is now.
#[derive(Debug, Clone)]
pub struct Offline {
    pub path: PathBuf,
    pub fingerprint: String,
    /// Whether that is on the disk that the home is on.
    pub on_same_disk: bool,
}

/// Copies the root key into a directory, sees that what was written signs, and removes it here. Cut off anywhere, the key is
/// in one place or in both, and the same again completes it.
pub fn offline(home: &Home, dir: &Path) -> Result<Offline, TrustError> {
    home.check()?;
    let _lock = home.lock(LOCK_WAIT)?;
    let kept = home.root_key();
    let name = kept.file_name().unwrap_or_default();
    let dir = std::fs::canonicalize(dir).map_err(FileError::read(dir))?;
    let path = dir.join(name);
    if !dir.is_dir() {
        return Err(TrustError::NoDirectory { path: dir });
    }
    let root = std::fs::canonicalize(home.root()).map_err(FileError::read(home.root()))?;
    if dir.starts_with(&root) {
        return Err(TrustError::Inside { path: dir });
    }
    // A link to the key here is no copy of it.
    if std::fs::canonicalize(&path).is_ok_and(|there| there.starts_with(&root)) {
        return Err(TrustError::Inside { path });
    }
    let there = path.exists().then(|| SigningKey::load(&path)).transpose();
    let public = if kept.exists() {
        let key = SigningKey::load(&kept)?;
        match there {
            Ok(None) => key.save(&path)?,
            Ok(Some(other)) if other.public() == key.public() => {}
            _ => return Err(TrustError::OtherKey { path }),
        }
        if !signs_as(&path, key.public()).map_err(|source| TrustError::Copy { path: path.clone(), source })? {
            return Err(TrustError::OtherKey { path });
        }
        durable::remove_file(&kept).map_err(FileError::write(&kept))?;
        key.public()
    } else {
        there?.ok_or(TrustError::NoRootKey { path: kept })?.public()
    };
    let disk = |path: &Path| std::fs::metadata(path).map(|data| data.dev()).ok();
    let on_same_disk = disk(&dir) == disk(&root);
    Ok(Offline { path, fingerprint: public.fingerprint(), on_same_disk })
}

/// Whether the key that was written signs as the one that it is to be.
fn signs_as(path: &Path, public: PublicKey) -> Result<bool, KeyError> {
    let (namespace, probe) = ("wfm-probe", b"wfm-git-publisher trust offline\n");
    let armored = SigningKey::load(path)?.sign(namespace, probe)?;
    Ok(signatures::verify(namespace, probe, &armored).is_ok_and(|key| key == public))
}
