//! Certificate authorities and certificates for tests, made in the process; each call makes new keys.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate with its key, both in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
    /// The public key as certificates hold it (`SubjectPublicKeyInfo`, DER), for pins.
    pub public: Vec<u8>,
}

/// When a certificate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// From yesterday for 30 days.
    Now,
    /// It ended yesterday.
    Past,
    /// It begins tomorrow.
    Future,
}

impl Authority {
    /// An authority of this name.
    pub fn new(name: &str) -> Self {
        let mut params = params(name, Validity::Now);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A server's certificate for these host names and addresses.
    pub fn server(&self, names: &[&str], validity: Validity) -> Identity {
        let mut params = params(names[0], validity);
        let names = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        params.subject_alt_names = names.expect("host names").subject_alt_names;
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client's certificate with this common name.
    pub fn client(&self, name: &str) -> Identity {
        self.issue(params(name, Validity::Now), ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Identity {
        params.extended_key_usages = vec![purpose];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let public = key.subject_public_key_info();
        Identity { certificate: certificate.pem(), key: key.serialize_pem(), public }
    }
}

fn params(name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    let (from, to) = match validity {
        Validity::Now => (now - DAY, now + 30 * DAY),
        Validity::Past => (now - 30 * DAY, now - DAY),
        Validity::Future => (now + DAY, now + 30 * DAY),
    };
    (params.not_before, params.not_after) = (from.into(), to.into());
    params
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}
