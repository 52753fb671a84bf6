//! Who a request is from, and why it is from nobody.

use repo_model::{DeviceId, Digest};

use super::file::{Account, AccountName, Role};

/// Who a request is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub name: AccountName,
    pub role: Role,
    /// Its device, exactly for [`Role::Device`].
    pub device: Option<DeviceId>,
    /// Which of its secrets was shown.
    pub(super) secret: Digest,
}

/// Why a request is from nobody. The difference is for the log: every one of them is answered alike.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No credentials were shown.
    #[error("there are no credentials")]
    Missing,
    /// What was shown is neither `Basic` nor `Bearer`.
    #[error("the credentials can't be read")]
    Unreadable,
    /// No valid account has this secret.
    #[error("nobody has this secret")]
    Unknown,
    /// The secret ended at its `expires`.
    #[error("the secret of account `{0}` has expired")]
    Expired(AccountName),
    /// The account was ended.
    #[error("the account `{0}` is revoked")]
    Revoked(AccountName),
}

impl Identity {
    pub(super) fn new(account: &Account, secret: Digest) -> Self {
        Self { name: account.name.clone(), role: account.role, device: account.device.clone(), secret }
    }
}
