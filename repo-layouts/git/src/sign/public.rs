//! The public half of a signing key.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use ssh_key::HashAlg;
use ssh_key::public::{Ed25519PublicKey, KeyData};

use super::KeyError;

/// An Ed25519 public key, written `ssh-ed25519 AAAA…` without a comment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// `SHA256:…` as `ssh-keygen -l` shows it.
    pub fn fingerprint(&self) -> String {
        self.to_ssh().fingerprint(HashAlg::Sha256).to_string()
    }

    /// Its 32 bytes.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn to_ssh(self) -> ssh_key::PublicKey {
        KeyData::Ed25519(Ed25519PublicKey(self.0)).into()
    }
}

impl From<Ed25519PublicKey> for PublicKey {
    fn from(key: Ed25519PublicKey) -> Self {
        Self(key.0)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    /// Reads a line as in a `.pub` file, with or without a comment.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let key = ssh_key::PublicKey::from_openssh(text.trim()).map_err(KeyError::Public)?;
        match key.key_data() {
            KeyData::Ed25519(key) => Ok(Self::from(*key)),
            other => Err(KeyError::Algorithm(other.algorithm().to_string())),
        }
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.to_ssh();
        // An Ed25519 key of 32 bytes always encodes.
        f.write_str(key.to_openssh().map_err(|_| fmt::Error)?.trim_end())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
