//! What this host offers to devices that nobody knows yet: the enrolment file, without anything secret.

use jiff::Timestamp;
use repo_model::enrolment::{EnrolmentError, EnrolmentFile};
use repo_model::envelope::LAYOUT;
use wfm_git_host::Settings;
use wfm_git_host::ca::{self, CaError};

use super::join::{JoinError, trust};
use crate::repos::{Control, ControlError, Home};

/// Nothing can be offered.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    #[error("cannot use the publisher's ledger")]
    Control(#[from] ControlError),
    /// What devices shall trust can't be known.
    #[error("cannot tell which certificates devices shall trust")]
    Ca(#[from] CaError),
    /// The roster can't be offered.
    #[error(transparent)]
    Roster(#[from] JoinError),
    /// No device would take it.
    #[error("devices can't enrol at `{url}`")]
    Url {
        url: String,
        #[source]
        source: EnrolmentError,
    },
}

/// The enrolment file of the host with these settings, with the newest roster.
pub fn offer(home: &Home, serve: &Settings, now: Timestamp) -> Result<EnrolmentFile, OfferError> {
    let (_, rosters) = Control::read(home)?;
    let file = EnrolmentFile {
        layout: LAYOUT,
        fleet: rosters.fleet(),
        url: serve.base_url(),
        ca: ca::trusted(&home.ca(), serve)?,
        issued: now,
        trust: trust(&rosters)?,
        token: None,
    };
    // As a device reads it.
    EnrolmentFile::parse(&file.offer()).map_err(|source| OfferError::Url { url: file.url.clone(), source })
}
