//! Connections are let in within limits, whatever they speak.

use std::net::SocketAddr;
use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::OwnedSemaphorePermit;

use crate::accounting::{Counted, Network, Peer};
use crate::shared::Host;

/// A connection that was let in, counted until dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) peer: Arc<Peer>,
    _place: OwnedSemaphorePermit,
    _address: Counted<Network>,
    open: Gauge,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl Host {
    /// Lets a connection in, unless there are too many.
    pub(crate) fn admit(&self, address: SocketAddr) -> Option<Admitted> {
        let (limits, accounting, network) = (&self.limits, &self.accounting, address.ip().into());
        let place = Arc::clone(&self.connections).try_acquire_owned().ok();
        let counted = accounting.addresses.take(&network, limits.connections_per_address);
        let stranger = accounting.strangers.take(&network, limits.strangers_per_address);
        let (Some(place), Some(counted), Some(stranger)) = (place, counted, stranger) else {
            self.metrics.refused_connections.inc();
            return None;
        };
        let open = self.metrics.connections.clone();
        open.inc();
        let peer = Arc::new(Peer::new(address, stranger));
        Some(Admitted { peer, _place: place, _address: counted, open })
    }
}
