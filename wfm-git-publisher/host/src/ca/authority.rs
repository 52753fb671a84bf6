//! The certificate authority of one fleet.

use std::fs::{self, File};
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, SerialNumber, date_time_ymd,
};
use repo_git::durable::{self, FileError};
use repo_model::Digest;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::CaError;
use crate::lock::lock_dir;

/// How long a device may stand alone, and more.
const AUTHORITY: SignedDuration = SignedDuration::from_hours(30 * 365 * 24);

/// How long a certificate of the host is valid.
const VALID: Duration = Duration::from_secs(90 * 24 * 3600);

/// The host's certificate is renewed after 60 of its 90 days.
pub(super) const RENEW_AFTER: Duration = Duration::from_secs(60 * 24 * 3600);

/// Both begin long ago, so that a device whose clock has fallen behind is not locked out: the keys are what counts.
const BEGIN: (i32, u8, u8) = (2020, 1, 1);

/// Names of private networks: those of RFC 6762, RFC 8375, ICANN's `internal`, and what people use.
const PRIVATE_NAMES: &[&str] = &["localhost", "local", "home.arpa", "internal", "lan"];

/// Addresses that the Internet doesn't route: loopback, RFC 1918, link-local, RFC 6598, unique local.
const PRIVATE_ADDRESSES: &[(&str, u8)] = &[
    ("127.0.0.0", 8),
    ("10.0.0.0", 8),
    ("172.16.0.0", 12),
    ("192.168.0.0", 16),
    ("169.254.0.0", 16),
    ("100.64.0.0", 10),
    ("::1", 128),
    ("fc00::", 7),
    ("fe80::", 10),
];

/// The host's own key, in the authority's directory.
const SERVER_KEY: &str = "server.key";

/// The file of the certificate of the authority in this directory.
pub(super) fn pem(dir: &Path) -> PathBuf {
    dir.join("ca.pem")
}

/// The fleet's authority, with its key.
pub struct Authority {
    pem: String,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    server_key: KeyPair,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Reads the authority in this directory; makes one for these names if there is none. One whose making was cut off
    /// is completed.
    pub fn ensure(dir: &Path, names: &[String]) -> Result<Self, CaError> {
        let _lock = lock_dir(dir).map_err(FileError::write(dir))?;
        let (pem_path, key_path) = (pem(dir), dir.join("ca.key"));
        if pem_path.exists() && !key_path.exists() {
            return Err(CaError::NoKey { certificate: pem_path, key: key_path });
        }
        let key = load_or_make_key(&key_path)?;
        let params = params(&key, names);
        if !pem_path.exists() {
            let pem = params.self_signed(&key)?.pem();
            write(&pem_path, pem.as_bytes(), 0o644)?;
        }
        let pem = fs::read_to_string(&pem_path).map_err(FileError::read(&pem_path))?;
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
        let certificate = certificate.map_err(|source| CaError::Pem { path: pem_path, what: "certificate", source })?;
        let server_key = load_or_make_key(&dir.join(SERVER_KEY))?;
        Ok(Self { pem, certificate, issuer: Issuer::new(params, key), server_key })
    }

    /// Reads the authority in this directory. One that is gone isn't made anew: nobody would believe it.
    pub fn read(dir: &Path, names: &[String]) -> Result<Self, CaError> {
        std::fs::metadata(pem(dir)).map_err(FileError::read(&pem(dir)))?;
        Self::ensure(dir, names)
    }

    /// Reads the authority in `dir` that shall take the place of the one in `before`, or makes it, for the same key of the
    /// host: devices that pin that notice nothing.
    pub fn ensure_next(dir: &Path, before: &Path, names: &[String]) -> Result<Self, CaError> {
        let (key, next) = (before.join(SERVER_KEY), dir.join(SERVER_KEY));
        if key.exists() && !next.exists() {
            durable::create_dir_all(dir, 0o700).map_err(FileError::write(dir))?;
            write(&next, read_private(&key)?.as_bytes(), 0o600)?;
        }
        Self::ensure(dir, names)
    }

