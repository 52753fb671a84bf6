//! The certificate that the host shows at this moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use repo_git::durable::{FileError, Stamp};
use repo_git::watch::Watcher;
use repo_model::error_chain;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tracing::{info, warn};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::CaError;
use super::authority::{Authority, RENEW_AFTER, pem, read_private};
use crate::settings::Settings;

/// How often the files and the calendar are looked at, whatever the file system tells.
const POLL: Duration = Duration::from_secs(5);

/// With less than this left somebody is told: what renews by itself never comes to it.
pub const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How often that is reported again.
const REMIND: SignedDuration = SignedDuration::from_hours(24);

/// A certificate that renews itself for as long as it lives.
#[derive(Debug)]
pub struct Served {
    source: Source,
    current: RwLock<Arc<CertifiedKey>>,
}

#[derive(Debug)]
enum Source {
    /// The fleet's own authority in this directory.
    Own {
        dir: PathBuf,
        names: Vec<String>,
    },
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
}

/// What the certificate that is shown was made from.
#[derive(Debug, PartialEq)]
enum MadeFrom {
    Own { renew_at: Timestamp, authority: Option<Stamp> },
    Files([Option<Stamp>; 2]),
}

impl Served {
    /// Gets a certificate and keeps it fresh from now on. The fleet's own authority lies in `dir`.
    pub fn open(dir: &Path, settings: &Settings) -> Result<Arc<Self>, CaError> {
        let now = Timestamp::now();
        let source = match (&settings.certificate, &settings.key) {
            (Some(certificate), Some(key)) => Source::Files { certificate: certificate.clone(), key: key.clone() },
            _ => {
                Authority::ensure(dir, &settings.names)?;
                Source::Own { dir: dir.to_owned(), names: settings.names.clone() }
            }
        };
        let (hints, hinted) = channel();
        let watcher = source.watch(&hints);
        let made_from = source.present(now);
        let served = Arc::new(Self { current: RwLock::new(Arc::new(source.certificate(now)?)), source });
        let (weak, remind_at) = (Arc::downgrade(&served), served.remind(now));
        let followed = thread::Builder::new().name("certificates".to_owned()).spawn(move || {
            let _watcher = watcher;
            follow(&weak, &hinted, made_from, remind_at);
        });
        if let Err(error) = followed {
            warn!(error = error_chain(&error), "the host's certificate is not renewed until a restart");
        }
        Ok(served)
    }

    /// The certificate and its key.
    pub fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// When it ends, or one of those that vouch for it and are shown with it; `None` if that can't be read.
    pub fn expires(&self) -> Option<Timestamp> {
        expires(&self.current().cert)
    }

    /// Gets another certificate; if that fails, the old one stays.
    fn renew(&self, now: Timestamp) -> Result<(), CaError> {
        let new = self.source.certificate(now)?;
        if new.cert != self.current().cert {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
            info!("the host shows a new certificate");
        }
        Ok(())
    }

