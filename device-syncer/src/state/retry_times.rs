//! `retries.json`: when what failed is tried again, for who asks beside a running syncer. Nothing depends on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable;
use repo_model::{IntoMap, json};
use serde::{Deserialize, Serialize};

use crate::state::retries::Retries;

/// When one project or release is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryTime {
    /// The moment before which it isn't tried.
    pub at: Timestamp,
    /// Failures in a row.
    pub failures: u32,
}

/// The file, and what it says.
#[derive(Debug)]
pub struct RetryTimes {
    path: PathBuf,
    /// Failures by project; absent before the first word of this process.
    known: Option<BTreeMap<String, u32>>,
}

impl RetryTimes {
    /// What an earlier process left there counts until the first pass is over.
    pub fn new(path: PathBuf) -> Self {
        Self { path, known: None }
    }

    /// Keeps when each is tried again; written only if something failed once more, or not any longer.
    pub fn note(&mut self, retries: &Retries, now: Timestamp) {
        let time = |(project, failures, rest): (&str, u32, Duration)| {
            let at = now.checked_add(rest).unwrap_or(Timestamp::MAX);
            (project.to_owned(), RetryTime { at, failures })
        };
        let times: BTreeMap<_, _> = retries.all().map(time).into_map();
        let failures: BTreeMap<_, _> = times.iter().map(|(name, time)| (name.clone(), time.failures)).into_map();
        if self.known.as_ref() == Some(&failures) {
            return;
        }
        let written = match times.is_empty() {
            true => durable::remove_file(&self.path).map(drop),
            false => durable::replace_file(&self.path, &json::to_bytes(&times), 0o600),
        };
        if let Err(error) = written {
            tracing::debug!(%error, "can't keep when what failed is tried again");
        }
        self.known = Some(failures);
    }
}

/// What the file of a home says, by the name of the project or release; one that can't be read says nothing.
pub fn read(path: &Path) -> BTreeMap<String, RetryTime> {
    std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_something_is_tried_again_is_kept_and_written_once_for_each_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("retries.json");
        let (mut times, mut retries, now) = (RetryTimes::new(path.clone()), Retries::default(), Timestamp::now());
        times.note(&retries, now);
        assert!(!path.exists(), "nothing failed");
        retries.failed("a", 1.0);
        times.note(&retries, now);
        let first = read(&path);
        assert_eq!(first["a"].failures, 1);
        assert!((2..=5).contains(&first["a"].at.duration_since(now).as_secs()), "{first:?}");
        times.note(&retries, now + jiff::SignedDuration::from_secs(1));
        assert_eq!(read(&path), first, "nothing new");
        retries.failed("a", 1.0);
        times.note(&retries, now);
        assert_eq!(read(&path)["a"].failures, 2);
        retries.succeeded("a");
        times.note(&retries, now);
        assert!(!path.exists());
    }
}
