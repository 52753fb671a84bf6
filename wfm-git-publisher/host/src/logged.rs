//! The access log: a line for each request, whatever it came by, and the same for the metrics.

use std::time::Instant;

use axum::http::{Method, StatusCode};

use crate::accounting::Peer;
use crate::shared::Host;

/// How a request came: `transport` in the access log.
#[derive(Debug)]
pub(crate) enum Transport {
    Https(Method),
    Ssh,
}

/// What a request turned out to be, for log and metrics.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) action: &'static str,
    pub(crate) account: Option<String>,
    pub(crate) repository: Option<String>,
    transport: Transport,
    start: Instant,
    /// Bytes of the request, as far as they are known.
    received: u64,
}

impl Logged {
    /// Of a request of which nothing else is known as yet.
    pub(crate) fn new(start: Instant, received: u64, transport: Transport) -> Self {
        Self { action: "other", account: None, repository: None, transport, start, received }
    }

    /// Writes its line, and counts it.
    pub(crate) fn write(self, host: &Host, peer: &Peer, status: StatusCode, sent: u64) {
        let took = self.start.elapsed();
        host.metrics.answered(self.action, status.as_u16(), took);
        let (transport, method) = match &self.transport {
            Transport::Https(method) => ("https", Some(method.as_str())),
            Transport::Ssh => ("ssh", None),
        };
        tracing::info!(
            target: "access",
            transport,
            address = %peer.address.ip(),
            account = self.account,
            repository = self.repository,
            method,
            action = self.action,
            status = status.as_u16(),
            received = self.received,
            sent,
            ms = took.as_millis(),
        );
    }
}
