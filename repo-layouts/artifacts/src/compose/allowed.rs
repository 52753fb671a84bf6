//! The allow-list: every key that a resolved compose file may have. A key that isn't here is an error that names it.
//!
//! Keys are those of the Compose specification. Some need the site's policy as well. Left out on
//! purpose: what runs or reads something outside the containers (`provider`, `build`, `use_api_socket`,
//! `credential_spec`, `develop`), what hides state from us (`scale`, `profiles`, `container_name`, `pull_policy`), what
//! may meet a foreign object (`volumes_from`, `external_links`, `driver_opts`, `ipam`), and what lowers a container's
//! bounds without a policy that could allow it (`cgroup_parent`, `runtime`, `gpus`, `device_cgroup_rules`, …).

use serde_json::Value;

/// What may stand at one place.
enum Shape {
    /// A scalar, or a list of scalars.
    Leaf,
    /// Nothing, or an empty object.
    Empty,
    /// An object with these keys, `x-…` besides; or a list of such objects.
    Keys(&'static [(&'static str, Shape)]),
    /// A scalar, or what the other shape says.
    LeafOr(&'static Shape),
    /// An object with free names.
    Each(&'static Shape),
}

use Shape::{Each, Empty, Keys, Leaf, LeafOr};

static PROJECT: Shape = Keys(&[
    ("configs", Each(&Keys(&[("content", Leaf), ("file", Leaf), ("name", Leaf)]))),
    ("name", Leaf),
    ("networks", Each(&NETWORK)),
    ("secrets", Each(&Keys(&[("file", Leaf), ("name", Leaf)]))),
    ("services", Each(&SERVICE)),
    ("volumes", Each(&VOLUME)),
]);

static NETWORK: Shape = Keys(&[
    ("driver", Leaf),
    ("enable_ipv4", Leaf),
    ("enable_ipv6", Leaf),
    ("external", Leaf),
    ("internal", Leaf),
    ("ipam", Empty),
    ("labels", Each(&Leaf)),
    ("name", Leaf),
]);

static VOLUME: Shape = Keys(&[("driver", Leaf), ("external", Leaf), ("labels", Each(&Leaf)), ("name", Leaf)]);

static SERVICE: Shape = Keys(&[
    ("attach", Leaf),
    ("cap_add", Leaf),
    ("cap_drop", Leaf),
    ("cgroup", Leaf),
    ("command", Leaf),
    ("configs", FILE_MOUNT),
    ("cpu_period", Leaf),
    ("cpu_quota", Leaf),
    ("cpu_shares", Leaf),
    ("cpus", Leaf),
    ("cpuset", Leaf),
    ("depends_on", Each(&Keys(&[("condition", Leaf), ("required", Leaf), ("restart", Leaf)]))),
    ("deploy", Keys(&[("placement", Empty), ("resources", RESOURCES)])),
    ("devices", Keys(&[("permissions", Leaf), ("source", Leaf), ("target", Leaf)])),
    ("dns", Leaf),
    ("dns_opt", Leaf),
    ("dns_search", Leaf),
    ("domainname", Leaf),
    ("entrypoint", Leaf),
    ("environment", Each(&Leaf)),
    ("expose", Leaf),
    ("extra_hosts", LeafOr(&Each(&Leaf))),
    ("group_add", Leaf),
    ("healthcheck", HEALTHCHECK),
    ("hostname", Leaf),
    ("image", Leaf),
    ("init", Leaf),
    ("ipc", Leaf),
    ("labels", Each(&Leaf)),
    ("links", Leaf),
    ("logging", Keys(&[("driver", Leaf), ("options", Each(&Leaf))])),
    ("mem_limit", Leaf),
    ("mem_reservation", Leaf),
    ("memswap_limit", Leaf),
    ("network_mode", Leaf),
    ("networks", Each(&Keys(&[("aliases", Leaf), ("priority", Leaf)]))),
    ("pid", Leaf),
    ("pids_limit", Leaf),
    ("platform", Leaf),
    ("ports", PORT),
    ("privileged", Leaf),
    ("read_only", Leaf),
    ("restart", Leaf),
    ("secrets", FILE_MOUNT),
    ("security_opt", Leaf),
    ("shm_size", Leaf),
    ("stdin_open", Leaf),
    ("stop_grace_period", Leaf),
    ("stop_signal", Leaf),
    ("sysctls", Each(&Leaf)),
    ("tmpfs", Leaf),
    ("tty", Leaf),
    ("ulimits", Each(&LeafOr(&Keys(&[("hard", Leaf), ("soft", Leaf)])))),
    ("user", Leaf),
    ("userns_mode", Leaf),
    ("uts", Leaf),
    ("volumes", MOUNT),
    ("working_dir", Leaf),
]);

const FILE_MOUNT: Shape = Keys(&[("gid", Leaf), ("mode", Leaf), ("source", Leaf), ("target", Leaf), ("uid", Leaf)]);

const RESOURCES: Shape = Keys(&[
    ("limits", Keys(&[("cpus", Leaf), ("memory", Leaf), ("pids", Leaf)])),
    ("reservations", Keys(&[("cpus", Leaf), ("memory", Leaf)])),
]);

const HEALTHCHECK: Shape = Keys(&[
    ("disable", Leaf),
    ("interval", Leaf),
    ("retries", Leaf),
    ("start_interval", Leaf),
    ("start_period", Leaf),
    ("test", Leaf),
    ("timeout", Leaf),
]);

const PORT: Shape = Keys(&[
    ("app_protocol", Leaf),
    ("host_ip", Leaf),
    ("mode", Leaf),
    ("name", Leaf),
    ("protocol", Leaf),
    ("published", Leaf),
    ("target", Leaf),
]);

const MOUNT: Shape = Keys(&[
    ("bind", Keys(&[("create_host_path", Leaf), ("selinux", Leaf)])),
    ("read_only", Leaf),
    ("source", Leaf),
    ("target", Leaf),
    ("tmpfs", Keys(&[("mode", Leaf), ("size", Leaf)])),
    ("type", Leaf),
    ("volume", Keys(&[("nocopy", Leaf), ("subpath", Leaf)])),
]);

/// The keys that may stand at the top of a resolved document.
pub(super) fn project_keys() -> Vec<&'static str> {
    keys(&PROJECT)
}

