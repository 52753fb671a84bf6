//! The containers that docker has: listing, inspecting, and saying how they are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use repo_model::{ComponentName, DeploymentId};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::docker::DOCKER;
use crate::decision::observation::{Condition, ServiceState};
use crate::runtimes::client::{Call, Client, QUERY, REASON};
use crate::runtimes::command::{CommandError, Output, last_lines};
use crate::runtimes::{Redactor, RuntimeError};

/// What is asked of each container: labels, which `docker ps` has, and below what only `docker inspect` has. Nothing else
/// of it is read, because an application chooses how much that is; of a label no more than any of ours can have.
const LABELS: &str = concat!(
    r#"{"id":{{json .ID}},"#,
    r#""project":{{json (printf "%.1024s" (.Label "com.docker.compose.project"))}},"#,
    r#""service":{{json (printf "%.1024s" (.Label "com.docker.compose.service"))}},"#,
    r#""deployment":{{json (printf "%.1024s" (.Label "device-syncer.deployment"))}},"#,
    r#""component":{{json (printf "%.1024s" (.Label "device-syncer.component"))}}}"#,
);

const STATE: &str = concat!(
    r#"{"id":{{json .ID}},"image":{{json .Image}},"status":{{json .State.Status}},"exitCode":{{json .State.ExitCode}},"#,
    r#""startedAt":{{json .State.StartedAt}},"health":{{with .State.Health}}{{json .Status}}{{else}}null{{end}},"#,
    r#""restart":{{json .HostConfig.RestartPolicy.Name}},"restarts":{{json .RestartCount}}}"#,
);

/// How many containers are inspected, or ended, with one call.
pub(super) const BATCH: usize = 50;

/// Limit of a call that inspects one container.
const ONE: Duration = Duration::from_secs(10);

/// What stayed up for so long has started well: Docker's own measure for restart policies (*Start containers
/// automatically*).
const STARTED: SignedDuration = SignedDuration::from_secs(10);

/// A container, as far as it is read.
#[derive(Debug, Clone)]
pub(super) struct Container {
    labels: Labels,
    /// Or why docker can't show it.
    state: Result<State, String>,
}

/// A line of `docker ps`; a label that isn't there is empty.
#[derive(Debug, Clone, Deserialize)]
struct Labels {
    id: String,
    project: String,
    service: String,
    deployment: String,
    component: String,
}

/// What `docker inspect` says of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    image: String,
    status: String,
    exit_code: i64,
    started_at: String,
    health: Option<String>,
    restart: String,
    /// How often docker restarted it since somebody last started it.
    #[serde(default)]
    restarts: u64,
}

/// Every container with these labels: one call that lists, and one for each [`BATCH`] of what it found. What is missing
/// in a batch is asked for alone, so that a container that can't be read hides no other one.
pub(super) fn with_labels(docker: &Client, filters: &[String]) -> Result<Vec<Container>, RuntimeError> {
    let mut args = vec!["ps", "--all", "--no-trunc", "--filter", "label=com.docker.compose.oneoff=False"];
    filters.iter().for_each(|filter| args.extend(["--filter", filter]));
    let listed: Vec<Labels> = parse(&docker.ask(&[args.as_slice(), &["--format", LABELS]].concat())?)?;
    let ids: Vec<&str> = listed.iter().map(|labels| &*labels.id).collect();
    let mut states = inspect_each(docker, &ids, STATE)?;
    let container = |labels: Labels| Some(Container { state: states.remove(&labels.id)?, labels });
    Ok(listed.into_iter().filter_map(container).collect())
}

/// A line of `docker inspect`.
#[derive(Deserialize)]
struct Line<T> {
    id: String,
    #[serde(flatten)]
    rest: T,
}

/// What is asked of those containers that are still there, by id, or why docker can't show it. `format` makes one line of
/// JSON for each, with its `id`. One call for each [`BATCH`], and one for each container that was missing in its batch.
pub(super) fn inspect_each<T: DeserializeOwned>(
    docker: &Client,
    ids: &[&str],
    format: &str,
) -> Result<BTreeMap<String, Result<T, String>>, RuntimeError> {
    let mut all = BTreeMap::new();
    for batch in ids.chunks(BATCH) {
        // Those that docker can print are printed also where it fails for others.
        let together = inspect(docker, batch, format, QUERY).ok().and_then(|output| parse(&output.stdout).ok());
        all.extend(together.into_iter().flatten().map(|line: Line<T>| (line.id, Ok(line.rest))));
        for id in batch {
            if !all.contains_key(*id) {
                all.extend(inspect_one(docker, id, format)?.map(|one| ((*id).to_owned(), one)));
            }
        }
    }
    Ok(all)
}

