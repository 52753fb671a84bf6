//! What the host counts, in the text format of Prometheus.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::publisher::FleetFigures;

/// What a request was and how it ended. Never who asked: there may be very many.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    action: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    code: &'static str,
}

/// What `/metrics` shows.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Family<Action, Histogram, fn() -> Histogram>,
    traffic: Traffic,
    pub(crate) connections: Gauge,
    /// Connections that were closed at once, for a limit.
    pub(crate) refused_connections: Counter,
    /// Pushes of which a ref was refused.
    pub(crate) refused_pushes: Counter,
    waiting: Gauge,
    devices: Family<State, Gauge>,
    deployments: Family<State, Gauge>,
    lag: Gauge,
    blocked: Family<Why, Gauge>,
    blocked_for: Gauge,
    rollouts: Family<State, Gauge>,
    rollout_devices: Family<State, Gauge>,
    certificate: Gauge,
}

/// Bytes that passed, heads of requests and answers included, without TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: Counter,
    pub(crate) received: Counter,
}

/// One that waits, until dropped.
pub(crate) struct Waiting(Gauge);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// From a poll without news to a large fetch.
fn latencies() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0])
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("wfm");
        let (requests, traffic) = (Family::default(), Traffic::default());
        let seconds = Family::new_with_constructor(latencies as fn() -> Histogram);
        let (connections, waiting) = (Gauge::default(), Gauge::default());
        let (refused_connections, refused_pushes) = (Counter::default(), Counter::default());
        registry.register("requests", "Requests answered", requests.clone());
        let help = "Time until an answer began; those that wait for a change are left out";
        registry.register_with_unit("request", help, Unit::Seconds, seconds.clone());
        registry.register_with_unit("sent", "Answers, without TLS", Unit::Bytes, traffic.sent.clone());
        registry.register_with_unit("received", "Requests, without TLS", Unit::Bytes, traffic.received.clone());
        registry.register("connections", "Open connections", connections.clone());
        registry.register("waiting", "Requests that wait for a change", waiting.clone());
        registry.register("refused_connections", "Connections closed for a limit", refused_connections.clone());
        registry.register("refused_pushes", "Pushes refused", refused_pushes.clone());
        let (devices, deployments, lag) = (Family::default(), Family::default(), Gauge::default());
        registry.register("devices", "Devices by how they stand to what was published", devices.clone());
        let help = "Deployments on devices in service, by the state that these said last";
        registry.register("deployments", help, deployments.clone());
        let help = "Since the oldest publish that a device doesn't have that is heard of";
        registry.register_with_unit("publish_lag", help, Unit::Seconds, lag.clone());
        let (blocked, blocked_for) = (Family::default(), Gauge::default());
        let help = "Deployments of devices, or devices, that can't be published, by why";
        registry.register("blocked", help, blocked.clone());
        let help = "Since the first of these could not be published";
        registry.register_with_unit("blocked", help, Unit::Seconds, blocked_for.clone());
        let (rollouts, rollout_devices) = (Family::default(), Family::default());
        registry.register("rollouts", "Rollouts that didn't end, by their state", rollouts.clone());
        let help = "Devices of these, by whether they were released";
        registry.register("rollout_devices", help, rollout_devices.clone());
        let certificate = Gauge::default();
        let help = "Until the certificate that the host shows ends";
        registry.register_with_unit("certificate_expires", help, Unit::Seconds, certificate.clone());
        Self {
            registry,
            requests,
            seconds,
            traffic,
            connections,
            refused_connections,
            refused_pushes,
            waiting,
            devices,
            deployments,
            lag,
            blocked,
            blocked_for,
            rollouts,
            rollout_devices,
            certificate,
        }
    }

    /// Where a connection counts what passes.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// Counts one more that waits.
    pub(crate) fn waiting(&self) -> Waiting {
        self.waiting.inc();
        Waiting(self.waiting.clone())
    }

    /// Counts an answer, and how long it took.
    pub(crate) fn answered(&self, action: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&Answered { action, status }).inc();
        if action != "wait" {
            self.seconds.get_or_create(&Action { action }).observe(took.as_secs_f64());
        }
    }

    /// Takes over how the fleet does.
    pub(crate) fn set_figures(&self, figures: &FleetFigures) {
        for (state, count) in &figures.devices {
            self.devices.get_or_create(&State { state }).set(*count);
        }
        for (state, count) in &figures.deployments {
            self.deployments.get_or_create(&State { state }).set(*count);
        }
        self.lag.set(figures.publish_lag);
        for (code, count) in &figures.blocked {
            self.blocked.get_or_create(&Why { code }).set(*count);
        }
        self.blocked_for.set(figures.blocked_for);
        for (state, count) in &figures.rollouts {
            self.rollouts.get_or_create(&State { state }).set(*count);
        }
        for (state, count) in &figures.rollout_devices {
            self.rollout_devices.get_or_create(&State { state }).set(*count);
        }
    }

    /// Notes how many seconds the host's certificate has left; below 0 it has ended.
    pub(crate) fn certificate_expires(&self, seconds: i64) {
        self.certificate.set(seconds);
    }

    /// The text of `/metrics`, in the OpenMetrics format.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
