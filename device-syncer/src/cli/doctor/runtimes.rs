//! What runs components here: whether it answers, and in which version.

use repo_model::error_chain;

use super::Row;
use crate::config::Home;
use crate::home;
use crate::runtimes::RuntimeError;
use crate::runtimes::compose::ComposeRuntime;

/// The first compose that has all that is asked of it.
const COMPOSE: (u32, u32) = (2, 20);

/// The first helm that has all that is asked of it.
const HELM: (u32, u32) = (3, 13);

/// Whether anything runs components here, and whether the engine answers.
pub(super) fn engine(home: &Home) -> Vec<Row> {
    let runtimes = match home::runtimes_of(home) {
        Ok(runtimes) => runtimes,
        Err(error) => return vec![Row::failed("runtimes", error_chain(&error), "device.yaml says what runs here")],
    };
    let Some(compose) = &runtimes.compose else {
        let is_nothing = runtimes.helm.is_none();
        let todo = "`docker` and `helm` in device.yaml";
        return is_nothing
            .then(|| Row::warning("runtimes", "nothing runs components here", todo))
            .into_iter()
            .collect();
    };
    match compose.engine_version() {
        Ok(version) => [Row::ok("docker", format!("{version} answers"))].into_iter().chain(logs(compose)).collect(),
        Err(error) => {
            vec![unanswered("docker", &error, "is the engine running, and is `docker.host` in device.yaml right?")]
        }
    }
}

/// Whether what containers print fills the disk one day. Where nothing runs there is nothing to say.
fn logs(compose: &ComposeRuntime) -> Option<Row> {
    let found = compose.unbounded_logs().ok()?;
    let (first, all) = (found.first()?, found.len());
    let what = match all {
        1 => format!("what `{first}` prints is kept without end"),
        _ => format!("what `{first}` and {} more print is kept without end", all - 1),
    };
    let todo = "set `\"log-driver\": \"local\"`, or `\"log-opts\": {\"max-size\": …}`, in the engine's daemon.json; \
                it counts for containers that are made after that";
    Some(Row::warning("logs", what, todo))
}

/// Whether compose is there and new enough, and files are resolved apart.
pub(super) fn compose(home: &Home) -> Vec<Row> {
    let Some(compose) = home::runtimes_of(home).ok().and_then(|runtimes| runtimes.compose) else { return Vec::new() };
    let todo = "install Docker Compose 2.20 or later";
    let mut rows = vec![match compose.compose_version() {
        Ok(version) if is_before(&version, COMPOSE) => Row::warning("compose", version, todo),
        Ok(version) => Row::ok("compose", version),
        Err(error) => unanswered("compose", &error, todo),
    }];
    if compose.is_confined() == Some(false) {
        let todo = "run the syncer as root, or on a kernel with Landlock (Linux 5.13)";
        rows.push(Row::warning("sandbox", "applications' files are resolved with this program's rights", todo));
    }
    rows
}

/// Whether helm is there, and its API server answers.
pub(super) fn helm(home: &Home) -> Vec<Row> {
    let Some(helm) = home::runtimes_of(home).ok().and_then(|runtimes| runtimes.helm) else { return Vec::new() };
    let todo = "does the API server run, and are `helm.kubeconfig` and `helm.context` in device.yaml right?";
    vec![match helm.answers() {
        Ok(version) if is_before(&version, HELM) => Row::warning("helm", version, "install Helm 3.13 or later"),
        Ok(version) => Row::ok("helm", format!("{version}, and the API server answers")),
        Err(error) => unanswered("helm", &error, todo),
    }]
}

fn unanswered(check: &str, error: &RuntimeError, todo: &str) -> Row {
    Row::failed(check, error_chain(error), todo)
}

/// Not so where nobody can tell.
fn is_before(version: &str, first: (u32, u32)) -> bool {
    numbers(version).is_some_and(|found| found < first)
}

/// The first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_compose_is_known_by_its_version() {
        for (text, expected) in [("2.40.3", Some((2, 40))), ("v2.6.0-beta", Some((2, 6))), ("words", None)] {
            assert_eq!(numbers(text), expected);
        }
        assert!(numbers("2.6.0").unwrap() < COMPOSE && numbers("2.20.0").unwrap() >= COMPOSE);
    }
}