/// The keys that a service may have there.
pub(super) fn service_keys() -> Vec<&'static str> {
    keys(&SERVICE)
}

fn keys(shape: &Shape) -> Vec<&'static str> {
    if let Keys(keys) = shape { keys.iter().map(|(key, _)| *key).collect() } else { Vec::new() }
}

/// Every place of a resolved document that the list doesn't allow, like `services.web.build`.
pub fn violations(document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(&PROJECT, document, "", &mut found);
    found
}

fn walk(shape: &Shape, value: &Value, place: &str, found: &mut Vec<String>) {
    match (shape, value) {
        (_, Value::Null) => {}
        (Keys(allowed), Value::Object(map)) => {
            for (key, value) in map.iter().filter(|(key, _)| !key.starts_with("x-")) {
                let place = join(place, key);
                match allowed.iter().find(|(name, _)| name == key) {
                    Some((_, shape)) => walk(shape, value, &place, found),
                    None => found.push(format!("`{place}` is not allowed")),
                }
            }
        }
        (Keys(_), Value::Array(items)) if items.iter().all(Value::is_object) => {
            items.iter().enumerate().for_each(|(n, item)| walk(shape, item, &format!("{place}[{n}]"), found));
        }
        (Each(shape), Value::Object(map)) => {
            map.iter().for_each(|(name, value)| walk(shape, value, &join(place, name), found));
        }
        (LeafOr(shape), Value::Object(_)) => walk(shape, value, place, found),
        (Empty, Value::Object(map)) if map.is_empty() => {}
        (Leaf | LeafOr(_), Value::Array(items)) if !items.iter().any(is_nested) => {}
        (Leaf | LeafOr(_), value) if !is_nested(value) => {}
        _ => found.push(format!("`{place}` is not allowed in this form")),
    }
}

