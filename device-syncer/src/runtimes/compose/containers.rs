//! The containers of projects: listing, inspecting, and saying how they are.

use std::collections::BTreeMap;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use repo_model::{ComponentName, DeploymentId};
use serde::Deserialize;

use super::engine::{Details, Engine, Listed, Looked};
use super::known::KnownContainers;
use crate::decision::observation::{Condition, ServiceState};
use crate::runtimes::RuntimeError;

/// What stayed up for so long has started well: Docker's own measure for restart policies (*Start containers
/// automatically*).
const STARTED: SignedDuration = SignedDuration::from_secs(10);

/// A container, as far as it is read.
#[derive(Debug, Clone)]
pub(super) struct Container {
    listed: Listed,
    /// What inspecting it gave, or why the engine can't show it.
    state: Looked<State>,
}

/// The part of `docker inspect` under `State`.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Inspected")]
pub(super) struct State {
    image: String,
    status: String,
    exit_code: i64,
    started_at: String,
    health: Option<String>,
    restart: String,
    /// How often docker restarted it since somebody last started it.
    restarts: u64,
}

/// The same as the engine has it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    image: String,
    #[serde(default)]
    restart_count: u64,
    state: InspectedState,
    host_config: HostConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedState {
    status: String,
    exit_code: i64,
    started_at: String,
    health: Option<Health>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Health {
    status: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    restart_policy: RestartPolicy,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RestartPolicy {
    name: String,
}

impl Details for State {
    const TEMPLATE: &str = concat!(
        r#"{"Id":{{json .ID}},"Image":{{json .Image}},"RestartCount":{{json .RestartCount}},"#,
        r#""State":{"Status":{{json .State.Status}},"ExitCode":{{json .State.ExitCode}},"#,
        r#""StartedAt":{{json .State.StartedAt}},"#,
        r#""Health":{"Status":{{with .State.Health}}{{json .Status}}{{else}}null{{end}}}},"#,
        r#""HostConfig":{"RestartPolicy":{"Name":{{json .HostConfig.RestartPolicy.Name}}}}}"#,
    );
}

impl From<Inspected> for State {
    fn from(Inspected { image, restart_count, state, host_config }: Inspected) -> Self {
        Self {
            image,
            status: state.status,
            exit_code: state.exit_code,
            started_at: state.started_at,
            health: state.health.and_then(|health| health.status),
            restart: host_config.restart_policy.name,
            restarts: restart_count,
        }
    }
}

/// Every container with these labels that is part of a project for good.
pub(super) fn with_labels(engine: &Engine, labels: &[String]) -> Result<Vec<Container>, RuntimeError> {
    with_labels_as_known(engine, labels, &mut KnownContainers::default())
}

/// The same; what the list shows to be as it was inspected before isn't inspected again.
pub(super) fn with_labels_as_known(
    engine: &Engine,
    labels: &[String],
    known: &mut KnownContainers<State>,
) -> Result<Vec<Container>, RuntimeError> {
    let asked = Instant::now();
    let listed = engine.list(&[&["com.docker.compose.oneoff=False".to_owned()], labels].concat())?;
    let as_before = known.of(&listed, asked, Instant::now());
    let is_new = |listed: &&Listed| !as_before.contains_key(&listed.id);
    let ids: Vec<&str> = listed.iter().filter(is_new).map(|listed| &*listed.id).collect();
    let mut states = engine.inspect::<State>(&ids)?;
    for one in listed.iter().filter(is_new) {
        if let Some(state) = states.get(&one.id).and_then(|state| state.as_ref().ok()).filter(|state| state.is_of(one))
        {
            known.note(one, state, asked);
        }
    }
    states.extend(as_before.into_iter().map(|(id, state)| (id, Ok(state))));
    let container = |listed: Listed| Some(Container { state: states.remove(&listed.id)?, listed });
    Ok(listed.into_iter().filter_map(container).collect())
}

impl Container {
    pub(super) fn project(&self) -> &str {
        &self.listed.labels().project
    }

    pub(super) fn service(&self) -> &str {
        &self.listed.labels().service
    }

    /// The deployment it belongs to, if its label tells.
    pub(super) fn deployment(&self) -> Option<DeploymentId> {
        self.listed.labels().deployment.parse().ok()
    }

    /// The component that it is of, if its label tells.
    pub(super) fn component(&self) -> Option<ComponentName> {
        self.listed.labels().component.parse().ok()
    }

    /// Its state as others see it.
    pub(super) fn state(&self) -> ServiceState {
        let state = self.state.as_ref();
        let text = |text: fn(&State) -> &String| state.map_or_else(|_| String::new(), |state| text(state).clone());
        ServiceState {
            container: self.listed.id.clone(),
            image: text(|state| &state.image),
            state: state.map_or("unknown", |state| &state.status).to_owned(),
            health: state.ok().and_then(|state| state.health.clone()).filter(|status| status != "none"),
            started_at: text(|state| &state.started_at),
            condition: match state {
                Ok(state) => state.condition(Timestamp::now()),
                Err(reason) => Condition::Unknown(reason.clone()),
            },
        }
    }
}

impl State {
    /// Whether the list says the same: a container may change between the two.
    fn is_of(&self, listed: &Listed) -> bool {
        let health = match self.health.as_deref().filter(|_| self.status == "running") {
            None | Some("none") => return self.status == listed.state && !listed.status.contains("health"),
            Some("starting") => "(health: starting)".to_owned(),
            Some(health) => format!("({health})"),
        };
        self.status == listed.state && listed.status.contains(&health)
    }

    fn condition(&self, now: Timestamp) -> Condition {
        match (self.status.as_str(), self.health.as_deref().unwrap_or("none")) {
            ("running", "none" | "healthy" | "starting") if self.restarts > 0 && self.is_new(now) => {
                Condition::CrashLooping(format!("restarting again and again, {} times so far", self.restarts))
            }
            ("running", "none") if self.is_new(now) => Condition::Starting,
            ("running", "none" | "healthy") => Condition::Running,
            ("running", "starting") => Condition::Starting,
            ("running", health) => Condition::Degraded(health.to_owned()),
            ("restarting", _) => Condition::CrashLooping(format!("restarting after it exited with {}", self.exit_code)),
            ("exited", _) if self.exit_code == 0 && !self.restarts_after_success() => Condition::Running,
            ("exited", _) => Condition::Stopped(format!("exited with {}", self.exit_code)),
            ("created", _) => Condition::Stopped("created, and was never started".to_owned()),
            ("paused", _) => Condition::Stopped("paused".to_owned()),
            (other, _) => Condition::Degraded(other.to_owned()),
        }
    }

    /// Whether it was started less than [`STARTED`] ago. One that a clock which was set back says will start is not new.
    fn is_new(&self, now: Timestamp) -> bool {
        let started = self.started_at.parse::<Timestamp>();
        started.is_ok_and(|started| (SignedDuration::ZERO..STARTED).contains(&now.duration_since(started)))
    }

    fn restarts_after_success(&self) -> bool {
        matches!(self.restart.as_str(), "always" | "unless-stopped")
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

/// A service that ran to its end, and whose container somebody removed since.
pub(super) fn removed_after_its_end() -> ServiceState {
    ServiceState { condition: Condition::Running, ..missing() }
}

/// A whole project in one word: the worst of its services'.
pub(super) fn overall(services: &BTreeMap<String, ServiceState>) -> Condition {
    let rank = |condition: &Condition| match condition {
        Condition::Missing | Condition::Stopped(_) | Condition::Edited(_) => 5,
        Condition::Unknown(_) => 4,
        Condition::CrashLooping(_) => 3,
        Condition::Degraded(_) => 2,
        Condition::Starting => 1,
        Condition::Running => 0,
    };
    match services.iter().max_by_key(|(_, state)| rank(&state.condition)) {
        None => Condition::Missing,
        Some((name, ServiceState { condition: Condition::Degraded(how), .. })) => {
            Condition::Degraded(format!("service `{name}` is {how}"))
        }
        Some((name, ServiceState { condition: Condition::CrashLooping(how), .. })) => {
            Condition::CrashLooping(format!("service `{name}` is {how}"))
        }
        Some((name, ServiceState { condition: Condition::Stopped(how), .. })) => {
            Condition::Stopped(format!("service `{name}` is {how}"))
        }
        Some((name, ServiceState { condition: Condition::Unknown(why), .. })) => {
            Condition::Unknown(format!("service `{name}`: {why}"))
        }
        Some((_, state)) => state.condition.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(status: &str, health: Option<&str>, exit: i64, restart: &str) -> State {
        let health = health.map(|health| serde_json::json!({"Status": health}));
        let json = serde_json::json!({
            "Image": "sha256:x", "HostConfig": {"RestartPolicy": {"Name": restart}},
            "State": {"Status": status, "ExitCode": exit, "Health": health, "StartedAt": "2026-01-01T00:00:00.5Z"},
        });
        serde_json::from_value(json).unwrap()
    }

    fn degraded(how: &str) -> Condition {
        Condition::Degraded(how.to_owned())
    }

    #[test]
    fn a_container_is_good_when_it_runs_well_or_ended_well() {
        let stopped = |how: &str| Condition::Stopped(how.to_owned());
        for (given, expected) in [
            (state("running", None, 0, ""), Condition::Running),
            (state("running", Some("none"), 0, ""), Condition::Running),
            (state("running", Some("healthy"), 0, "always"), Condition::Running),
            (state("running", Some("starting"), 0, ""), Condition::Starting),
            (state("running", Some("unhealthy"), 0, ""), degraded("unhealthy")),
            (state("created", None, 0, ""), stopped("created, and was never started")),
            (state("exited", None, 0, "no"), Condition::Running),
            (state("exited", None, 0, "on-failure"), Condition::Running),
            (state("exited", None, 0, "always"), stopped("exited with 0")),
            (state("exited", None, 143, "unless-stopped"), stopped("exited with 143")),
            (state("exited", None, 3, "on-failure"), stopped("exited with 3")),
            (state("exited", Some("unhealthy"), 137, "no"), stopped("exited with 137")),
            (
                state("restarting", None, 1, "always"),
                Condition::CrashLooping("restarting after it exited with 1".to_owned()),
            ),
            (state("paused", None, 0, ""), stopped("paused")),
            (state("dead", None, 0, ""), degraded("dead")),
        ] {
            assert_eq!(given.condition(Timestamp::now()), expected, "{given:?}");
        }
    }

    #[test]
    fn what_changed_between_being_listed_and_being_inspected_is_not_kept() {
        let listed = |status: &str| {
            let state = if status.contains("Paused") { "paused" } else { "running" };
            serde_json::from_value(serde_json::json!({"Id": "a", "State": state, "Status": status})).unwrap()
        };
        for (status, health, said) in [
            ("running", None, "Up 3 minutes"),
            ("running", Some("none"), "Up 3 minutes"),
            ("running", Some("healthy"), "Up 3 minutes (healthy)"),
            ("running", Some("unhealthy"), "Up 3 minutes (unhealthy)"),
            ("running", Some("starting"), "Up 3 minutes (health: starting)"),
            ("paused", None, "Up 3 minutes (Paused)"),
        ] {
            assert!(state(status, health, 0, "no").is_of(&listed(said)), "{status} {health:?} {said}");
        }
        for (status, health, said) in [
            ("running", Some("unhealthy"), "Up 3 minutes (healthy)"),
            ("running", Some("healthy"), "Up 3 minutes (unhealthy)"),
            ("running", Some("healthy"), "Up 3 minutes"),
            ("running", None, "Up 3 minutes (unhealthy)"),
            ("paused", None, "Up 3 minutes"),
            ("exited", None, "Up 3 minutes"),
        ] {
            assert!(!state(status, health, 0, "no").is_of(&listed(said)), "{status} {health:?} {said}");
        }
    }

    #[test]
    fn what_has_just_started_is_good_when_it_says_so_itself_or_has_stayed_up_for_ten_seconds() {
        let looping = || Condition::CrashLooping("restarting again and again, 3 times so far".to_owned());
        for (health, restarts, after, expected) in [
            (None, 0, 0, Condition::Starting),
            (None, 0, 9, Condition::Starting),
            (None, 0, 10, Condition::Running),
            (Some("healthy"), 0, 1, Condition::Running),
            (Some("starting"), 0, 1, Condition::Starting),
            (None, 3, 0, looping()),
            (None, 3, 9, looping()),
            (None, 3, 10, Condition::Running),
            (Some("healthy"), 3, 9, looping()),
            (Some("starting"), 3, 9, looping()),
            (Some("starting"), 3, 10, Condition::Starting),
            (Some("unhealthy"), 3, 9, degraded("unhealthy")),
            // The clock was set back.
            (None, 0, -3600, Condition::Running),
        ] {
            let given = State { restarts, ..state("running", health, 0, "always") };
            let now: Timestamp = given.started_at.parse().unwrap();
            assert_eq!(
                given.condition(now + SignedDuration::from_secs(after)),
                expected,
                "{health:?} {restarts} {after}"
            );
        }
    }

    #[test]
    fn a_project_is_as_its_worst_service() {
        let state = |condition| ServiceState { condition, ..missing() };
        let all = |conditions: &[Condition]| {
            overall(&conditions.iter().enumerate().map(|(n, c)| (n.to_string(), state(c.clone()))).collect())
        };
        let bad = degraded("unhealthy");
        assert_eq!(all(&[]), Condition::Missing);
        assert_eq!(all(&[Condition::Running, Condition::Running]), Condition::Running);
        assert_eq!(all(&[Condition::Running, Condition::Starting]), Condition::Starting);
        assert_eq!(all(&[bad.clone(), Condition::Starting]), degraded("service `0` is unhealthy"));
        assert_eq!(
            all(&[Condition::Stopped("exited with 1".to_owned()), bad.clone()]),
            Condition::Stopped("service `0` is exited with 1".to_owned())
        );
        let unknown = Condition::Unknown("it hangs".to_owned());
        assert_eq!(all(&[bad.clone(), unknown]), Condition::Unknown("service `1`: it hangs".to_owned()));
        assert_eq!(all(&[bad, Condition::Missing]), Condition::Missing);
    }

    #[test]
    fn the_engines_own_output_is_understood() {
        let captured = include_bytes!("../../../../fixtures/runtimes/compose/inspect-20.10.jsonl");
        let found = serde_json::Deserializer::from_slice(captured).into_iter::<State>();
        let found: Vec<State> = found.collect::<Result<_, _>>().unwrap();
        assert_eq!(found[0].health.as_deref(), Some("healthy"));
        assert_eq!(found[0].condition(Timestamp::now()), Condition::Running);
        assert!(found[0].image.starts_with("sha256:"));
        assert_eq!((found[1].health.as_deref(), found[1].exit_code), (None, 3));
    }
}
