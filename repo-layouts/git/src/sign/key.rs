//! The secret half of a signing key.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ed25519_dalek::SignatureError;
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::public::{Ed25519PublicKey, KeyData};
use ssh_key::rand_core::OsRng;
use ssh_key::{Algorithm, LineEnding, PrivateKey, Signature, SshSig};

use zeroize::Zeroizing;

use super::{HASH, KeyError, PublicKey};
use crate::durable;

/// An OpenSSH Ed25519 private key has about 400 bytes.
const MAX_KEY_FILE: u64 = 16 << 10;

/// An Ed25519 signing key. Wiped from memory when dropped; never printed.
#[derive(Clone)]
pub struct SigningKey {
    /// With its public half, which to find anew takes as long as to sign.
    key: ed25519_dalek::SigningKey,
}

impl SigningKey {
    /// A new key of the kernel's random bytes.
    pub fn generate() -> Self {
        Self { key: (&Ed25519PrivateKey::random(&mut OsRng)).into() }
    }

    /// The key of a seed, for tests and vectors.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self { key: ed25519_dalek::SigningKey::from_bytes(seed) }
    }

    /// Reads an OpenSSH private key file that only its owner can read.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let fail = |source| KeyError::Private { path: path.to_owned(), source };
        let text = read_private(path)?;
        let key = PrivateKey::from_openssh(text.as_slice()).map_err(fail)?;
        if key.is_encrypted() {
            return Err(KeyError::Encrypted { path: path.to_owned() });
        }
        Self::of_ssh(&key, fail)
    }

    /// Reads the text of an OpenSSH private key.
    pub fn from_openssh(text: &str) -> Result<Self, KeyError> {
        let key = PrivateKey::from_openssh(text).map_err(KeyError::Text)?;
        Self::of_ssh(&key, KeyError::Text)
    }

    /// `fail` says that its halves don't belong together.
    fn of_ssh(key: &PrivateKey, fail: impl FnOnce(ssh_key::Error) -> KeyError) -> Result<Self, KeyError> {
        match key.key_data() {
            KeypairData::Ed25519(pair) => Ok(Self { key: pair.try_into().map_err(fail)? }),
            _ => Err(KeyError::Algorithm(key.algorithm().to_string())),
        }
    }

    /// The text of an OpenSSH private key: a secret.
    pub fn to_openssh(&self) -> Result<Zeroizing<String>, KeyError> {
        self.to_ssh().to_openssh(LineEnding::LF).map_err(KeyError::Sign)
    }

    /// Writes the key as an OpenSSH private key file with mode 0600, durably.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let text = self.to_ssh().to_openssh(LineEnding::LF).map_err(KeyError::Sign)?;
        let written = durable::replace_file(path, text.as_bytes(), 0o600);
        written.map_err(|source| KeyError::Io { path: path.to_owned(), source })
    }

    pub fn public(&self) -> PublicKey {
        PublicKey::from(public_half(&self.key))
    }

    /// The secret bytes of the key.
    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.key.to_bytes())
    }

    /// An armoured signature over `bytes`, byte for byte what `ssh-keygen -Y sign -n <namespace>` writes.
    pub fn sign(&self, namespace: &str, bytes: &[u8]) -> Result<String, KeyError> {
        let signature = SshSig::sign(&Signer(&self.key), namespace, HASH, bytes).map_err(KeyError::Sign)?;
        signature.to_pem(LineEnding::LF).map_err(KeyError::Sign)
    }

    fn to_ssh(&self) -> PrivateKey {
        Ed25519Keypair::from(&self.key).into()
    }
}

fn public_half(key: &ed25519_dalek::SigningKey) -> Ed25519PublicKey {
    Ed25519PublicKey(key.verifying_key().to_bytes())
}

/// A key as SSH's signatures are made with it.
struct Signer<'a>(&'a ed25519_dalek::SigningKey);

impl ed25519_dalek::Signer<Signature> for Signer<'_> {
    fn try_sign(&self, bytes: &[u8]) -> Result<Signature, SignatureError> {
        let signed = ed25519_dalek::Signer::try_sign(self.0, bytes)?.to_bytes();
        Signature::new(Algorithm::Ed25519, signed).map_err(SignatureError::from_source)
    }
}

impl From<&Signer<'_>> for KeyData {
    fn from(signer: &Signer<'_>) -> Self {
        public_half(signer.0).into()
    }
}

/// The file's bytes, wiped when dropped.
fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let fail = |source| KeyError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(fail)?;
    let mode = file.metadata().map_err(fail)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.to_owned(), mode });
    }
    // Room for all of it at once: growing would leave copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_KEY_FILE as usize));
    file.take(MAX_KEY_FILE).read_to_end(&mut text).map_err(fail)?;
    Ok(text)
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public()).finish_non_exhaustive()
    }
}
