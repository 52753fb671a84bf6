//! Listing and inspecting, and the plain verbs with which tests make foreign objects.

use std::collections::BTreeMap;

use repo_model::Digest;
use serde_json::{Value, json};

use super::state::{Container, Store};
use super::{Failure, Result};

pub(super) fn ps(store: &Store, args: &[&str]) -> Result<String> {
    let filters = values(args, "--filter");
    let format = values(args, "--format").pop().unwrap_or("{{.ID}}");
    let mut output = String::new();
    for (id, container) in &store.state.containers {
        if filters.iter().all(|filter| matches(filter, &container.labels)) {
            let image = container.service["image"].as_str().unwrap_or_default();
            let fields = json!({"ID": id, "Names": container.name, "State": container.status, "Image": image});
            output.push_str(&render(format, &fields, &container.labels));
        }
    }
    Ok(output)
}

/// `label=NAME` or `label=NAME=VALUE`.
fn matches(filter: &str, labels: &BTreeMap<String, String>) -> bool {
    let label = filter.strip_prefix("label=").unwrap_or_default();
    match label.split_once('=') {
        Some((name, value)) => labels.get(name).is_some_and(|found| found == value),
        None => labels.contains_key(label),
    }
}

/// As much of Go's templates as the syncer and the tests use: `.A.B`, `.Label "…"`, `printf "%.Ns" …` and `json …`.
fn render(format: &str, fields: &Value, labels: &BTreeMap<String, String>) -> String {
    let format =
        format.replace("{{with .State.Health}}{{json .Status}}{{else}}null{{end}}", "{{json .State.Health.Status}}");
    let (mut line, mut rest) = (String::new(), format.as_str());
    while let Some((before, after)) = rest.split_once("{{") {
        let (expression, after) = after.split_once("}}").unwrap_or((after, ""));
        line = line + before + &evaluate(expression, fields, labels);
        rest = after;
    }
    line + rest + "\n"
}

