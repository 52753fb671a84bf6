//! The host over SSH: which key it must have, with which key it is asked, and the line that enrols that one.
//!
//! Nothing is ever learnt from the host itself: its key is pinned by the join file, or by `device.yaml` in its place.

use std::path::{Path, PathBuf};

use repo_git::sign::openssh::{KeyFile, fingerprint};
use repo_git::{KeyError, Remote, SigningKey};
use repo_http::CredentialError;
use repo_model::join::Join;
use repo_model::{InvalidSshUrl, KeyText, SshUrl};
use serde::Serialize;

use crate::config::{Home, HostSettings, SshIdentity};

/// The host can't be asked over SSH like this.
#[derive(Debug, thiserror::Error)]
pub enum SshSetupError {
    /// The key file can't be read, or is open to others.
    #[error("the key for the host can't be read")]
    Read(#[from] CredentialError),
    /// The key file isn't one.
    #[error(
        "`{}` is no private key in OpenSSH's format: `ssh-keygen -p -f '{}'` writes one anew in it",
        path.display(), path.display()
    )]
    KeyFile { path: PathBuf },
    /// A new key can't be made.
    #[error("can't make a key for the host")]
    Make(#[from] KeyError),
    /// The key that signs what the device says shall sign nothing else.
    #[error("`{}` is the key that signs `status`: the host is asked with another one", path.display())]
    SigningKey { path: PathBuf },
    /// The host's keys, or the keys to be let in with.
    #[cfg(feature = "ssh")]
    #[error(transparent)]
    Settings(#[from] repo_git::ssh::SettingsError),
    /// This program can't, because it was built without the feature `ssh`.
    #[error("`{url}` is over SSH, and this device-syncer was built without it")]
    NotBuilt { url: SshUrl },
}

/// Where a join file leads over SSH; `None` where it leads there by another way, or nowhere.
pub fn url(join: &Join) -> Result<Option<SshUrl>, InvalidSshUrl> {
    match SshUrl::parse(&join.url) {
        Err(InvalidSshUrl::NotSsh) => Ok(None),
        url => url.map(Some),
    }
}

/// Which key a host reached over SSH must have, by its fingerprints, and with which the device asks it; for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeysInUse {
    /// The device's key; absent where an agent has it, or it can't be read.
    pub key: Option<String>,
    /// The keys that the host may have; none where `knownHosts` of `device.yaml` says it.
    pub host_keys: Vec<String>,
}

impl KeysInUse {
    /// By what is on the disk now.
    pub fn of(settings: &HostSettings, join: &Join) -> Self {
        let ssh = &settings.ssh;
        let joined = join.host_keys.iter().filter(|_| !ssh.names_host_key()).map(fingerprint);
        let key = public_key(&ssh.identity).ok().flatten();
        Self { key: key.as_ref().map(fingerprint), host_keys: ssh.fingerprint.iter().cloned().chain(joined).collect() }
    }
}

/// The public half of the key with which the host is asked; `None` where an agent has it. The private half says it, also
/// where a passphrase protects that: a `.pub` file beside it could be anybody's.
pub fn public_key(identity: &SshIdentity) -> Result<Option<KeyText>, SshSetupError> {
    let Some(path) = identity.key_file() else { return Ok(None) };
    let bytes = repo_http::read_private(path)?;
    let file = std::str::from_utf8(&bytes).ok().and_then(KeyFile::parse);
    let key = file.and_then(|file| file.public_line());
    key.map(Some).ok_or_else(|| SshSetupError::KeyFile { path: path.to_owned() })
}

/// The line that enrols the key with which the host is asked.
pub fn enrolment_line(
    settings: &HostSettings,
    join: &Join,
    signing: &KeyText,
) -> Result<Option<String>, SshSetupError> {
    let Some(key) = public_key(&settings.ssh.identity)? else { return Ok(None) };
    if key == *signing {
        let path = settings.ssh.identity.key_file().unwrap_or(Path::new("")).to_owned();
        return Err(SshSetupError::SigningKey { path });
    }
    Ok(Some(format!("{key} {} ssh", join.device)))
}

/// The line that enrols the key which shall take the place of the device's own; that is made if it isn't there. One that the
/// site gives stays; `None` where an agent has it.
pub fn next_line(
    home: &Home,
    settings: &HostSettings,
    join: &Join,
    signing: &KeyText,
) -> Result<Option<String>, SshSetupError> {
    if !matches!(settings.ssh.identity, SshIdentity::Own(_)) {
        return enrolment_line(settings, join, signing);
    }
    let path = home.next_ssh_key();
    if !path.exists() {
        SigningKey::generate().save(&path)?;
    }
    let key = public_key(&SshIdentity::Own(path))?;
    Ok(key.map(|key| format!("{key} {} ssh", join.device)))
}

/// The device's repository there. Nothing is asked yet.
#[cfg(feature = "ssh")]
pub(super) fn remote(url: &SshUrl, join: &Join, settings: &HostSettings, home: &Home) -> Result<Remote, SshSetupError> {
    use repo_git::ssh::{Client, HostKeys, Identity, Settings};
    let ssh = &settings.ssh;
    let joined = if ssh.names_host_key() { &[][..] } else { &join.host_keys };
    let host_keys = HostKeys {
        keys: joined.iter().map(ToString::to_string).collect(),
        fingerprints: ssh.fingerprint.iter().cloned().collect(),
        known_hosts: ssh.known_hosts.clone(),
    };
    let own = |path: PathBuf| Identity::KeyFile { path, passphrase: None };
    let identity = match &ssh.identity {
        SshIdentity::Own(path) => own(path.clone()),
        SshIdentity::File { path, passphrase } => {
            Identity::KeyFile { path: path.clone(), passphrase: passphrase.clone() }
        }
        SshIdentity::Agent(socket) => Identity::Agent { socket: socket.clone() },
    };
    // While the device's key changes, the host may know either.
    let others = [home.next_ssh_key(), home.old_ssh_key()].into_iter();
    let others = others.filter(|path| matches!(ssh.identity, SshIdentity::Own(_)) && path.exists()).map(own);
    let identities = std::iter::once(identity).chain(others).collect();
    let settings = Settings { host_keys, identities, timeouts: settings.timeouts, ..Settings::default() };
    Ok(Remote::ssh(url.clone(), Client::new(url, settings)?))
}

/// This program has no SSH.
#[cfg(not(feature = "ssh"))]
pub(super) fn remote(url: &SshUrl, _: &Join, _: &HostSettings, _: &Home) -> Result<Remote, SshSetupError> {
    Err(SshSetupError::NotBuilt { url: url.clone() })
}
