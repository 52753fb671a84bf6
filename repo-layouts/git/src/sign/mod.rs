//! SSH signatures of commits and rosters, the same bytes as `ssh-keygen -Y sign` makes.

mod error;
mod key;
pub mod openssh;
mod public;

pub use error::KeyError;
pub use key::SigningKey;
pub use public::PublicKey;

use ssh_key::{Algorithm, HashAlg, SshSig};

/// A signature proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    #[error("there is no signature")]
    Unsigned,
    /// It is not an armoured SSH signature (PGP or X.509 ones are not supported).
    #[error("the signature is not a well-formed SSH signature")]
    Malformed(#[source] Option<ssh_key::Error>),
    /// It was made by a kind of key that is not supported.
    #[error("the signature was made with {0}; only ssh-ed25519 keys are supported")]
    Algorithm(String),
    /// It was made for another purpose.
    #[error("the signature is for the namespace `{found}`, not `{wanted}`")]
    Namespace {
        /// The namespace it is for.
        found: String,
        wanted: String,
    },
    /// It doesn't fit the bytes.
    #[error("the signature doesn't match the signed bytes")]
    Mismatch,
}

/// Checks an armoured signature over `bytes` and returns the key that made it. Whether that key may sign is the
/// caller's question.
pub fn verify(namespace: &str, bytes: &[u8], armored: &str) -> Result<PublicKey, SignatureError> {
    let signature = SshSig::from_pem(armored.trim()).map_err(|error| SignatureError::Malformed(Some(error)))?;
    let key = match signature.public_key() {
        ssh_key::public::KeyData::Ed25519(key) => PublicKey::from(*key),
        other => return Err(SignatureError::Algorithm(other.algorithm().to_string())),
    };
    if signature.algorithm() != Algorithm::Ed25519 {
        return Err(SignatureError::Algorithm(signature.algorithm().to_string()));
    }
    if signature.namespace() != namespace {
        let found = signature.namespace().chars().take(100).collect();
        return Err(SignatureError::Namespace { found, wanted: namespace.to_owned() });
    }
    key.to_ssh().verify(namespace, bytes, &signature).map_err(|_| SignatureError::Mismatch)?;
    Ok(key)
}

/// What `ssh-keygen -Y sign` hashes with.
const HASH: HashAlg = HashAlg::Sha512;
