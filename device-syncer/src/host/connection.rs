//! The host connection: an agent made of the join file and the settings, and made anew when their files change.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use repo_git::durable::Stamp;
use repo_git::{Remote, RemoteError};
use repo_http::{Agent, Clock, HttpError, InvalidUrl, Request, SettingsError, Url};
use repo_model::clock::SKEW;
use repo_model::join::Join;
use repo_model::roster::RosterSteps;
use repo_model::{InvalidSshUrl, SshUrl, error_chain};

use crate::config::{Home, HostSettings};
use crate::host::account::{self, Keeper};
use crate::host::certificate::{self, CertificateKeeper};
use crate::host::ssh;
use crate::state::moved;

/// The host's address, or how it is to be reached, can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The URL of the join file.
    #[error("`url` in the join file can't be used")]
    Url(#[from] InvalidUrl),
    /// The URL of the join file, over SSH.
    #[error("`url` in the join file can't be used")]
    SshUrl(#[from] InvalidSshUrl),
    /// Anything else than HTTPS, SSH or a path.
    #[error("`url` in the join file can't be used: expected `https://…`, `ssh://…` or an absolute path")]
    Scheme,
    /// Keys over SSH, or this program has no SSH.
    #[error(transparent)]
    Ssh(#[from] ssh::SshSetupError),
    /// A pin for the other transport, which would hold nothing.
    #[error("`host.pin` is `{expected}` where the host is reached {over}")]
    Pin {
        /// The form that it has there.
        expected: &'static str,
        over: &'static str,
    },
    /// A local path that can't be used.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Where a person said that the host is can't be read.
    #[error("can't read where the host is")]
    Moved(#[source] io::Error),
    /// The file with the authorities can't be read.
    #[error("can't read `host.ca`")]
    Ca(#[source] io::Error),
    /// Anything else of the settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// The host's rosters can't be had.
#[derive(Debug, thiserror::Error)]
pub enum RostersError {
    #[error(transparent)]
    Host(#[from] HttpError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// It isn't what a host answers.
    #[error("the host's answer holds no rosters")]
    Answer(#[source] serde_json::Error),
}

/// URL, TLS and credentials in use.
#[derive(Debug)]
pub struct HostConnection {
    /// The device's own repository at the host.
    pub remote: Remote,
    /// Where that is, as the join file, the roster or a person at the device says.
    pub url: String,
    /// Keeps the secret of the join file's account valid; `None` where that isn't used.
    pub keeper: Option<Keeper>,
    /// The same of the certificate with which the device comes; `None` where it doesn't.
    pub certificate: Option<CertificateKeeper>,
    /// The same repository, for whoever has to end what is in flight.
    current: Current,
    witness: TimeWitness,
    clock: Clock,
    stamps: Vec<Option<Stamp>>,
}

/// The present moment, by which keys and proofs are judged as certificates are; copies share its floor.
#[derive(Debug, Clone)]
pub struct HostClock(Clock);

impl HostClock {
    /// Says what counts while the device's clock isn't plausible.
    pub fn set_floor(&self, floor: Timestamp) {
        self.0.set_floor(seconds(floor));
    }

    /// The device's clock, where that is plausible, else the floor of time.
    pub fn now(&self) -> Timestamp {
        let now = jiff::SignedDuration::try_from(self.0.now()).unwrap_or(jiff::SignedDuration::MAX);
        Timestamp::from_duration(now).unwrap_or(Timestamp::MAX)
    }
}

/// What a host shows that ends, by which a device without a plausible clock can tell what time it can't be.
#[derive(Debug)]
enum TimeWitness {
    /// A certificate, shown to this agent.
    Certificate(Agent),
    /// Nothing: over SSH there is none. What ends by the roster is the key that signed.
    Roster,
    /// Nothing is needed: the host is this machine.
    Nothing,
}

/// The connection in use, from any thread.
#[derive(Debug, Clone)]
pub struct Current(Arc<Mutex<Remote>>);

impl Current {
    /// Ends every request to the host that is in flight.
    pub fn interrupt(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).interrupt();
    }
}

impl HostConnection {
    /// Reads what it takes. Nothing is asked yet. At this `place`, if a person is about to say so: there the keys of the join
    /// file count that are about the host.
    pub fn open(
        home: &Home,
        join: &Join,
        place: Option<&Join>,
        settings: &HostSettings,
        clock: Clock,
    ) -> Result<Self, ConnectionError> {
        let stamps = stamps(home, settings);
        let connected = match place {
            Some(place) => connect_at(place, home, settings, &clock),
            None => connect(home, join, settings, &clock),
        };
        let Connected { url, remote, keeper, certificate, witness } = connected?;
        let current = Current(Arc::new(Mutex::new(remote.clone())));
        Ok(Self { url, remote, keeper, certificate, current, witness, clock, stamps })
    }

    /// What asks a host of ours, and where its enrolments are; `None` where this device has no account there.
    pub fn enrolments(&self) -> Option<(&Agent, Url)> {
        let by_certificate = || self.certificate.as_ref().map(CertificateKeeper::enrolments);
        self.keeper.as_ref().map(Keeper::enrolments).or_else(by_certificate)
    }

    /// The connection in use, also after [`HostConnection::refresh`].
    pub fn current(&self) -> Current {
        self.current.clone()
    }

    /// Connects anew if a file changed that the connection was made of. Files that can't be used leave it as it is.
    pub fn refresh(&mut self, home: &Home, join: &Join, settings: &HostSettings) {
        let now = stamps(home, settings);
        if now == self.stamps {
            return;
        }
        match connect(home, join, settings, &self.clock) {
            Ok(Connected { url, remote, keeper, certificate, witness }) => {
                tracing::info!("what says where the host is, or how it is reached, has changed; connecting anew");
                *self.current.0.lock().unwrap_or_else(PoisonError::into_inner) = remote.clone();
                (self.url, self.remote, self.witness) = (url, remote, witness);
                (self.keeper, self.certificate) = (keeper, certificate);
            }
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "changed files can't be used; going on as before")
            }
        }
        self.stamps = now;
    }

    /// Asks whoever answers at the host's address, over HTTPS, for the rosters after this version, although nothing proves that
    /// it is the host: they prove themselves, and nothing else is asked or shown. `None` where it isn't reached over HTTPS.
    pub fn rosters_after(&self, version: u64, settings: &HostSettings) -> Result<Option<RosterSteps>, RostersError> {
        let Ok(Place::OverHttps(url)) = place(&self.url) else { return Ok(None) };
        let known = settings.agent(None, &self.clock).map_err(ConnectionError::Ca)?;
        let nobody = repo_http::Settings { client_certificate: None, pin: None, authorities: Vec::new(), ..known };
        let agent = Agent::new(&repo_http::Settings { believes_any: true, ..nobody }).map_err(ConnectionError::from)?;
        let url = url.at_host(&format!("trust?from={version}"));
        let answer = agent.send(&Request { expects: Some("application/json"), ..Request::get(&url) })?;
        let bytes = answer.body.bytes(RosterSteps::MAX as u64)?;
        repo_model::json::read(&bytes).map(Some).map_err(RostersError::Answer)
    }

    /// The time that the host says it is, over HTTPS.
    pub fn time_of_host(&self, url: &Url) -> Option<Timestamp> {
        let TimeWitness::Certificate(agent) = &self.witness else { return None };
        let answer = agent.answer(&Request::get(url)).ok()?;
        jiff::fmt::rfc2822::parse(answer.header("date")?).ok().map(|date| date.timestamp())
    }

    /// Whether what the host showed would be believed at this moment, too; `None` where it shows nothing that ends.
    pub fn is_trusted_at(&self, moment: Timestamp) -> Option<bool> {
        match &self.witness {
            TimeWitness::Certificate(agent) => Some(agent.would_trust_at(seconds(moment))),
            TimeWitness::Roster | TimeWitness::Nothing => None,
        }
    }

    /// Connects anew by other settings. Those that can't be used leave it as it is.
    pub fn renew(&mut self, home: &Home, join: &Join, settings: &HostSettings) {
        // No list of files is that short.
        self.stamps.clear();
        self.refresh(home, join, settings);
    }

    /// The clock by which it is judged.
    pub fn clock(&self) -> HostClock {
        HostClock(self.clock.clone())
    }

    /// The present moment: the device's clock, where that is plausible, else the floor of time.
    pub fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// Whether it can be this late, when something was signed by a key that ends then by the roster (`None`: never). A
    /// plausible clock tells that alone, give or take a day. Where there is none, it is at least no later than the end of
    /// the certificate that the host showed; or, over SSH, than the end of the key, which the caller has judged. So nothing
    /// that is believed ends that.
    pub fn can_be(&self, moment: Timestamp, signer_ends: Option<Timestamp>) -> bool {
        let is_near = moment.duration_since(self.now()) <= SKEW;
        match &self.witness {
            _ if self.clock.is_plausible() => is_near,
            TimeWitness::Certificate(agent) => agent.would_trust_at(seconds(moment)),
            TimeWitness::Roster => is_near || signer_ends.is_some(),
            TimeWitness::Nothing => is_near,
        }
    }
}

/// Seconds since 1970; 0 for moments before.
fn seconds(moment: Timestamp) -> u64 {
    moment.as_second().try_into().unwrap_or(0)
}

/// What it takes to talk with the host.
struct Connected {
    url: String,
    remote: Remote,
    keeper: Option<Keeper>,
    certificate: Option<CertificateKeeper>,
    witness: TimeWitness,
}

impl Connected {
    /// Without an account that has to be kept.
    fn bare(url: String, remote: Remote, witness: TimeWitness) -> Self {
        Self { url, remote, keeper: None, certificate: None, witness }
    }
}

/// Where the host is said to be. What can't be used of that is left alone, and the join file counts.
fn connect(home: &Home, join: &Join, settings: &HostSettings, clock: &Clock) -> Result<Connected, ConnectionError> {
    let place = moved::in_use(home, join).map_err(ConnectionError::Moved)?;
    match connect_at(&place, home, settings, clock) {
        Err(error) if place != *join => {
            tracing::warn!(url = place.url, error = error_chain(&error), "going on at the host of the join file");
            connect_at(join, home, settings, clock)
        }
        connected => connected,
    }
}

fn connect_at(join: &Join, home: &Home, settings: &HostSettings, clock: &Clock) -> Result<Connected, ConnectionError> {
    let text = join.url.clone();
    match place(&join.url)? {
        Place::Here(remote) => Ok(Connected::bare(text, remote, TimeWitness::Nothing)),
        Place::OverHttps(url) => over_https(url, home, join, settings, clock),
        Place::OverSsh(_) if settings.pin.is_some() => {
            Err(ConnectionError::Pin { expected: "SHA256:…", over: "over SSH" })
        }
        Place::OverSsh(url) => {
            let remote = ssh::remote(&url, join, settings, home)?;
            Ok(Connected::bare(text, remote, TimeWitness::Roster))
        }
    }
}

fn over_https(
    url: Url,
    home: &Home,
    join: &Join,
    settings: &HostSettings,
    clock: &Clock,
) -> Result<Connected, ConnectionError> {
    if settings.ssh.fingerprint.is_some() {
        return Err(ConnectionError::Pin { expected: "sha256:…", over: "over HTTPS" });
    }
    let mut known = settings.agent(join.ca.as_deref(), clock).map_err(ConnectionError::Ca)?;
    let certificate = certificate::in_use(home, join, settings);
    let comes_with_it = certificate.is_some();
    known.client_certificate = certificate.or(known.client_certificate);
    let agent = Agent::new(&known)?;
    let (credentials, keeper) = match &settings.credentials {
        Some(own) => (own.clone(), None),
        None if join.account.is_none() => (repo_http::Credentials::none(), None),
        None => {
            let keeper = Keeper::new(home, agent.clone(), &url, join.device.clone());
            (account::credentials(&home.account()), Some(keeper))
        }
    };
    let certificate =
        comes_with_it.then(|| CertificateKeeper::new(home, known, agent.clone(), &url, join.device.clone()));
    let remote = Remote::https(url, agent.clone(), credentials);
    Ok(Connected { url: join.url.clone(), remote, keeper, certificate, witness: TimeWitness::Certificate(agent) })
}

/// Where `url` of a join file leads (`repo-layouts/README.md`, *Join file*).
enum Place {
    /// A path on this machine.
    Here(Remote),
    OverHttps(Url),
    OverSsh(SshUrl),
}

fn place(url: &str) -> Result<Place, ConnectionError> {
    let has_scheme = |scheme: &str| url.get(..scheme.len()).is_some_and(|text| text.eq_ignore_ascii_case(scheme));
    if has_scheme("https://") {
        Ok(Place::OverHttps(Url::parse(url)?))
    } else if has_scheme("ssh://") {
        Ok(Place::OverSsh(SshUrl::parse(url)?))
    } else if url.strip_prefix("file://").unwrap_or(url).starts_with('/') {
        Ok(Place::Here(Remote::open(url)?))
    } else {
        Err(ConnectionError::Scheme)
    }
}

fn stamps(home: &Home, settings: &HostSettings) -> Vec<Option<Stamp>> {
    let of_home = [home.roster(), home.moved(), home.next_ssh_key(), home.certificate()];
    of_home.iter().chain(&settings.files).map(|path| Stamp::of(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_for_other_implementations_hold_here() {
        let vectors = include_str!("../../../fixtures/vectors/join.json");
        let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
        for case in vectors["urls"].as_array().unwrap() {
            let url = case[0].as_str().unwrap();
            let found = match place(url) {
                Ok(Place::Here(_)) => "path".into(),
                Ok(Place::OverHttps(_)) => "https".into(),
                Ok(Place::OverSsh(_)) => "ssh".into(),
                Err(_) => serde_json::Value::Null,
            };
            assert_eq!(found, case[1], "{url}");
        }
    }
}
