//! What somebody changed of a release's objects: how many of a workload there are, its images, commands and environment,
//! and what configurations hold. Only what the manifest says is compared: what the cluster adds of its own is no drift.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The first thing in which the live object isn't what the manifest says; never a value, which may be a secret.
pub(super) fn edited(declared: &Value, live: &Value, is_scaled_by_another: bool) -> Option<String> {
    let what = match declared["kind"].as_str()? {
        "Deployment" | "StatefulSet" | "DaemonSet" => {
            let replicas = &declared["spec"]["replicas"];
            let scaled = !is_scaled_by_another && replicas.is_u64() && *replicas != live["spec"]["replicas"];
            let pod = || pod(&declared["spec"]["template"]["spec"], &live["spec"]["template"]["spec"]);
            if scaled { Some("spec.replicas".to_owned()) } else { pod() }
        }
        "CronJob" => {
            let template = |object: &Value| object["spec"]["jobTemplate"]["spec"]["template"]["spec"].clone();
            pod(&template(declared), &template(live))
        }
        "ConfigMap" => entry(&declared["data"], |key, value| live["data"][key] == *value),
        "Secret" => secret(declared, &live["data"]),
        _ => None,
    }?;
    let name = declared["metadata"]["name"].as_str().unwrap_or_default();
    Some(format!("{} {name}: {what}", declared["kind"].as_str()?))
}

/// Containers by their names; those that were put beside them are the cluster's.
fn pod(declared: &Value, live: &Value) -> Option<String> {
    ["initContainers", "containers"].into_iter().find_map(|list| {
        declared[list].as_array()?.iter().find_map(|container| {
            let what = match named(&live[list], container["name"].as_str()?) {
                Some(found) => container_edited(container, found)?,
                None => "is gone".to_owned(),
            };
            Some(format!("container {} {what}", container["name"].as_str()?))
        })
    })
}

fn container_edited(declared: &Value, live: &Value) -> Option<String> {
    let field = ["image", "command", "args"].into_iter().find(|field| !is_same(&declared[*field], &live[*field]));
    let variable = || {
        let all = declared["env"].as_array()?;
        // Of several that have one name the last one counts.
        let is_last = |at: usize| !all[at + 1..].iter().any(|other| other["name"] == all[at]["name"]);
        all.iter().enumerate().filter(|(at, _)| is_last(*at)).find_map(|(_, one)| {
            let name = one["name"].as_str()?;
            let found = named(&live["env"], name);
            let text = |one: &Value| one["value"].as_str().unwrap_or_default().to_owned();
            let is_same = |found: &Value| text(found) == text(one) && holds(&found["valueFrom"], &one["valueFrom"]);
            (!found.is_some_and(is_same)).then(|| format!("env {name}"))
        })
    };
    field.map(str::to_owned).or_else(variable)
}

/// A field that is declared empty, or not at all, may have any value.
fn is_same(declared: &Value, live: &Value) -> bool {
    let says_nothing = declared.is_null() || declared.as_array().is_some_and(Vec::is_empty);
    says_nothing || declared == live
}

/// Whether everything that is declared is there, the cluster's defaults beside it.
fn holds(live: &Value, declared: &Value) -> bool {
    match declared {
        Value::Object(all) => all.iter().all(|(key, value)| holds(&live[key], value)),
        _ => is_same(declared, live),
    }
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array()?.iter().rev().find(|one| one["name"] == name)
}

fn secret(declared: &Value, live: &Value) -> Option<String> {
    let bytes = |text: &Value| {
        let text: String = text.as_str()?.split_whitespace().collect();
        BASE64_STANDARD.decode(text).ok()
    };
    let text = entry(&declared["stringData"], |key, value| {
        bytes(&live[key]).is_some_and(|found| value.as_str().is_some_and(|text| text.as_bytes() == found))
    });
    let is_said_otherwise = |key: &str| !declared["stringData"][key].is_null();
    text.or_else(|| entry(&declared["data"], |key, value| is_said_otherwise(key) || bytes(&live[key]) == bytes(value)))
}

