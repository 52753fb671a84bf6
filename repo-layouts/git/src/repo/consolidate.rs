//! Keeping the number of packs and loose objects bounded.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use gix::ObjectId;
use gix::objs::Exists as _;

use super::{Reach, ReadError, Repo, RepoLock, shallow};
use crate::{CommitId, durable};

/// Consolidation failed; the repository holds everything it held before.
#[derive(Debug, thiserror::Error)]
pub enum ConsolidateError {
    /// A reachable object can't be read.
    #[error("cannot read all objects")]
    Read(#[from] ReadError),
    #[error("cannot consolidate `{}`", path.display())]
    Store {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Repo {
    /// How many packs there are, those not counted that a stock Git keeps for a push under way.
    pub fn pack_count(&self) -> usize {
        self.old_packs().map_or(0, |packs| packs.len())
    }

    /// With more than `max_packs` packs, or as many loose objects, writes everything reachable from the refs into one
    /// pack and removes the others. Returns whether it did. A power cut loses nothing; readers are not disturbed.
    pub fn consolidate(&self, lock: &RepoLock, max_packs: usize) -> Result<bool, ConsolidateError> {
        self.consolidate_to(lock, max_packs, || Ok(Vec::new()))
    }

    /// The same, and history ends with the commits that `ends` names: what is only behind them goes.
    pub fn consolidate_to(
        &self,
        lock: &RepoLock,
        max_packs: usize,
        ends: impl FnOnce() -> Result<Vec<CommitId>, ReadError>,
    ) -> Result<bool, ConsolidateError> {
        let (packs, loose) = self.listed(lock)?;
        if packs.len() <= max_packs.max(1) && loose.len() <= max_packs {
            return Ok(false);
        }
        self.make_one_pack((packs, loose), ends()?).map(|()| true)
    }

    /// The same however few packs there are, for when refs went: what only they reached goes.
    pub fn reclaim(&self, lock: &RepoLock) -> Result<(), ConsolidateError> {
        self.make_one_pack(self.listed(lock)?, Vec::new())
    }

    /// The packs and loose objects that there are. Listed before the refs are read: what a push adds from now on is not touched.
    fn listed(&self, lock: &RepoLock) -> Result<(Vec<PathBuf>, Vec<PathBuf>), ConsolidateError> {
        debug_assert_eq!(lock.path, self.path, "the lock is of another repository");
        let fail = |source: io::Error| ConsolidateError::Store { path: self.path.clone(), source };
        Ok((self.old_packs().map_err(fail)?, self.loose_objects().map_err(fail)?))
    }

    fn make_one_pack(
        &self,
        (packs, loose): (Vec<PathBuf>, Vec<PathBuf>),
        ends: Vec<CommitId>,
    ) -> Result<(), ConsolidateError> {
        let fail = |source: io::Error| ConsolidateError::Store { path: self.path.clone(), source };
        let mut boundaries = self.shallow()?;
        boundaries.extend(ends.iter().map(|end| end.0));
        // A boundary without its commit does no harm, a commit without its boundary is a hole.
        self.write_shallow(&shallow::lines(&boundaries)).map_err(fail)?;
        let mut reach = Reach::new(self)?;
        self.ref_targets()?.into_iter().try_for_each(|tip| reach.add(tip))?;
        let ids = reach.into_found();
        let kept = self.write_one_pack(&ids)?;
        self.remove_old(packs, loose, kept.as_deref()).map_err(fail)?;
        self.forget_removed();
        let here: HashSet<_> = ids.into_iter().filter(|id| boundaries.contains(id)).collect();
        self.write_shallow(&shallow::lines(&here)).map_err(fail)
    }

    /// The name of the pack that holds everything now; `None` when there is nothing.
    fn write_one_pack(&self, ids: &[ObjectId]) -> Result<Option<String>, ConsolidateError> {
        if ids.is_empty() {
            return Ok(None);
        }
        self.write_pack(&self.pack_dir(), ids).map(Some)
    }

    /// Writes these objects as one pack into a directory of packs, durably; its name.
    pub(super) fn write_pack(&self, directory: &Path, ids: &[ObjectId]) -> Result<String, ConsolidateError> {
        let written = durable::store::write_pack(directory, ids.len(), |pack| {
            ids.iter().try_for_each(|id| {
                let (kind, data) = self.object(*id).map_err(Failed::Read)?;
                pack.add(*id, kind, &data).map_err(Failed::Io)
            })
        });
        written.map_err(|failed| match failed {
            Failed::Read(source) => ConsolidateError::Read(source),
            Failed::Io(source) => ConsolidateError::Store { path: directory.to_owned(), source },
        })
    }

    /// What speaks of the old packs goes first, indices before packs, as `git repack` does.
    fn remove_old(&self, packs: Vec<PathBuf>, loose: Vec<PathBuf>, kept: Option<&str>) -> io::Result<()> {
        let info = self.git.common_dir().join("objects/info");
        let graphs = [self.pack_dir().join("multi-pack-index"), info.join("commit-graph")];
        graphs.iter().try_for_each(|path| durable::store::remove_replaced(path))?;
        durable::remove_dir_all(&info.join("commit-graphs"))?;
        let kept = kept.map(|name| format!("pack-{name}"));
        for pack in packs.iter().filter(|pack| pack.file_stem().and_then(OsStr::to_str) != kept.as_deref()) {
            for extension in ["idx", "pack", "rev", "bitmap", "mtimes"] {
                durable::store::remove_replaced(&pack.with_extension(extension))?;
            }
        }
        loose.iter().try_for_each(|path| durable::store::remove_replaced(path))?;
        durable::store::sync_packs(&self.pack_dir())
    }

    /// Forgets the packs that this program or another one removed. One that was read stays mapped, and what only it had would
    /// count as held: a new commit could name an object that nobody has.
    pub(super) fn forget_removed(&self) {
        // Only a look for what isn't there makes gix 0.90 read the directory anew.
        self.git.objects.exists(&ObjectId::null(gix::hash::Kind::Sha1));
    }

    fn old_packs(&self) -> io::Result<Vec<PathBuf>> {
        packs(&self.pack_dir())
    }

    fn loose_objects(&self) -> io::Result<Vec<PathBuf>> {
        loose(&self.git.common_dir().join("objects"))
    }
}

/// All packs but those with a `.keep` file, which a stock Git's `receive-pack` makes until its refs have moved.
pub(super) fn packs(pack_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let (kept, others): (Vec<_>, Vec<_>) = files(pack_dir)?.into_iter().partition(|path| has_extension(path, "keep"));
    let packs = others.into_iter().filter(|path| has_extension(path, "pack"));
    Ok(packs.filter(|path| !kept.contains(&path.with_extension("keep"))).collect())
}

/// All objects that aren't in packs.
pub(super) fn loose(objects: &Path) -> io::Result<Vec<PathBuf>> {
    let mut loose = Vec::new();
    let is_hex = |name: &OsStr| name.len() == 2 && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit);
    for directory in files(objects)?.into_iter().filter(|path| path.file_name().is_some_and(is_hex) && path.is_dir()) {
        loose.extend(
            files(&directory)?.into_iter().filter(|path| path.file_name().is_some_and(|name| name.len() == 38)),
        );
    }
    Ok(loose)
}

/// Why the new pack could not be filled.
enum Failed {
    Read(ReadError),
    Io(io::Error),
}

impl From<io::Error> for Failed {
    fn from(source: io::Error) -> Self {
        Self::Io(source)
    }
}

pub(super) fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
    }
}

pub(super) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}
