//! The exchange by which a device that has no join file gets one: its messages, and the sums that both sides compare.
//!
//! Neither side believes the other: a person compares a code, or a pin or a signature vouches (`repo-layouts/README.md`,
//! *Enrolment*). The device commits to a nonce before it sees the host's, so that nobody between them can choose the code.

mod claim;
mod file;
mod messages;
mod naming;
mod symbols;
#[cfg(test)]
mod tests;
mod transcript;

use serde::Deserialize;

pub use self::claim::Claim;
pub use self::file::{EnrolmentFile, Token};
pub use self::messages::{Approved, Kind, Nonce, Pending, Reveal, Start, Started, TokenProof};
pub use self::naming::{NamedBy, is_placeholder, own_name};
pub use self::symbols::{Code, Confirm, InvalidSymbols, Pin, Symbols};
pub use self::transcript::{Signer, Transcript, commitment};
use crate::envelope::LAYOUT;

/// The largest claim, in bytes.
pub const MAX_CLAIM: usize = 4 << 10;

/// The largest enrolment file or offer, in bytes.
pub const MAX_OFFER: usize = 256 << 10;

/// The most characters of what a claim says in free text.
pub const MAX_TEXT: usize = 200;

/// The namespace of a proof, which a key makes over the [`Transcript`].
pub const PROOF_NAMESPACE: &str = "wfm-enrol";

/// The namespace of a batch token's proof, which its key makes over [`Transcript::token_message`].
pub const TOKEN_NAMESPACE: &str = "wfm-enrol-token";

/// Why a message of the exchange can't be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnrolmentError {
    /// A request that isn't what the contract allows.
    #[error("{0}")]
    Malformed(String),
    /// What is revealed isn't what was committed to.
    #[error("the nonce and the claim aren't those that the request committed to: begin anew")]
    Commitment,
    /// A signature that doesn't verify, or another key's.
    #[error("`{0}` isn't a signature of this exchange by the key that the claim names: begin anew")]
    Proof(&'static str),
    /// No batch token of that name counts here, or another key than its own signed for it.
    #[error("no token of this host vouches for the device")]
    TokenUnknown,
    /// It counts no longer.
    #[error("the token has ended")]
    TokenEnded,
    /// As many devices have it as may.
    #[error("as many devices came by the token as it is for")]
    TokenFull,
    /// The state that was published last for the device of that id doesn't list the key, or there is none.
    #[error("no device of that id has the key")]
    NotListed,
    /// The device's account was ended by a person.
    #[error("the device's account was revoked")]
    Revoked,
    /// The device was taken out of service.
    #[error("the device is retired")]
    Retired,
    /// An enrolment file, an offer or an answer of a host that no device can follow.
    #[error("{0}")]
    Offer(String),
    /// The offer's roster isn't the pinned one.
    #[error(
        "the host offers the roster {found}, and {pinned} is pinned: another host answers, or the pin is an older roster's"
    )]
    Pin { pinned: Pin, found: Pin },
}

impl EnrolmentError {
    /// The code under which host or device say it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Commitment => "commitment",
            Self::Proof(_) => "proof",
            Self::TokenUnknown => "token-unknown",
            Self::TokenEnded => "token-ended",
            Self::TokenFull => "token-full",
            Self::NotListed => "not-listed",
            Self::Revoked => "revoked",
            Self::Retired => "retired",
            Self::Offer(_) => "offer-invalid",
            Self::Pin { .. } => "pin-mismatch",
        }
    }
}

/// Reads a document within its bounds, and refuses a layout that isn't known here before anything else of it.
fn document<T: serde::de::DeserializeOwned>(what: &str, bytes: &[u8], most: usize) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Layout {
        layout: u64,
    }
    if bytes.len() > most {
        return Err(format!("{what} has {} bytes, more than the {most} allowed", bytes.len()));
    }
    let unreadable = |error| format!("{what}: {error}");
    let Layout { layout } = crate::json::read(bytes).map_err(unreadable)?;
    if layout != LAYOUT {
        return Err(format!("{what} has layout {layout}, and only {LAYOUT} is known here: update what reads it"));
    }
    crate::json::read(bytes).map_err(unreadable)
}
