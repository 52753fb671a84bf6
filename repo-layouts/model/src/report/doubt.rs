//! The words for what a reader can't believe of a device's report although it may be signed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ErrorCode;

/// Something in a report that can't be so (`repo-layouts/README.md`, *What readers of `status` check*). It concerns this
/// device alone; whatever isn't in doubt is shown as ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// A word of the contract's table, or of the reader's own.
    pub code: Cow<'static, str>,
    /// What it is, for a person. It may quote what the device wrote.
    pub message: String,
}

/// The branch isn't signed by a key that is allowed.
pub const SIGNATURE_INVALID: &str = ErrorCode::SignatureInvalid.as_str();

/// It is about another device.
pub const WRONG_DEVICE: &str = ErrorCode::WrongDevice.as_str();

/// Its layout is newer than the reader.
pub const LAYOUT_TOO_NEW: &str = ErrorCode::LayoutTooNew.as_str();

/// A document can't be read.
pub const REPORT_INVALID: &str = "report-invalid";

/// It names a commit of `desired` that isn't there.
pub const DESIRED_UNKNOWN: &str = "desired-unknown";

/// What it says that it adopted contradicts itself or the commit.
pub const ADOPTED_MISMATCH: &str = "adopted-mismatch";

/// What it says that it adopted isn't known to the publisher.
pub const ADOPTED_UNKNOWN: &str = "adopted-unknown";

/// A deployment's state isn't that of its components.
pub const STATE_MISMATCH: &str = "state-mismatch";

/// A component that must have an entry has none.
pub const COMPONENT_MISSING: &str = "component-missing";

/// What is said to run is no input of the state that was adopted.
pub const INPUT_MISMATCH: &str = "input-mismatch";

/// The heartbeat is from the future.
pub const TIME_AHEAD: &str = "time-ahead";

/// The branch goes back to an older state.
pub const WENT_BACK: &str = "went-back";

/// Two installations use one identity.
pub const HISTORY_FORKED: &str = ErrorCode::HistoryForked.as_str();

impl Doubt {
    /// Each word with its meaning, and what follows from it, as the contract has them.
    pub const TABLE: &[(&str, &str, &str)] = &[
        (
            SIGNATURE_INVALID,
            "The tip is unsigned, or signed by a key that isn't allowed.",
            "the branch counts as absent",
        ),
        (
            WRONG_DEVICE,
            "`Kind`, `Fleet` or `Device` aren't those of the branch; or a document is about another device.",
            "the branch, or that document, counts as absent",
        ),
        (LAYOUT_TOO_NEW, "`layout` is above 1.", "the branch counts as absent"),
        (
            REPORT_INVALID,
            "A document is missing or can't be read, its numbers are out of range, it is too long, or it lies at another path.",
            "the branch (`syncer.json`, `current-state.json`), or that document, counts as absent",
        ),
        (
            DESIRED_UNKNOWN,
            "`Desired-Commit` isn't in the history of `desired`.",
            "the signer is judged by the tip of `desired`",
        ),
        (
            ADOPTED_MISMATCH,
            "`adopted` contradicts the trailers, or the commit that they name.",
            "`adopted` counts as absent",
        ),
        (
            ADOPTED_UNKNOWN,
            "`adopted` was never published, as far as the publisher knows.",
            "[how far it is followed](#restored-or-lost-hosts)",
        ),
        (
            STATE_MISMATCH,
            "A deployment's state isn't the most severe of its components'.",
            "the most severe one counts",
        ),
        (
            COMPONENT_MISSING,
            "A deployment of the commit, or a component of one, has no entry.",
            "nothing is known of it",
        ),
        (
            INPUT_MISMATCH,
            "The heartbeat says `installed` with an input digest that the commit doesn't give.",
            "what runs isn't known",
        ),
        (
            TIME_AHEAD,
            "The heartbeat's `time`, or that of the commit of `status`, is more than 24 hours ahead.",
            "its age isn't known",
        ),
        (
            WENT_BACK,
            "A commit follows one that names a newer state; or a heartbeat that is newer than `status` has an older one.",
            "nothing",
        ),
        (HISTORY_FORKED, "Two `instance`s told of the state that was adopted last.", "nothing"),
    ];

    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}
