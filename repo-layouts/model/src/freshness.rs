//! `freshness.json`: the publisher's proof that it still stands behind a tip.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::desired::Refusal;
use crate::message::Message;
use crate::report::Reason;
use crate::{Branch, DeviceId, Digest, ErrorCode, FileTree, FleetId};

/// The path in the tree of `freshness`.
pub const FRESHNESS: &str = "freshness.json";

/// How long a proof counts, at most and as ours are made.
pub const LIFE: SignedDuration = SignedDuration::from_hours(24);

/// The reason of `Stale` for a proof whose own times can't be.
pub const PROOF_REFUSED: &str = Reason::ProofRefused.as_str();

/// What the signed, parentless commit on `freshness` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Freshness {
    pub fleet: FleetId,
    pub device: DeviceId,
    /// The commit on `desired`, 40 hex digits.
    pub tip: String,
    /// SHA-256 of that commit's `envelope.json`.
    pub envelope_digest: Digest,
    /// The serial of that commit: a reader compares it with what it adopted.
    pub serial: u64,
    pub issued: Timestamp,
    /// Until when it counts as fresh.
    pub expires: Timestamp,
}

/// What a proof has to be of: the state that a device accepted.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub fleet: FleetId,
    pub device: &'a DeviceId,
    /// The accepted commit, 40 hex digits.
    pub tip: &'a str,
    pub envelope: Digest,
    pub serial: u64,
}

impl Freshness {
    /// Reads a commit on `freshness`, and decides whether it is a proof of this state (`repo-layouts/README.md`, *Branch
    /// `freshness`*), but for its signature and for what time it is.
    ///
    /// # Errors
    /// The code `signature-invalid` where it is none, [`PROOF_REFUSED`] where its times contradict the contract.
    pub fn read(
        files: &FileTree,
        message: &Message,
        has_parents: bool,
        subject: &Subject<'_>,
    ) -> Result<Self, Refusal> {
        let refuse = |text: String| Err(Refusal::new(ErrorCode::SignatureInvalid, text));
        let Some(bytes) = files.get(FRESHNESS) else { return refuse(format!("`{FRESHNESS}` is missing")) };
        let proof: Self = match crate::json::read(bytes) {
            Ok(proof) => proof,
            Err(error) => return refuse(format!("`{FRESHNESS}`: {error}")),
        };
        if has_parents {
            return refuse("a proof of freshness has no parents".to_owned());
        }
        if let Some((key, value)) = message.wrong_identity(Branch::Freshness, subject.fleet, subject.device) {
            return refuse(format!("the trailer `{key}` must stand exactly once, as `{value}`"));
        }
        if (proof.fleet, &proof.device) != (subject.fleet, subject.device) {
            return refuse("the proof of freshness is for another device or fleet".to_owned());
        }
        let of = (proof.tip.as_str(), proof.envelope_digest, proof.serial);
        if of != (subject.tip, subject.envelope, subject.serial) {
            return refuse("the proof of freshness is for another commit".to_owned());
        }
        let life = proof.expires.duration_since(proof.issued);
        if life > LIFE {
            return Err(Refusal::new(PROOF_REFUSED, "the proof of freshness lives longer than 24 hours"));
        }
        if !life.is_positive() {
            return Err(Refusal::new(PROOF_REFUSED, "the proof of freshness ends before it begins"));
        }
        Ok(proof)
    }
}
