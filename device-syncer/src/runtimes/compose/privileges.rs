//! What a resolved project wants beyond an ordinary container, against the site's policy.

use std::net::IpAddr;
use std::path::Path;

use repo_artifacts::compose::{LOG_DRIVERS, RESERVED_LABELS};
use serde_json::Value;

use super::resolved::{Resolved, inside, items};
use crate::config::policy::{self, Ceilings, PortPolicy, SitePolicy};
use crate::decision::admission::{admits_image, image_name};

/// Limits by which a process may take the processors from all others, as one with the capability `SYS_NICE` may.
const SCHEDULING: [&str; 3] = ["nice", "rtprio", "rttime"];

/// From here up, a port on loopback needs no policy.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// Every wish that the policy denies, each with its place. `files` is where the archive's own files will lie.
pub(super) fn denied(resolved: &Resolved, policy: &SitePolicy, project: &str, files: &Path) -> Vec<String> {
    judge(resolved, Check { policy, project, files, is_applied: false, place: String::new(), denied: Vec::new() })
}

/// The same of the document that was applied, in which images have names of ours, and everything our labels.
pub(super) fn denied_as_applied(resolved: &Resolved, policy: &SitePolicy, project: &str, files: &Path) -> Vec<String> {
    judge(resolved, Check { policy, project, files, is_applied: true, place: String::new(), denied: Vec::new() })
}

fn judge(resolved: &Resolved, mut check: Check<'_>) -> Vec<String> {
    for (name, service) in resolved.section("services") {
        check.place = format!("services.{name}");
        check.service(service);
    }
    for kind in ["networks", "volumes"] {
        for (name, object) in resolved.section(kind) {
            check.place = format!("{kind}.{name}");
            check.object(name, object, if kind == "networks" { "bridge" } else { "local" });
        }
    }
    for kind in ["configs", "secrets"] {
        for (name, object) in resolved.section(kind) {
            check.place = format!("{kind}.{name}");
            object["file"].as_str().into_iter().for_each(|path| check.path("file", path, false));
        }
    }
    check.denied
}

struct Check<'a> {
    policy: &'a SitePolicy,
    project: &'a str,
    files: &'a Path,
    is_applied: bool,
    place: String,
    denied: Vec<String>,
}

