//! The devices' repositories at a host that isn't ours, found by a URL template.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use repo_git::{CommitId, FetchError, FetchLimits, PushError, PushResult, PushUpdate, Remote, RemoteError, Repo};
use repo_http::{
    Agent, ClientCertificate, Credentials, HttpError, InvalidUrl, Pin, Proxy, Settings, SettingsError, Url,
};
use repo_model::DeviceId;
use repo_model::branch::HEADS;

use super::libgit2::{self, Target, TransferError};
use crate::config;

/// The host where all devices' repositories are.
#[derive(Debug)]
pub struct Remotes {
    settings: config::Remote,
    /// `None` for repositories that are reached through the file system.
    agent: Option<Agent>,
}

/// The settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RemotesError {
    /// A file can't be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// No agent can be made of them.
    #[error("cannot use the settings of the remote host")]
    Settings(#[from] SettingsError),
    /// The template makes no URL.
    #[error("cannot use the URL of the remote host")]
    Url(#[from] InvalidUrl),
}

/// A device's repository at the host can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteRepoError {
    /// Its URL isn't one.
    #[error("cannot use its URL")]
    Url(#[from] InvalidUrl),
    /// It can't be read.
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
    /// What the agent says, if the host couldn't be asked or refused.
    pub fn http(&self) -> Option<&HttpError> {
        match self {
            Self::Read(RemoteError::Http(error))
            | Self::Fetch(FetchError::Remote(RemoteError::Http(error)))
            | Self::Push(PushError::Remote(RemoteError::Http(error)))
            | Self::Transfer(TransferError::Http(error)) => Some(error),
            _ => None,
        }
    }
}

impl Remotes {
    /// A host with these settings. Nothing is contacted yet.
    pub fn new(settings: config::Remote) -> Result<Self, RemotesError> {
        let is_local = !settings.url.contains("://") || settings.url.starts_with("file://");
        let agent = if is_local { None } else { Some(agent(&settings)?) };
        Ok(Self { settings, agent })
    }

    /// Where a device's repository is.
    pub fn url(&self, device: &DeviceId) -> String {
        self.settings.url.replace(config::DEVICE, &device.repository_name())
    }

    /// The certificate authorities that a device needs to trust the host, in PEM.
    pub fn authorities(&self) -> Result<Option<String>, RemotesError> {
        self.settings.ca_file.as_deref().map(read).transpose()
    }

    /// How many repositories are talked to at the same time.
    pub fn connections(&self) -> usize {
        self.settings.connections
    }

    /// How often the host is looked at when nothing changes here.
    pub fn poll(&self) -> Duration {
        self.settings.poll
    }

    /// A device's repository. The account's secret is read for each request, so that a new one counts at once.
    pub fn repo(&self, device: &DeviceId) -> Result<RemoteRepo, RemoteRepoError> {
        let (url, timeout) = (self.url(device), self.settings.timeouts.total);
        let Some(agent) = &self.agent else {
            return Ok(RemoteRepo { read: Remote::open(&url)?, url, target: None, timeout });
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
        clock: repo_http::Clock::default(),
        user_agent: concat!("wfm-git-publisher/", env!("CARGO_PKG_VERSION")).to_owned(),
    })?)
}

fn read(path: &Path) -> Result<String, RemotesError> {
    std::fs::read_to_string(path).map_err(|source| RemotesError::Read { path: path.to_owned(), source })
}

/// One device's repository at the host.
#[derive(Debug)]
pub struct RemoteRepo {
    read: Remote,
    url: String,
    target: Option<Target>,
    timeout: Duration,
}

impl RemoteRepo {
    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where its branches stand, by their names without `refs/heads/`.
    pub fn branches(&self) -> Result<BTreeMap<String, CommitId>, RemoteRepoError> {
        let refs = self.read.refs(&[HEADS])?;
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
