//! The host's certificates: a certificate authority of the fleet's own, or files that the operator brings.
//!
//! The fleet's own authority is `ca/ca.pem` with `ca/ca.key` in the home, made by `init` or when it is first needed. It
//! may vouch for the names it was made for and for private networks only, so that trusting it gives nobody the power
//! over other sites. From it the host gets certificates of 90 days, renewed after 60 while it runs; the host's key
//! `ca/server.key` stays the same, so that devices may pin it.
//!
//! The operator's own files are read again when they change. Files that don't fit keep the old ones in use, and say so.

mod authority;
mod served;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use repo_git::durable::FileError;
use repo_model::Digest;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

pub use authority::Authority;
pub use served::{SOON, Served, file_expires};

use crate::certificate::AnyClient;
use crate::settings::Settings;

/// The host has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Others than the owner can read a key.
    #[error("the key `{}` has mode {mode:o} and is open to others; run: chmod 600 '{}'", path.display(), path.display())]
    Exposed { path: PathBuf, mode: u32 },
    /// A file holds no key or certificate in PEM.
    #[error("`{}` holds no {what} in PEM", path.display())]
    Pem {
        path: PathBuf,
        what: &'static str,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The authority's certificate is there, and its key is not.
    #[error("the fleet's authority `{}` has lost its key `{}`", certificate.display(), key.display())]
    NoKey {
        certificate: PathBuf,
        /// Where its key should be.
        key: PathBuf,
    },
    /// The authority can't make a certificate.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    /// The authority was made for other names.
    #[error("the fleet's authority may not vouch for `{name}`: it was made for other names")]
    NotPermitted {
        name: String,
        #[source]
        source: rustls::Error,
    },
    /// The certificate and the key are no pair, or of no use.
    #[error("the certificate and its key can't be used")]
    Tls(#[from] rustls::Error),
}

/// What TLS the host speaks: 1.2 and 1.3, HTTP/1.1, resumption without memory on this side, a certificate that is
/// renewed or read again while it is in use, and any certificate of a client, or none.
pub fn server_config(served: Arc<Served>) -> Result<Arc<ServerConfig>, CaError> {
    let provider = Arc::new(ring::default_provider());
    let clients = Arc::new(AnyClient::new(&provider));
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(served);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = ring::Ticketer::new()?;
    Ok(Arc::new(config))
}

/// The PEM that devices must trust to believe this host: the fleet's own authority, or what the operator names; `None`
/// for a public one. `dir` is where the fleet's own authority lies; it is made if it isn't there.
pub fn trusted(dir: &Path, settings: &Settings) -> Result<Option<String>, CaError> {
    match (&settings.certificate, &settings.ca_file) {
        (None, _) => {
            let authority = Authority::ensure(dir, &settings.names)?;
            // What the host couldn't show is reported now, and not by the device.
            authority.issue(&settings.names, Timestamp::now())?;
            Ok(Some(authority.pem().to_owned()))
        }
        (Some(_), None) => Ok(None),
        (Some(_), Some(path)) => Ok(Some(std::fs::read_to_string(path).map_err(FileError::read(path))?)),
    }
}

/// The certificates in a text, each by the SHA-256 of its DER, as `openssl x509 -fingerprint -sha256` has it.
pub fn digests(pem: &str) -> Vec<Digest> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
    certificates.map(|certificate| Digest::of(&certificate)).collect()
}

#[cfg(test)]
mod tests;
