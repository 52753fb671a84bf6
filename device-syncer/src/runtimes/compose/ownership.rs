//! Whether everything that has a project's names is ours; asked before the first effect, so that nothing is taken over.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::containers::parse;
use super::labels::{self, Owner};
use super::resolved::Resolved;
use crate::runtimes::RuntimeError;
use crate::runtimes::client::Client;

/// Of each text so much that one of ours is whole: a stranger's may have any length, and any characters.
const CONTAINERS: &str = concat!(
    r#"{"id":{{json .ID}},"name":{{json (printf "%.4096s" .Names)}},"#,
    r#""project":{{json (printf "%.1024s" (.Label "com.docker.compose.project"))}},"#,
    r#""fleet":{{json (printf "%.1024s" (.Label "device-syncer.fleet"))}},"#,
    r#""device":{{json (printf "%.1024s" (.Label "device-syncer.device"))}}}"#,
);

const OBJECTS: &str = concat!(
    r#"{"name":{{json (printf "%.4096s" .Name)}},"#,
    r#""project":{{json (printf "%.1024s" (.Label "com.docker.compose.project"))}}}"#,
);

/// A line of `docker ps`.
#[derive(Deserialize)]
struct Container {
    id: String,
    /// One that others link to has several, with commas between them.
    name: String,
    project: String,
    fleet: String,
    device: String,
}

/// A line of `docker network ls` or `docker volume ls`.
#[derive(Deserialize)]
struct Object {
    name: String,
    project: String,
}

/// Refuses containers that have the project's label or one of its names, and aren't ours. Tells whether any are ours.
pub(super) fn check_containers(
    docker: &Client,
    owner: &Owner,
    project: &str,
    services: impl IntoIterator<Item = String>,
) -> Result<bool, RuntimeError> {
    let listed: Vec<Container> = parse(&docker.ask(&["ps", "--all", "--no-trunc", "--format", CONTAINERS])?)?;
    let names: Vec<String> = services.into_iter().map(|service| format!("{project}-{service}-1")).collect();
    let mut some_are_ours = false;
    for Container { id, name, project: of, fleet, device } in listed {
        if of != project && !name.split(',').any(|name| names.iter().any(|ours| ours == name)) {
            continue;
        }
        let found = BTreeMap::from([(labels::FLEET.to_owned(), fleet), (labels::DEVICE.to_owned(), device)]);
        if of != project || !owner.owns(&found) {
            let command = format!("docker rm --force {}", &id[..id.len().min(12)]);
            return Err(RuntimeError::NotOurs { found: format!("container `{name}`"), command });
        }
        some_are_ours = true;
    }
    Ok(some_are_ours)
}

/// Refuses networks and volumes that have the names of the project's, and aren't.
///
/// They carry no labels of ours. A network with the project's own label is ours if anything else says that the project
/// is; a volume with it is ours always, because volumes stay when a project is removed.
pub(super) fn check_objects(
    docker: &Client,
    resolved: &Resolved,
    project: &str,
    project_is_ours: bool,
) -> Result<(), RuntimeError> {
    for (kind, section) in [("network", "networks"), ("volume", "volumes")] {
        let own = resolved.section(section).filter(|(_, it)| it["external"] != true);
        let names: Vec<&str> = own.filter_map(|(_, it)| it["name"].as_str()).collect();
        let listed: Vec<Object> = parse(&docker.ask(&[kind, "ls", "--format", OBJECTS])?)?;
        for Object { name, project: of } in listed {
            let named = names.contains(&name.as_str()) || (kind == "network" && of == project);
            let ours = of == project && (kind == "volume" || project_is_ours);
            if named && !ours {
                let command = format!("docker {kind} rm {name}");
                return Err(RuntimeError::NotOurs { found: format!("{kind} `{name}`"), command });
            }
        }
    }
    Ok(())
}
