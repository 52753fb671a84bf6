//! The devices' repositories at a host that isn't ours, found by a URL template.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use repo_git::durable::FileError;
use repo_git::remote::{InvalidSshAddress, SshAddress, SshProblem, SshProgram};
use repo_git::{CommitId, FetchError, FetchLimits, PushError, PushResult, PushUpdate, Remote, RemoteError, Repo};
use repo_http::{
    Agent, ClientCertificate, Credentials, HttpError, InvalidUrl, Pin, Proxy, Settings, SettingsError, Url,
};
use repo_model::branch::HEADS;
use repo_model::envelope::LAYOUT;
use repo_model::{DeviceId, FleetId, KeyText};

use super::libgit2::{self, Target, TransferError};
use super::provision::{self, BackOff, ProvisionError, Provisioned, Rights, SitePerson};
use crate::config;

/// What this program calls itself at hosts.
pub(crate) const USER_AGENT: &str = concat!("wfm-git-publisher/", env!("CARGO_PKG_VERSION"));

/// The host where all devices' repositories are.
#[derive(Debug)]
pub struct Remotes {
    settings: config::Remote,
    way: Way,
    missing: BackOff,
}

/// How the host is reached.
#[derive(Debug)]
enum Way {
    /// Through the file system.
    Local,
    Https(Agent),
    /// By this machine's own `ssh`.
    Ssh(SshProgram),
}

