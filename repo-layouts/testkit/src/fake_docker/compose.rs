//! `compose -p PROJECT [-f FILE …] config|up|down`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::query::values;
use super::state::{Container, Store};
use super::{Result, config};

const PROJECT: &str = "com.docker.compose.project";
const SERVICE: &str = "com.docker.compose.service";

pub(super) fn run(store: &mut Store, args: &[&str]) -> Result<String> {
    let project = values(args, "-p").pop().ok_or("no project")?.to_owned();
    match args {
        _ if args.contains(&"--no-start") => create(store, &project, &document(args, false)?),
        _ if args.contains(&"--no-deps") => up_some(store, &project, &document(args, false)?, &services(args)),
        _ if args.contains(&"up") => up(store, &project, &document(args, false)?),
        _ if args.contains(&"down") => down(store, &project),
        _ => Err(format!("fake-docker: unknown compose command {args:?}").into()),
    }
}

/// `compose -p PROJECT -f FILE config`, which needs nothing but the file.
pub(super) fn config(args: &[&str]) -> Result<String> {
    Ok(format!("{:#}\n", document(args, true)?))
}

fn document(args: &[&str], escape: bool) -> Result<Value> {
    let project = values(args, "-p").pop().ok_or("no project")?;
    let file = values(args, "-f").pop().ok_or("no configuration file provided: not found")?;
    let directory = values(args, "--project-directory").pop().unwrap_or(".");
    config::resolve(Path::new(file), Path::new(directory), project, escape)
}

/// The failure that was asked for, of any project or of this one.
fn fail(store: &Store, project: &str) -> Result<()> {
    let text = store.take_knob("fail-up").or_else(|| store.take_knob(&format!("fail-up-{project}")));
    text.map_or(Ok(()), |text| Err(text.into()))
}

fn up(store: &mut Store, project: &str, document: &Value) -> Result<String> {
    fail(store, project)?;
    make(store, project, document, start)
}

/// The words after `up` that are no options.
fn services<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let words = args.iter().skip_while(|word| **word != "up").skip(1);
    words.filter(|word| !word.starts_with("--") && **word != "never").copied().collect()
}

/// `up --no-deps --no-recreate SERVICE…`: makes what is missing, starts what has stopped, and touches nothing else.
fn up_some(store: &mut Store, project: &str, document: &Value, services: &[&str]) -> Result<String> {
    fail(store, project)?;
    create_objects(store, project, document)?;
    for name in services {
        let id = match of_service(store, project, name) {
            Some((id, _)) => id,
            None => container(store, project, name, &document["services"][*name])?,
        };
        start(store, project, name, &id)?;
    }
    Ok(String::new())
}

/// `up --no-start`.
fn create(store: &mut Store, project: &str, document: &Value) -> Result<String> {
    make(store, project, document, |_, _, _, _| Ok(()))
}

/// Each service's container as the document says, and then what else is done with it; no other container is left.
fn make(
    store: &mut Store,
    project: &str,
    document: &Value,
    then: impl Fn(&mut Store, &str, &str, &str) -> Result<()>,
) -> Result<String> {
    let services = document["services"].as_object().cloned().unwrap_or_default();
    for image in services.values().filter_map(|service| service["image"].as_str()) {
        if !store.state.images.contains_key(image) {
            return Err(format!("Error response from daemon: No such image: {image}").into());
        }
    }
    create_objects(store, project, document)?;
    for (at, (name, service)) in services.iter().enumerate() {
        let id = container(store, project, name, service)?;
        if at == 0 {
            store.hang("hang-up", project)?;
        }
        then(store, project, name, &id)?;
    }
    let names: BTreeSet<String> = services.keys().cloned().collect();
    remove_containers(store, project, |service| !names.contains(service))?;
    Ok(String::new())
}

