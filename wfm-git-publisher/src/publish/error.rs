//! Why a pass can't begin, and why one device's part of it fails.

use jiff::Timestamp;
use repo_git::{CommitId, KeyError};
use repo_model::FleetId;
use repo_model::problem::Problems;

use super::serial::SerialError;
use crate::plan::Guarded;
use crate::repos::{ControlError, CoverageError, DeviceRepoError, HomeError, SourceError};

/// A pass can't even begin.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The home is missing, held by another publisher, or its disk fails.
    #[error("cannot use the publisher's home")]
    Home(#[from] HomeError),
    /// `control.git` can't be read, rebuilt or written.
    #[error("cannot use the publisher's ledger")]
    Control(#[from] ControlError),
    /// `keys/publisher` can't be read, or can't sign.
    #[error("cannot use the publisher's key")]
    Key(#[from] KeyError),
    /// The fleet repository or the revision in it can't be read.
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    /// `fleet.yaml` itself is broken; other broken files keep no pass from beginning.
    #[error("the fleet can't be used")]
    Fleet(Problems),
    /// The fleet repository and the home don't belong together.
    #[error("`fleet.yaml` has the id {fleet}, and the publisher's home is that of fleet {home}")]
    OtherFleet {
        /// The id in the fleet repository.
        fleet: FleetId,
        home: FleetId,
    },
    /// Those who have to agree to what changed didn't.
    #[error("nothing is published, because the fleet at commit {commit} isn't agreed to")]
    NotCovered {
        commit: CommitId,
        #[source]
        source: Box<CoverageError>,
    },
    /// This machine's clock must be wrong.
    #[error("nothing is published, because this machine's clock must be wrong")]
    Clock(#[from] ClockError),
    /// The roster doesn't list the publisher's key, or no longer.
    #[error("the publisher's key {key} is not allowed by roster {version} now")]
    KeyNotAllowed {
        key: String,
        /// The version of the newest roster.
        version: u64,
    },
}

/// One device's part of a pass failed; the others go on.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its repository can't be used or believed.
    #[error(transparent)]
    Repo(#[from] DeviceRepoError),
    /// It can't get another serial.
    #[error(transparent)]
    Serial(#[from] SerialError),
    /// A person has to allow it, or the device is too old.
    #[error(transparent)]
    Guarded(#[from] Guarded),
}

/// This machine's clock must be wrong, so nothing is published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// It was set back, was ahead before, or is later than anybody knows of.
    #[error(
        "the clock says {}, and this publisher last worked on {}; {vouching} of {of} devices report the clock's time",
        .now.strftime("%F"), .worked.strftime("%F")
    )]
    Ledger {
        now: Timestamp,
        /// The newest that the publisher wrote.
        worked: Timestamp,
        /// How many devices report this time.
        vouching: usize,
        /// How many of the devices that were asked report a time.
        of: usize,
    },
    /// The clock is far from the time that most devices report.
    #[error("the clock says {}, and {against} of {of} devices report another time", .now.strftime("%F"))]
    Devices {
        now: Timestamp,
        /// How many devices report another time.
        against: usize,
        /// How many of the devices that were asked report a time.
        of: usize,
    },
}
