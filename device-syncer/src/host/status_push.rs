//! Pushes `status` beside what is at work, so that an unreachable or slow host delays nothing but the report.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use repo_git::{CommitId, PushResult, PushUpdate, Remote, Repo};
use repo_model::Branch;

use crate::host::push_size::PushSize;
use crate::host::refs::{RemoteRefs, StatusTip};
use crate::state::store::Store;

/// Pushes the newest `status` as soon as it is there, for as long as the host takes it. However slow the host is, nothing
/// that applies waits for it. What is left is pushed at the end of a pass ([`StatusBranch::push`](super::status::StatusBranch::push)).
#[derive(Debug)]
pub struct StatusPush {
    remote: Remote,
    /// Where the host's `status` stood at the beginning.
    known: StatusTip,
    worker: Mutex<Option<Worker>>,
}

/// The thread that pushes, made when there is something to tell.
#[derive(Debug)]
struct Worker {
    tips: Sender<CommitId>,
    /// Where the host's `status` stands at its end.
    end: JoinHandle<StatusTip>,
}

impl StatusPush {
    /// Pushes to where `refs` say that `status` stands; nothing without them.
    pub fn new(remote: Remote, refs: Option<&RemoteRefs>) -> Self {
        Self { remote, known: refs.map_or(StatusTip::Unknown, |refs| refs.status.into()), worker: Mutex::default() }
    }

    /// Has the local `status` pushed, if it only adds to what the host has.
    pub fn push(&self, store: &Store) {
        let Some(new) = store.status_tip() else { return };
        let known = match self.known {
            StatusTip::Unknown => return,
            StatusTip::At(known) if known == new => return,
            StatusTip::At(known) => Some(known),
            StatusTip::Absent => None,
        };
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = worker.get_or_insert_with(|| Worker::start(self.remote.clone(), store.repo.path(), known));
        // One that has ended tells nothing more.
        let _ = worker.tips.send(new);
    }

    /// Waits for what is in flight. Returns where the host's `status` stands then. Nobody may push by this any more.
    pub fn end(&self) -> StatusTip {
        let Some(worker) = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take() else { return self.known };
        drop(worker.tips);
        worker.end.join().unwrap_or_default()
    }
}

impl Worker {
    fn start(remote: Remote, repo: &Path, known: Option<CommitId>) -> Self {
        let (tips, pushed) = channel();
        let repo = repo.to_owned();
        Self { tips, end: thread::spawn(move || push_each(&remote, &repo, known, &pushed)) }
    }
}

/// Pushes the newest tip until there are no more, or the host doesn't take one. What takes more than one push is the pass's.
fn push_each(remote: &Remote, repo: &Path, known: Option<CommitId>, tips: &Receiver<CommitId>) -> StatusTip {
    let mut tip = known;
    while let Ok(next) = tips.recv() {
        let new = tips.try_iter().last().unwrap_or(next);
        let update = PushUpdate { branch: Branch::Status.to_string(), expected: tip, new, force: false };
        let Ok(repo) = Repo::open_briefly(repo) else { return StatusTip::Unknown };
        let line = repo.history(new, tip, usize::MAX).map(|mut line| {
            line.reverse();
            line
        });
        match line.and_then(|line| PushSize::default().lets(&repo, tip, &line)) {
            Ok(true) => {}
            Ok(false) => return tip.into(),
            Err(_) => return StatusTip::Unknown,
        }
        let pushed = remote.push(&repo, &[update]).ok();
        if !matches!(pushed.as_deref(), Some([PushResult::Done])) {
            return StatusTip::Unknown;
        }
        tip = Some(new);
    }
    tip.into()
}
