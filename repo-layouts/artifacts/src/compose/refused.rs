//! What no device takes, told from the files as they are written.
//!
//! A device judges what Compose resolved, and by its site's policy. Here nothing is resolved, so only what is plain counts:
//! keys that no resolved document may have, and values without variables that no policy allows. What is missed here is
//! refused by the device.

use serde_json::Value;

use super::{LOG_DRIVERS, RESERVED_LABELS, allowed, raw};
use crate::Archive;

/// Keys that Compose resolves away, at the top and in a service.
const RESOLVED: [&[&str]; 2] = [&["include", "version"], &["env_file", "extends", "label_file", "profiles"]];

/// Everything in an archive that every device would refuse, each with its file and place.
pub fn refused(archive: &Archive) -> Vec<String> {
    let documents = match raw::read(archive) {
        Ok(documents) => documents,
        Err(problem) => return vec![problem],
    };
    let mut check = Check { file: "", found: Vec::new(), services: 0 };
    for (file, document) in &documents {
        check.file = file;
        check.project(document);
    }
    let Check { mut found, services, .. } = check;
    if services == 0 && found.is_empty() {
        found.push(format!("{}: it has no service", Archive::COMPOSE));
    }
    found
}

struct Check<'a> {
    file: &'a str,
    found: Vec<String>,
    services: usize,
}

impl Check<'_> {
    fn refuse(&mut self, place: &str, why: &str) {
        self.found.push(format!("{}: `{place}`: {why}", self.file));
    }

    fn project(&mut self, document: &Value) {
        self.keys("", document, &allowed::project_keys(), RESOLVED[0]);
        for (name, service) in objects(&document["services"]) {
            self.services += 1;
            // One with a profile may never be started, and Compose leaves it out then.
            if service.get("profiles").is_none() {
                self.service(&format!("services.{name}"), service);
            }
        }
        for kind in ["networks", "volumes"] {
            for (name, object) in objects(&document[kind]) {
                let place = format!("{kind}.{name}");
                let is_foreign = !matches!(object["external"], Value::Null | Value::Bool(false));
                if !is_foreign && is_plain(&object["name"]) {
                    self.refuse(&format!("{place}.name"), "names are the device's: leave it out");
                }
                self.labels(&place, &object["labels"]);
            }
        }
    }

    fn service(&mut self, place: &str, service: &Value) {
        self.keys(place, service, &allowed::service_keys(), RESOLVED[1]);
        let may_have_one = ["image", "extends", "build", "<<"].iter().any(|key| service.get(key).is_some());
        if !may_have_one {
            self.refuse(place, "it has no `image`");
        }
        if let Some(driver) = plain(&service["logging"]["driver"]).filter(|driver| !LOG_DRIVERS.contains(driver)) {
            let known = LOG_DRIVERS.join(", ");
            self.refuse(&format!("{place}.logging.driver"), &format!("`{driver}` is none of {known}"));
        }
        for key in ["network_mode", "ipc", "pid", "cgroup", "uts", "userns_mode"] {
            if plain(&service[key]).is_some_and(|mode| mode.starts_with("container:")) {
                self.refuse(&format!("{place}.{key}"), "another application's container can't be shared");
            }
        }
        for mount in service["volumes"].as_array().into_iter().flatten().filter(|mount| mount.is_object()) {
            if let Some(kind) = plain(&mount["type"]).filter(|kind| !["volume", "tmpfs", "bind"].contains(kind)) {
                self.refuse(&format!("{place}.volumes"), &format!("the type `{kind}` is not supported"));
            }
        }
        self.labels(place, &service["labels"]);
    }

    /// A merge key brings keys of its own, which are looked at where they are written.
    fn keys(&mut self, place: &str, value: &Value, allowed: &[&str], resolved: &[&str]) {
        let Some(map) = value.as_object() else { return };
        for (key, _) in map.iter().filter(|(_, value)| !value.is_null()) {
            let is_known = allowed.contains(&key.as_str()) || resolved.contains(&key.as_str());
            if !is_known && key != "<<" && !key.starts_with("x-") {
                let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                self.refuse(&place, "no device allows this key");
            }
        }
    }

    fn labels(&mut self, place: &str, labels: &Value) {
        let listed = labels.as_array().into_iter().flatten().filter_map(Value::as_str);
        let names = objects(labels).map(|(name, _)| name.as_str());
        let names = names.chain(listed.map(|label| label.split('=').next().unwrap_or_default()));
        let reserved = names.filter(|name| RESERVED_LABELS.iter().any(|begin| name.starts_with(begin)));
        for name in reserved.map(str::to_owned).collect::<Vec<_>>() {
            self.refuse(&format!("{place}.labels.{name}"), "this label is the device's own");
        }
    }
}

fn objects(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A text without variables.
fn plain(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.contains('$'))
}

fn is_plain(value: &Value) -> bool {
    plain(value).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::testing::archive;

    #[test]
    fn what_no_device_takes_is_named_with_its_file_and_place() {
        for (text, place) in [
            ("services: {web: {build: .}}", "`services.web.build`"),
            ("services: {web: {image: i, imgae: j}}", "`services.web.imgae`"),
            ("services: {web: {image: i, container_name: x}}", "`services.web.container_name`"),
            ("services: {web: {command: x}}", "`services.web`: it has no `image`"),
            ("services: {web: {image: i, logging: {driver: syslog}}}", "`services.web.logging.driver`"),
            ("services: {web: {image: i, pid: 'container:x'}}", "`services.web.pid`"),
            ("services: {web: {image: i, labels: ['com.docker.x=y']}}", "`services.web.labels.com.docker.x`"),
            ("services: {web: {image: i, volumes: [{type: npipe, source: a}]}}", "`services.web.volumes`"),
            ("services: {web: {image: i}}\nmodels: {m: {}}", "`models`"),
            ("services: {web: {image: i}}\nvolumes: {v: {name: mine}}", "`volumes.v.name`"),
            ("services: {}", "it has no service"),
            ("services: [", "compose.yaml"),
            ("services: {web: {image: i, env_file: /etc/shadow}}", "env_file"),
        ] {
            let found = refused(&archive(&[("compose.yaml", text)]));
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with("compose.yaml") && found[0].contains(place), "{text}: {found:?}");
        }
        let inner = ("sub/inner.yaml", "services: {db: {image: i, scale: 2}}");
        let found = refused(&archive(&[("compose.yaml", "include: [sub/inner.yaml]"), inner]));
        assert_eq!(found, ["sub/inner.yaml: `services.db.scale`: no device allows this key"]);
    }

    #[test]
    fn what_a_device_may_take_passes() {
        let text = "version: '3'\nx-a: &a {restart: always}\ninclude: [b.yaml]\nservices:\n  web:\n    <<: *a\n    \
                    image: 'i:${TAG}'\n    build: null\n    logging: {driver: '${DRIVER}'}\n    ports: ['80:80']\n    \
                    network_mode: host\n    privileged: true\n    volumes: ['./data:/d', {type: bind, source: /srv, target: /s}]\n  \
                    debug: {build: ., profiles: [debug]}\nvolumes: {v: {external: true, name: other}}\n";
        let files = [
            ("compose.yaml", text),
            ("b.yaml", "services: {db: {extends: {file: base.yaml, service: b}}}"),
            ("base.yaml", "services: {b: {image: i}, unused: {build: .}}"),
        ];
        assert_eq!(refused(&archive(&files)), Vec::<String>::new());
    }
}
