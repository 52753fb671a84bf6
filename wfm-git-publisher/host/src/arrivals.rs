//! Connections that the host accepted itself, until it is known whose they are.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::accounting::{Accounting, Peer};
use crate::accounts::Identity;
use crate::answer::Refusal;
use crate::lock::lock;
use crate::turns::{Turn, Turns};

/// The connections by where their other ends are.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<HashMap<(IpAddr, u16), Arc<Arrival>>>);

/// One connection, of which an sshd has the stream.
#[derive(Debug)]
pub(crate) struct Arrival {
    peer: Arc<Peer>,
    /// Its place among those that aren't known as yet.
    turn: Mutex<Option<Turn>>,
    /// What is served on it.
    pub(crate) sessions: TaskTracker,
}

/// A connection that is listed until dropped.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    arrivals: &'a Arrivals,
    pub(crate) arrival: Arc<Arrival>,
}

impl Arrivals {
    pub(crate) fn list(&self, peer: Arc<Peer>, turn: Turn) -> Listed<'_> {
        let key = key(peer.address);
        let arrival = Arc::new(Arrival { peer, turn: Mutex::new(Some(turn)), sessions: TaskTracker::new() });
        lock(&self.0).insert(key, Arc::clone(&arrival));
        Listed { arrivals: self, arrival }
    }

    /// Notes whose a connection is, which has one more session until that is dropped; refused if the account has `limit`
    /// connections. A connection that another sshd accepted isn't listed.
    pub(crate) fn belongs_to(
        &self,
        client: SocketAddr,
        who: &Identity,
        (accounting, limit): (&Accounting, usize),
    ) -> Result<Option<TaskTrackerToken>, Refusal> {
        let Some(arrival) = lock(&self.0).get(&key(client)).cloned() else { return Ok(None) };
        arrival.peer.count_as(who, accounting, limit)?;
        lock(&arrival.turn).take();
        Ok(Some(arrival.sessions.token()))
    }
}

impl Arrival {
    /// Notes that it had time enough to log in.
    pub(crate) fn was_long(&self) {
        lock(&self.turn).iter_mut().for_each(Turn::was_long);
    }

    /// Takes a place among those who are silent for the one it has; tells whether there was one.
    pub(crate) async fn counts_as_silent(&self, turns: &Turns) -> bool {
        let Some(place) = turns.patient_now(self.peer.address.ip().into()).await else { return false };
        if let Some(turn) = &mut *lock(&self.turn) {
            *turn = place;
        }
        true
    }

    /// Whether it is known whose it is.
    pub(crate) fn is_known(&self) -> bool {
        lock(&self.turn).is_none()
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let (key, mut all) = (key(self.arrival.peer.address), lock(&self.arrivals.0));
        // Its place may have been taken by a new one from the same port.
        if all.get(&key).is_some_and(|listed| Arc::ptr_eq(listed, &self.arrival)) {
            all.remove(&key);
        }
    }
}

/// As sshd writes addresses: IPv4 as such, whatever it was accepted on.
fn key(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}
