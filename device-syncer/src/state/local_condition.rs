//! A condition that only this device can show, because it can't be reported: `contact.json` and `failure.json`.

use std::fmt;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Why passes fail, or the host can't be reached, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalCondition {
    /// `Unreachable`, or `Stalled` if somebody has to do something.
    #[serde(rename = "type")]
    pub kind: String,
    /// For programs, in PascalCase: `ConnectionRefused`, `DiskFull`.
    pub reason: String,
    /// The error with its causes.
    pub message: String,
    pub since: Timestamp,
}

impl fmt::Display for LocalCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {} (since {:.0})", self.kind, self.reason, self.message, self.since)
    }
}

/// What the file of a home says; one that can't be read says nothing.
pub fn read(path: &Path) -> Option<LocalCondition> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
