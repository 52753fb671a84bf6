//! Containers on real Docker, as its own command shows them.

use std::process::{Command, Stdio};

use jiff::Timestamp;
use serde_json::Value;

use crate::site::{Docker, Site};

pub(crate) fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).stdin(Stdio::null()).output().expect("docker is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Those that run and have this label.
pub(crate) fn containers(label: &str) -> Vec<Value> {
    let ids = docker(&["ps", "--quiet", "--filter", &format!("label={label}")]);
    let ids: Vec<_> = ids.lines().collect();
    if ids.is_empty() {
        return Vec::new();
    }
    serde_json::from_str(&docker(&[&["inspect"], ids.as_slice()].concat())).unwrap_or_default()
}

/// When one was started, in seconds since 1970; `None` unless it runs.
pub(crate) fn started_at(container: &Value) -> Option<f64> {
    let at: Timestamp = container["State"]["StartedAt"].as_str()?.parse().ok()?;
    (container["State"]["Running"] == true).then(|| at.as_nanosecond() as f64 / 1e9)
}

/// The machine's Docker as `docker.program` of a device's settings, with the engine and configuration of the tests.
pub(crate) fn real(program: &str) -> Docker {
    let [host, config] = ["DOCKER_HOST", "DOCKER_CONFIG"].map(|name| std::env::var(name).unwrap_or_default());
    Docker::Real(format!("{{program: {program}, host: \"{host}\", config: \"{config}\"}}"))
}

/// Containers and networks of one label; they go with this.
pub(crate) struct Label(pub(crate) String);

impl Label {
    /// What a device runs.
    pub(crate) fn of(site: &Site) -> Self {
        Self(format!("device-syncer.fleet={}", site.join.fleet))
    }
}

impl Drop for Label {
    fn drop(&mut self) {
        let filter = format!("label={}", self.0);
        let list = ["ps", "--all", "--filter", &filter, "--format", "{{.Label \"com.docker.compose.project\"}}"];
        for project in docker(&list).lines() {
            docker(&["compose", "-p", project, "down", "--timeout", "1"]);
        }
    }
}
