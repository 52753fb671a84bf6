//! What an agent is made with.

use std::time::Duration;

use repo_model::Digest;

use crate::{ClientCertificate, Clock, Proxy};

/// Whom an agent trusts, who it is, how it gets there and how long it waits. The default trusts the public roots.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// PEM texts of certificate authorities. Where there are any, only these are trusted.
    pub authorities: Vec<String>,
    /// Trusts the public roots too, although `authorities` has some.
    pub public_roots: bool,
    /// Believes any certificate: for what proves itself by signatures of its own. Such an agent shows nobody a credential.
    pub believes_any: bool,
    /// The key that the host must have, beside a certificate that is trusted.
    pub pin: Option<Pin>,
    /// Shown to hosts that ask for one.
    pub client_certificate: Option<ClientCertificate>,
    /// What stands between here and the host.
    pub proxy: Option<Proxy>,
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// The time that certificates are judged by.
    pub clock: Clock,
    /// The `User-Agent` of each request.
    pub user_agent: String,
}

/// SHA-256 of the `SubjectPublicKeyInfo` of the host's own certificate, in DER: it stays the same when the certificate is
/// renewed with the same key. `openssl x509 -in host.pem -noout -pubkey | openssl pkey -pubin -outform der | sha256sum`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin(pub Digest);

/// Limits in time; each is an error of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection stands, TLS included.
    pub connect: Duration,
    /// From the end of the request to the end of the answer's headers.
    pub answer: Duration,
    /// The longest without a single byte, either way.
    pub stall: Duration,
    /// The longest for a request and all of its answer.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), answer: seconds(30), stall: seconds(30), total: seconds(60) }
    }
}
