//! The certificate with which a host of ours is asked over HTTPS, where the join file says so: one with a key of the device's own,
//! which an account at the host knows by its digest.

use repo_git::{SigningKey, durable};
use repo_http::{Agent, ClientCertificate, Request, Settings, Url};
use repo_model::enrolment::{Claim, Nonce};
use repo_model::join::{Credentials, Join};
use repo_model::{DeviceId, Digest};

use crate::config::{Home, HostSettings};
use crate::host::account::{AccountError, Away};
use crate::host::enrolment::readmit;
use crate::host::verify::key_text;
use crate::state::random;

/// What the certificate calls itself: it needs a name, and none counts.
pub const NAME: &str = "device-syncer";

/// The certificate with which this device comes, the site's or its own; `None` where it comes with a secret or with nothing.
pub fn in_use(home: &Home, join: &Join, settings: &HostSettings) -> Option<ClientCertificate> {
    let is_asked_for = join.credentials == Some(Credentials::Certificate) && settings.credentials.is_none();
    let own = || ClientCertificate::in_one(&home.certificate());
    is_asked_for.then(|| settings.client_certificate.clone().unwrap_or_else(own))
}

/// Keeps a device let in that comes with a certificate.
#[derive(Debug)]
pub struct CertificateKeeper {
    home: Home,
    device: DeviceId,
    /// By which the host is asked, the certificate among them.
    settings: Settings,
    agent: Agent,
    /// Of the account.
    url: Url,
    away: Away,
}

impl CertificateKeeper {
    /// For the device of this home at the host of `repository`, which `agent` asks by these settings.
    pub fn new(home: &Home, settings: Settings, agent: Agent, repository: &Url, device: DeviceId) -> Self {
        let (home, url, away) = (home.clone(), repository.at_host("account"), Away::default());
        Self { home, device, settings, agent, url, away }
    }

    /// What asks the host, and where its enrolments are.
    pub fn enrolments(&self) -> (&Agent, Url) {
        (&self.agent, self.url.at_host("enroll"))
    }

    /// The host doesn't know the certificate, and this device asked for a new key. Returns whether a person let it have that: then the
    /// certificate that came with it takes the place of the one before.
    pub fn follow_rekey(&self) -> bool {
        let (own, next) = (self.home.certificate(), self.home.next_certificate());
        if !next.exists() {
            return false;
        }
        let certificate = Some(ClientCertificate::in_one(&next));
        let agent = Agent::new(&Settings { client_certificate: certificate, ..self.settings.clone() });
        let is_known = agent.is_ok_and(|agent| agent.send(&Request::get(&self.url)).is_ok());
        let followed = is_known && durable::rename(&next, &own).is_ok();
        if followed {
            tracing::info!("the host knows the certificate that came with the new key; going on with that");
        }
        followed
    }

    /// The host doesn't know the certificate. Returns whether it does now, because it knows this device's key.
    pub fn come_back(&mut self) -> bool {
        self.away.is_over() && {
            let result = self.try_come_back();
            self.away.note(&result)
        }
    }

    fn try_come_back(&self) -> Result<(), AccountError> {
        let key = SigningKey::load(&self.home.key())?;
        let certificate = self.settings.client_certificate.as_ref().ok_or(AccountError::Answer)?;
        // Nobody has a secret of that digest.
        let nothing = Digest::from_bytes(random::random().map_err(AccountError::Random)?);
        let claim = Claim {
            id: Some(self.device.clone()),
            certificate: Some(certificate.pin()?),
            ..Claim::new(key_text(&key.public()), nothing, env!("CARGO_PKG_VERSION"))
        };
        let nonce = Nonce::new(random::random().map_err(AccountError::Random)?);
        let (agent, url) = self.enrolments();
        let answer = readmit(agent, &url, &key, &claim, nonce)?;
        if answer.credentials.is_none() {
            return Err(AccountError::NoCertificates);
        }
        tracing::info!("the host lets this device in again, by its key");
        Ok(())
    }
}
