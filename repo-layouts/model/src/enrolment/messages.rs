//! The messages of the exchange, in their order, and the nonces in them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::join::{Credentials, JoinFloor};
use crate::{DeviceId, Digest};

/// 32 random bytes of one side, written as 64 lower-case hex digits. The device's is a secret until it is revealed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce(pub(super) [u8; 32]);

impl Nonce {
    /// The caller's random bytes.
    pub fn new(random: [u8; 32]) -> Self {
        Self(random)
    }
}

impl TryFrom<String> for Nonce {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let digest = format!("sha256:{text}").parse::<Digest>().map_err(|_| "a nonce has 64 lower-case hex digits")?;
        Ok(Self(*digest.as_bytes()))
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> Self {
        hex(&nonce.0)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(…)")
    }
}

/// What decides whether a request is believed, said with its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A person who compares the code.
    Code,
    /// A batch token's signature.
    Token,
    /// The device's key, which is enrolled already.
    Known,
}

/// `POST /enroll`: the first message, which says nothing of the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub layout: u64,
    pub kind: Kind,
    /// [`commitment`](super::commitment) of what will be revealed.
    pub commitment: Digest,
}

/// The answer to a [`Start`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// 128 random bits in hex: whoever knows them may ask for this request.
    pub request: String,
    /// 32 bytes that the host draws once it has the commitment.
    pub nonce: Nonce,
    /// The exact text of the host's offer.
    pub offer: String,
    /// How many seconds the device has to reveal.
    pub reveal_seconds: u64,
}

/// `POST /enroll/<request>`: what the device committed to, with its proofs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reveal {
    /// The 32 bytes that the device committed to before it saw the host's.
    pub nonce: Nonce,
    /// The exact text of the claim.
    pub claim: String,
    /// An armoured SSH signature over the transcript by the claim's `key`.
    pub proof: String,
    /// The same by its `replaces`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces_proof: Option<String>,
    /// With [`Kind::Token`] only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenProof>,
}

/// A batch token's word for one exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenProof {
    pub name: String,
    /// An armoured SSH signature over [`Transcript::token_message`](super::Transcript::token_message) by the token's key.
    pub proof: String,
}

/// The answer to a [`Reveal`] that is in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// How many seconds a `GET` of the request may wait for an answer.
    pub wait: u64,
}

/// What a device that was approved is told. It holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    pub device: DeviceId,
    /// Where the device's repository is.
    pub url: String,
    /// The name of its account.
    pub user: String,
    /// What it shows in the place of the secret that it made; absent where it shows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    pub floor: JoinFloor,
}

fn hex(bytes: &[u8; 32]) -> String {
    Digest::from_bytes(*bytes).hex()
}
