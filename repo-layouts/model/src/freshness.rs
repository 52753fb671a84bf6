//! `freshness.json`: the publisher's proof that it still stands behind a tip.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{DeviceId, Digest, FleetId};

/// The path in the tree of `freshness`.
pub const FRESHNESS: &str = "freshness.json";

/// How long a proof counts, at most and as ours are made.
pub const LIFE: SignedDuration = SignedDuration::from_hours(24);

/// The furthest that the clocks of publisher and device may be apart before one of them must be wrong.
pub const SKEW: SignedDuration = SignedDuration::from_hours(24);

/// What the signed, parentless commit on `freshness` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Freshness {
    /// The fleet's identity.
    pub fleet: FleetId,
    /// The device.
    pub device: DeviceId,
    /// The commit on `desired`, 40 hex digits.
    pub tip: String,
    /// SHA-256 of that commit's `envelope.json`.
    pub envelope_digest: Digest,
    /// That commit's serial.
    pub serial: u64,
    /// When this was signed.
    pub issued: Timestamp,
    /// Until when it counts as fresh.
    pub expires: Timestamp,
}
