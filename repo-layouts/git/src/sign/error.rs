//! Why a key can't be used.

use std::io;
use std::path::PathBuf;

/// A key can't be read, kept or used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key file can't be read or written.
    #[error("cannot use key file `{}`", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Others than the owner can read the file.
    #[error("key file `{}` has mode {mode:o} and is open to others; run: chmod 600 '{}'", path.display(), path.display())]
    Exposed { path: PathBuf, mode: u32 },
    /// The file needs a passphrase.
    #[error("key file `{}` is protected by a passphrase, which is not supported", path.display())]
    Encrypted { path: PathBuf },
    /// The file holds no OpenSSH private key.
    #[error("`{}` is not an OpenSSH private key", path.display())]
    Private {
        path: PathBuf,
        #[source]
        source: ssh_key::Error,
    },
    /// The text is no OpenSSH private key.
    #[error("not an OpenSSH private key")]
    Text(#[source] ssh_key::Error),
    /// The text is no OpenSSH public key.
    #[error("not an OpenSSH public key")]
    Public(#[source] ssh_key::Error),
    /// The key is of a kind that is not supported.
    #[error("a key of type {0} is not supported; use ssh-ed25519")]
    Algorithm(String),
    #[error("cannot sign")]
    Sign(#[source] ssh_key::Error),
}
