//! Who a request is from, and why it is from nobody.

use repo_model::{DeviceId, Digest, KeyText};

use super::file::{Account, AccountName, Role};

/// Who a request is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub name: AccountName,
    pub role: Role,
    /// Its device, exactly for [`Role::Device`].
    pub device: Option<DeviceId>,
    /// The devices of its site, exactly for [`Role::Site`].
    pub devices: Vec<DeviceId>,
    /// The paths of the fleet repository that it may change, of an operator; all if there are none.
    pub paths: Vec<String>,
    pub(super) proof: Proof,
}

/// By what an account was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Proof {
    /// The digest of the secret that was shown.
    Secret(Digest),
    /// The digest of its certificate's key, with which the client signed the handshake.
    Certificate(Digest),
    /// One of its SSH keys, with which the client signed before sshd.
    SshKey(KeyText),
}

/// Why a request is from nobody. The difference is for the log: every one of them is
/// answered alike, but for a device that is retired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("there are no credentials")]
    Missing,
    /// What was shown is neither `Basic` nor `Bearer`.
    #[error("the credentials can't be read")]
    Unreadable,
    /// No valid account has this secret.
    #[error("nobody has this secret")]
    Unknown,
    /// No valid account has a certificate with a key of this digest.
    #[error("no account has a certificate with the key {0}")]
    UnknownCertificate(Digest),
    /// No valid account has this SSH key.
    #[error("no account has the SSH key {0}")]
    UnknownKey(String),
    /// The secret ended at its `expires`.
    #[error("the secret of account `{0}` has expired")]
    Expired(AccountName),
    #[error("the account `{0}` is revoked")]
    Revoked(AccountName),
    /// Its device is retired, which it is told.
    #[error("the device of account `{0}` is retired")]
    Retired(AccountName),
}

impl Identity {
    pub(super) fn new(account: &Account, proof: Proof) -> Self {
        let (device, devices, paths) = (account.device.clone(), account.devices.clone(), account.paths.clone());
        Self { name: account.name.clone(), role: account.role, device, devices, paths, proof }
    }

    /// The secret that was shown; none if it came with a certificate or over SSH.
    pub(super) fn secret(&self) -> Option<&Digest> {
        match &self.proof {
            Proof::Secret(secret) => Some(secret),
            Proof::Certificate(_) | Proof::SshKey(_) => None,
        }
    }
}