    /// Tells that it ends soon; when to tell that again.
    fn remind(&self, now: Timestamp) -> Timestamp {
        if let Some(expires) = self.expires().filter(|expires| *expires < now + SOON) {
            let days = expires.duration_since(now).as_hours() / 24;
            warn!(%expires, days, "the host's certificate ends soon; replace its file in time, or devices are cut off");
        }
        now + REMIND
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl Source {
    fn certificate(&self, now: Timestamp) -> Result<CertifiedKey, CaError> {
        match self {
            Self::Own { dir, names } => Authority::read(dir, names)?.issue(names, now),
            Self::Files { certificate, key } => read_pair(certificate, key),
        }
    }

    /// What a certificate would be made from now.
    fn present(&self, now: Timestamp) -> MadeFrom {
        match self {
            Self::Own { dir, .. } => MadeFrom::Own { renew_at: now + RENEW_AFTER, authority: Stamp::of(&pem(dir)) },
            Self::Files { certificate, key } => MadeFrom::Files([certificate, key].map(|path| Stamp::of(path))),
        }
    }

    /// Whether another certificate is due.
    fn is_due(&self, made_from: &MadeFrom, now: Timestamp) -> bool {
        match (self, made_from) {
            (Self::Own { dir, .. }, MadeFrom::Own { renew_at, authority }) => {
                now >= *renew_at || Stamp::of(&pem(dir)) != *authority
            }
            _ => self.present(now) != *made_from,
        }
    }

    /// Hints at changes of the files; the poll sees what they miss.
    fn watch(&self, hints: &Sender<()>) -> Option<Watcher> {
        let paths = match self {
            // The directory is exchanged for another one.
            Self::Own { dir, .. } => vec![dir],
            Self::Files { certificate, key } => vec![certificate, key],
        };
        let hints = hints.clone();
        let mut watcher = Watcher::new(move |_| _ = hints.send(())).ok()?;
        for path in paths {
            // The directory, because files are replaced by renaming; symbolic links to others are left to the poll.
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let _ = watcher.watch(dir);
        }
        Some(watcher)
    }
}

fn read_pair(certificate: &Path, key: &Path) -> Result<CertifiedKey, CaError> {
    let pem = fs::read(certificate).map_err(FileError::read(certificate))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let failed = |source| CaError::Pem { path: certificate.to_owned(), what: "certificate", source };
    let chain = chain.map_err(failed)?;
    if chain.is_empty() {
        return Err(failed(rustls::pki_types::pem::Error::NoItemsFound));
    }
    let private = PrivateKeyDer::from_pem_slice(read_private(key)?.as_bytes());
    let private = private.map_err(|source| CaError::Pem { path: key.to_owned(), what: "private key", source })?;
    Ok(CertifiedKey::from_der(chain, private, &ring::default_provider())?)
}

/// When the first of these certificates ends.
fn expires(chain: &[CertificateDer<'_>]) -> Option<Timestamp> {
    let end = |certificate: &CertificateDer<'_>| {
        let certificate = Certificate::from_der(certificate).ok()?;
        let end = certificate.tbs_certificate.validity.not_after.to_unix_duration();
        Timestamp::from_second(end.as_secs().try_into().ok()?).ok()
    };
    chain.iter().filter_map(end).min()
}

/// When the certificate in a file, or one of its chain, ends.
pub fn file_expires(certificate: &Path) -> Option<Timestamp> {
    let pem = fs::read(certificate).ok()?;
    expires(&CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect::<Vec<_>>())
}

/// Tries until it succeeds, and tells each reason against it once.
fn follow(served: &Weak<Served>, hinted: &Receiver<()>, mut made_from: MadeFrom, mut remind_at: Timestamp) {
    let mut told = None;
    loop {
        let hint = hinted.recv_timeout(POLL);
        let Some(served) = served.upgrade() else { return };
        let now = Timestamp::now();
        if served.source.is_due(&made_from, now) {
            let found = served.source.present(now);
            match served.renew(now).map_err(|error| error_chain(&error)) {
                Ok(()) => (made_from, told, remind_at) = (found, None, now),
                Err(reason) if told.as_ref() == Some(&reason) => {}
                Err(error) => {
                    warn!(error, "the host's certificate stays the old one");
                    told = Some(error);
                }
            }
        }
        if now >= remind_at {
            remind_at = served.remind(now);
        }
        if hint == Err(RecvTimeoutError::Disconnected) {
            // Nobody hints: the poll alone.
            thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> (tempfile::TempDir, Arc<Served>) {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            listen: "127.0.0.1:0".parse().unwrap(),
            names: vec!["wfm.internal".to_owned()],
            url: None,
            certificate: None,
            key: None,
            ca_file: None,
            ssh: None,
            limits: Default::default(),
        };
        let served = Served::open(dir.path(), &settings).unwrap();
        (dir, served)
    }

    #[test]
    fn the_fleets_own_certificate_is_renewed_long_before_it_ends_and_keeps_its_key() {
        let (_dir, served) = own();
        let (now, days) = (Timestamp::now(), |days: i64| SignedDuration::from_hours(days * 24));
        let (made_from, first) = (served.source.present(now), served.current());
        let end = served.expires().unwrap();
        assert!(end > now + days(88) && end <= now + days(90), "{end}");
        assert!(!served.source.is_due(&made_from, now + days(59)) && served.source.is_due(&made_from, now + days(60)));
        served.renew(now + days(60)).unwrap();
        assert!(served.expires().unwrap() > now + days(148));
        let key = |one: &CertifiedKey| one.key.public_key().unwrap().to_vec();
        assert_eq!(key(&served.current()), key(&first));
    }
}
