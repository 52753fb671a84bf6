//! Follows files for changes: a person's request, the file with which something at the site holds the device, a credential, a CA. What
//! it sees may be late or missing: the next pass sees everything all the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use repo_git::watch::{self, Change};
use repo_model::IntoSet;
use tokio::sync::mpsc::{Receiver, channel};

use crate::config::device::Device;
use crate::state::requests;

/// Watches for as long as it lives.
#[derive(Debug)]
pub struct Watcher {
    changes: Receiver<()>,
    _watcher: Option<watch::Watcher>,
}

impl Watcher {
    /// Watches the home for requests and settings, and the files that these name of the host and for a hold.
    pub fn watch(Device { home, settings, .. }: &Device) -> Self {
        let (changed, changes) = channel(1);
        let files = settings.host.files.iter().chain(&settings.host.secrets).chain(&settings.gates.hold).cloned();
        let places = requests::places(home).into_iter().chain([home.config()]);
        let requests: BTreeSet<PathBuf> = places.chain(files).into_set();
        let wanted = requests.clone();
        // Whole files appear by rename, or are written in place by a person's editor.
        let watcher = watch::Watcher::new(move |change| {
            if matches!(change, Change::Written(path) if wanted.contains(path)) {
                // A full channel holds a change already.
                let _ = changed.try_send(());
            }
        });
        let watcher = watcher.and_then(|mut watcher| {
            let directories: BTreeSet<&Path> = requests.iter().filter_map(|path| path.parent()).into_set();
            for directory in directories.into_iter().filter(|directory| directory.is_dir()) {
                watcher.watch(directory)?;
            }
            Ok(watcher)
        });
        let watcher = watcher.inspect_err(|error| tracing::debug!(%error, "local changes are not followed")).ok();
        Self { changes, _watcher: watcher }
    }

    /// Returns at the next change; never without a watcher.
    pub async fn next(&mut self) {
        if self.changes.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
