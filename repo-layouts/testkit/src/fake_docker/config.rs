//! `compose config`: as much of resolving as the fixtures need, in the shape that compose 2.40 prints.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::Result;

/// The file with variables from the environment, short forms made long, and paths and names made whole.
///
/// With `escape`, each `$` of a value is doubled, as compose prints it.
pub(super) fn resolve(file: &Path, directory: &Path, project: &str, escape: bool) -> Result<Value> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("open {}: {error}", file.display()))?;
    let mut document: Value = serde_yaml::from_str(&text)?;
    interpolate(&mut document)?;
    let root = document.as_object_mut().ok_or("top-level object must be a mapping")?;
    root.insert("name".to_owned(), project.into());
    for (_, service) in section(root, "services") {
        complete_service(service, directory);
    }
    if !root.contains_key("networks") {
        root.insert("networks".to_owned(), json!({"default": {}}));
    }
    for kind in ["configs", "networks", "secrets", "volumes"] {
        for (name, object) in section(root, kind) {
            complete_object(object, project, name, directory);
        }
    }
    if escape {
        each_text(&mut document, &|text| Ok(text.replace('$', "$$")))?;
    }
    Ok(document)
}

fn section<'a>(root: &'a mut Map<String, Value>, name: &str) -> impl Iterator<Item = (&'a String, &'a mut Value)> {
    root.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten()
}

fn complete_service(service: &mut Value, directory: &Path) {
    let Some(service) = service.as_object_mut() else { return };
    for key in ["environment", "labels"] {
        if let Some(value) = service.get_mut(key) {
            *value = as_map(value);
        }
    }
    if let Some(Value::String(command)) = service.get("command") {
        let words: Vec<Value> = command.split_whitespace().map(Value::from).collect();
        service.insert("command".to_owned(), words.into());
    }
    if let Some(Value::Array(names)) = service.get("depends_on") {
        let names = names.iter().filter_map(Value::as_str);
        let map: Map<_, _> =
            names.map(|name| (name.to_owned(), json!({"condition": "service_started", "required": true}))).collect();
        service.insert("depends_on".to_owned(), map.into());
    }
    for mount in service.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        *mount = long_mount(mount, directory);
    }
    for port in service.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        *port = long_port(port);
    }
    for kind in ["configs", "secrets"] {
        for used in
            service.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten().filter(|it| it.is_string())
        {
            *used = json!({"source": used});
        }
    }
}

fn complete_object(object: &mut Value, project: &str, name: &str, directory: &Path) {
    if object.is_null() {
        *object = json!({});
    }
    let Some(object) = object.as_object_mut() else { return };
    object.entry("name").or_insert_with(|| format!("{project}_{name}").into());
    if let Some(Value::String(file)) = object.get_mut("file") {
        *file = absolute(file, directory);
    }
}

/// `["A=b"]` or `{A: b}`, values as text.
fn as_map(value: &Value) -> Value {
    let pairs: Map<String, Value> = match value {
        Value::Array(items) => {
            let pairs = items.iter().filter_map(Value::as_str).map(|item| item.split_once('=').unwrap_or((item, "")));
            pairs.map(|(name, value)| (name.to_owned(), value.into())).collect()
        }
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), as_text(value))).collect(),
        _ => Map::new(),
    };
    pairs.into()
}

fn as_text(value: &Value) -> Value {
    if value.is_string() || value.is_null() { value.clone() } else { value.to_string().into() }
}

/// `SOURCE:TARGET[:ro]`.
fn long_mount(mount: &Value, directory: &Path) -> Value {
    let Some(short) = mount.as_str() else { return mount.clone() };
    let mut parts = short.split(':');
    let (source, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut long = if source.starts_with(['.', '/']) {
        json!({"type": "bind", "source": absolute(source, directory), "bind": {"create_host_path": true}})
    } else {
        json!({"type": "volume", "source": source, "volume": {}})
    };
    long["target"] = target.into();
    if parts.next() == Some("ro") {
        long["read_only"] = true.into();
    }
    long
}

/// `[IP:]PUBLISHED:TARGET`.
fn long_port(port: &Value) -> Value {
    let Some(short) = port.as_str() else { return port.clone() };
    let mut parts = short.rsplitn(3, ':');
    let (target, published) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut long = json!({"mode": "ingress", "target": target, "published": published, "protocol": "tcp"});
    if let Some(ip) = parts.next() {
        long["host_ip"] = ip.into();
    }
    long
}

fn absolute(path: &str, directory: &Path) -> String {
    let path = path.trim_start_matches("./");
    directory.join(path).to_string_lossy().trim_end_matches(['/', '.']).to_owned()
}

fn interpolate(value: &mut Value) -> Result<()> {
    each_text(value, &|text| {
        let mut output = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            output.push_str(before);
            rest = match after.strip_prefix('$') {
                Some(after) => {
                    output.push('$');
                    after
                }
                None => {
                    let (name, after) =
                        after.strip_prefix('{').and_then(|it| it.split_once('}')).ok_or("invalid `$`")?;
                    let (name, default) = name.split_once(":-").unwrap_or((name, ""));
                    let value = std::env::var(name).unwrap_or_default();
                    output.push_str(if value.is_empty() { default } else { &value });
                    after
                }
            };
        }
        Ok(output + rest)
    })
}

fn each_text(value: &mut Value, change: &dyn Fn(&str) -> Result<String>) -> Result<()> {
    match value {
        Value::String(text) => *text = change(text)?,
        Value::Array(items) => items.iter_mut().try_for_each(|item| each_text(item, change))?,
        Value::Object(map) => map.values_mut().try_for_each(|item| each_text(item, change))?,
        _ => {}
    }
    Ok(())
}