/// The first entry that isn't the same.
fn entry(declared: &Value, is_same: impl Fn(&str, &Value) -> bool) -> Option<String> {
    let (key, _) = declared.as_object()?.iter().find(|(key, value)| !value.is_null() && !is_same(key, value))?;
    Some(format!("data {key}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(change: impl Fn(&mut Value)) -> Value {
        let mut object = json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2, "template": {"spec": {
            "containers": [{"name": "a", "image": "a:1", "args": ["x"], "env": [
                {"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "E"},
                {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
        }}}});
        change(&mut object);
        object
    }

    #[test]
    fn what_somebody_changed_is_named_without_its_value() {
        let declared = workload(|_| {});
        let after = |change: &dyn Fn(&mut Value)| edited(&declared, &workload(change), false);
        assert_eq!(after(&|_| {}), None);
        // What the cluster adds of its own.
        let defaults = |object: &mut Value| {
            let pod = &mut object["spec"]["template"]["spec"];
            pod["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
            pod["containers"][0]["env"][3]["valueFrom"]["fieldRef"]["apiVersion"] = "v1".into();
            pod["containers"][0]["env"].as_array_mut().unwrap().remove(0);
            pod["containers"].as_array_mut().unwrap().insert(0, json!({"name": "sidecar", "image": "s"}));
            pod["containers"][1]["env"].as_array_mut().unwrap().push(json!({"name": "ADDED", "value": "x"}));
        };
        assert_eq!(after(&defaults), None);
        let container = |object: &mut Value, field: &str, value: Value| {
            object["spec"]["template"]["spec"]["containers"][0][field] = value;
        };
        let scale: &dyn Fn(&mut Value) = &|object| object["spec"]["replicas"] = 5.into();
        for (change, expected) in [
            (scale, "spec.replicas"),
            (&|object| container(object, "image", "evil:1".into()), "container a image"),
            (&|object| container(object, "args", json!(["y"])), "container a args"),
            (&|object| container(object, "name", "b".into()), "container a is gone"),
            (&|object| container(object, "env", json!([])), "container a env A"),
            (
                &|object| object["spec"]["template"]["spec"]["containers"][0]["env"][1]["value"] = "1".into(),
                "container a env A",
            ),
            (
                &|object| object["spec"]["template"]["spec"]["containers"][0]["env"][2]["value"] = "1".into(),
                "container a env E",
            ),
            (
                &|object| {
                    let env = &mut object["spec"]["template"]["spec"]["containers"][0]["env"];
                    env[3]["valueFrom"]["fieldRef"]["fieldPath"] = "metadata.uid".into();
                },
                "container a env F",
            ),
        ] {
            assert_eq!(after(change), Some(format!("Deployment web: {expected}")));
        }
        assert_eq!(edited(&declared, &workload(scale), true), None, "an autoscaler's");
        let silent = workload(|object| container(object, "args", json!([])));
        assert_eq!(edited(&silent, &workload(|object| container(object, "args", Value::Null)), false), None);
    }

    #[test]
    fn what_configurations_and_secrets_hold_is_compared() {
        let map = |data: Value| json!({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
        assert_eq!(edited(&map(json!({"a": "1"})), &map(json!({"a": "1", "b": "2"})), false), None);
        let expected = Some("ConfigMap m: data a".to_owned());
        assert_eq!(edited(&map(json!({"a": "1"})), &map(json!({"a": "2"})), false), expected);
        assert_eq!(edited(&map(json!({"a": "1"})), &map(Value::Null), false), expected);
        let secret = |data: Value, text: Value| json!({"kind": "Secret", "metadata": {"name": "s"}, "data": data, "stringData": text});
        let live = secret(json!({"a": "aHVudGVyMg==", "b": "eA=="}), Value::Null);
        let declared = |data: Value, text: Value| edited(&secret(data, text), &live, false);
        assert_eq!(declared(json!({"a": "aHVu\ndGVyMg==\n"}), json!({"b": "x"})), None);
        assert_eq!(declared(json!({"a": "eA=="}), json!({"a": "hunter2"})), None, "`stringData` counts before `data`");
        assert_eq!(declared(json!({"a": "eA=="}), Value::Null), Some("Secret s: data a".to_owned()));
        assert_eq!(declared(Value::Null, json!({"b": "y"})), Some("Secret s: data b".to_owned()));
    }
}
