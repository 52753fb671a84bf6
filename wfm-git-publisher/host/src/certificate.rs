//! Certificates of clients: asked for and needed by nobody. What counts of one is its key, by its digest; whoever comes with it has
//! proven in the handshake that the key is theirs.

use repo_model::Digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// The most bytes of a client's certificate with those that come along: it is kept for as long as the connection, and is in its
/// tickets.
const MAX_BYTES: usize = 8 << 10;

/// Takes every certificate that can be read: who signed it, whom it names and when it ends doesn't count.
#[derive(Debug)]
pub(crate) struct AnyClient(WebPkiSupportedAlgorithms);

impl AnyClient {
    pub(crate) fn new(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms)
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = others.iter().map(|other| other.len()).sum::<usize>() + certificate.len();
        if bytes > MAX_BYTES {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        pin(certificate).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// The digest of a certificate's key: SHA-256 of its `SubjectPublicKeyInfo`, in DER.
pub(crate) fn pin(certificate: &CertificateDer<'_>) -> Result<Digest, Error> {
    Ok(Digest::of(&ParsedCertificate::try_from(certificate)?.subject_public_key_info()))
}
