//! Whose turn it is to have an sshd, of those of whom it isn't known who they are.
//!
//! Both sides send their version at once (RFC 4253, section 4.2), and nearly all clients do: so a connection costs no sshd,
//! and delays nobody who speaks, until its client did. A few clients wait for the server's version, and get an sshd in the
//! end, too, few of them at a time; those who say their version and stop soon count as such. Few log in at a time as well, so
//! that they do it quickly: all devices of a site come at once when its power is back, and each has some seconds.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Duration, timeout};

use crate::accounting::Network;
use crate::limits::Limits;
use crate::lock::lock;
use crate::process::{Gate, Slot};

/// How long a client may take for its first byte until it is taken for one that waits for the server's.
pub(crate) const FIRST: Duration = Duration::from_secs(3);

/// The gates before sshd, at which networks take turns.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Before connections of strangers.
    strangers: Gate,
    /// Before those of them who wait for the server to speak first.
    patient: Gate,
    /// Before those who log in at the same time.
    logins: Gate,
    silent: Silent,
    /// How many silent connections one network may have: half of its room is left to those who speak.
    most_silent: usize,
}

/// The right to have an sshd as a stranger.
#[derive(Debug)]
pub(crate) struct Turn {
    _stranger: Slot,
    login: Option<Slot>,
}

impl Turns {
    pub(crate) fn new(limits: &Limits) -> Self {
        let gate = |(all, of_network)| Gate::new(all, of_network, limits.connections);
        Self {
            strangers: gate(Limits::SSH_STRANGERS),
            patient: gate(Limits::SSH_PATIENT),
            logins: gate(Limits::ssh_logins()),
            silent: Silent::default(),
            most_silent: limits.strangers_per_address / 2,
        }
    }

    /// Waits until a connection may have an sshd; `None` if the client is gone, or too many were before it.
    pub(crate) async fn wait(&self, stream: &TcpStream, network: Network) -> Option<Turn> {
        let (listed, name) = (self.silent.list(network, self.most_silent), network.to_string());
        let speaks = tokio::select! {
            speaks = speaks(stream) => speaks.ok()?,
            () = listed.gives_way.notified() => return None,
        };
        if !speaks {
            return tokio::select! {
                slot = self.patient.enter(&name) => Some(Turn { _stranger: slot.ok()?, login: None }),
                () = listed.gives_way.notified() => None,
            };
        }
        drop(listed);
        let stranger = self.strangers.enter_within(&name, Limits::SSH_TURN).await.ok()?;
        let login = self.logins.enter_within(&name, Limits::SSH_TURN).await.ok()?;
        Some(Turn { _stranger: stranger, login: Some(login) })
    }

    /// A place among those who wait for the server to speak first, if one is free.
    pub(crate) async fn patient_now(&self, network: Network) -> Option<Turn> {
        let place = self.patient.enter_within(&network.to_string(), Duration::ZERO).await.ok()?;
        Some(Turn { _stranger: place, login: None })
    }
}

impl Turn {
    /// Whether its client spoke first.
    pub(crate) fn spoke(&self) -> bool {
        self.login.is_some()
    }

    /// It had time enough to log in: another one may begin.
    pub(crate) fn was_long(&mut self) {
        self.login = None;
    }
}

/// Whether a client speaks first; an error if it is gone.
async fn speaks(stream: &TcpStream) -> io::Result<bool> {
    match timeout(FIRST, stream.peek(&mut [0])).await {
        Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(spoke) => spoke.map(|_| true),
        Err(_) => Ok(false),
    }
}

/// The silent connections of each network, the oldest first.
#[derive(Debug, Default)]
struct Silent(Mutex<HashMap<Network, VecDeque<Arc<Notify>>>>);

/// A connection that is listed as silent until dropped.
#[derive(Debug)]
struct Listed<'a> {
    silent: &'a Silent,
    network: Network,
    gives_way: Arc<Notify>,
}

impl Silent {
    /// Lists one more; if its network has more than `most`, the oldest one gives way.
    fn list(&self, network: Network, most: usize) -> Listed<'_> {
        let gives_way = Arc::new(Notify::new());
        let mut all = lock(&self.0);
        let of_network = all.entry(network).or_default();
        of_network.push_back(Arc::clone(&gives_way));
        if of_network.len() > most
            && let Some(oldest) = of_network.pop_front()
        {
            oldest.notify_one();
        }
        Listed { silent: self, network, gives_way }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.silent.0);
        let Some(of_network) = all.get_mut(&self.network) else { return };
        of_network.retain(|one| !Arc::ptr_eq(one, &self.gives_way));
        if of_network.is_empty() {
            all.remove(&self.network);
        }
    }
}
