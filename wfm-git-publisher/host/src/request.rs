//! A request that was let in.

use axum::body::Body;
use axum::http::HeaderMap;
use tokio::sync::watch;

use crate::accounting::Room;
use crate::accounts::Identity;
use crate::answer::Refusal;
use crate::shared::Host;

/// A request that was let in.
pub(crate) struct Asked<'a> {
    pub(crate) who: &'a Identity,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Body,
    /// Its part of the limits; given back when the request ends.
    pub(crate) room: Room,
    /// Changes whenever an account was added, changed or ended.
    pub(crate) accounts: watch::Receiver<u64>,
}

/// Ends when the account is no longer good.
pub(crate) async fn gone(host: &Host, who: &Identity, mut accounts: watch::Receiver<u64>) -> Refusal {
    while accounts.changed().await.is_ok() {
        if let Err(denied) = host.accounts.check(who) {
            return denied.into();
        }
    }
    Refusal::Stopping
}
