//! What both sides said, as one digest, and what is checked against it.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::claim::Claim;
use super::messages::{Kind, Nonce, Reveal, Start, TokenProof};
use super::symbols::{Code, Confirm, Symbols};
use super::{EnrolmentError, PROOF_NAMESPACE, TOKEN_NAMESPACE};
use crate::{Digest, KeyText};

/// What a device commits to before it sees the host's nonce.
pub fn commitment(device: &Nonce, claim: &[u8]) -> Digest {
    sum("wfm-enrol-commit-1\n", &[&device.0, Digest::of(claim).as_bytes()])
}

/// What both sides said, as one digest: two exchanges have the same one only if each byte of both is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript(pub(super) Digest);

impl Transcript {
    /// Of the nonces of device and host, and the exact bytes of claim and offer.
    pub fn of((device, host): (&Nonce, &Nonce), claim: &[u8], offer: &[u8]) -> Self {
        let (claim, offer) = (Digest::of(claim), Digest::of(offer));
        Self(sum("wfm-enrol-1\n", &[&device.0, &host.0, claim.as_bytes(), offer.as_bytes()]))
    }

    /// The 32 bytes that a proof signs.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Reads the 64 lower-case hex digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        format!("sha256:{text}").parse().ok().map(Self)
    }

    /// The 64 hex digits.
    pub fn hex(&self) -> String {
        self.0.hex()
    }

    /// What the device shows and the operator types.
    pub fn code(&self) -> Code {
        Symbols::first_of(self.as_bytes())
    }

    /// What the operator is told, and is typed at the device. The device never shows it.
    pub fn confirm(&self) -> Confirm {
        Symbols::first_of(sum("wfm-enrol-confirm-1\n", &[self.as_bytes()]).as_bytes())
    }

    /// What a batch token's key signs for the device with this key.
    pub fn token_message(&self, key: &KeyText) -> String {
        format!("{} {key}\n", self.hex())
    }
}

/// Which key made an armoured signature over bytes in a namespace, if it verifies at all: `(bytes, namespace, signature)`.
pub type Signer<'a> = &'a dyn Fn(&[u8], &str, &str) -> Option<KeyText>;

impl Reveal {
    /// Decides whether this is what `start` committed to, and whether the claim's keys say so; not whether anybody wants the
    /// device, nor whether the token counts.
    ///
    /// # Errors
    /// [`EnrolmentError::Malformed`], [`EnrolmentError::Commitment`] and [`EnrolmentError::Proof`].
    pub fn check(
        &self,
        start: &Start,
        host: &Nonce,
        offer: &[u8],
        signer: Signer<'_>,
    ) -> Result<(Claim, Transcript), EnrolmentError> {
        let malformed = |problem: &str| Err(EnrolmentError::Malformed(problem.to_owned()));
        let bytes = self.claim.as_bytes();
        if commitment(&self.nonce, bytes) != start.commitment {
            return Err(EnrolmentError::Commitment);
        }
        let claim = Claim::parse(bytes)?;
        if (start.kind == Kind::Token) != self.token.is_some() {
            return malformed("`token` belongs to a request of the kind `token`, and to no other");
        }
        if claim.replaces.is_some() != self.replaces_proof.is_some() {
            return malformed("`replacesProof` belongs to a claim with `replaces`, and to no other");
        }
        let transcript = Transcript::of((&self.nonce, host), bytes, offer);
        let proves = |proof: &str, key: &KeyText| {
            signer(transcript.as_bytes(), PROOF_NAMESPACE, proof).is_some_and(|signed| signed == *key)
        };
        if !proves(&self.proof, &claim.key) {
            return Err(EnrolmentError::Proof("proof"));
        }
        if !self.replaces_proof.iter().zip(&claim.replaces).all(|(proof, key)| proves(proof, key)) {
            return Err(EnrolmentError::Proof("replacesProof"));
        }
        Ok((claim, transcript))
    }
}

impl TokenProof {
    /// Whether the token with this public key vouches for the device with `device` in this exchange.
    pub fn proves(&self, token: &KeyText, transcript: &Transcript, device: &KeyText, signer: Signer<'_>) -> bool {
        let message = transcript.token_message(device);
        signer(message.as_bytes(), TOKEN_NAMESPACE, &self.proof).is_some_and(|signed| signed == *token)
    }
}

/// SHA-256 of a label and of parts, each of which has 32 bytes: nothing can be cut elsewhere.
fn sum(label: &str, parts: &[&[u8; 32]]) -> Digest {
    Digest::from_bytes(
        parts.iter().fold(Sha256::new_with_prefix(label), |sum, part| sum.chain_update(part)).finalize().into(),
    )
}
