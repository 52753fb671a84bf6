//! The rosters of the fleet, and which keys are the publisher's own.

use std::collections::{BTreeMap, BTreeSet};

use repo_git::PublicKey;
use repo_model::roster::{ROSTER_NAMESPACE, Roster, RosterStep, Trust, check_own, roster_path, signature_path};
use repo_model::{FileTree, FleetId, KeyText};

use super::control_error::ControlError;

/// The rosters that this fleet ever had.
#[derive(Debug, Clone)]
pub struct Rosters {
    /// Every version with its signatures, as `desired` carries them.
    pub files: FileTree,
    /// The newest, followed from version 1.
    pub newest: Trust,
    /// Every key that ever was a publisher's: what one of them signed is ours.
    pub publishers: BTreeSet<KeyText>,
}

impl Rosters {
    /// Reads all rosters of a tree, version 1 first. Each is signed by those before it, and by its own roots if it says when it
    /// was issued.
    pub fn read(tree: &FileTree) -> Result<Self, ControlError> {
        let files: FileTree =
            tree.iter().filter(|(path, _)| path.starts_with("trust/")).map(|(p, b)| (p.clone(), b.clone())).collect();
        let path = roster_path(1);
        let bytes = files.get(&path).ok_or_else(|| ControlError::NoRoster(path.clone()))?;
        let first: Roster =
            serde_json::from_slice(bytes).map_err(|source| ControlError::File { path: path.clone(), source })?;
        let newest = Trust::pin(&path, bytes, first.fleet)?.follow(&files, &roster_signer)?;
        check_own(&files, 2..=newest.roster.version, newest.roster.fleet, &roster_signer)?;
        let mut publishers = BTreeSet::new();
        for version in 1..=newest.roster.version {
            let path = roster_path(version);
            let bytes = files.get(&path).ok_or_else(|| ControlError::NoRoster(path.clone()))?;
            let roster: Roster = serde_json::from_slice(bytes).map_err(|source| ControlError::File { path, source })?;
            publishers.extend(roster.publishers.into_iter().map(|publisher| publisher.key));
        }
        Ok(Self { files, newest, publishers })
    }

    /// The same with one more version and its signatures.
    pub fn with(&self, more: &FileTree) -> Result<Self, ControlError> {
        let mut files = self.files.clone();
        files.extend(more.clone());
        Self::read(&files)
    }

    /// A version that there is.
    pub fn version(&self, version: u64) -> Option<Trust> {
        let path = roster_path(version);
        Trust::pin(&path, self.files.get(&path)?, self.fleet()).ok()
    }

    /// The exact text of a version, and those of its signatures by the roots of the version before, or by its own of the first
    /// one; others signed nothing that counts.
    pub fn text(&self, version: u64) -> Option<(String, BTreeMap<u32, String>)> {
        let text = |path: &str| self.files.get(path).and_then(|bytes| String::from_utf8(bytes.clone()).ok());
        let roots = self.version(version.max(2) - 1)?.roster.roots.len();
        let signature = |index: usize| Some((u32::try_from(index).ok()?, text(&signature_path(version, index))?));
        Some((text(&roster_path(version))?, (0..roots).filter_map(signature).collect()))
    }

    /// All versions after this one, the oldest first, as devices are told them.
    pub fn after(&self, version: u64) -> Vec<RosterStep> {
        let step = |version| {
            let (roster, signatures) = self.text(version)?;
            Some(RosterStep { version, roster, signatures })
        };
        (version.saturating_add(1)..=self.newest.roster.version).filter_map(step).collect()
    }

    /// The fleet that they are for.
    pub fn fleet(&self) -> FleetId {
        self.newest.roster.fleet
    }
}

/// The key that made a roster's detached signature.
pub(crate) fn roster_signer(bytes: &[u8], armored: &str) -> Option<KeyText> {
    repo_git::sign::verify(ROSTER_NAMESPACE, bytes, armored).ok().and_then(key_text)
}

/// A key as documents write it.
pub(crate) fn key_text(key: PublicKey) -> Option<KeyText> {
    key.to_string().parse().ok()
}
