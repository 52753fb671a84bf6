//! The thread that follows the accounts' files, and notes which secrets were used.

use std::path::Path;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable;
use repo_git::watch::{Change, Watcher};
use repo_model::{Digest, error_chain};
use tracing::warn;

use super::file::AccountName;
use super::shared::Shared;

/// How long a change may go unseen where the file system tells nothing.
const POLL: Duration = Duration::from_millis(500);

/// Every so many polls each file is looked at, for one that a person wrote in place: that doesn't change the directory.
const THOROUGH: u32 = 20;

/// What the thread has to do.
#[derive(Debug)]
pub(super) enum Task {
    /// Something in the directory may have changed.
    Look,
    /// A secret was used for the first time.
    Confirm(AccountName, Digest),
    /// Nobody needs the accounts any more.
    Stop,
}

/// Keeps the thread at work until it is dropped.
#[derive(Debug)]
pub(super) struct AccountWatcher {
    tasks: Sender<Task>,
    _watcher: Option<Watcher>,
}

impl AccountWatcher {
    pub(super) fn start(shared: Weak<Shared>, dir: &Path) -> Self {
        let (tasks, received) = channel();
        let watcher = watch(dir, tasks.clone());
        let work = move || work(&shared, &received);
        if let Err(error) = thread::Builder::new().name("accounts".to_owned()).spawn(work) {
            warn!(error = error_chain(&error), "changes of accounts are not seen until a restart");
        }
        Self { tasks, _watcher: watcher }
    }

    /// Leaves a task to the thread.
    pub(super) fn send(&self, task: Task) {
        let _ = self.tasks.send(task);
    }
}

impl Drop for AccountWatcher {
    fn drop(&mut self) {
        let _ = self.tasks.send(Task::Stop);
    }
}

fn watch(dir: &Path, tasks: Sender<Task>) -> Option<Watcher> {
    // A directory that isn't there can't be watched, and would be missed for ever.
    let made = durable::create_dir_all(dir, 0o700).map_err(|error| error_chain(&error));
    let watcher = made.and_then(|()| {
        let hint = move |_: Change<'_>| _ = tasks.send(Task::Look);
        let mut watcher = Watcher::new(hint).map_err(|error| error_chain(&error))?;
        watcher.watch(dir).map_err(|error| error_chain(&error))?;
        Ok(watcher)
    });
    watcher.inspect_err(|error| warn!(error, "changes of accounts are only seen by looking every 500 ms")).ok()
}

fn work(shared: &Weak<Shared>, tasks: &Receiver<Task>) {
    for round in 1u32.. {
        let task = tasks.recv_timeout(POLL);
        let Some(shared) = shared.upgrade() else { return };
        let now = Timestamp::now();
        match task {
            Ok(Task::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Task::Confirm(name, secret)) => shared.confirm(&name, &secret, now),
            Ok(Task::Look) => shared.reload(now),
            Err(RecvTimeoutError::Timeout) => {
                // A stamp that is new may hide a second change of the same moment.
                let stamp = shared.store.dir_stamp();
                let shows_changes = stamp.is_some_and(|stamp| stamp.shows_changes_from(now.as_second()));
                if shows_changes && !round.is_multiple_of(THOROUGH) { shared.catch_up(now) } else { shared.reload(now) }
            }
        }
    }
}
