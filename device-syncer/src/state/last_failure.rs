//! Why the last pass failed, if it did: kept beside the clone for `status`, because a pass that fails tells nobody.

use std::error::Error;
use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use repo_git::durable;
use repo_model::report::ConditionType;
use repo_model::{ErrorCode, error_chain, json};

use crate::decision::failure::{is_disk_full, shown};
use crate::state::local_condition::{self, LocalCondition};

/// The file has its size from the beginning and is overwritten in place: a full disk has room for it.
const SIZE: usize = 16 << 10;

/// The file, and what it says.
#[derive(Debug)]
pub struct LastFailure {
    path: PathBuf,
    known: Option<LocalCondition>,
}

impl LastFailure {
    /// Reads what an earlier process noted; makes the file at its full size where it is missing.
    pub fn open(path: PathBuf) -> Self {
        if !path.exists()
            && let Err(error) = durable::replace_file(&path, &vec![b' '; SIZE], 0o600)
        {
            tracing::debug!(%error, "no place for why a pass failed");
        }
        Self { known: local_condition::read(&path), path }
    }

    /// A pass is over, and failed for this reason or not at all. Written only if that is new.
    pub fn note(&mut self, error: Option<&(dyn Error + 'static)>, now: Timestamp) {
        let met = error.map(|error| LocalCondition {
            kind: ConditionType::Stalled.into(),
            reason: if is_disk_full(error) { ErrorCode::DiskFull.pascal_case() } else { "PassFailed" }.to_owned(),
            message: shown(&error_chain(error)),
            since: now,
        });
        let what =
            |trouble: &Option<LocalCondition>| trouble.as_ref().map(|one| (one.reason.clone(), one.message.clone()));
        if what(&self.known) == what(&met) {
            return;
        }
        if let Err(error) = self.write(met.as_ref()) {
            tracing::warn!(%error, "can't keep why a pass failed");
        }
        self.known = met;
    }

    fn write(&self, trouble: Option<&LocalCondition>) -> io::Result<()> {
        let mut bytes = trouble.map(json::to_bytes).unwrap_or_default();
        bytes.resize(SIZE, b' ');
        durable::write_slot(&OpenOptions::new().write(true).open(&self.path)?, 0, &bytes)
    }
}
