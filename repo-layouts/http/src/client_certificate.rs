//! What a client shows of itself in the handshake: a certificate chain of the site's, or one that it signed itself.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use repo_model::Digest;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ParsedCertificate;
use rustls::{Error, SignatureScheme};

use crate::credentials::read_private;
use crate::{Cause, SettingsError};

/// `PrivateKeyInfo` of Ed25519 up to the key's 32 bytes (RFC 8410, section 7).
const PRIVATE: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// `AlgorithmIdentifier` of Ed25519 (RFC 8410, section 3).
const ED25519: [u8; 7] = [0x30, 5, 6, 3, 0x2b, 0x65, 0x70];

/// Version 3 and serial number 1.
const NUMBERS: [u8; 8] = [0xa0, 3, 2, 1, 2, 2, 1, 1];

/// `commonName` as an object identifier.
const COMMON_NAME: [u8; 5] = [6, 3, 0x55, 4, 3];

/// Tags of DER.
const BIT_STRING: u8 = 3;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// A certificate chain and its key, in PEM files. Read when the agent is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The chain, the own certificate first.
    pub chain: PathBuf,
    /// The key; the file must be its owner's alone.
    pub key: PathBuf,
}

impl ClientCertificate {
    /// Both in one file, its owner's alone.
    pub fn in_one(path: &Path) -> Self {
        Self { chain: path.to_owned(), key: path.to_owned() }
    }

    /// The text of a file with an Ed25519 key of these random bytes, and a certificate that the key signed itself: of this name, and
    /// valid always. The same bytes make the same text.
    pub fn generate(random: &[u8; 32], name: &str) -> Result<String, SettingsError> {
        let private = [&PRIVATE[..], random].concat();
        let certificate = self_signed(&private, name).map_err(SettingsError::Tls)?;
        Ok(pem("PRIVATE KEY", &private) + &pem("CERTIFICATE", &certificate))
    }

    /// The digest by which a host of ours knows it: SHA-256 of the key as the certificate holds it (`SubjectPublicKeyInfo`, DER).
    pub fn pin(&self) -> Result<Digest, SettingsError> {
        let (chain, _) = self.load()?;
        let fail = |source: Cause| SettingsError::ClientCertificate { path: self.chain.clone(), source };
        let own = chain.first().ok_or_else(|| fail(NONE.into()))?;
        let parsed = ParsedCertificate::try_from(own).map_err(|error| fail(error.into()))?;
        Ok(Digest::of(&parsed.subject_public_key_info()))
    }

    pub(crate) fn load(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), SettingsError> {
        let fail = |path: &PathBuf, source: Cause| SettingsError::ClientCertificate { path: path.clone(), source };
        let chain = std::fs::read(&self.chain).map_err(|error| fail(&self.chain, error.into()))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&chain)
            .collect::<Result<_, _>>()
            .map_err(|error| fail(&self.chain, error.into()))?;
        if chain.is_empty() {
            return Err(fail(&self.chain, NONE.into()));
        }
        let key = PrivateKeyDer::from_pem_slice(&read_private(&self.key)?);
        Ok((chain, key.map_err(|error| fail(&self.key, error.into()))?))
    }
}

const NONE: &str = "it holds no certificate in PEM";

/// A certificate (RFC 5280, section 4.1) without extensions, whose end is the one that means none (section 4.1.2.5).
fn self_signed(private: &[u8], name: &str) -> Result<Vec<u8>, Error> {
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(private))?;
    let (Some(public), Some(signer)) = (key.public_key(), key.choose_scheme(&[SignatureScheme::ED25519])) else {
        return Err(Error::General("no key of Ed25519".to_owned()));
    };
    let attribute = der(SEQUENCE, &[&COMMON_NAME, &der(UTF8_STRING, &[name.as_bytes()])]);
    let name = der(SEQUENCE, &[&der(SET, &[&attribute])]);
    let (from, to) = (der(UTC_TIME, &[b"700101000000Z"]), der(GENERALIZED_TIME, &[b"99991231235959Z"]));
    let validity = der(SEQUENCE, &[&from, &to]);
    let signed = der(SEQUENCE, &[&NUMBERS, &ED25519, &name, &validity, &name, public.as_ref()]);
    let signature = der(BIT_STRING, &[&[0], &signer.sign(&signed)?]);
    Ok(der(SEQUENCE, &[&signed, &ED25519, &signature]))
}

/// One value of DER.
fn der(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let length = content.len().to_be_bytes();
    let length: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    let long = if content.len() < 0x80 { None } else { u8::try_from(0x80 | length.len()).ok() };
    let length = if content.is_empty() { vec![0] } else { length };
    std::iter::once(tag).chain(long).chain(length).chain(content).collect()
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(bytes);
    let lines: String = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n").collect();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_is_written_as_short_as_it_can_be() {
        assert_eq!(der(4, &[]), [4, 0]);
        assert_eq!(der(4, &[&[7; 127]])[..3], [4, 127, 7]);
        assert_eq!(der(4, &[&[7; 128]])[..4], [4, 0x81, 128, 7]);
        assert_eq!(der(4, &[&[7; 300]])[..5], [4, 0x82, 1, 44, 7]);
    }
}
