//! Whether everything that has a project's names is ours; asked before the first effect, so that nothing is taken over.

use super::engine::Engine;
use super::labels::{self, Owner};
use super::resolved::Resolved;
use crate::runtimes::RuntimeError;

/// Refuses containers that have the project's label or one of its names, and aren't ours. Tells whether any are ours.
pub(super) fn check_containers(
    engine: &Engine,
    owner: &Owner,
    project: &str,
    services: impl IntoIterator<Item = String>,
) -> Result<bool, RuntimeError> {
    let names: Vec<String> = services.into_iter().map(|service| format!("{project}-{service}-1")).collect();
    let mut some_are_ours = false;
    for listed in engine.list(&[])? {
        let (id, found) = (&listed.id, listed.labels());
        if found.project != project && !listed.names().any(|name| names.iter().any(|ours| ours == name)) {
            continue;
        }
        let labels = [(labels::FLEET, &found.fleet), (labels::DEVICE, &found.device)];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.clone())).into();
        if found.project != project || !owner.owns(&labels) {
            let command = format!("docker rm --force {}", &id[..id.len().min(12)]);
            let name = listed.names().collect::<Vec<_>>().join(",");
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
    engine: &Engine,
    resolved: &Resolved,
    project: &str,
    project_is_ours: bool,
) -> Result<(), RuntimeError> {
    let listed = [("network", "networks", engine.networks()?), ("volume", "volumes", engine.volumes()?)];
    for (kind, section, listed) in listed {
        let own = resolved.section(section).filter(|(_, it)| it["external"] != true);
        let names: Vec<&str> = own.filter_map(|(_, it)| it["name"].as_str()).collect();
        for object in listed {
            let (name, of) = (&object.name, object.project());
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
