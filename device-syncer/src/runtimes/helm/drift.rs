//! What somebody changed of a release's objects: how many of a workload there are, its images, commands and environment,
//! and what configurations hold. Only what the manifest says is compared: what the cluster adds of its own is no drift.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The first thing in which the live object isn't what the manifest says; never a value, which may be a secret. What
/// `is_ignored` by its JSON Pointer may be as it is.
pub(super) fn edited(
    declared: &Value,
    live: &Value,
    is_scaled_by_another: bool,
    is_ignored: &dyn Fn(&str) -> bool,
) -> Option<String> {
    let pod = |place: &str| {
        let of = |object: &Value| object.pointer(place).cloned().unwrap_or_default();
        pod(&of(declared), &of(live), place, is_ignored)
    };
    let what = match declared["kind"].as_str()? {
        "Deployment" | "StatefulSet" | "DaemonSet" => {
            let replicas = &declared["spec"]["replicas"];
            let may_scale = is_scaled_by_another || is_ignored("/spec/replicas");
            let scaled = !may_scale && replicas.is_u64() && *replicas != live["spec"]["replicas"];
            if scaled { Some("spec.replicas".to_owned()) } else { pod("/spec/template/spec") }
        }
        "CronJob" => pod("/spec/jobTemplate/spec/template/spec"),
        "ConfigMap" => entry(&declared["data"], "/data", is_ignored, |key, value| live["data"][key] == *value),
        "Secret" => secret(declared, &live["data"], is_ignored),
        _ => None,
    }?;
    let name = declared["metadata"]["name"].as_str().unwrap_or_default();
    Some(format!("{} {name}: {what}", declared["kind"].as_str()?))
}

/// Containers by their names; those that were put beside them are the cluster's. `place` is where the pod's specification is.
fn pod(declared: &Value, live: &Value, place: &str, is_ignored: &dyn Fn(&str) -> bool) -> Option<String> {
    ["initContainers", "containers"].into_iter().find_map(|list| {
        declared[list].as_array()?.iter().enumerate().find_map(|(at, container)| {
            let place = format!("{place}/{list}/{at}");
            let what = match named(&live[list], container["name"].as_str()?) {
                Some(found) => container_edited(container, found, &place, is_ignored)?,
                None if is_ignored(&place) => return None,
                None => "is gone".to_owned(),
            };
            Some(format!("container {} {what}", container["name"].as_str()?))
        })
    })
}