impl Check<'_> {
    fn require(&mut self, allowed: bool, what: &str) {
        if !allowed {
            self.denied.push(format!("`{}.{what}`", self.place));
        }
    }

    fn service(&mut self, service: &Value) {
        let policy = self.policy;
        self.require(service["image"].as_str().is_some_and(|image| !image.is_empty()), "image: missing");
        self.require(policy.privileged || !is_true(&service["privileged"]), "privileged");
        for option in texts(&service["security_opt"]) {
            let harmless = ["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"].contains(&option);
            self.require(harmless || policy.privileged, &format!("security_opt: {option}"));
        }
        let has = |name: &str| policy.capabilities.contains(name) || policy.capabilities.contains("ALL");
        for capability in texts(&service["cap_add"]) {
            let name = capability.to_ascii_uppercase();
            let name = name.strip_prefix("CAP_").unwrap_or(&name);
            self.require(has(name), &format!("cap_add: {capability}"));
        }
        for limit in service["ulimits"].as_object().into_iter().flat_map(|limits| limits.keys()) {
            let allowed = !SCHEDULING.contains(&limit.as_str()) || has("SYS_NICE");
            self.require(allowed, &format!("ulimits: {limit}"));
        }
        for device in items(&service["devices"]).map(|device| device["source"].as_str().unwrap_or_default()) {
            self.require(device_allowed(policy, device), &format!("devices: {device}"));
        }
        let driver = service["logging"]["driver"].as_str();
        self.require(driver.is_none_or(|driver| LOG_DRIVERS.contains(&driver)), "logging.driver");
        self.namespaces(service);
        self.labels(&service["labels"]);
        items(&service["ports"]).for_each(|port| self.port(port));
        items(&service["volumes"]).for_each(|mount| self.mount(mount));
        self.image(service["image"].as_str().unwrap_or_default());
        self.ceilings(service);
    }

    fn image(&mut self, image: &str) {
        let Some(patterns) = self.policy.images.as_ref().filter(|_| !self.is_applied) else { return };
        let name = image_name(image);
        self.require(admits_image(patterns, image), &format!("image: {name} isn't among `policy.images`"));
    }

    /// Compose takes a limit from either place; both count.
    fn ceilings(&mut self, service: &Value) {
        let limits = &service["deploy"]["resources"]["limits"];
        let Ceilings { memory, milli_cpus } = self.policy.ceilings;
        if let Some(most) = memory {
            let found = [&service["mem_limit"], &limits["memory"]].map(|limit| amount(limit, |text| text.parse().ok()));
            self.ceiling("memory", most, found);
        }
        if let Some(most) = milli_cpus {
            let found = [&service["cpus"], &limits["cpus"]];
            let milli = |text: &str| text.parse().ok().and_then(policy::milli_cpus);
            self.ceiling("cpus", most, found.map(|limit| amount(limit, milli)));
        }
    }

    /// A limit that is missing, or 0, is none.
    fn ceiling(&mut self, what: &str, most: u64, found: [Option<u64>; 2]) {
        let is_within = found.iter().flatten().all(|limit| (1..=most).contains(limit));
        let is_limited = found.iter().flatten().next().is_some();
        let how = if is_limited { "over" } else { "without a limit, and so over" };
        self.require(is_limited && is_within, &format!("{what}: {how} `policy.ceilings.{what}`"));
    }

    fn namespaces(&mut self, service: &Value) {
        for (key, own) in [
            ("network_mode", ["none"].as_slice()),
            ("ipc", &["private", "none", "shareable"]),
            ("cgroup", &["private"]),
            ("pid", &[]),
            ("uts", &[]),
            ("userns_mode", &[]),
        ] {
            let Some(mode) = service[key].as_str() else { continue };
            let allowed = match mode {
                "host" => self.policy.host_namespaces,
                mode => own.contains(&mode) || mode.starts_with("service:"),
            };
            self.require(allowed, &format!("{key}: {mode}"));
        }
    }

    fn port(&mut self, port: &Value) {
        let published = port["published"].as_str().unwrap_or_default();
        let address = port["host_ip"].as_str().unwrap_or_default();
        let loopback = address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let range = range(published);
        let allowed = match (&self.policy.ports, range) {
            (PortPolicy::Any, _) => true,
            (_, None) => loopback && published.is_empty(),
            (_, Some((first, _))) if loopback && first >= FIRST_UNPRIVILEGED_PORT => true,
            (PortPolicy::Ranges(ranges), Some((first, last))) => ranges.iter().any(|r| r.0 <= first && last <= r.1),
        };
        self.require(allowed, &format!("ports: {address}:{published}"));
    }

    fn mount(&mut self, mount: &Value) {
        match mount["type"].as_str() {
            Some("volume" | "tmpfs") => {}
            Some("bind") => {
                let source = mount["source"].as_str().unwrap_or_default();
                self.path("volumes", source, !is_true(&mount["read_only"]));
            }
            kind => self.require(false, &format!("volumes: type {}", kind.unwrap_or("missing"))),
        }
    }

    /// A path on the host: the archive's own, or one that the policy allows.
    fn path(&mut self, key: &str, path: &str, writes: bool) {
        let allowed =
            |host: &crate::config::policy::HostPath| inside(&host.path, path).is_some() && (host.writable || !writes);
        let own = inside(self.files, path).is_some();
        let place = if writes { "for writing " } else { "" };
        self.require(own || self.policy.host_paths.iter().any(allowed), &format!("{key}: {place}{path}"));
    }

    fn object(&mut self, key: &str, object: &Value, driver: &str) {
        let name = object["name"].as_str().unwrap_or_default();
        if is_true(&object["external"]) {
            return self.require(self.policy.external.contains(name), &format!("external: {name}"));
        }
        self.require(name == format!("{}_{key}", self.project), &format!("name: {name}"));
        let wanted = object["driver"].as_str().unwrap_or(driver);
        let host = driver == "bridge" && self.policy.host_namespaces;
        self.require(wanted == driver || host, &format!("driver: {wanted}"));
        self.labels(&object["labels"]);
    }

    fn labels(&mut self, labels: &Value) {
        let is_ours = self.is_applied;
        for name in labels.as_object().into_iter().flatten().map(|(name, _)| name) {
            let is_reserved = RESERVED_LABELS.iter().any(|reserved| name.starts_with(reserved));
            self.require(is_ours || !is_reserved, &format!("labels.{name}"));
        }
    }
}

/// A limit as compose writes it, a number or its text; `None` where there is none. What can't be read is over everything.
fn amount(limit: &Value, parse: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let text = match limit {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(parse(&text).unwrap_or(u64::MAX))
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    items(list).filter_map(Value::as_str)
}

/// Compose writes booleans as such; text is taken at its worst.
fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

fn device_allowed(policy: &SitePolicy, device: &str) -> bool {
    !device.split('/').any(|part| part == "..")
        && policy.devices.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(prefix) => device.starts_with(prefix),
            None => device == allowed,
        })
}

