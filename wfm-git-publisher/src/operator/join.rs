//! The join file: everything that a new device needs, and what it pins.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use repo_model::envelope::LAYOUT;
use repo_model::join::{Account, Join, JoinFloor, JoinTrust};
use repo_model::roster::{roster_path, signature_path};
use repo_model::{DeviceId, json};
use wfm_git_host::Settings;
use wfm_git_host::accounts::{AccountError, Store};
use wfm_git_host::ca::{self, CaError};

use crate::repos::{
    Control, ControlError, DeviceRepo, DeviceRepoError, EntryState, Home, HomeError, Ledger, Remotes, RemotesError,
    Rosters, Tip,
};

/// A join file can't be written.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The ledger can't be read.
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
        /// The repository.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The path of the repository isn't text.
    #[error("`{}` is not UTF-8", .0.display())]
    NotText(PathBuf),
    /// The account can't be made.
    #[error("cannot make the account")]
    Account(#[from] AccountError),
    /// What the device shall trust can't be known.
    #[error("cannot tell which certificates the device shall trust")]
    Ca(#[from] CaError),
    /// The settings of the host that devices talk to can't be used.
    #[error("cannot use the remote host of the publisher's settings")]
    Remotes(#[from] RemotesError),
    /// The file can't be written.
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
    /// Over HTTPS, with an account of its own.
    Host {
        /// The host.
        serve: &'a Settings,
        /// How long the account's secret lives; `None` for ever.
        ttl: Option<Duration>,
        /// Whether a secret that is in use ends now, and not when the new one was used.
        at_once: bool,
    },
}

/// Makes the device's repository and writes its join file, to the home's folder or to `out`. Over HTTPS the file has a
/// new secret each time: one that got lost is valid no more.
pub fn write_join(
    home: &Home,
    device: &DeviceId,
    reach: Reach<'_>,
    out: Option<PathBuf>,
) -> Result<PathBuf, JoinError> {
    let (ledger, rosters) = Control::read(home)?;
    let repo = DeviceRepo::create(home, rosters.fleet(), device)?;
    let tip = repo.desired(&rosters.publishers)?;
    let (url, ca, account) = match reach {
        Reach::Path => (local(home, device)?, None, None),
        Reach::Elsewhere(remotes) => (remotes.url(device), remotes.authorities()?, None),
        Reach::Host { serve, ttl, at_once } => {
            let ca = ca::trusted(&home.ca(), serve)?;
            let issued = Store::new(home.accounts()).issue_for_device(device, ttl, at_once, Timestamp::now())?;
            let account = Account { user: issued.name.into(), secret: issued.secret.reveal().to_owned() };
            (serve.device_url(device), ca, Some(account))
        }
    };
    let join = Join {
        layout: LAYOUT,
        fleet: rosters.fleet(),
        device: device.clone(),
        url,
        ca,
        host_keys: Vec::new(),
        account,
        issued: Some(Timestamp::now()),
        trust: trust(&rosters)?,
        floor: floor(&ledger, device, tip.as_ref()),
    };
    let path = out.unwrap_or_else(|| home.join(device));
    home.write(&path, &json::to_bytes(&join), 0o600)?;
    Ok(path)
}

/// The repository's place on this machine.
fn local(home: &Home, device: &DeviceId) -> Result<String, JoinError> {
    let path = home.device(device);
    let absolute = fs::canonicalize(&path).map_err(|source| JoinError::Path { path, source })?;
    absolute.to_str().map(str::to_owned).ok_or_else(|| JoinError::NotText(absolute.clone()))
}

/// The newest roster, which the device pins.
fn trust(rosters: &Rosters) -> Result<JoinTrust, JoinError> {
    let version = rosters.newest.roster.version;
    let text = |path: &str| rosters.files.get(path).and_then(|bytes| String::from_utf8(bytes.clone()).ok());
    let roster = text(&roster_path(version)).ok_or(JoinError::Roster)?;
    let signatures: BTreeMap<u32, String> =
        (0u32..64).filter_map(|index| Some((index, text(&signature_path(version, index as usize))?))).collect();
    Ok(JoinTrust { version, sha256: rosters.newest.digest, roster, signatures })
}

/// The highest that went out, so that a fresh device sees a replay too.
fn floor(ledger: &Ledger, device: &DeviceId, tip: Option<&Tip>) -> JoinFloor {
    let tip = tip.map_or((0, 0), |tip| (tip.desired.envelope.serial, tip.desired.envelope.manifest_version));
    let entry = ledger.entry(device);
    let published = entry.filter(|entry| entry.state == EntryState::Published);
    let (serial, manifest_version) = published.map_or((0, 0), |entry| (entry.serial, entry.manifest_version));
    JoinFloor { serial: serial.max(tip.0), manifest_version: manifest_version.max(tip.1) }
}
