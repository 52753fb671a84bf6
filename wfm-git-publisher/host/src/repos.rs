//! The repositories that are hosted: where their refs stand, cached for as long as the disk says so.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use repo_git::durable::{Stamp, TICK};
use repo_git::repo::{PACKED_REFS, Ref};
use repo_git::{CommitId, OpenError, ReadError, Repo};
use repo_model::Branch;
use tokio::sync::{Semaphore, watch};

use crate::lock::lock;
use crate::wire::path::Target;

/// How many repositories are read at the same time.
const READERS: usize = 8;

/// How long a client may take between learning where a ref stands and asking for its objects.
const ADVERTISED_FOR: Duration = Duration::from_secs(300);

/// How many places where refs stood are kept in mind for that.
const MAX_ADVERTISED: usize = 64;

/// All repositories that anyone asked for so far.
#[derive(Debug)]
pub(crate) struct Repos {
    root: PathBuf,
    hosted: Mutex<HashMap<String, Arc<Hosted>>>,
    readers: Semaphore,
}

/// A repository that is served, with what is known of its refs.
#[derive(Debug)]
pub(crate) struct Hosted {
    /// `devices/<name>.git`, `fleet.git` or `control.git`: the place in the home, and the name in logs.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    cached: Mutex<Option<Cached>>,
    advertised: Mutex<VecDeque<(CommitId, Instant)>>,
    /// Where the branches stand that devices wait for.
    pub(crate) tips: watch::Sender<Tips>,
    /// One push at a time.
    pub(crate) writing: tokio::sync::Mutex<Written>,
}

/// What is known of a repository's writing side.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Whether what a crash left behind was cleared since this program started.
    pub(crate) recovered: bool,
}

/// Where `desired`, `freshness` and `site` stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tips {
    pub(crate) desired: Option<CommitId>,
    pub(crate) freshness: Option<CommitId>,
    pub(crate) site: Option<CommitId>,
}

#[derive(Debug)]
struct Cached {
    stamp: Stamps,
    refs: Arc<Refs>,
}

/// All refs of a repository at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refs(pub(crate) Vec<Ref>);

/// A repository can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReposError {
    #[error("cannot open the repository")]
    Open(#[from] OpenError),
    #[error("cannot read its refs")]
    Read(#[from] ReadError),
    #[error("cannot look at its refs")]
    Stat(#[from] io::Error),
    #[error("the host is shutting down")]
    Closed,
}

impl Repos {
    /// The repositories below this directory.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, hosted: Mutex::default(), readers: Semaphore::new(READERS) }
    }

    /// The repository, if there is one.
    pub(crate) async fn find(&self, target: Target<'_>) -> Result<Option<Arc<Hosted>>, ReposError> {
        let name = target.place();
        if let Some(found) = lock(&self.hosted).get(&name) {
            return Ok(Some(Arc::clone(found)));
        }
        let hosted = Arc::new(Hosted::new(&self.root, name));
        match self.read(&hosted).await {
            Err(ReposError::Open(OpenError::NotARepository { .. })) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Some(Arc::clone(lock(&self.hosted).entry(hosted.name.clone()).or_insert(hosted)))),
        }
    }

    pub(crate) fn known(&self) -> Vec<Arc<Hosted>> {
        lock(&self.hosted).values().cloned().collect()
    }

    /// The one with this name, if it is known.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Hosted>> {
        lock(&self.hosted).get(name).cloned()
    }

    /// Where its refs stand now. What is cached is used only while no directory of its refs has changed.
    pub(crate) async fn refs(&self, hosted: &Arc<Hosted>) -> Result<Arc<Refs>, ReposError> {
        match hosted.cached() {
            Some(refs) => Ok(refs),
            None => self.read(hosted).await,
        }
    }

    async fn read(&self, hosted: &Arc<Hosted>) -> Result<Arc<Refs>, ReposError> {
        let _reader = self.readers.acquire().await.map_err(|_| ReposError::Closed)?;
        let hosted = Arc::clone(hosted);
        tokio::task::spawn_blocking(move || hosted.read()).await.map_err(|_| ReposError::Closed)?
    }
}

impl Hosted {
    fn new(root: &Path, name: String) -> Self {
        let path = root.join(&name);
        Self {
            name,
            path,
            cached: Mutex::default(),
            advertised: Mutex::default(),
            tips: watch::Sender::default(),
            writing: Default::default(),
        }
    }

    /// What is cached, if it still holds.
    fn cached(&self) -> Option<Arc<Refs>> {
        let cached = lock(&self.cached);
        let cached = cached.as_ref()?;
        cached.stamp.holds().then(|| Arc::clone(&cached.refs))
    }

