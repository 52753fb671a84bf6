//! How large a project may be once compose has resolved it (`repo-layouts/README.md`, *Compose archives*).
//!
//! A few lines can become as much as somebody likes: by variables that repeat each other, aliases, or a range of ports.
//! What a container has of it, docker hands out whenever it is asked.

use serde_json::Value;

use super::resolved::items;
use crate::runtimes::RuntimeError;
use crate::runtimes::command::CommandError;

/// The whole document as compose prints it, in bytes.
const DOCUMENT: usize = 4 << 20;
/// How many objects each section may have.
const OBJECTS: &[(&str, usize)] =
    &[("services", 100), ("networks", 50), ("volumes", 200), ("configs", 200), ("secrets", 200)];
/// The name of an object, in bytes.
const NAME: usize = 128;
/// Names and values of the labels of an object, in bytes.
const LABELS: usize = 64 << 10;
/// Names and values of a service's environment, in bytes: Linux starts no process with twice as much.
const ENVIRONMENT: usize = 1 << 20;
/// Published ports of all services: docker runs a process for each.
const PORTS: usize = 500;

/// Refuses a document that is larger than it may be; the text names the place and the bound.
pub(super) fn check(document: &Value, bytes: usize) -> Result<(), String> {
    at_most("the resolved document", bytes, "bytes", DOCUMENT)?;
    let mut ports = 0;
    for (section, objects) in OBJECTS {
        let Some(all) = document[section].as_object() else { continue };
        at_most(&format!("`{section}`"), all.len(), "entries", *objects)?;
        for (name, object) in all {
            let short: String = name.chars().take(NAME).collect();
            let place = format!("`{section}.{short}`");
            at_most(&format!("the name of {place}"), name.len(), "bytes", NAME)?;
            at_most(&format!("the labels of {place}"), size(&object["labels"]), "bytes", LABELS)?;
            at_most(&format!("the environment of {place}"), size(&object["environment"]), "bytes", ENVIRONMENT)?;
            ports += items(&object["ports"]).count();
        }
    }
    at_most("the application", ports, "published ports", PORTS)
}

/// What went wrong while compose resolved a document: if it made more of it than is ever read, that is the document's
/// fault, whatever it says.
pub(super) fn too_large(error: RuntimeError, invalid: impl FnOnce(String) -> RuntimeError) -> RuntimeError {
    match error {
        RuntimeError::RuntimeUnavailable { source: Some(CommandError::TooMuch { limit, .. }), .. } => {
            invalid(format!("the resolved document has more than {limit} bytes, and at most {DOCUMENT} are allowed"))
        }
        error => error,
    }
}

fn at_most(what: &str, found: usize, unit: &str, bound: usize) -> Result<(), String> {
    if found <= bound { Ok(()) } else { Err(format!("{what} has {found} {unit}, and at most {bound} are allowed")) }
}

/// Names and values of a mapping, in bytes.
fn size(mapping: &Value) -> usize {
    let size = |value: &Value| value.as_str().map_or_else(|| value.to_string().len(), str::len);
    mapping.as_object().into_iter().flatten().map(|(name, value)| name.len() + size(value)).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn each_bound_is_named_with_its_place() {
        let many = |count: usize| (0..count).map(|n| (format!("n{n}"), json!({}))).collect::<Map<_, _>>();
        let long = "x".repeat(129);
        let service = |service: Value| json!({"services": {"web": service}});
        for (document, words) in [
            (json!({"services": many(101)}), ["`services` has 101", "at most 100"]),
            (json!({"volumes": {long: {}}}), ["the name of `volumes.xxx", "at most 128"]),
            (service(json!({"labels": {"a": "x".repeat(64 << 10)}})), ["the labels of `services.web`", "65536"]),
            (json!({"networks": {"n": {"labels": {"a": "x".repeat(64 << 10)}}}}), ["`networks.n`", "65536"]),
            (service(json!({"environment": {"A": "x".repeat(1 << 20)}})), ["the environment of", "1048576"]),
            (service(json!({"ports": vec![json!({}); 501]})), ["501 published ports", "at most 500"]),
        ] {
            let problem = check(&document, 0).unwrap_err();
            assert!(words.iter().all(|word| problem.contains(word)), "{words:?} in {problem}");
            assert!(problem.len() < 400, "{problem}");
        }
        assert!(check(&json!({}), (4 << 20) + 1).unwrap_err().contains("at most 4194304"));
        let most = json!({"services": many(100), "networks": {"n": {"labels": {"a": "x".repeat((64 << 10) - 1)}}}});
        assert_eq!(check(&most, 4 << 20), Ok(()));
    }
}