/// First and last port of `8080` or `8000-8010`; none where it is neither.
fn range(published: &str) -> Option<(u16, u16)> {
    let (first, last) = published.split_once('-').unwrap_or((published, published));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(service: Value, policy: &SitePolicy) -> Vec<String> {
        let mut service = service;
        service["image"] = "i".into();
        let document = json!({"services": {"web": service}});
        denied(&Resolved::parse(document.to_string().as_bytes()).unwrap(), policy, "p", Path::new("/d/files"))
    }

    #[test]
    fn each_privilege_needs_its_policy() {
        let policy: SitePolicy = serde_json::from_value(json!({
            "privileged": true, "hostNamespaces": true, "capabilities": ["NET_ADMIN", "SYS_NICE"], "devices": ["/dev/ttyUSB*"],
            "hostPaths": [{"path": "/srv/data", "writable": true}, {"path": "/etc/site"}], "ports": [[80, 90]],
        }))
        .unwrap();
        let bind =
            |source: &str, read_only| json!({"volumes": [{"type": "bind", "source": source, "read_only": read_only}]});
        let port = |ip: &str, port: &str| json!({"ports": [{"host_ip": ip, "published": port, "target": 1}]});
        for wish in [
            json!({"privileged": true}),
            json!({"security_opt": ["seccomp:unconfined"]}),
            json!({"cap_add": ["CAP_NET_ADMIN"]}),
            json!({"ulimits": {"nofile": 1024, "rtprio": {"soft": 0, "hard": 99}}}),
            json!({"ulimits": {"nice": -20}}),
            json!({"devices": [{"source": "/dev/ttyUSB0"}]}),
            json!({"network_mode": "host"}),
            json!({"pid": "host"}),
            json!({"ipc": "host"}),
            json!({"uts": "host"}),
            json!({"userns_mode": "host"}),
            json!({"cgroup": "host"}),
            bind("/srv/data/x", false),
            bind("/etc/site", true),
            port("", "80"),
            port("0.0.0.0", "85-90"),
            port("127.0.0.1", "80"),
        ] {
            assert_eq!(check(wish.clone(), &SitePolicy::default()).len(), 1, "{wish} without policy");
            assert_eq!(check(wish.clone(), &policy), Vec::<String>::new(), "{wish} with policy");
        }
        for wish in [
            json!({"cap_add": ["SYS_ADMIN"]}),
            json!({"devices": [{"source": "/dev/ttyUSB0/../sda"}]}),
            json!({"network_mode": "container:other"}),
            json!({"network_mode": "bridge"}),
            json!({"pid": "container:other"}),
            json!({"logging": {"driver": "syslog"}}),
            json!({"labels": {"device-syncer.fleet": "x"}}),
            json!({"labels": {"com.docker.compose.project": "x"}}),
            json!({"volumes": [{"type": "image", "source": "i"}]}),
            bind("/etc/site", false),
            bind("/etc/site/../shadow", true),
            bind("/srv/data2", false),
            bind("/d/files/../marker.json", true),
            bind("/d", true),
            port("", "85-91"),
            port("192.0.2.1", "8080"),
            port("", ""),
        ] {
            assert_eq!(check(wish.clone(), &policy).len(), 1, "{wish}");
        }
    }

    #[test]
    fn an_image_is_admitted_by_its_name_as_it_is_written() {
        let policy: SitePolicy =
            serde_json::from_value(json!({"images": ["registry.plant.local/**", "postgres", "local:5000/*"]})).unwrap();
        let denied = |image: &str| {
            let document = json!({"services": {"web": {"image": image}}});
            denied(&Resolved::parse(document.to_string().as_bytes()).unwrap(), &policy, "p", Path::new("/d/files"))
        };
        let digest = format!("@sha256:{}", "0".repeat(64));
        for image in [
            "registry.plant.local/a/b:1",
            "postgres",
            "postgres:16",
            &format!("postgres:16{digest}"),
            &format!("registry.plant.local/a{digest}"),
            "local:5000/a",
            "local:5000/a:1",
        ] {
            assert_eq!(denied(image), Vec::<String>::new(), "{image}");
        }
        for image in [
            "registry.plant.local.evil.example/a",
            "evil.example/registry.plant.local/a",
            "evil.example/postgres",
            "docker.io/library/postgres",
            "registry.plant.local",
            "registry.plant.local/../a",
            "local:5000/a/b",
            "local:6000/a",
            "evil.example@registry.plant.local/a",
        ] {
            assert_eq!(denied(image).len(), 1, "{image}");
        }
        let words = denied("evil.example/a:1@sha256:0");
        assert_eq!(words, ["`services.web.image: evil.example/a isn't among `policy.images``"]);
    }

    #[test]
    fn a_service_over_a_ceiling_or_without_a_limit_is_denied() {
        let policy = |ceilings: Value| serde_json::from_value::<SitePolicy>(json!({"ceilings": ceilings})).unwrap();
        let memory = policy(json!({"memory": "512Mi"}));
        let cpus = policy(json!({"cpus": 1.5}));
        let deploy = |limits: Value| json!({"deploy": {"resources": {"limits": limits}}});
        for (policy, wish, within) in [
            (&memory, json!({"mem_limit": "536870912"}), true),
            (&memory, json!({"mem_limit": 536_870_912}), true),
            (&memory, json!({"mem_limit": "536870913"}), false),
            (&memory, json!({"mem_limit": "0"}), false),
            (&memory, json!({"mem_limit": "512m"}), false),
            (&memory, json!({}), false),
            (&memory, json!({"cpus": 0.1}), false),
            (&memory, deploy(json!({"memory": "536870912"})), true),
            (&memory, deploy(json!({"memory": "1073741824"})), false),
            (&memory, json!({"mem_limit": "1", "deploy": {"resources": {"limits": {"memory": "1073741824"}}}}), false),
            (&cpus, json!({"cpus": 1.5}), true),
            (&cpus, json!({"cpus": "1.5"}), true),
            (&cpus, json!({"cpus": 1.5001}), false),
            (&cpus, json!({"cpus": 0}), false),
            (&cpus, json!({"cpus": -1}), false),
            (&cpus, json!({"cpus": "1e400"}), false),
            (&cpus, deploy(json!({"cpus": 1})), true),
            (&cpus, deploy(json!({"cpus": 2})), false),
            (&cpus, json!({}), false),
            (&SitePolicy::default(), json!({}), true),
        ] {
            assert_eq!(check(wish.clone(), policy).is_empty(), within, "{policy:?} {wish}");
        }
        for ceilings in [
            json!({"memory": "512"}),
            json!({"memory": "0Mi"}),
            json!({"cpus": 0}),
            json!({"cpus": -1}),
            json!({"pids": 1}),
        ] {
            assert!(serde_json::from_value::<SitePolicy>(json!({"ceilings": ceilings})).is_err(), "{ceilings}");
        }
    }

    #[test]
    fn an_ordinary_service_needs_no_policy() {
        let wish = json!({
            "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"], "network_mode": "service:other",
            "ports": [{"host_ip": "127.0.0.1", "published": "8080"}, {"host_ip": "::1", "target": 1}],
            "volumes": [{"type": "bind", "source": "/d/files/conf"}, {"type": "volume"}, {"type": "tmpfs"}],
            "labels": {"app": "x"}, "logging": {"driver": "json-file"}, "ulimits": {"nofile": 1024, "nproc": 64},
        });
        assert_eq!(check(wish, &SitePolicy::default()), Vec::<String>::new());
    }

    #[test]
    fn networks_and_volumes_are_the_projects_own() {
        let check = |document: Value| {
            let policy = SitePolicy { external: ["shared".to_owned()].into(), ..SitePolicy::default() };
            let resolved = Resolved::parse(document.to_string().as_bytes()).unwrap();
            denied(&resolved, &policy, "p", Path::new("/d/files"))
        };
        for good in [
            json!({"networks": {"default": {"name": "p_default", "driver": "bridge"}}, "volumes": {"v": {"name": "p_v"}}}),
            json!({"networks": {"n": {"name": "shared", "external": true}}}),
            json!({"configs": {"c": {"file": "/d/files/c"}}, "secrets": {"s": {"file": "/d/files/s"}}}),
        ] {
            assert_eq!(check(good.clone()), Vec::<String>::new(), "{good}");
        }
        for bad in [
            json!({"networks": {"n": {"name": "other_default"}}}),
            json!({"networks": {"n": {"name": "foreign", "external": true}}}),
            json!({"networks": {"n": {"name": "p_n", "driver": "macvlan"}}}),
            json!({"volumes": {"v": {"name": "other_v"}}}),
            json!({"volumes": {"v": {"name": "p_v", "driver": "nfs"}}}),
            json!({"volumes": {"v": {"name": "p_v", "labels": {"com.docker.compose.project": "x"}}}}),
            json!({"configs": {"c": {"file": "/etc/shadow"}}}),
            json!({"secrets": {"s": {"file": "/etc/shadow"}}}),
        ] {
            assert_eq!(check(bad.clone()).len(), 1, "{bad}");
        }
    }
}