/// What is asked of one, or why docker can't show it; `None` if it is gone. An error if docker doesn't answer at all.
fn inspect_one<T: DeserializeOwned>(
    docker: &Client,
    id: &str,
    format: &str,
) -> Result<Option<Result<T, String>>, RuntimeError> {
    let reason = match inspect(docker, &[id], format, ONE) {
        Ok(output) if output.status.success() => match parse::<Line<T>>(&output.stdout) {
            Ok(lines) => return Ok(lines.into_iter().next().map(|line| Ok(line.rest))),
            Err(error) => error.to_string(),
        },
        Ok(output) if vanished(&output.stderr) => return Ok(None),
        Ok(output) => last_lines(&output.stderr, REASON),
        Err(CommandError::TimedOut { seconds, .. }) => format!("`docker inspect` took longer than {seconds} s"),
        Err(error @ CommandError::TooMuch { .. }) => error.to_string(),
        Err(error) => return Err(DOCKER.broken_off(error)),
    };
    docker.ask(DOCKER.probe)?;
    Ok(Some(Err(reason)))
}

fn inspect(docker: &Client, ids: &[&str], format: &str, timeout: Duration) -> Result<Output, CommandError> {
    let args = [&["inspect", "--type", "container", "--format", format], ids].concat();
    let args = args.iter().map(OsString::from).collect();
    docker.try_run(Call { args, timeout, redactor: &Redactor::default(), parameters: &[], cancel: &|| false })
}

/// One that is gone by now is named on standard error; what was asked of the others is done all the same.
pub(super) fn vanished(stderr: &str) -> bool {
    stderr.to_lowercase().contains("no such")
}

/// One JSON object a line.
pub(super) fn parse<T: for<'a> Deserialize<'a>>(lines: &[u8]) -> Result<Vec<T>, RuntimeError> {
    serde_json::Deserializer::from_slice(lines)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|error| DOCKER.unavailable(format!("what docker printed can't be read: {error}"), None))
}

impl Container {
    pub(super) fn project(&self) -> &str {
        &self.labels.project
    }

    pub(super) fn service(&self) -> &str {
        &self.labels.service
    }

    /// The deployment it belongs to, if its label tells.
    pub(super) fn deployment(&self) -> Option<DeploymentId> {
        self.labels.deployment.parse().ok()
    }

    /// The component that it is of, if its label tells.
    pub(super) fn component(&self) -> Option<ComponentName> {
        self.labels.component.parse().ok()
    }

    /// Its state as others see it.
    pub(super) fn state(&self) -> ServiceState {
        let state = self.state.as_ref();
        let text = |text: fn(&State) -> &String| state.map_or_else(|_| String::new(), |state| text(state).clone());
        ServiceState {
            container: self.labels.id.clone(),
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
    fn condition(&self, now: Timestamp) -> Condition {
        match (self.status.as_str(), self.health.as_deref().unwrap_or("none")) {
            ("running", "none" | "healthy" | "starting") if self.restarts > 0 && self.is_new(now) => {
                Condition::Degraded(format!("restarting again and again, {} times so far", self.restarts))
            }
            ("running", "none") if self.is_new(now) => Condition::Starting,
            ("running", "none" | "healthy") => Condition::Running,
            ("running", "starting") => Condition::Starting,
            ("running", health) => Condition::Degraded(health.to_owned()),
            ("restarting", _) => Condition::Degraded(format!("restarting after it exited with {}", self.exit_code)),
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
        Condition::Missing | Condition::Stopped(_) | Condition::Edited(_) => 4,
        Condition::Unknown(_) => 3,
        Condition::Degraded(_) => 2,
        Condition::Starting => 1,
        Condition::Running => 0,
    };
    match services.iter().max_by_key(|(_, state)| rank(&state.condition)) {
        None => Condition::Missing,
        Some((name, ServiceState { condition: Condition::Degraded(how), .. })) => {
            Condition::Degraded(format!("service `{name}` is {how}"))
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
        let json = serde_json::json!({
            "image": "sha256:x", "status": status, "exitCode": exit, "health": health, "restart": restart,
            "startedAt": "2026-01-01T00:00:00.5Z",
        });
        parse(json.to_string().as_bytes()).unwrap().remove(0)
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
            (state("restarting", None, 1, "always"), degraded("restarting after it exited with 1")),
            (state("paused", None, 0, ""), stopped("paused")),
            (state("dead", None, 0, ""), degraded("dead")),
        ] {
            assert_eq!(given.condition(Timestamp::now()), expected, "{given:?}");
        }
    }

    #[test]
    fn what_has_just_started_is_good_when_it_says_so_itself_or_has_stayed_up_for_ten_seconds() {
        let looping = || degraded("restarting again and again, 3 times so far");
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
        let found: Vec<State> = parse(captured).unwrap();
        assert_eq!(found[0].health.as_deref(), Some("healthy"));
        assert_eq!(found[0].condition(Timestamp::now()), Condition::Running);
        assert!(found[0].image.starts_with("sha256:"));
        assert_eq!((found[1].health.as_deref(), found[1].exit_code), (None, 3));
    }
}