fn container_edited(declared: &Value, live: &Value, place: &str, is_ignored: &dyn Fn(&str) -> bool) -> Option<String> {
    let may_be = |field: &str| is_ignored(&format!("{place}/{field}"));
    let is_edited = |field: &&str| !is_same(&declared[*field], &live[*field]) && !may_be(field);
    let field = ["image", "command", "args"].into_iter().find(is_edited);
    let variable = || {
        let all = declared["env"].as_array()?;
        // Of several that have one name the last one counts.
        let is_last = |at: usize| !all[at + 1..].iter().any(|other| other["name"] == all[at]["name"]);
        all.iter().enumerate().filter(|(at, _)| is_last(*at)).find_map(|(at, one)| {
            let name = one["name"].as_str()?;
            let found = named(&live["env"], name);
            let text = |one: &Value| one["value"].as_str().unwrap_or_default().to_owned();
            let may_be = |part: &str| may_be(&format!("env/{at}{part}"));
            if may_be("") {
                return None;
            }
            let is_same = |found: &Value| {
                (text(found) == text(one) || may_be("/value"))
                    && (holds(&found["valueFrom"], &one["valueFrom"]) || may_be("/valueFrom"))
            };
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

fn secret(declared: &Value, live: &Value, is_ignored: &dyn Fn(&str) -> bool) -> Option<String> {
    let bytes = |text: &Value| {
        let text: String = text.as_str()?.split_whitespace().collect();
        BASE64_STANDARD.decode(text).ok()
    };
    // It lives as `data`, under which it may be ignored, too.
    let may_be = |part: &str| is_ignored(part) || is_ignored(&part.replacen("/stringData", "/data", 1));
    let text = entry(&declared["stringData"], "/stringData", &may_be, |key, value| {
        bytes(&live[key]).is_some_and(|found| value.as_str().is_some_and(|text| text.as_bytes() == found))
    });
    let is_said_otherwise = |key: &str| !declared["stringData"][key].is_null();
    let is_same = |key: &str, value: &Value| is_said_otherwise(key) || bytes(&live[key]) == bytes(value);
    text.or_else(|| entry(&declared["data"], "/data", is_ignored, is_same))
}

/// The first entry that isn't the same; all of them are at `place`.
fn entry(
    declared: &Value,
    place: &str,
    is_ignored: &dyn Fn(&str) -> bool,
    is_same: impl Fn(&str, &Value) -> bool,
) -> Option<String> {
    let may_be = |key: &str| is_ignored(&format!("{place}/{}", key.replace('~', "~0").replace('/', "~1")));
    let is_edited = |key: &str, value: &Value| !value.is_null() && !is_same(key, value) && !may_be(key);
    let (key, _) = declared.as_object()?.iter().find(|(key, value)| is_edited(key, value))?;
    Some(format!("data {key}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use repo_model::envelope::IgnoredDrift;

    use super::*;

    fn edited(declared: &Value, live: &Value, is_scaled_by_another: bool) -> Option<String> {
        super::edited(declared, live, is_scaled_by_another, &|_| false)
    }

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

    #[test]
    fn what_is_ignored_may_be_as_it_is_with_all_below_it_and_nothing_beside_it() {
        let declared = workload(|_| {});
        let live = workload(|object| {
            object["spec"]["replicas"] = 5.into();
            let container = &mut object["spec"]["template"]["spec"]["containers"][0];
            container["image"] = "b:2".into();
            container["env"][1]["value"] = "3".into();
        });
        let ignored = |pointers: &[&str]| {
            let of = |pointer: &&str| json!({"kind": "Deployment", "name": "web", "pointer": pointer});
            let all: Vec<IgnoredDrift> = serde_json::from_value(pointers.iter().map(of).collect()).unwrap();
            super::edited(&declared, &live, false, &|part| all.iter().any(|one| one.covers("Deployment", "web", part)))
        };
        let container = "/spec/template/spec/containers/0";
        let (image, variable) = (&*format!("{container}/image"), &*format!("{container}/env/1/value"));
        assert_eq!(ignored(&["/spec/replicas"]), Some("Deployment web: container a image".to_owned()));
        assert_eq!(ignored(&["/spec/replicas", image]), Some("Deployment web: container a env A".to_owned()));
        assert_eq!(ignored(&[image, variable]), Some("Deployment web: spec.replicas".to_owned()));
        for all in [&["/spec/replicas", image, variable][..], &["/spec/replicas", container], &["/spec"], &[""]] {
            assert_eq!(ignored(all), None, "{all:?}");
        }
        assert!(
            ignored(&["/spec/rep", "/spec/template/spec/containers/00", "/spec/template/spec/containers/1"]).is_some()
        );
        let entries = |kind: &str, field: &str, pointer: &str| {
            let declared = json!({"kind": kind, "metadata": {"name": "m"}, field: {"a/b~c": "eA=="}});
            super::edited(&declared, &json!({"data": {}}), false, &|part| part == pointer)
        };
        for (kind, field) in [("ConfigMap", "data"), ("Secret", "data"), ("Secret", "stringData")] {
            assert_eq!(entries(kind, field, "/data/a~1b~0c"), None, "{kind} {field}");
            assert_eq!(entries(kind, field, "/data/a/b~c"), Some(format!("{kind} m: data a/b~c")));
        }
        let gone = workload(|object| object["spec"]["template"]["spec"]["containers"] = json!([]));
        assert_eq!(super::edited(&declared, &gone, false, &|part| part == container), None);
    }
}
