//! What is known of locked charts, beside the publisher's other indexes: a lost one costs nothing but warnings.

use std::path::PathBuf;

use repo_artifacts::Chart;
use repo_git::durable;
use repo_model::envelope::Lock;
use repo_model::json;

use super::Home;

/// The charts that were read when they were locked.
#[derive(Debug)]
pub struct Charts {
    dir: PathBuf,
}

impl Charts {
    pub fn of(home: &Home) -> Self {
        Self { dir: home.index().join("charts") }
    }

    /// What the chart with these bytes says of itself, if it was read here.
    pub fn get(&self, lock: &Lock) -> Option<Chart> {
        serde_json::from_slice(&std::fs::read(self.file(lock)).ok()?).ok()
    }

    /// Remembers what a chart says of itself.
    pub fn put(&self, lock: &Lock, chart: &Chart) {
        let written = durable::create_dir_all(&self.dir, 0o700)
            .and_then(|()| durable::replace_file(&self.file(lock), &json::to_bytes(chart), 0o600));
        if let Err(error) = written {
            tracing::warn!(%error, "what a chart's values are can't be remembered, and isn't checked");
        }
    }

    fn file(&self, lock: &Lock) -> PathBuf {
        self.dir.join(format!("{}.json", lock.content.hex()))
    }
}
