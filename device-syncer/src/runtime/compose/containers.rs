//! The containers that docker has: listing, inspecting, and saying how they are.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::docker::DOCKER;
use super::labels;
use crate::runtime::client::Client;
use crate::runtime::{Condition, RuntimeError, ServiceState};

/// A container as `docker inspect` gives it (docker 20.10 to 28).
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Container {
    pub(super) id: String,
    image: String,
    state: State,
    config: Config,
    #[serde(default)]
    host_config: HostConfig,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    status: String,
    #[serde(default)]
    exit_code: i64,
    #[serde(default)]
    started_at: String,
    health: Option<Health>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Health {
    status: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    restart_policy: Option<RestartPolicy>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RestartPolicy {
    name: String,
}

/// Every container with these labels, in two calls.
pub(super) fn with_labels(docker: &Client, filters: &[String]) -> Result<Vec<Container>, RuntimeError> {
    let mut args = vec!["ps", "--all", "--quiet", "--no-trunc", "--filter", "label=com.docker.compose.oneoff=False"];
    filters.iter().for_each(|filter| args.extend(["--filter", filter]));
    let listed = docker.ask_text(&args)?;
    let ids: Vec<&str> = listed.split_whitespace().collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let output = docker.try_ask(&[["inspect", "--type", "container"].as_slice(), &ids].concat())?;
    // One that vanished since is named on standard error; the others are printed all the same.
    if !output.status.success() && !output.stderr.to_lowercase().contains("no such") {
        return Err(docker.failure(&output, |reason| DOCKER.unavailable(reason, None)));
    }
    parse(&output.stdout)
}

fn parse(json: &[u8]) -> Result<Vec<Container>, RuntimeError> {
    serde_json::from_slice(json)
        .map_err(|error| DOCKER.unavailable(format!("what `docker inspect` printed can't be read: {error}"), None))
}

impl Container {
    /// Its labels.
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.config.labels.as_ref()?.get(name).map(String::as_str)
    }

    /// The project it belongs to.
    pub(super) fn project(&self) -> &str {
        self.label(labels::PROJECT).unwrap_or_default()
    }

    /// The service it belongs to.
    pub(super) fn service(&self) -> &str {
        self.label(labels::SERVICE).unwrap_or_default()
    }

    /// Its state as others see it.
    pub(super) fn state(&self) -> ServiceState {
        ServiceState {
            container: self.id.clone(),
            image: self.image.clone(),
            state: self.state.status.clone(),
            health: self.state.health.as_ref().map(|health| health.status.clone()).filter(|status| status != "none"),
            started_at: self.state.started_at.clone(),
            condition: self.condition(),
        }
    }

    fn condition(&self) -> Condition {
        let health = self.state.health.as_ref().map_or("none", |health| health.status.as_str());
        match (self.state.status.as_str(), health) {
            ("running", "none" | "healthy") => Condition::Running,
            ("running", "starting") | ("created", _) => Condition::Starting,
            ("running", health) => Condition::Degraded(health.to_owned()),
            ("exited", _) if self.state.exit_code == 0 && !self.restarts_after_success() => Condition::Running,
            ("exited", _) => Condition::Degraded(format!("exited with {}", self.state.exit_code)),
            (other, _) => Condition::Degraded(other.to_owned()),
        }
    }

    fn restarts_after_success(&self) -> bool {
        let policy = self.host_config.restart_policy.as_ref().map_or("", |policy| &policy.name);
        matches!(policy, "always" | "unless-stopped")
    }
}

/// A service without a container.
pub(super) fn missing() -> ServiceState {
    ServiceState {
        container: String::new(),
        image: String::new(),
        state: "missing".to_owned(),
        health: None,
        started_at: String::new(),
        condition: Condition::Missing,
    }
}

/// A whole project in one word: the worst of its services'.
pub(super) fn overall(services: &BTreeMap<String, ServiceState>) -> Condition {
    let rank = |condition: &Condition| match condition {
        Condition::Missing | Condition::Edited(_) => 3,
        Condition::Degraded(_) => 2,
        Condition::Starting => 1,
        Condition::Running => 0,
    };
    match services.iter().max_by_key(|(_, state)| rank(&state.condition)) {
        None => Condition::Missing,
        Some((name, ServiceState { condition: Condition::Degraded(how), .. })) => {
            Condition::Degraded(format!("service `{name}` is {how}"))
        }
        Some((_, state)) => state.condition.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(status: &str, health: Option<&str>, exit: i64, restart: &str) -> Container {
        let health = health.map(|status| serde_json::json!({"Status": status}));
        let json = serde_json::json!([{
            "Id": "i", "Image": "sha256:x", "Config": {"Labels": null},
            "State": {"Status": status, "ExitCode": exit, "StartedAt": "", "Health": health},
            "HostConfig": {"RestartPolicy": {"Name": restart}},
        }]);
        parse(json.to_string().as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn a_container_is_good_when_it_runs_well_or_ended_well() {
        let degraded = |how: &str| Condition::Degraded(how.to_owned());
        for (given, expected) in [
            (container("running", None, 0, ""), Condition::Running),
            (container("running", Some("none"), 0, ""), Condition::Running),
            (container("running", Some("healthy"), 0, "always"), Condition::Running),
            (container("running", Some("starting"), 0, ""), Condition::Starting),
            (container("running", Some("unhealthy"), 0, ""), degraded("unhealthy")),
            (container("created", None, 0, ""), Condition::Starting),
            (container("exited", None, 0, "no"), Condition::Running),
            (container("exited", None, 0, "on-failure"), Condition::Running),
            (container("exited", None, 0, "always"), degraded("exited with 0")),
            (container("exited", Some("unhealthy"), 137, "no"), degraded("exited with 137")),
            (container("restarting", None, 1, "always"), degraded("restarting")),
            (container("paused", None, 0, ""), degraded("paused")),
            (container("dead", None, 0, ""), degraded("dead")),
        ] {
            assert_eq!(given.state().condition, expected, "{given:?}");
        }
    }

    #[test]
    fn a_project_is_as_its_worst_service() {
        let state = |condition| ServiceState { condition, ..missing() };
        let all = |conditions: &[Condition]| {
            overall(&conditions.iter().enumerate().map(|(n, c)| (n.to_string(), state(c.clone()))).collect())
        };
        let bad = Condition::Degraded("exited with 1".to_owned());
        assert_eq!(all(&[]), Condition::Missing);
        assert_eq!(all(&[Condition::Running, Condition::Running]), Condition::Running);
        assert_eq!(all(&[Condition::Running, Condition::Starting]), Condition::Starting);
        assert_eq!(
            all(&[bad.clone(), Condition::Starting]),
            Condition::Degraded("service `0` is exited with 1".to_owned())
        );
        assert_eq!(all(&[bad, Condition::Missing]), Condition::Missing);
    }

    #[test]
    fn the_engines_own_output_is_understood() {
        let captured = include_bytes!("../../../../fixtures/runtimes/compose/inspect-20.10.json");
        let found = parse(captured).unwrap();
        assert_eq!(found[0].service(), "web");
        assert_eq!(found[0].state().health.as_deref(), Some("healthy"));
        assert_eq!(found[0].state().condition, Condition::Running);
        assert!(found[0].state().image.starts_with("sha256:"));
    }
}
