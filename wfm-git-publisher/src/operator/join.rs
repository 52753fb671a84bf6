//! The join file: everything that a new device needs, and what it pins.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use repo_model::envelope::LAYOUT;
use repo_model::join::{Join, JoinFloor, JoinTrust};
use repo_model::roster::{roster_path, signature_path};
use repo_model::{DeviceId, json};

use crate::host::{
    Control, ControlError, DeviceRepo, DeviceRepoError, EntryState, Home, HomeError, Ledger, Rosters, Tip,
};

/// A join file can't be written.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The memory can't be read.
    #[error("cannot use the publisher's memory")]
    Control(#[from] ControlError),
    /// The device's repository can't be made or believed.
    #[error("cannot make the repository of the device")]
    Repo(#[from] DeviceRepoError),
    /// The roster isn't text.
    #[error("the roster or its signature isn't text")]
    Roster,
    /// Where the repository is can't be told.
    #[error("cannot resolve `{}`", path.display())]
    Path {
        /// The repository.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The path of the repository isn't text.
    #[error("`{}` is not UTF-8", .0.display())]
    NotText(PathBuf),
    /// The file can't be written.
    #[error("cannot write the join file")]
    Write(#[from] HomeError),
}

/// Makes the device's repository and writes its join file, to the home's folder or to `out`.
pub fn write_join(home: &Home, device: &DeviceId, out: Option<PathBuf>) -> Result<PathBuf, JoinError> {
    let (ledger, rosters) = Control::read(home)?;
    let repo = DeviceRepo::create(home, rosters.fleet(), device)?;
    let tip = repo.desired(&rosters.publishers)?;
    let path = home.device(device);
    let absolute = fs::canonicalize(&path).map_err(|source| JoinError::Path { path, source })?;
    let url = absolute.to_str().ok_or_else(|| JoinError::NotText(absolute.clone()))?.to_owned();
    let join = Join {
        layout: LAYOUT,
        fleet: rosters.fleet(),
        device: device.clone(),
        url,
        ca: None,
        account: None,
        trust: trust(&rosters)?,
        floor: floor(&ledger, device, tip.as_ref()),
    };
    let path = out.unwrap_or_else(|| home.join(device));
    home.write(&path, &json::to_bytes(&join), 0o600)?;
    Ok(path)
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