fn is_nested(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

fn join(place: &str, key: &str) -> String {
    if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Every key that the Compose specification (schema of compose-go 2.9, August 2025) gives a service.
    const SPECIFIED: &[&str] = &[
        "annotations",
        "attach",
        "blkio_config",
        "build",
        "cap_add",
        "cap_drop",
        "cgroup",
        "cgroup_parent",
        "command",
        "configs",
        "container_name",
        "cpu_count",
        "cpu_percent",
        "cpu_period",
        "cpu_quota",
        "cpu_rt_period",
        "cpu_rt_runtime",
        "cpu_shares",
        "cpus",
        "cpuset",
        "credential_spec",
        "depends_on",
        "deploy",
        "develop",
        "device_cgroup_rules",
        "devices",
        "dns",
        "dns_opt",
        "dns_search",
        "domainname",
        "entrypoint",
        "env_file",
        "environment",
        "expose",
        "extends",
        "external_links",
        "extra_hosts",
        "gpus",
        "group_add",
        "healthcheck",
        "hostname",
        "image",
        "init",
        "ipc",
        "isolation",
        "label_file",
        "labels",
        "links",
        "logging",
        "mac_address",
        "mem_limit",
        "mem_reservation",
        "mem_swappiness",
        "memswap_limit",
        "models",
        "network_mode",
        "networks",
        "oom_kill_disable",
        "oom_score_adj",
        "pid",
        "pids_limit",
        "platform",
        "ports",
        "post_start",
        "pre_stop",
        "privileged",
        "profiles",
        "provider",
        "pull_policy",
        "pull_refresh_after",
        "read_only",
        "restart",
        "runtime",
        "scale",
        "secrets",
        "security_opt",
        "shm_size",
        "stdin_open",
        "stop_grace_period",
        "stop_signal",
        "storage_opt",
        "sysctls",
        "tmpfs",
        "tty",
        "ulimits",
        "use_api_socket",
        "user",
        "userns_mode",
        "uts",
        "volumes",
        "volumes_from",
        "working_dir",
    ];

    #[test]
    fn every_specified_key_that_is_not_listed_is_refused_by_name() {
        let allowed = service_keys();
        assert!(allowed.iter().all(|key| SPECIFIED.contains(key)), "the list has keys that compose doesn't know");
        for key in SPECIFIED.iter().filter(|key| !allowed.contains(key)) {
            let found = violations(&json!({"services": {"web": {*key: "x"}}}));
            assert_eq!(found, [format!("`services.web.{key}` is not allowed")]);
        }
        for key in ["", "Image", "image ", "some_future_key"] {
            assert_eq!(violations(&json!({"services": {"web": {key: "x"}}})).len(), 1, "{key}");
        }
    }

    #[test]
    fn nested_objects_have_lists_of_their_own() {
        for document in [
            json!({"include": ["a"]}),
            json!({"models": {"m": {}}}),
            json!({"services": {"web": {"deploy": {"replicas": 2}}}}),
            json!({"services": {"web": {"deploy": {"resources": {"reservations": {"devices": []}}}}}}),
            json!({"services": {"web": {"volumes": [{"type": "bind", "bind": {"propagation": "rshared"}}]}}}),
            json!({"services": {"web": {"networks": {"n": {"driver_opts": {"a": "b"}}}}}}),
            json!({"services": {"web": {"environment": {"A": {"b": "c"}}}}}),
            json!({"services": {"web": {"volumes": ["/etc:/etc"]}}}),
            json!({"services": {"web": "image"}}),
            json!({"networks": {"n": {"driver_opts": {"a": "b"}}}}),
            json!({"networks": {"n": {"ipam": {"config": [{"subnet": "10.0.0.0/8"}]}}}}),
            json!({"networks": {"n": {"attachable": true}}}),
            json!({"volumes": {"v": {"driver_opts": {"type": "none", "o": "bind", "device": "/"}}}}),
            json!({"configs": {"c": {"external": true}}}),
            json!({"secrets": {"s": {"environment": "A"}}}),
        ] {
            assert_eq!(violations(&document).len(), 1, "{document}: {:?}", violations(&document));
        }
    }

    #[test]
    fn an_ordinary_project_has_no_violations() {
        let document = json!({
            "name": "p", "x-ours": {"anything": [{}]},
            "services": {"web": {"image": "i", "command": null, "x-more": {"a": 1},
                "environment": {"A": "1.10", "B": null}, "deploy": {"placement": {}, "resources": {"limits": {"cpus": 0.5}}},
                "ulimits": {"nproc": 3, "nofile": {"soft": 1, "hard": 2}}, "extra_hosts": ["a=b"],
                "ports": [{"mode": "ingress", "target": 80, "published": "80", "protocol": "tcp"}],
                "networks": {"default": null}, "volumes": [{"type": "volume", "source": "v", "target": "/v", "volume": {}}]}},
            "networks": {"default": {"name": "p_default", "ipam": {}}}, "volumes": {"v": {"name": "p_v"}},
        });
        assert_eq!(violations(&document), Vec::<String>::new());
    }
}
