//! The next version of the roster as it lies in the home, and who signed it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use repo_git::durable::{self, FileError};
use repo_model::FileTree;
use repo_model::roster::{Roster, RosterError, Trust, own_signature_path, roster_path, signature_path};

use super::error::TrustError;
use crate::repos::{Home, Rosters, roster_signer};

/// A roster may have 128 keys, of which each has about 80 bytes.
const MAX_FILE: u64 = 1 << 20;

/// The next version, with every signature that lies beside it.
#[derive(Debug)]
pub struct Proposal {
    /// Its file, of which roots sign the exact bytes.
    pub path: PathBuf,
    pub trust: Trust,
    /// The roster and its signatures by their names in `control.git`.
    pub(super) files: FileTree,
}

/// The roots that signed a version, by their indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBy {
    /// Of the version before.
    pub before: Vec<usize>,
    /// Of its own.
    pub own: Vec<usize>,
}

impl SignedBy {
    /// Who signed version `after` of these files, which follows the roster `before`.
    pub fn of(files: &FileTree, before: &Roster, after: &Roster) -> Self {
        Self {
            before: before.signed(files, after.version, signature_path, &roster_signer),
            own: after.signed(files, after.version, own_signature_path, &roster_signer),
        }
    }
}

impl Proposal {
    /// Reads what is proposed after the newest roster, if anything is.
    pub fn read(home: &Home, rosters: &Rosters) -> Result<Option<Self>, TrustError> {
        let (before, version) = (&rosters.newest.roster, rosters.newest.roster.version + 1);
        let path = file(home, &roster_path(version));
        let Some(bytes) = read(&path)? else { return Ok(None) };
        let name = path.display().to_string();
        let trust = Trust::pin(&name, &bytes, rosters.fleet()).map_err(TrustError::Proposal)?;
        let problem = if trust.roster.version != version {
            Some(format!("`version` is {}, expected {version}", trust.roster.version))
        } else {
            // Without it nobody would ask for the signatures of its own roots.
            trust.roster.issued.is_none().then(|| "`issued` is missing, which `trust propose` writes".to_owned())
        };
        if let Some(problem) = problem {
            return Err(TrustError::Proposal(RosterError::Invalid { path: name, problem }));
        }
        let mut files = FileTree::from([(roster_path(version), bytes)]);
        let signatures = (0..before.roots.len()).map(|index| signature_path(version, index));
        let own = (0..trust.roster.roots.len()).map(|index| own_signature_path(version, index));
        for name in signatures.chain(own) {
            let read = read(&file(home, &name))?;
            files.extend(read.map(|bytes| (name, bytes)));
        }
        Ok(Some(Self { path, trust, files }))
    }

    /// Who signed it.
    pub fn signed_by(&self, before: &Roster) -> SignedBy {
        SignedBy::of(&self.files, before, &self.trust.roster)
    }

    /// Whether enough roots signed it, of the version before and of its own.
    pub fn is_complete(&self, before: &Roster) -> bool {
        let signed = self.signed_by(before);
        signed.before.len() >= before.threshold && signed.own.len() >= self.trust.roster.threshold
    }

    /// Its files without signatures that prove nothing.
    pub(super) fn proven(&self, before: &Roster) -> FileTree {
        let (version, signed) = (self.trust.roster.version, self.signed_by(before));
        let before = signed.before.into_iter().map(|index| signature_path(version, index));
        let own = signed.own.into_iter().map(|index| own_signature_path(version, index));
        let names = [roster_path(version)].into_iter().chain(before).chain(own);
        names.filter_map(|name| self.files.get_key_value(&name)).map(|(p, b)| (p.clone(), b.clone())).collect()
    }
}

/// Where a file of a proposal lies in the home; its name is that in `control.git`.
pub(super) fn file(home: &Home, name: &str) -> PathBuf {
    home.proposals().join(name.rsplit('/').next().unwrap_or(name))
}

/// Removes signatures of a version, and of all before it the rosters, too.
pub(super) fn clear(home: &Home, newest: u64, mut also: impl FnMut(u64) -> bool) -> Result<(), TrustError> {
    let dir = home.proposals();
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(FileError::read(&dir))?,
    };
    for entry in entries {
        let path = entry.map_err(FileError::read(&dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((version, rest)) = name.split_once(".json") else { continue };
        let Ok(version) = version.parse::<u64>() else { continue };
        if version <= newest || !rest.is_empty() && also(version) {
            durable::remove_file(&path).map_err(FileError::write(&path))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, TrustError> {
    let failed = FileError::read(path);
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(data) if data.len() > MAX_FILE => Err(failed(io::Error::other("it is longer than a roster can be")).into()),
        Ok(_) => Ok(Some(fs::read(path).map_err(failed)?)),
        Err(error) => Err(failed(error).into()),
    }
}