fn evaluate(expression: &str, fields: &Value, labels: &BTreeMap<String, String>) -> String {
    let expression = expression.trim().trim_start_matches('(').trim_end_matches(')');
    if let Some(inner) = expression.strip_prefix("json ") {
        let value = value(inner, fields, labels);
        return value.to_string();
    }
    match value(expression, fields, labels) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn value(expression: &str, fields: &Value, labels: &BTreeMap<String, String>) -> Value {
    let expression = expression.trim().trim_start_matches('(').trim_end_matches(')');
    let expression = match expression.strip_prefix("printf ") {
        Some(cut) => cut.split_once("s\" ").map_or(cut, |(_, inner)| inner).trim_start_matches('('),
        None => expression,
    };
    match expression.strip_prefix(".Label \"") {
        Some(label) => labels.get(label.trim_end_matches('"')).cloned().unwrap_or_default().into(),
        None => fields.pointer(&expression.replace('.', "/")).cloned().unwrap_or_default(),
    }
}

pub(super) fn inspect(store: &Store, args: &[&str]) -> Result<String> {
    let format = values(args, "--format").pop().ok_or("no format")?;
    let mut output = String::new();
    let mut missing = Vec::new();
    for id in
        args.iter().skip_while(|arg| **arg != "container").skip(1).filter(|arg| ![&"--format", &format].contains(arg))
    {
        match find(store, id) {
            Some((id, container)) => {
                output.push_str(&render(format, &details(store, id, container), &container.labels));
            }
            None => missing.push(format!("Error: No such container: {id}")),
        }
    }
    if missing.is_empty() { Ok(output) } else { Err(Failure { message: missing.join("\n"), output }) }
}

/// One line of JSON for each container, as the syncer's template has it: what it has of the host.
pub(super) fn mounts(store: &Store, ids: &[&str]) -> Result<String> {
    let line = |(id, container): (&String, &Container)| {
        let binds = container.service["volumes"].as_array().into_iter().flatten().filter(|it| it["type"] == "bind");
        let mount = |it: &Value| json!({"Source": it["source"], "RW": it["read_only"] != true});
        let line = json!({"Id": id, "Mounts": binds.map(mount).collect::<Vec<_>>()});
        format!("{line}\n")
    };
    Ok(ids.iter().filter_map(|id| find(store, id)).map(line).collect())
}

pub(super) fn kill(store: &mut Store, ids: &[&str]) -> Result<String> {
    for id in ids {
        let found = find(store, id).map(|(id, _)| id.clone()).ok_or(format!("Error: No such container: {id}"))?;
        if let Some(container) = store.state.containers.get_mut(&found) {
            (container.status, container.exit_code) = ("exited".to_owned(), 137);
        }
        store.commit(&format!("kill {found}"))?;
    }
    Ok(String::new())
}

pub(super) fn restart(store: &mut Store, id: &str) -> Result<String> {
    let found = find(store, id).map(|(id, _)| id.clone()).ok_or(format!("Error: No such container: {id}"))?;
    if let Some(text) = store.knob("fail-restart") {
        return Err(text.into());
    }
    let now = store.now();
    if let Some(container) = store.state.containers.get_mut(&found) {
        (container.status, container.exit_code, container.started_at) = ("running".to_owned(), 0, now);
    }
    store.commit(&format!("restart {found}"))?;
    Ok(found)
}

fn details(store: &Store, id: &str, container: &Container) -> Value {
    let service = container.labels.get("com.docker.compose.service").map_or("", String::as_str);
    let knob = |kind: &str| store.knob(&format!("{kind}-{service}"));
    let runs = container.status == "running";
    let (exit, restarting) = (knob("exit").filter(|_| runs), knob("restarting").filter(|_| runs));
    let status = match (&exit, &restarting) {
        (Some(_), _) => "exited",
        (None, Some(_)) => "restarting",
        (None, None) => &container.status,
    };
    let restarts = if restarting.is_some() { 7 } else { 0 };
    let code = exit.or(restarting).and_then(|code| code.parse().ok()).unwrap_or(container.exit_code);
    let health = match (knob("unhealthy"), knob("starting")) {
        _ if container.service["healthcheck"].is_null() => Value::Null,
        (Some(_), _) => json!({"Status": "unhealthy"}),
        (_, Some(_)) => json!({"Status": "starting"}),
        _ => json!({"Status": "healthy"}),
    };
    json!({
        "ID": id,
        "Name": format!("/{}", container.name),
        "Image": container.service["image"].as_str().and_then(|image| store.state.images.get(image)),
        "State": {
            "Status": status,
            "ExitCode": code,
            "StartedAt": container.started_at,
            "Health": health,
        },
        "RestartCount": restarts,
        "Config": {"Labels": container.labels, "Env": env(&container.service)},
        "HostConfig": {
            "RestartPolicy": {"Name": container.service["restart"].as_str().unwrap_or("no")},
            "LogConfig": {"Type": "local", "Config": {}},
        },
    })
}

fn env(service: &Value) -> Vec<String> {
    let variables = service["environment"].as_object().into_iter().flatten();
    variables.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect()
}

/// By id, the beginning of an id, or name.
pub(super) fn find<'a>(store: &'a Store, id: &str) -> Option<(&'a String, &'a Container)> {
    store.state.containers.iter().find(|(full, container)| full.starts_with(id) || container.name == id)
}

/// `{{.Id}}` and `{{json .RepoDigests}}`.
pub(super) fn image(store: &Store, args: &[&str]) -> Result<String> {
    let (format, image) = (values(args, "--format").pop().unwrap_or("{{.Id}}"), args.last().ok_or("no image")?);
    let id = store.state.images.get(*image).ok_or(format!("Error: No such image: {image}"))?;
    let digests = json!([format!("{}@{id}", repository(image))]);
    Ok(format.replace("{{.Id}}", id).replace("{{json .RepoDigests}}", &digests.to_string()) + "\n")
}

fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rfind('/').map_or(0, |at| at + 1);
    name[last..].find(':').map_or(name, |at| &name[..last + at])
}