    /// Reads the refs from the disk, and wakes those who wait for another state.
    pub(crate) fn read(&self) -> Result<Arc<Refs>, ReposError> {
        let repo = Repo::open(&self.path)?;
        let stamp = Stamps::of(&self.path)?;
        let refs = Arc::new(Refs(repo.advertisement()?));
        let next = stamp.shows_changes_from(SystemTime::now()).then(|| Cached { stamp, refs: Arc::clone(&refs) });
        let before = std::mem::replace(&mut *lock(&self.cached), next);
        before.iter().for_each(|before| self.remember(&before.refs));
        self.remember(&refs);
        let of_waits = [Branch::Desired, Branch::Freshness, Branch::Site];
        let [desired, freshness, site] = of_waits.map(|branch| refs.tip(branch.ref_name()));
        let tips = Tips { desired, freshness, site };
        self.tips.send_if_modified(|before| std::mem::replace(before, tips) != tips);
        Ok(refs)
    }

    /// Keeps in mind where refs stand: a client that is told so may come for the objects a little later.
    fn remember(&self, refs: &Refs) {
        if refs.0.len() > MAX_ADVERTISED {
            return;
        }
        let (mut advertised, now) = (lock(&self.advertised), Instant::now());
        for id in refs.0.iter().filter_map(|one| one.id) {
            advertised.retain(|(other, since)| *other != id && now.duration_since(*since) < ADVERTISED_FOR);
            advertised.push_back((id, now));
        }
        while advertised.len() > MAX_ADVERTISED {
            advertised.pop_front();
        }
    }

    /// Whether a ref stood there not long ago.
    pub(crate) fn was_advertised(&self, id: &CommitId) -> bool {
        lock(&self.advertised).iter().any(|(other, since)| other == id && since.elapsed() < ADVERTISED_FOR)
    }

    /// Reads the refs again if they may have moved; whether anyone who waits is told so.
    pub(crate) fn refresh(&self) -> Result<bool, ReposError> {
        let before = *self.tips.borrow();
        if self.cached().is_none() {
            self.read()?;
        }
        Ok(*self.tips.borrow() != before)
    }
}

impl Refs {
    pub(crate) fn tip(&self, name: &str) -> Option<CommitId> {
        self.0.iter().find(|one| one.name == name).and_then(|one| one.id)
    }
}

/// The directories and files that any move of a ref changes. Their `ctime` can't be set back.
#[derive(Debug, PartialEq, Eq)]
struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

impl Stamps {
    fn of(repository: &Path) -> io::Result<Self> {
        let mut stamps = Vec::new();
        for name in ["HEAD", PACKED_REFS] {
            let path = repository.join(name);
            stamps.push((path.clone(), Stamp::of(&path)));
        }
        directories(repository.join("refs"), &mut stamps)?;
        Ok(Self(stamps))
    }

    fn holds(&self) -> bool {
        self.0.iter().all(|(path, before)| Stamp::of(path) == *before)
    }

    /// Whether whatever changes from now on gets another stamp.
    fn shows_changes_from(&self, now: SystemTime) -> bool {
        self.newest().and_then(|newest| now.duration_since(newest).ok()).is_some_and(|age| age > TICK)
    }

    fn newest(&self) -> Option<SystemTime> {
        self.0.iter().filter_map(|(_, stamp)| stamp.map(|stamp| stamp.changed())).max()
    }
}

fn directories(path: PathBuf, stamps: &mut Vec<(PathBuf, Option<Stamp>)>) -> io::Result<()> {
    stamps.push((path.clone(), Stamp::of(&path)));
    for entry in std::fs::read_dir(&path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            directories(entry.path(), stamps)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "test data needs no syncing")]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        let temp = path.with_extension("new");
        std::fs::write(&temp, "x").unwrap();
        std::fs::rename(temp, path).unwrap();
    }

    #[test]
    fn every_move_of_a_ref_shows_in_the_stamp() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("refs/heads/deep")).unwrap();
        touch(&dir.path().join("HEAD"));
        for changed in ["refs/heads/desired", "refs/heads/deep/x", "HEAD", "packed-refs", "refs/tags"] {
            let stamp = Stamps::of(dir.path()).unwrap();
            let newest = stamp.newest().unwrap();
            assert!(stamp.holds() && !stamp.shows_changes_from(newest + TICK / 2), "{changed}");
            assert!(stamp.shows_changes_from(newest + TICK * 2), "{changed}");
            std::thread::sleep(TICK * 2);
            touch(&dir.path().join(changed));
            assert!(!stamp.holds(), "{changed}");
        }
    }
}
