//! Whether everything that has a project's names is ours; asked before the first effect, so that nothing is taken over.

use std::collections::BTreeMap;

use super::labels::{self, Owner};
use super::resolved::Resolved;
use crate::runtime::RuntimeError;
use crate::runtime::client::Client;

const CONTAINERS: &str = "{{.ID}}\t{{.Names}}\t{{.Label \"com.docker.compose.project\"}}\t\
                          {{.Label \"device-syncer.fleet\"}}\t{{.Label \"device-syncer.device\"}}";
const OBJECTS: &str = "{{.Name}}\t{{.Label \"com.docker.compose.project\"}}";

/// Refuses containers that have the project's label or one of its names, and aren't ours. Tells whether any are ours.
pub(super) fn check_containers(
    docker: &Client,
    owner: &Owner,
    project: &str,
    services: impl IntoIterator<Item = String>,
) -> Result<bool, RuntimeError> {
    let listed = docker.ask_text(&["ps", "--all", "--no-trunc", "--format", CONTAINERS])?;
    let names: Vec<String> = services.into_iter().map(|service| format!("{project}-{service}-1")).collect();
    let mut some_are_ours = false;
    for line in listed.lines() {
        let mut fields = line.split('\t').map(str::to_owned);
        let [id, name, of, fleet, device] = std::array::from_fn(|_| fields.next().unwrap_or_default());
        // A container that others link to has several names.
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
        let listed = docker.ask_text(&[kind, "ls", "--format", OBJECTS])?;
        for (name, of) in listed.lines().filter_map(|line| line.split_once('\t')) {
            let named = names.contains(&name) || (kind == "network" && of == project);
            let ours = of == project && (kind == "volume" || project_is_ours);
            if named && !ours {
                let command = format!("docker {kind} rm {name}");
                return Err(RuntimeError::NotOurs { found: format!("{kind} `{name}`"), command });
            }
        }
    }
    Ok(())
}