pub(super) fn pull(store: &mut Store, image: &str) -> Result<String> {
    if store.knob("unpullable").is_some_and(|list| list.lines().any(|line| line == image)) {
        return Err(format!("Error response from daemon: manifest for {image} not found").into());
    }
    let pinned = image.split_once('@').map(|(_, digest)| digest.to_owned());
    let id = pinned.unwrap_or_else(|| Digest::of(image.as_bytes()).to_string());
    store.state.images.insert(image.to_owned(), id);
    store.commit(&format!("pull {image}"))?;
    Ok(format!("{image}\n"))
}

/// By id or name.
pub(super) fn tag(store: &mut Store, source: &str, name: &str) -> Result<String> {
    let found = store.state.images.iter().find(|(name, id)| *name == source || *id == source);
    let id = found.map(|(_, id)| id.clone()).ok_or(format!("Error: No such image: {source}"))?;
    store.state.images.insert(name.to_owned(), id);
    store.commit(&format!("tag {name}"))?;
    Ok(String::new())
}

/// Takes a name away.
pub(super) fn unname(store: &mut Store, name: &str) -> Result<String> {
    store.state.images.remove(name).ok_or(format!("Error: No such image: {name}"))?;
    store.commit(&format!("untag {name}"))?;
    Ok(String::new())
}

pub(super) fn logs(store: &Store, id: &str) -> Result<String> {
    let (_, container) = find(store, id).ok_or_else(|| Failure::from(format!("Error: No such container: {id}")))?;
    let lines = env(&container.service);
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

pub(super) fn objects(store: &Store, kind: &str, args: &[&str]) -> Result<String> {
    let format = values(args, "--format").pop().unwrap_or("{{.Name}}");
    let all = if kind == "network" { &store.state.networks } else { &store.state.volumes };
    Ok(all.iter().map(|(name, labels)| render(format, &json!({"Name": name}), labels)).collect())
}

pub(super) fn create_object(store: &mut Store, kind: &str, args: &[&str]) -> Result<String> {
    let name = args.last().ok_or("no name")?.to_string();
    let labels = labels(args);
    let all = if kind == "network" { &mut store.state.networks } else { &mut store.state.volumes };
    all.insert(name.clone(), labels);
    store.commit(&format!("create {kind} {name}"))?;
    Ok(format!("{name}\n"))
}

pub(super) fn remove_objects(store: &mut Store, kind: &str, names: &[&str]) -> Result<String> {
    for name in names.iter().filter(|name| !name.starts_with('-')) {
        let all = if kind == "network" { &mut store.state.networks } else { &mut store.state.volumes };
        all.remove(*name).ok_or(format!("Error: No such {kind}: {name}"))?;
        store.commit(&format!("remove {kind} {name}"))?;
    }
    Ok(String::new())
}

/// `create --name NAME [--label NAME=VALUE]… IMAGE`.
pub(super) fn create(store: &mut Store, args: &[&str]) -> Result<String> {
    let name = values(args, "--name").pop().unwrap_or("unnamed").to_owned();
    let id = store.new_id(&name);
    let service = json!({"image": args.last()});
    let container = Container {
        name: name.clone(),
        labels: labels(args),
        service,
        status: "created".to_owned(),
        ..Container::default()
    };
    store.state.containers.insert(id.clone(), container);
    store.commit(&format!("create {name} {id}"))?;
    Ok(format!("{id}\n"))
}

pub(super) fn remove(store: &mut Store, id: &str) -> Result<String> {
    let found = find(store, id).map(|(id, container)| (id.clone(), container.name.clone()));
    let (id, name) = found.ok_or_else(|| Failure::from(format!("Error: No such container: {id}")))?;
    store.state.containers.remove(&id);
    store.commit(&format!("remove {name} {id}"))?;
    Ok(format!("{name}\n"))
}

fn labels(args: &[&str]) -> BTreeMap<String, String> {
    let pairs = values(args, "--label").into_iter();
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

/// The values of an option that may come more than once.
pub(super) fn values<'a>(args: &[&'a str], option: &str) -> Vec<&'a str> {
    args.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1]).collect()
}
