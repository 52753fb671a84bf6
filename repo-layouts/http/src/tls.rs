//! TLS under the agent: rustls with ring, and what a certificate must be beside trusted.

use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use repo_model::Digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

use crate::{Pin, Settings, SettingsError};

/// Sessions that are remembered, so that a new connection needs no whole handshake.
const SESSIONS: usize = 4;

/// Where systems keep the authorities that are trusted on them; the first that is there counts.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The authorities that this machine trusts, or `$SSL_CERT_FILE` in their place.
pub(crate) fn system_roots() -> Vec<CertificateDer<'static>> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let file = named.or_else(|| SYSTEM.iter().map(PathBuf::from).find(|path| path.exists()));
    file.map_or_else(Vec::new, |path| certificates_in(&path))
}

/// What of a file can be read as certificates in PEM; it isn't ours, and nothing else hangs on it.
fn certificates_in(path: &Path) -> Vec<CertificateDer<'static>> {
    let text = std::fs::read(path).unwrap_or_default();
    CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect()
}

/// What rustls needs to know of these settings, and who judges hosts by them; `system`: authorities beside those of the
/// settings.
pub(crate) fn config(
    settings: &Settings,
    system: Vec<CertificateDer<'static>>,
) -> Result<(ClientConfig, Arc<Judge>), SettingsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(settings.clock.clone()));
    let builder = builder.with_safe_default_protocol_versions().map_err(SettingsError::Tls)?;
    let mut roots = roots(settings)?;
    roots.add_parsable_certificates(system);
    let judge = Arc::new(Judge::new(Arc::new(roots), provider, settings)?);
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::clone(&judge) as Arc<_>);
    let mut config = match &settings.client_certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            let (chain, key) = certificate.load()?;
            builder.with_client_auth_cert(chain, key).map_err(|source| SettingsError::ClientCertificate {
                path: certificate.chain.clone(),
                source: source.into(),
            })?
        }
    };
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok((config, judge))
}

fn roots(settings: &Settings) -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    if settings.authorities.is_empty() || settings.public_roots {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for text in &settings.authorities {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
            let certificate = certificate.map_err(|error| SettingsError::Authorities(error.into()))?;
            roots.add(certificate).map_err(|error| SettingsError::Authorities(error.into()))?;
        }
        if roots.len() == before {
            return Err(SettingsError::Authorities("a text holds no certificate in PEM".into()));
        }
    }
    Ok(roots)
}

/// The host has another key than the pinned one.
#[derive(Debug, thiserror::Error)]
#[error("the host's key is {found}, pinned is {pinned}")]
pub(crate) struct WrongKey {
    pinned: Digest,
    found: Digest,
}

/// Everything that any certificate must be, and then the pinned key. It remembers the last one that was both.
#[derive(Debug)]
pub(crate) struct Judge {
    trusted: Arc<WebPkiServerVerifier>,
    /// Whatever is shown is taken, and not remembered as trusted.
    pub(crate) believes_any: bool,
    pin: Option<Pin>,
    last: Mutex<Option<Shown>>,
}

#[derive(Debug)]
struct Shown {
    certificate: CertificateDer<'static>,
    intermediates: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
}

impl Judge {
    fn new(
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
        settings: &Settings,
    ) -> Result<Self, SettingsError> {
        let trusted = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let trusted = trusted.map_err(|error| SettingsError::Authorities(error.into()))?;
        let Settings { believes_any, pin, .. } = *settings;
        Ok(Self { trusted, believes_any, pin, last: Mutex::default() })
    }

    /// Whether what was trusted last would be at this moment, in seconds since 1970; not before anything was.
    pub(crate) fn trusts_at(&self, seconds: u64) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let trusts = |Shown { certificate, intermediates, name }: &Shown| {
            self.trusted.verify_server_cert(certificate, intermediates, name, &[], now).is_ok()
        };
        last.as_ref().is_some_and(trusts)
    }

    fn check_key(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let Some(Pin(pinned)) = self.pin else { return Ok(()) };
        let found = Digest::of(&ParsedCertificate::try_from(certificate)?.subject_public_key_info());
        if pinned == found {
            return Ok(());
        }
        let wrong = rustls::OtherError(Arc::new(WrongKey { pinned, found }));
        Err(rustls::CertificateError::Other(wrong).into())
    }
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.believes_any {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.trusted.verify_server_cert(certificate, intermediates, name, ocsp, now)?;
        self.check_key(certificate)?;
        let intermediates = intermediates.iter().map(|one| one.clone().into_owned()).collect();
        let shown = Shown { certificate: certificate.clone().into_owned(), intermediates, name: name.to_owned() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trusted.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trusted.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trusted.supported_verify_schemes()
    }
}

/// Puts TLS over a connection that has none yet, and counts how many were made.
#[derive(Clone)]
pub(crate) struct TlsConnector {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) judge: Arc<Judge>,
    pub(crate) made: Arc<AtomicU64>,
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConnector")
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let other = |error: Box<dyn std::error::Error + Send + Sync>| ureq::Error::Other(error);
        let host = details.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|error| other(error.into()))?;
        let mut connection =
            ClientConnection::new(Arc::clone(&self.config), name).map_err(|error| other(error.into()))?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        self.made.fetch_add(1, Ordering::Relaxed);
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport { buffers, stream: StreamOwned::new(connection, socket) })))
    }
}

pub(crate) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTransport").field("under", &self.stream.sock.inner()).finish_non_exhaustive()
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output)?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use repo_testkit::pki::Authority;

    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test's own file")]
    fn of_the_machines_authorities_those_count_that_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca-certificates.crt");
        assert!(certificates_in(&path).is_empty());
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let good = Authority::new("the site's");
        std::fs::write(&path, format!("# words\n{}{broken}", good.certificate())).unwrap();
        let found = certificates_in(&path);
        assert_eq!(found, [CertificateDer::from_pem_slice(good.certificate().as_bytes()).unwrap()]);
        let (_, judge) = config(&Settings::default(), found).unwrap();
        assert!(!judge.trusts_at(0), "nothing was asked");
    }
}
