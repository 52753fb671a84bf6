//! The join file: everything that a new device needs, and what it pins.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use repo_model::envelope::LAYOUT;
use repo_model::join::{Account, Credentials, Join, JoinFloor, JoinTrust};
use repo_model::{DeviceId, InvalidSshUrl, KeyText, SshUrl, json};
use wfm_git_host::Settings;
use wfm_git_host::accounts::{AccountError, Store};
use wfm_git_host::ca::{self, CaError};
use wfm_git_host::ssh::host_keys::{self, HostKeyError};
use wfm_git_host::user::UserError;

use crate::repos::{
    Control, ControlError, DeviceRepo, DeviceRepoError, EntryState, Home, HomeError, Ledger, Remotes, RemotesError,
    Rosters, Tip,
};

/// A join file can't be written.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("cannot use the publisher's ledger")]
    Control(#[from] ControlError),
    /// The device's repository can't be made or believed.
    #[error("cannot make the repository of the device")]
    Repo(#[from] DeviceRepoError),
    /// The roster isn't text.
    #[error("the roster or its signature isn't text")]
    Roster,
    /// Where the repository is can't be known.
    #[error("cannot resolve `{}`", path.display())]
    Path {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The path of the repository isn't text.
    #[error("`{}` is not UTF-8", .0.display())]
    NotText(PathBuf),
    #[error("cannot make the account")]
    Account(#[from] AccountError),
    /// What the device shall trust can't be known.
    #[error("cannot tell which certificates the device shall trust")]
    Ca(#[from] CaError),
    /// There is no SSH here.
    #[error("this host isn't reached over SSH")]
    NoSsh,
    /// As whom clients come over SSH can't be known.
    #[error("cannot tell where devices find this host over SSH")]
    SshUser(#[from] UserError),
    /// The host's own SSH keys can't be read or made.
    #[error("cannot tell which SSH keys the host has")]
    HostKeys(#[from] HostKeyError),
    /// No device takes such an address.
    #[error("devices can't be sent to `{url}`")]
    Url {
        url: String,
        #[source]
        source: InvalidSshUrl,
    },
    /// A device would have to believe whichever key it sees first.
    #[error("nothing says which SSH keys the host has, and no device learns them from the host itself")]
    NoHostKeys,
    /// The settings of the host that devices talk to can't be used.
    #[error("cannot use the remote host of the publisher's settings")]
    Remotes(#[from] RemotesError),
    #[error("cannot write the join file")]
    Write(#[from] HomeError),
}

/// How a device reaches its repository.
#[derive(Debug, Clone, Copy)]
pub enum Reach<'a> {
    /// By its path: the device is on this machine.
    Path,
    /// At a host that isn't this one; its administrator makes the account.
    Elsewhere(&'a Remotes),
    /// At this host, with an account of its own.
    Host { serve: &'a Settings, over: Over },
}

/// How a device talks with this host.
#[derive(Debug, Clone, Copy)]
pub enum Over {
    /// With the name and the secret of an account.
    Https {
        /// How long the secret lives; `None` for ever.
        ttl: Option<Duration>,
        /// Whether a secret that is in use ends now, and not when the new one was used.
        at_once: bool,
    },
    /// Over HTTPS with a certificate of the device's own, whose key its enrolment brings.
    Certificate,
    /// With a key of the device's own, which its enrolment brings.
    Ssh,
}

/// What a join file says of the host.
struct Host {
    url: String,
    ca: Option<String>,
    keys: Vec<KeyText>,
    account: Option<Account>,
    credentials: Option<Credentials>,
}

/// Makes the device's repository and writes its join file, to the home's folder or to `out`. Over HTTPS the file has a
/// new secret each time: one that got lost is valid no more. With a certificate and over SSH it has none.
pub fn write_join(
    home: &Home,
    device: &DeviceId,
    reach: Reach<'_>,
    out: Option<PathBuf>,
) -> Result<PathBuf, JoinError> {
    let (ledger, rosters) = Control::read(home)?;
    let repo = DeviceRepo::create(home, rosters.fleet(), device)?;
    let tip = repo.desired(&rosters.publishers)?;
    let Host { url, ca, keys, account, credentials } = host(home, device, reach)?;
    match SshUrl::parse(&url) {
        Err(InvalidSshUrl::NotSsh) => {}
        Err(source) => return Err(JoinError::Url { url, source }),
        Ok(_) if keys.is_empty() => return Err(JoinError::NoHostKeys),
        Ok(_) => {}
    }
    let join = Join {
        layout: LAYOUT,
        fleet: rosters.fleet(),
        device: device.clone(),
        url,
        ca,
        host_keys: keys,
        account,
        credentials,
        issued: Some(Timestamp::now()),
        trust: trust(&rosters)?,
        floor: floor(&ledger, device, tip.as_ref()),
    };
    let path = out.unwrap_or_else(|| home.join(device));
    home.write(&path, &json::to_bytes(&join), 0o600)?;
    Ok(path)
}

fn host(home: &Home, device: &DeviceId, reach: Reach<'_>) -> Result<Host, JoinError> {
    let at = |url| Host { url, ca: None, keys: Vec::new(), account: None, credentials: None };
    match reach {
        Reach::Path => Ok(at(local(home, device)?)),
        Reach::Elsewhere(remotes) => {
            let keys = remotes.host_keys().to_vec();
            Ok(Host { ca: remotes.authorities()?, keys, ..at(remotes.device_url(device)) })
        }
        Reach::Host { serve, over: Over::Https { ttl, at_once } } => {
            let ca = ca::trusted(&home.ca(), serve)?;
            let issued = Store::new(home.accounts()).issue_for_device(device, ttl, at_once, Timestamp::now())?;
            let account = Account { user: issued.name.into(), secret: issued.secret.reveal().to_owned() };
            Ok(Host { ca, account: Some(account), ..at(serve.device_url(device)) })
        }
        Reach::Host { serve, over: Over::Certificate } => {
            let ca = ca::trusted(&home.ca(), serve)?;
            Store::new(home.accounts()).ensure_for_device(device)?;
            Ok(Host { ca, credentials: Some(Credentials::Certificate), ..at(serve.device_url(device)) })
        }
        Reach::Host { serve, over: Over::Ssh } => {
            let url = serve.ssh_device_url(device)?.ok_or(JoinError::NoSsh)?;
            // Where another sshd is in front, only its operator knows its keys.
            if serve.ssh.as_ref().is_some_and(|ssh| ssh.listen.is_some()) {
                host_keys::ensure(&home.ssh())?;
            }
            let keys = if home.ssh().is_dir() { host_keys::public(&home.ssh())? } else { Vec::new() };
            Store::new(home.accounts()).ensure_for_device(device)?;
            Ok(Host { keys, ..at(url) })
        }
    }
}

/// The repository's place on this machine.
fn local(home: &Home, device: &DeviceId) -> Result<String, JoinError> {
    let path = home.device(device);
    let absolute = fs::canonicalize(&path).map_err(|source| JoinError::Path { path, source })?;
    absolute.to_str().map(str::to_owned).ok_or_else(|| JoinError::NotText(absolute.clone()))
}

/// The newest roster, which the device pins.
pub(super) fn trust(rosters: &Rosters) -> Result<JoinTrust, JoinError> {
    let version = rosters.newest.roster.version;
    let (roster, signatures) = rosters.text(version).ok_or(JoinError::Roster)?;
    Ok(JoinTrust { version, sha256: rosters.newest.digest, roster, signatures })
}

/// The highest that went out, so that a fresh device sees a replay too.
pub(super) fn floor(ledger: &Ledger, device: &DeviceId, tip: Option<&Tip>) -> JoinFloor {
    let tip = tip.map_or((0, 0), |tip| (tip.desired.envelope.serial, tip.desired.envelope.manifest_version));
    let entry = ledger.entry(device);
    let published = entry.filter(|entry| entry.state == EntryState::Published);
    let (serial, manifest_version) = published.map_or((0, 0), |entry| (entry.serial, entry.manifest_version));
    JoinFloor { serial: serial.max(tip.0), manifest_version: manifest_version.max(tip.1) }
}
