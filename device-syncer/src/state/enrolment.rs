//! How far a device came that asks to be enrolled (`enrol.json`): after a power cut it goes on with the same code.

use std::fmt;

use repo_git::durable;
use serde::{Deserialize, Serialize};

use super::json_file::{self, FileError};
use crate::config::Home;

/// `enrol.json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolling {
    pub layout: u64,
    /// The exact text of the enrolment file that it follows.
    pub file: String,
    /// The secret of the account that the device will have, which it made itself. Only its digest is ever sent.
    pub secret: String,
    /// What it revealed, or was about to when the power was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Shown>,
}

/// A request of which a person may have read the code already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The host's name for it.
    pub request: String,
    /// What the person reads.
    pub code: String,
}

impl fmt::Debug for Enrolling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enrolling").field("shown", &self.shown).finish_non_exhaustive()
    }
}

/// How far it came; `None` if it didn't begin, or the file isn't what this program writes: then it begins anew.
pub fn read(home: &Home) -> Option<Enrolling> {
    json_file::read_or_log(&home.enrolment(), "how far the enrolment came can't be read; it begins anew")
}

/// Keeps how far it came, in one step that outlives a power cut.
pub fn write(home: &Home, enrolling: &Enrolling) -> Result<(), FileError> {
    json_file::write(&home.enrolment(), enrolling)
}

/// It is done.
pub fn remove(home: &Home) -> std::io::Result<()> {
    durable::remove_file(&home.enrolment()).map(|_| ())
}
