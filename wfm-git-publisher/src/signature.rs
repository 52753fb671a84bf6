//! A vendor's detached signature of an archive by URL (Margo's pre-draft, *keyLocation*).
//!
//! The key is an armoured OpenPGP key or an SSH public key; its kind says where the signature lies: an armoured OpenPGP
//! one at `<packageLocation>.asc`, one of `ssh-keygen -Y sign -n file` at `<packageLocation>.sig`. What this proves is
//! that whoever holds the key has signed exactly these bytes; that the key is the vendor's is the word of whoever
//! serves it, and is therefore remembered from the first time on.

mod openpgp;

use jiff::Timestamp;
use repo_git::{PublicKey, SignatureError, sign};

use openpgp::OpenPgpKey;

/// The namespace of SSH signatures of files.
const NAMESPACE: &str = "file";

#[derive(Debug)]
pub enum VendorKey {
    /// One or more OpenPGP keys.
    OpenPgp(OpenPgpKey),
    Ssh(PublicKey),
}

/// The text isn't a vendor's key.
#[derive(Debug, thiserror::Error)]
pub enum VendorKeyError {
    /// It is neither of OpenPGP nor of SSH.
    #[error("it is neither an armoured OpenPGP public key nor an SSH public key")]
    Neither,
    /// An OpenPGP key that can't be read.
    #[error("the OpenPGP key can't be read")]
    OpenPgp(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An SSH key that can't be read.
    #[error("the SSH key can't be read")]
    Ssh(#[from] repo_git::KeyError),
}

/// Why a signature proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum VendorSignatureError {
    /// It isn't a signature.
    #[error("it is not an armoured signature of a file")]
    Malformed(#[source] Option<Box<dyn std::error::Error + Send + Sync>>),
    #[error("it was made by the key {found}, and the vendor's is {wanted}")]
    OtherKey {
        /// The key that made it, as the signature says.
        found: String,
        /// The fingerprint of the vendor's key.
        wanted: String,
    },
    /// The vendor signed something else.
    #[error("it doesn't fit: these aren't the bytes that were signed with the key {0}")]
    Mismatch(String),
    #[error("it expired at {0}")]
    Expired(Timestamp),
    #[error("its key {key} expired at {at}")]
    KeyExpired { key: String, at: Timestamp },
    /// Its key was called back by its owner.
    #[error("its key {0} is revoked")]
    KeyRevoked(String),
    /// Its key is for something else, or says nothing believable about itself.
    #[error("its key {key} can't be used: {reason}")]
    KeyUnusable { key: String, reason: &'static str },
    /// A hash that can be forged.
    #[error("it was made with {0}, which can be forged")]
    Weak(String),
    /// An SSH signature that proves nothing.
    #[error("it proves nothing")]
    Ssh(#[from] SignatureError),
}

impl VendorKey {
    /// Reads a key: armoured OpenPGP, or a line of SSH.
    pub fn read(bytes: &[u8]) -> Result<Self, VendorKeyError> {
        let text = std::str::from_utf8(bytes).map_err(|_| VendorKeyError::Neither)?;
        let first = text.trim_start();
        if first.starts_with("-----BEGIN PGP PUBLIC KEY BLOCK-----") {
            OpenPgpKey::read(text).map(Self::OpenPgp).map_err(VendorKeyError::OpenPgp)
        } else if first.starts_with("ssh-") || first.starts_with("ecdsa-") || first.starts_with("sk-") {
            Ok(Self::Ssh(first.parse()?))
        } else {
            Err(VendorKeyError::Neither)
        }
    }

    /// What follows the archive's address in that of its signature.
    pub fn suffix(&self) -> &'static str {
        match self {
            Self::OpenPgp(_) => ".asc",
            Self::Ssh(_) => ".sig",
        }
    }

    /// Checks a signature over `bytes`, and returns the fingerprint of the key that made it.
    pub fn verify(&self, bytes: &[u8], signature: &[u8], now: Timestamp) -> Result<String, VendorSignatureError> {
        let signature = std::str::from_utf8(signature).map_err(|_| VendorSignatureError::Malformed(None))?;
        match self {
            Self::OpenPgp(key) => key.verify(bytes, signature, now),
            Self::Ssh(key) => {
                let found = match sign::verify(NAMESPACE, bytes, signature) {
                    Err(SignatureError::Mismatch) => {
                        return Err(VendorSignatureError::Mismatch(key.fingerprint()));
                    }
                    Err(SignatureError::Malformed(source)) => {
                        return Err(VendorSignatureError::Malformed(source.map(Into::into)));
                    }
                    found => found?,
                };
                if found == *key {
                    return Ok(key.fingerprint());
                }
                Err(VendorSignatureError::OtherKey { found: found.fingerprint(), wanted: key.fingerprint() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
