//! What a device says of itself.

use serde::{Deserialize, Serialize};

use super::{EnrolmentError, MAX_CLAIM, MAX_TEXT, document};
use crate::envelope::LAYOUT;
use crate::join::Credentials;
use crate::{DeviceId, Digest, KeyText};

/// What a device says of itself. Nothing in it but the keys is proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub layout: u64,
    /// The device's public key, `ssh-ed25519 AAAA…`.
    pub key: KeyText,
    /// Digest of the text of the secret that the device made for its account.
    pub account: Digest,
    /// SHA-256 of the `SubjectPublicKeyInfo` of its TLS key, in DER: the device would come with a certificate of that in the place
    /// of the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Digest>,
    /// The version of its syncer.
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The id that it would like to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<DeviceId>,
    /// The enrolled key that `key` shall replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<KeyText>,
}

impl Claim {
    /// A claim of nothing but a key, the digest of a secret, and a syncer's version.
    pub fn new(key: KeyText, account: Digest, version: &str) -> Self {
        let (serial, model, mac, hostname, arch) = (None, None, None, None, None);
        let (layout, version, certificate, id, replaces) = (LAYOUT, version.to_owned(), None, None, None);
        Self { layout, key, account, certificate, version, serial, model, mac, hostname, arch, id, replaces }
    }

    /// How the device shows its account to a host that takes it in as it claims; `None`: with the secret.
    pub fn credentials(&self) -> Option<Credentials> {
        self.certificate.map(|_| Credentials::Certificate)
    }

    /// Reads a claim.
    ///
    /// # Errors
    /// [`EnrolmentError::Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, EnrolmentError> {
        let claim: Self = document("the claim", bytes, MAX_CLAIM).map_err(EnrolmentError::Malformed)?;
        let malformed = |problem: String| Err(EnrolmentError::Malformed(format!("the claim: {problem}")));
        for (name, key) in [("key", Some(&claim.key)), ("replaces", claim.replaces.as_ref())] {
            if key.is_some_and(|key| !is_ed25519(key)) {
                return malformed(format!("`{name}` is not an Ed25519 key: expected `ssh-ed25519 AAAA…`"));
            }
        }
        if claim.replaces.as_ref() == Some(&claim.key) {
            return malformed("`replaces` is `key` itself".to_owned());
        }
        let texts = [
            ("version", Some(&claim.version)),
            ("serial", claim.serial.as_ref()),
            ("model", claim.model.as_ref()),
            ("mac", claim.mac.as_ref()),
            ("hostname", claim.hostname.as_ref()),
            ("arch", claim.arch.as_ref()),
        ];
        for (name, text) in texts {
            let length = text.map_or(1, |text| text.chars().count());
            if !(1..=MAX_TEXT).contains(&length) {
                return malformed(format!("`{name}` has {length} characters, and may have 1 to {MAX_TEXT}"));
            }
        }
        Ok(claim)
    }
}

/// Whether a key is `ssh-ed25519` with exactly 32 bytes. Its blob is 51 bytes, 68 characters without padding; the first 25 and
/// two bits are the same for all of them, so that the 26th is A to P.
fn is_ed25519(key: &KeyText) -> bool {
    key.as_str().strip_prefix("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI").is_some_and(|rest| {
        rest.len() == 43 && !rest.contains('=') && rest.as_bytes().first().is_some_and(|c| (b'A'..=b'P').contains(c))
    })
}
