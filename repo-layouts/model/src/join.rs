//! The join file: everything a new device needs, and what it pins.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::roster::{DEVICE, Roster, Trust, roster_path};
use crate::{DeviceId, Digest, FleetId, KeyText, error_chain};

/// What `wfm-git-publisher device add` writes and `device-syncer init --join` reads.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Join {
    pub layout: u64,
    pub fleet: FleetId,
    pub device: DeviceId,
    /// Where the device's repository is: a path or URL.
    pub url: String,
    /// PEM of the CA that the host's certificate must chain to; absent for a local path or a public CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Public keys of the host, one of which it must show, as `<algorithm> <base64>`; over SSH only. Where there are none,
    /// the device's own settings say which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<KeyText>,
    /// The account on the host; absent for a local path, and where a key of the device's own says who asks: over SSH, and with
    /// `credentials`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// What the device shows over HTTPS in the place of an account's secret; absent where it shows that, or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// When the file was written: the device's first floor of time, so that one whose clock is at 1970 can still tell
    /// that the host's certificate is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Timestamp>,
    /// The roster version that the device pins.
    pub trust: JoinTrust,
    /// The first floor, so that a fresh device sees a replay too.
    pub floor: JoinFloor,
}

impl Join {
    /// Where the newest roster that is believed names the host otherwise, that counts: its roots say who the host is.
    pub fn follow_roster(&mut self, roster: &Roster) {
        let Some(host) = roster.host.as_ref().filter(|_| roster.version >= self.trust.version) else { return };
        if let Some(url) = &host.url {
            self.url = url.replace(DEVICE, self.device.as_str());
        }
        if host.ca.is_some() {
            self.ca.clone_from(&host.ca);
        }
        if !host.host_keys.is_empty() {
            self.host_keys.clone_from(&host.host_keys);
        }
    }
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join").field("fleet", &self.fleet).field("device", &self.device).finish_non_exhaustive()
    }
}

/// What a device shows over HTTPS in the place of an account's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Credentials {
    /// A TLS certificate with a key of its own.
    Certificate,
}

/// An account on the host. Its secret is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub user: String,
    pub secret: String,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The roster that a device believes at first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTrust {
    pub version: u64,
    /// Digest of its exact bytes.
    pub sha256: Digest,
    /// Its exact bytes, as text.
    pub roster: String,
    /// Its detached signatures by index, for the record: the join file itself is what is trusted.
    #[serde(default)]
    pub signatures: BTreeMap<u32, String>,
}

impl JoinTrust {
    /// Checks that it pins what it holds: a roster of this fleet with this digest and version. The error is for a person.
    pub fn check(&self, fleet: FleetId) -> Result<(), String> {
        let found = Digest::of(self.roster.as_bytes());
        if found != self.sha256 {
            return Err(format!("the roster is {found}, and `trust.sha256` says {}", self.sha256));
        }
        let trust = Trust::pin(&roster_path(self.version), self.roster.as_bytes(), fleet);
        let found = trust.map_err(|error| error_chain(&error))?.roster.version;
        if found != self.version {
            return Err(format!("the roster is version {found}, not {}", self.version));
        }
        Ok(())
    }
}

/// The lowest that the device may ever adopt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinFloor {
    /// The highest serial published so far; 0 if none.
    pub serial: u64,
    /// The highest `manifestVersion` published so far; 0 if none.
    pub manifest_version: u64,
}
