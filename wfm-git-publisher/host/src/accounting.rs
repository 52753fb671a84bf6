//! Who uses how much at the same time: connections and requests, by network and by account.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use repo_model::Digest;
use tokio::sync::OwnedSemaphorePermit;

use crate::accounts::Identity;
use crate::answer::Refusal;
use crate::lock::lock;

/// Each is counted for as long as what it counts lasts.
#[derive(Debug, Default)]
pub(crate) struct Accounting {
    /// Open connections by the network that they come from.
    pub(crate) addresses: Arc<Counts<Network>>,
    /// Connections of each network that are nobody's yet.
    pub(crate) strangers: Arc<Counts<Network>>,
    /// Open connections by the account that they showed last.
    connected: Arc<Counts<String>>,
    /// Requests of each account, but for those that wait for a change.
    pub(crate) requests: Arc<Counts<String>>,
    /// Requests of each account that wait for a change, apart: a device that lost power again and again has left some behind, and may poll all the same.
    pub(crate) waits: Arc<Counts<String>>,
}

/// What one subscriber has of addresses: an IPv4 address, or the 64 bits of an IPv6 address that name a network, in which
/// everyone may take 2^64 addresses (RFC 4291, *Interface Identifiers*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Ipv6Addr::from(network).into()
            }
            address => address,
        })
    }
}

/// What a request takes up until it is done: the making of its answer, and a push, may outlast its connection.
#[derive(Debug)]
pub(crate) struct Room {
    _account: Counted<String>,
    _place: OwnedSemaphorePermit,
}

impl Room {
    pub(crate) fn new(account: Counted<String>, place: OwnedSemaphorePermit) -> Self {
        Self { _account: account, _place: place }
    }
}

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    place: Mutex<Place>,
    waits: AtomicBool,
    /// The digest of the key with which it came, over HTTPS.
    certificate: OnceLock<Digest>,
}

/// As whom a connection is counted.
#[derive(Debug)]
enum Place {
    Unlisted,
    Stranger(#[allow(dead_code, reason = "held")] Counted<Network>),
    Account(Counted<String>),
}

impl Peer {
    /// Someone of whom only the address is known.
    pub(crate) fn new(address: SocketAddr, stranger: Counted<Network>) -> Self {
        Self::at(address, Place::Stranger(stranger))
    }

    /// Someone who is sent away, and counted nowhere.
    pub(crate) fn unlisted(address: SocketAddr) -> Self {
        Self::at(address, Place::Unlisted)
    }

    fn at(address: SocketAddr, place: Place) -> Self {
        Self { address, place: Mutex::new(place), waits: AtomicBool::new(false), certificate: OnceLock::new() }
    }

    /// Notes the digest of the key that it proved to have, with a certificate, when it came.
    pub(crate) fn shows(&self, certificate: Digest) {
        let _ = self.certificate.set(certificate);
    }

    /// The digest of the key that it proved to have; `None` if it showed no certificate.
    pub(crate) fn certificate(&self) -> Option<&Digest> {
        self.certificate.get()
    }

    /// Notes whether its request is only waiting from now on.
    pub(crate) fn set_waiting(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// Whether its request is only waiting.
    pub(crate) fn only_waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Whether it showed an account.
    pub(crate) fn is_known(&self) -> bool {
        matches!(*lock(&self.place), Place::Account(_))
    }

    /// Counts the connection as this account's from now on; refused beyond `limit` connections of the account.
    pub(crate) fn count_as(&self, who: &Identity, accounting: &Accounting, limit: usize) -> Result<(), Refusal> {
        let mut place = lock(&self.place);
        match &*place {
            Place::Account(counted) if counted.key == who.name.as_str() => {}
            _ => *place = Place::Account(accounting.connected.take_for(who, limit)?),
        }
        Ok(())
    }
}

/// How many of something there are now, for each key that has any.
#[derive(Debug)]
pub(crate) struct Counts<K>(Mutex<HashMap<K, usize>>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// One that is counted, until dropped.
#[derive(Debug)]
pub(crate) struct Counted<K: Hash + Eq> {
    counts: Arc<Counts<K>>,
    key: K,
}

impl Counts<String> {
    /// Counts one more of this account.
    pub(crate) fn take_for(self: &Arc<Self>, who: &Identity, limit: usize) -> Result<Counted<String>, Refusal> {
        self.take(&who.name.to_string(), limit).ok_or(Refusal::TooMany)
    }
}

impl<K: Hash + Eq + Clone> Counts<K> {
    /// Counts one more, unless there are as many as there may be.
    pub(crate) fn take(self: &Arc<Self>, key: &K, limit: usize) -> Option<Counted<K>> {
        let mut counts = lock(&self.0);
        let count = counts.get(key).copied().unwrap_or(0);
        if count >= limit {
            return None;
        }
        counts.insert(key.clone(), count + 1);
        Some(Counted { counts: Arc::clone(self), key: key.clone() })
    }
}

impl<K: Hash + Eq> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts.0);
        match counts.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = counts.remove(&self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_one_ipv6_network_is_one_stranger_and_ipv4_addresses_are_many() {
        let network = |text: &str| Network::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff:ffff:ffff:ffff"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("::ffff:192.0.2.1"), network("::ffff:192.0.2.2"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }

    #[test]
    fn as_many_as_allowed_come_in_and_those_who_leave_make_room() {
        let counts: Arc<Counts<u8>> = Arc::default();
        let first = counts.take(&1, 2).unwrap();
        let _second = counts.take(&1, 2).unwrap();
        assert!(counts.take(&1, 2).is_none());
        assert!(counts.take(&2, 2).is_some());
        drop(first);
        assert!(counts.take(&1, 2).is_some());
        assert_eq!(lock(&counts.0).len(), 1);
    }
}