fn create_objects(store: &mut Store, project: &str, document: &Value) -> Result<()> {
    for (kind, section) in [("network", "networks"), ("volume", "volumes")] {
        let own = document[section].as_object().into_iter().flatten().filter(|(_, it)| it["external"] != true);
        for name in own.filter_map(|(_, it)| it["name"].as_str()) {
            let all = if kind == "network" { &mut store.state.networks } else { &mut store.state.volumes };
            if !all.contains_key(name) {
                all.insert(name.to_owned(), BTreeMap::from([(PROJECT.to_owned(), project.to_owned())]));
                store.commit(&format!("create {kind} {name}"))?;
            }
        }
    }
    Ok(())
}

/// The id of a service's container, which is made anew if the service changed.
fn container(store: &mut Store, project: &str, name: &str, service: &Value) -> Result<String> {
    let present = of_service(store, project, name);
    let verb = match &present {
        Some((id, container)) if container.service == *service => return Ok(id.clone()),
        Some((id, _)) => {
            store.state.containers.remove(id);
            "recreate"
        }
        None => "create",
    };
    let full_name = format!("{project}-{name}-1");
    if store.state.containers.values().any(|container| container.name == full_name) {
        return Err(
            format!("Error response from daemon: Conflict. The container name \"/{full_name}\" is in use").into()
        );
    }
    let own = service["labels"].as_object().into_iter().flatten();
    let own = own.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    let compose = [(PROJECT, project), (SERVICE, name), ("com.docker.compose.oneoff", "False")];
    let labels = own.chain(compose.map(|(a, b)| (a.to_owned(), b.to_owned()))).collect();
    let id = store.new_id(&full_name);
    let made = Container {
        name: full_name,
        labels,
        service: service.clone(),
        status: "created".into(),
        ..Container::default()
    };
    store.state.containers.insert(id.clone(), made);
    store.commit(&format!("{verb} {project}/{name} {id}"))?;
    Ok(id)
}

fn start(store: &mut Store, project: &str, name: &str, id: &str) -> Result<()> {
    let now = store.now();
    let container = store.state.containers.get_mut(id).ok_or("the container vanished")?;
    if container.status == "running" {
        return Ok(());
    }
    (container.status, container.exit_code) = ("running".to_owned(), 0);
    container.started_at = now;
    store.commit(&format!("start {project}/{name} {id}"))
}

fn down(store: &mut Store, project: &str) -> Result<String> {
    store.hang("hang-down", project)?;
    remove_containers(store, project, |_| true)?;
    let networks: Vec<String> = store
        .state
        .networks
        .iter()
        .filter(|(_, l)| l.get(PROJECT).is_some_and(|p| p == project))
        .map(|(name, _)| name.clone())
        .collect();
    for name in networks {
        store.state.networks.remove(&name);
        store.commit(&format!("remove network {name}"))?;
    }
    Ok(String::new())
}

fn remove_containers(store: &mut Store, project: &str, which: impl Fn(&str) -> bool) -> Result<()> {
    let of_project = |container: &Container| container.labels.get(PROJECT).is_some_and(|found| found == project);
    let found: Vec<(String, String)> = store
        .state
        .containers
        .iter()
        .filter(|(_, container)| of_project(container))
        .map(|(id, container)| (id.clone(), container.labels.get(SERVICE).cloned().unwrap_or_default()))
        .filter(|(_, service)| which(service))
        .collect();
    for (id, service) in found {
        store.state.containers.remove(&id);
        store.commit(&format!("remove {project}/{service} {id}"))?;
    }
    Ok(())
}

fn of_service(store: &Store, project: &str, service: &str) -> Option<(String, Container)> {
    let labelled = |container: &Container| {
        container.labels.get(PROJECT).is_some_and(|it| it == project)
            && container.labels.get(SERVICE).is_some_and(|it| it == service)
    };
    store.state.containers.iter().find(|(_, it)| labelled(it)).map(|(id, it)| (id.clone(), it.clone()))
}