/// The settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RemotesError {
    /// A file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// No agent can be made of them.
    #[error("cannot use the settings of the remote host")]
    Settings(#[from] SettingsError),
    /// The template makes no URL.
    #[error("cannot use the URL of the remote host")]
    Url(#[from] InvalidUrl),
    /// The template makes no address for SSH.
    #[error("cannot use the URL of the remote host")]
    Ssh(#[from] InvalidSshAddress),
}

/// A device's repository at the host can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteRepoError {
    #[error("cannot use its URL")]
    Url(#[from] InvalidUrl),
    #[error("cannot use its URL")]
    Ssh(#[from] InvalidSshAddress),
    #[error("cannot read it")]
    Read(#[from] RemoteError),
    /// Nothing can be fetched from it.
    #[error("cannot fetch from it")]
    Fetch(#[from] FetchError),
    /// Nothing can be pushed to it.
    #[error("cannot push to it")]
    Push(#[from] PushError),
    /// Nothing can be pushed to it.
    #[error("cannot push to it")]
    Transfer(#[from] TransferError),
}

impl RemoteRepoError {
    /// What the agent says, if the host couldn't be asked over HTTPS or refused.
    pub fn http(&self) -> Option<&HttpError> {
        match (self, self.remote()) {
            (_, Some(RemoteError::Http(error))) | (Self::Transfer(TransferError::Http(error)), _) => Some(error),
            _ => None,
        }
    }

    /// Whether the repository may not be there yet: hosts say the same of one that the account may not see.
    pub fn may_be_missing(&self) -> bool {
        match (self.http(), self.remote()) {
            (Some(error), _) => matches!(error.status(), Some(403 | 404)),
            (_, Some(RemoteError::SshProgram(error))) => matches!(error.problem, SshProblem::Answer { .. }),
            (_, Some(RemoteError::Unreachable { .. })) => true,
            _ => false,
        }
    }

    /// What went wrong between here and the host, if it wasn't a push over HTTPS.
    pub fn remote(&self) -> Option<&RemoteError> {
        match self {
            Self::Read(error) | Self::Fetch(FetchError::Remote(error)) | Self::Push(PushError::Remote(error)) => {
                Some(error)
            }
            _ => None,
        }
    }
}

impl Remotes {
    /// A host with these settings. Nothing is contacted yet.
    pub fn new(settings: config::Remote) -> Result<Self, RemotesError> {
        let way = if SshAddress::is_meant(&settings.url) {
            // Checked now, so that a wrong template is reported before anything is done.
            SshAddress::parse(&settings.url.replace(config::DEVICE, "device"))?;
            Way::Ssh(SshProgram {
                command: settings.ssh_command.clone().unwrap_or_else(|| vec!["ssh".to_owned()]),
                identity: settings.identity_file.clone(),
                timeouts: settings.timeouts,
            })
        } else if !settings.url.contains("://") || settings.url.starts_with("file://") {
            Way::Local
        } else {
            Way::Https(agent(&settings)?)
        };
        Ok(Self { settings, way, missing: BackOff::default() })
    }

    /// Where a device's repository is.
    pub fn url(&self, device: &DeviceId) -> String {
        self.settings.url.replace(config::DEVICE, &device.repository_name())
    }

    /// Where the device itself finds it. Git's short form for SSH is no URL; a path of it begins at the account's home.
    pub fn device_url(&self, device: &DeviceId) -> String {
        let template = self.settings.device_url.as_ref().unwrap_or(&self.settings.url);
        let url = template.replace(config::DEVICE, &device.repository_name());
        let short = SshAddress::is_meant(&url) && !url.contains("://");
        match url.split_once(':').filter(|_| short && !url.contains('[')) {
            Some((place, path)) => format!("ssh://{place}/{}", path.trim_start_matches('/')),
            None => url,
        }
    }

    /// The keys that the host may have, where devices reach it over SSH.
    pub fn host_keys(&self) -> &[KeyText] {
        &self.settings.host_keys
    }

    /// The certificate authorities that a device needs to trust the host, in PEM.
    pub fn authorities(&self) -> Result<Option<String>, RemotesError> {
        self.settings.ca_file.as_deref().map(read).transpose()
    }

    /// What shall be at the host for a device, as the `provision` command is told.
    pub fn provisioned<'a>(
        &self,
        fleet: FleetId,
        device: &'a DeviceId,
        present: bool,
        ssh_keys: &'a [KeyText],
        site: Vec<SitePerson>,
    ) -> Provisioned<'a> {
        let url = self.url(device);
        let path = match url.split_once("://") {
            Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
            None if SshAddress::is_meant(&url) => url.rsplit_once(':').map_or("", |(_, path)| path),
            None => &url,
        };
        let (path, rights) = (path.trim_start_matches('/').to_owned(), Rights::of_contract(!site.is_empty()));
        let repository = device.repository_name();
        Provisioned { layout: LAYOUT, fleet, device, present, repository, url, path, ssh_keys, site, rights }
    }

    /// Lets the command of the settings make that so. Tells whether there is one.
    pub fn provision(&self, what: &Provisioned<'_>) -> Result<bool, ProvisionError> {
        self.settings.provision.as_ref().map_or(Ok(false), |command| provision::run(command, what).map(|()| true))
    }

    /// Whether the command may run because the device's repository isn't there: at once, and then each time after a longer
    /// wait, of which this object knows. A person's `publish` has one of its own.
    pub fn may_make(&self, device: &DeviceId) -> bool {
        self.missing.begin(device, Instant::now())
    }

    /// The device's repository is there.
    pub fn is_there(&self, device: &DeviceId) {
        self.missing.end(device);
    }

    /// How many repositories are talked to at the same time.
    pub fn connections(&self) -> usize {
        self.settings.connections
    }

    /// How often the host is asked when nothing changes here.
    pub fn poll(&self) -> Duration {
        self.settings.poll
    }

    /// A device's repository. The account's secret is read for each request, so that a new one counts at once.
    pub fn repo(&self, device: &DeviceId) -> Result<RemoteRepo, RemoteRepoError> {
        let (url, timeout) = (self.url(device), self.settings.timeouts.total);
        let agent = match &self.way {
            Way::Https(agent) => agent,
            Way::Local => return Ok(RemoteRepo { read: Remote::open(&url)?, url, target: None, timeout }),
            Way::Ssh(program) => {
                let read = Remote::ssh_program(SshAddress::parse(&url)?, program.clone());
                return Ok(RemoteRepo { read, url, target: None, timeout });
            }
        };
        let credentials = match (self.settings.secret.clone(), self.settings.user.clone()) {
            (None, _) => Credentials::none(),
            (Some(source), Some(user)) => Credentials::basic(user, source),
            (Some(source), None) => Credentials::bearer(source),
        };
        let target = Target { agent: agent.clone(), url: Url::parse(&url)?, credentials };
        let read = Remote::https(target.url.clone(), agent.clone(), target.credentials.clone());
        Ok(RemoteRepo { read, url, target: Some(target), timeout })
    }
}

fn agent(settings: &config::Remote) -> Result<Agent, RemotesError> {
    // Checked now, so that a wrong template is reported before anything is done.
    Url::parse(&settings.url.replace(config::DEVICE, "device"))?;
    Ok(Agent::new(&Settings {
        authorities: settings.ca_file.as_deref().map(read).transpose()?.into_iter().collect(),
        public_roots: settings.public_roots,
        pin: settings.pin.map(Pin),
        client_certificate: settings.client.clone().map(|(chain, key)| ClientCertificate { chain, key }),
        proxy: settings.proxy.clone().map(|url| Proxy { url, account: None, except: Vec::new() }),
        timeouts: settings.timeouts,
        user_agent: USER_AGENT.to_owned(),
        ..Settings::default()
    })?)
}

fn read(path: &Path) -> Result<String, RemotesError> {
    Ok(std::fs::read_to_string(path).map_err(FileError::read(path))?)
}

/// One device's repository at the host.
#[derive(Debug)]
pub struct RemoteRepo {
    read: Remote,
    url: String,
    /// Where libgit2 pushes to, over HTTPS. Elsewhere the conversation that reads pushes, too.
    target: Option<Target>,
    timeout: Duration,
}

impl RemoteRepo {
    /// Its URL, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where its branches stand, by their names without `refs/heads/`.
    pub fn branches(&self) -> Result<BTreeMap<String, CommitId>, RemoteRepoError> {
        let refs = self.read.refs_once(&[HEADS])?;
        Ok(refs.into_iter().filter_map(|(name, id)| Some((name.strip_prefix(HEADS)?.to_owned(), id))).collect())
    }

    /// Fetches commits within limits. The caller holds the writer's lock of `into`.
    pub fn fetch(&self, into: &Repo, wants: &[CommitId], haves: &[CommitId]) -> Result<(), RemoteRepoError> {
        let limits = FetchLimits { timeout: self.timeout, ..FetchLimits::default() };
        self.read.fetch(into, wants, haves, false, &limits)?;
        Ok(())
    }

    /// Moves branches, each only from where it is expected.
    pub fn push(&self, from: &Repo, updates: &[PushUpdate]) -> Result<Vec<PushResult>, RemoteRepoError> {
        match &self.target {
            Some(target) => Ok(libgit2::push(from.path(), target, updates)?),
            None => Ok(self.read.push(from, updates)?),
        }
    }
}
