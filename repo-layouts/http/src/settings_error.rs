//! Why an agent can't be made.

use std::path::PathBuf;

use crate::{Cause, CredentialError};

/// An agent can't be made of these settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A certificate authority can't be read.
    #[error("the certificate authorities can't be used")]
    Authorities(#[source] Cause),
    /// The client certificate or its key can't be used.
    #[error("the client certificate `{}` can't be used", path.display())]
    ClientCertificate {
        path: PathBuf,
        #[source]
        source: Cause,
    },
    /// A secret can't be read.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The proxy's address is wrong.
    #[error("the proxy's address must be `http://host[:port]` or `https://host[:port]`, without a credential")]
    Proxy,
    /// TLS can't be set up.
    #[error("TLS can't be set up")]
    Tls(#[source] rustls::Error),
}