    /// Its certificate, for those who shall trust it.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate of the host for these names and addresses, which a device would believe at this moment.
    pub fn issue(&self, names: &[String], now: Timestamp) -> Result<CertifiedKey, CaError> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        // No common name: GnuTLS, under Debian's git, takes one for a host's name, and an address for a forbidden one.
        params.distinguished_name.push(DnType::OrganizationName, "wfm-git-publisher");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from_slice(Uuid::new_v4().as_bytes()));
        valid_until(&mut params, now + VALID);
        let certificate = params.signed_by(&self.server_key, &self.issuer)?.der().clone();
        self.check(&certificate, names, now)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.server_key.serialize_der()));
        Ok(CertifiedKey::from_der(vec![certificate], key, &ring::default_provider())?)
    }

    /// Asks the way a device does: one that this authority may not vouch for is reported now, and not by each device.
    pub(super) fn check(
        &self,
        certificate: &CertificateDer<'_>,
        names: &[String],
        now: Timestamp,
    ) -> Result<(), CaError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        for name in names {
            let failed = |source| CaError::NotPermitted { name: name.clone(), source };
            let server = ServerName::try_from(name.as_str());
            let server = server.map_err(|error| failed(rustls::Error::General(error.to_string())))?;
            verifier.verify_server_cert(certificate, &[], &server, &[], now).map_err(failed)?;
        }
        Ok(())
    }
}

/// The authority's certificate, as its key and names make it. Its own name comes from the key, so that it can be told
/// from another fleet's.
fn params(key: &KeyPair, names: &[String]) -> CertificateParams {
    let id = Digest::of(key.public_key_raw()).hex();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("wfm-git-publisher {}", &id[..16]));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(constraints(names));
    valid_until(&mut params, Timestamp::now() + AUTHORITY);
    params
}

fn constraints(names: &[String]) -> NameConstraints {
    let address = |ip: IpAddr, prefix| GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(ip, prefix));
    let own = names.iter().map(|name| match name.parse::<IpAddr>() {
        Ok(ip) => address(ip, if ip.is_ipv4() { 32 } else { 128 }),
        Err(_) => GeneralSubtree::DnsName(name.clone()),
    });
    let private_names = PRIVATE_NAMES.iter().map(|name| GeneralSubtree::DnsName((*name).to_owned()));
    let private = PRIVATE_ADDRESSES.iter().filter_map(|(ip, prefix)| Some(address(ip.parse().ok()?, *prefix)));
    NameConstraints {
        permitted_subtrees: own.chain(private_names).chain(private).collect(),
        excluded_subtrees: Vec::new(),
    }
}

fn load_or_make_key(path: &Path) -> Result<KeyPair, CaError> {
    if path.exists() {
        let text = read_private(path)?;
        return Ok(KeyPair::from_pem(&text)?);
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    write(path, Zeroizing::new(key.serialize_pem()).as_bytes(), 0o600)?;
    Ok(key)
}

/// The text of a key that only its owner can read.
pub(super) fn read_private(path: &Path) -> Result<Zeroizing<String>, CaError> {
    let failed = FileError::read(path);
    let mut file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(CaError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), CaError> {
    Ok(durable::replace_file(path, bytes, mode).map_err(FileError::write(path))?)
}

/// Valid until the day of this moment, which is all the precision that a certificate needs.
fn valid_until(params: &mut CertificateParams, end: Timestamp) {
    let day = end.to_zoned(TimeZone::UTC).date();
    let part = |value: i8| u8::try_from(value).unwrap_or(1);
    params.not_before = date_time_ymd(BEGIN.0, BEGIN.1, BEGIN.2);
    params.not_after = date_time_ymd(i32::from(day.year()), part(day.month()), part(day.day()));
}
