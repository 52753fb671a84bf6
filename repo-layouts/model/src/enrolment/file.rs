//! What a host offers, and what a batch of devices is given.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::messages::Approved;
use super::symbols::Pin;
use super::{EnrolmentError, MAX_OFFER, document};
use crate::FleetId;
use crate::envelope::LAYOUT;
use crate::join::{Account, Join, JoinTrust};

/// A join file but for what is one device's: what the host offers, and, with a token, what a batch of devices is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolmentFile {
    pub layout: u64,
    pub fleet: FleetId,
    /// The host's origin, `https://host[:port]`.
    pub url: String,
    /// PEM of the authorities that the host's certificate must chain to; absent: the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// When it was written: the device's first floor of time.
    pub issued: Timestamp,
    /// The roster that the device pins: the newest.
    pub trust: JoinTrust,
    /// Absent in an offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// A batch token, in an enrolment file only. Its key is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub name: String,
    /// The private key, as OpenSSH writes it.
    pub key: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("name", &self.name).finish_non_exhaustive()
    }
}

impl EnrolmentFile {
    /// Reads an enrolment file or an offer.
    ///
    /// # Errors
    /// [`EnrolmentError::Offer`].
    pub fn parse(bytes: &[u8]) -> Result<Self, EnrolmentError> {
        let file: Self = document("the enrolment file", bytes, MAX_OFFER).map_err(EnrolmentError::Offer)?;
        let invalid = |problem: String| EnrolmentError::Offer(format!("the enrolment file: {problem}"));
        if !is_origin(&file.url) {
            return Err(invalid("`url` must be `https://host` or `https://host:port`, without a path".to_owned()));
        }
        file.trust.check(file.fleet).map_err(invalid)?;
        Ok(file)
    }

    /// Reads an offer of a host that is known by a pin only.
    ///
    /// # Errors
    /// [`EnrolmentError::Offer`] and [`EnrolmentError::Pin`].
    pub fn pinned(bytes: &[u8], pinned: Pin) -> Result<Self, EnrolmentError> {
        let file = Self::parse(bytes)?;
        let found = Pin::of(file.trust.sha256);
        if found == pinned { Ok(file) } else { Err(EnrolmentError::Pin { pinned, found }) }
    }

    /// The exact text of the host's offer: the same without a token.
    pub fn offer(&self) -> Vec<u8> {
        crate::json::to_bytes(&Self { token: None, ..self.clone() })
    }

    /// The join file that an answer makes of this, with the secret that the device made.
    ///
    /// # Errors
    /// [`EnrolmentError::Offer`] where the answer leads to another host.
    pub fn join(self, approved: Approved, secret: String) -> Result<Join, EnrolmentError> {
        if !approved.url.strip_prefix(&self.url).is_some_and(|path| path.starts_with('/')) {
            return Err(EnrolmentError::Offer(format!("the answer's `url` doesn't lead to {}", self.url)));
        }
        let account = approved.credentials.is_none().then_some(Account { user: approved.user, secret });
        Ok(Join {
            layout: LAYOUT,
            fleet: self.fleet,
            device: approved.device,
            url: approved.url,
            ca: self.ca,
            host_keys: Vec::new(),
            account,
            credentials: approved.credentials,
            issued: Some(self.issued),
            trust: self.trust,
            floor: approved.floor,
        })
    }
}

/// `https://host[:port]`, and nothing that could lead elsewhere.
fn is_origin(url: &str) -> bool {
    url.strip_prefix("https://").is_some_and(|authority| {
        (1..=300).contains(&authority.len())
            && authority.bytes().all(|c| c.is_ascii_alphanumeric() || b".-:[]".contains(&c))
            && authority.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')
    })
}
