//! Bounds how long an application may take to stop, whatever its `stop_grace_period` says.
//!
//! A container's own period counts for as long as all of a removal, or of an update, stays within the device's bound
//! (`docker.stopTimeout`); what still runs then is killed. Compose waits for each stop, and goes on by itself as soon as
//! the container has ended. `compose --timeout` can't do this: it lengthens shorter periods, and compose 2.40 heeds it
//! neither for orphans nor for services that restart with one that they depend on.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::docker::DOCKER;
use super::engine::{Details, Engine, Listed};
use super::labels;
use super::resolved::Resolved;
use crate::runtimes::RuntimeError;
use crate::runtimes::client::Client;

/// The time between two observations once the time is over: compose stops a container only after those that depend on
/// it.
const AGAIN: Duration = Duration::from_secs(1);

/// So long after the bound all of the project is killed, because something that isn't known to be replaced holds it up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long docker waits for a container to stop that doesn't say.
const PERIOD: u64 = 10;

/// How long a container may take to stop.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Period {
    config: Config,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    /// In seconds; below zero is for ever.
    stop_timeout: Option<i64>,
}

impl Details for Period {
    const TEMPLATE: &str = r#"{"Id":{{json .ID}},"Config":{"StopTimeout":{{json .Config.StopTimeout}}}}"#;
}

/// The time that a project has for stopping, while compose works on it.
#[derive(Debug)]
pub(super) struct Stopping<'a> {
    docker: &'a Client,
    engine: &'a Engine,
    project: &'a str,
    /// What the project shall be; `None` if it is removed.
    next: Option<&'a Resolved>,
    began: Instant,
    bound: Duration,
    due: Cell<Instant>,
}

impl<'a> Stopping<'a> {
    /// The containers of a project that is removed.
    pub(super) fn removal((docker, engine): (&'a Client, &'a Engine), project: &'a str, bound: Duration) -> Self {
        let began = Instant::now();
        Self { docker, engine, project, next: None, began, bound, due: Cell::new(began + bound) }
    }

    /// What this document replaces or no longer has stops.
    pub(super) fn update(
        engine: (&'a Client, &'a Engine),
        project: &'a str,
        bound: Duration,
        next: &'a Resolved,
    ) -> Self {
        Self { next: Some(next), ..Self::removal(engine, project, bound) }
    }

    /// How long stopping may take, until whatever is left is killed.
    pub(super) fn at_most(&self) -> Duration {
        if self.next.is_some() { self.bound + PATIENCE } else { self.bound }
    }

    /// Whether what runs may take longer than the bound to stop, one container after the other, by its own periods.
    pub(super) fn may_exceed(&self) -> Result<bool, RuntimeError> {
        let listed = self.listed()?;
        let ids: Vec<&str> = listed.iter().filter(|one| runs(&one.state)).map(|one| &*one.id).collect();
        let all = periods(self.engine, &ids)?.into_values().fold(0, u64::saturating_add);
        Ok(all > self.bound.as_secs())
    }

    /// Kills what should have stopped by now, if the time is over; is asked again and again.
    pub(super) fn kill_overdue(&self) {
        if Instant::now() < self.due.get() {
            return;
        }
        if let Err(error) = self.kill() {
            tracing::warn!(project = self.project, %error, "can't kill what doesn't stop");
        }
        self.due.set(Instant::now() + AGAIN);
    }

    fn listed(&self) -> Result<Vec<Listed>, RuntimeError> {
        self.engine.list(&[format!("{}={}", labels::PROJECT, self.project)])
    }

    fn kill(&self) -> Result<(), RuntimeError> {
        let next = self.next.filter(|_| self.began.elapsed() < self.bound + PATIENCE);
        let ids = overdue(&self.listed()?, next);
        if !ids.is_empty() {
            let seconds = self.bound.as_secs();
            tracing::warn!(project = self.project, containers = ids.len(), seconds, "killed, because it doesn't stop");
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            // One that ended meanwhile is an error of docker's.
            self.docker.try_ask(&[&["kill"], ids.as_slice()].concat())?;
        }
        Ok(())
    }
}

/// For how many seconds each of those containers that are still there may take to stop, by its own word.
pub(super) fn periods(engine: &Engine, ids: &[&str]) -> Result<BTreeMap<String, u64>, RuntimeError> {
    let mut all = BTreeMap::new();
    for (id, period) in engine.inspect::<Period>(ids)? {
        let period = period.map_err(|reason| DOCKER.unavailable(reason, None))?;
        all.insert(id, period.config.stop_timeout.map_or(PERIOD, |seconds| seconds.try_into().unwrap_or(u64::MAX)));
    }
    Ok(all)
}

/// The containers that compose stops, and that haven't ended: all, or those that `next` replaces. Of a service that is
/// replaced there is a second container; one that restarts with what it depends on is stopped before that is replaced.
fn overdue(listed: &[Listed], next: Option<&Resolved>) -> Vec<String> {
    let mut count = BTreeMap::new();
    listed.iter().for_each(|one| *count.entry(one.labels().service.as_str()).or_insert(0) += 1);
    let is_replaced = |service: &str, next: &Resolved| {
        let restarts = |(_, depends): (&String, &Value)| depends["restart"] == true;
        let wanted = &next.document()["services"][service];
        wanted.is_null()
            || count.get(service).is_some_and(|count| *count > 1)
            || wanted["depends_on"].as_object().is_some_and(|all| all.iter().any(restarts))
    };
    let is_overdue = |one: &&Listed| next.is_none_or(|next| is_replaced(&one.labels().service, next));
    listed.iter().filter(|one| runs(&one.state)).filter(is_overdue).map(|one| one.id.clone()).collect()
}

/// Whether a container in this state is yet to end.
fn runs(state: &str) -> bool {
    !matches!(state, "created" | "exited" | "dead" | "removing")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_an_update_only_what_is_replaced_is_killed() {
        let depends = json!({"kept": {"condition": "service_started", "restart": true}});
        let document = json!({"services": {"kept": {}, "changed": {}, "restarts": {"depends_on": depends}}});
        let next = Resolved::parse(document.to_string().as_bytes()).unwrap();
        let one = |id: &str, state: &str, service: &str| -> Listed {
            let labels = json!({"com.docker.compose.service": service});
            serde_json::from_value(json!({"Id": id, "State": state, "Labels": labels})).unwrap()
        };
        let listed = [
            one("1", "running", "kept"),
            one("2", "running", "changed"),
            one("3", "created", "changed"),
            one("4", "paused", "gone"),
            one("5", "restarting", "restarts"),
            one("6", "exited", "gone-too"),
        ];
        assert_eq!(overdue(&listed, Some(&next)), ["2", "4", "5"]);
        assert_eq!(overdue(&listed, None), ["1", "2", "4", "5"]);
    }
}
