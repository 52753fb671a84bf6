//! A resolved compose document: read from `docker compose config`, completed by us, written as the file that runs.
//!
//! In memory the values are the true ones. On paper each `$` is doubled, because compose interpolates what it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component as Part, Path};

use repo_artifacts::Archive;
use repo_model::{Digest, IntoMap, IntoSet, json};
use serde_json::{Map, Value};

use super::files;

/// What `docker compose config` made of a file: no variables, no `extends`, no short forms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resolved {
    document: Value,
}

impl Resolved {
    /// Reads what `config --format json` printed.
    pub(super) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let mut document = serde_json::from_slice(json)?;
        // Compose doubles `$` in the whole text, names included.
        each_text(&mut document, true, &|text| text.replace("$$", "$"));
        Ok(Self { document })
    }

    pub(super) fn document(&self) -> &Value {
        &self.document
    }

    /// The objects of one section, by name.
    pub(super) fn section(&self, name: &str) -> impl Iterator<Item = (&str, &Value)> {
        self.document[name].as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
    }

    pub(super) fn services(&self) -> BTreeSet<String> {
        self.section("services").map(|(name, _)| name.to_owned()).into_set()
    }

    /// Every image that a service needs.
    pub(super) fn images(&self) -> BTreeSet<&str> {
        self.section("services").filter_map(|(_, service)| service["image"].as_str()).into_set()
    }

    /// The image of each service.
    pub(super) fn images_by_service(&self) -> BTreeMap<String, String> {
        let images = self.section("services").filter_map(|(name, service)| Some((name, service["image"].as_str()?)));
        images.map(|(service, image)| (service.to_owned(), image.to_owned())).into_map()
    }

    /// The services that others wait for to come to their end: a migration, for one.
    pub(super) fn run_to_their_end(&self) -> BTreeSet<&str> {
        let waits = self.section("services").filter_map(|(_, service)| service["depends_on"].as_object()).flatten();
        let ends = waits.filter(|(_, how)| how["condition"] == "service_completed_successfully");
        ends.map(|(service, _)| service.as_str()).into_set()
    }

    /// The services in whose namespaces a service lives.
    pub(super) fn lives_with(&self, service: &str) -> BTreeSet<String> {
        let service = &self.document["services"][service];
        let modes = ["network_mode", "ipc", "pid"].into_iter().filter_map(|key| service[key].as_str());
        modes.filter_map(|mode| mode.strip_prefix("service:")).map(str::to_owned).into_set()
    }

    /// All services, each behind those that it waits for or in whose namespaces it lives. Those in a circle come last.
    pub(super) fn in_order(&self) -> Vec<String> {
        let (mut left, mut ordered) = (self.services(), Vec::new());
        while let Some(next) = left.iter().find(|one| self.before(one).is_disjoint(&left)).cloned() {
            left.remove(&next);
            ordered.push(next);
        }
        ordered.extend(left);
        ordered
    }

    fn before(&self, service: &str) -> BTreeSet<String> {
        let waits = self.document["services"][service]["depends_on"].as_object().into_iter().flatten();
        waits.map(|(name, _)| name.clone()).chain(self.lives_with(service)).into_set()
    }

    /// Lets a service run another image.
    pub(super) fn set_image(&mut self, service: &str, image: String) {
        self.document["services"][service]["image"] = image.into();
    }

    /// Moves every path below `from` to below `to`.
    pub(super) fn rebase(&mut self, from: &Path, to: &Path) {
        self.each_path(&|path| {
            inside(from, path).map(|rest| to.join(rest).to_string_lossy().trim_end_matches('/').to_owned())
        });
    }

    /// Files of configs and secrets that are neither in the archive nor, put there by the site, below `root`.
    pub(super) fn missing_files(&self, archive: &Archive, root: &Path) -> Vec<String> {
        let used = ["configs", "secrets"].into_iter().flat_map(|kind| self.section(kind));
        let own = used.filter_map(|(_, it)| inside(root, it["file"].as_str()?));
        own.filter(|path| !archive.files().contains_key(path) && !files::is_file(root, path)).collect()
    }

    /// A digest of the archive's files that a service mounts; `None` if it mounts none.
    pub(super) fn files_digest(&self, service: &str, archive: &Archive, root: &Path) -> Option<Digest> {
        let service = &self.document["services"][service];
        let mut parts = BTreeSet::new();
        let mut paths: BTreeSet<String> = binds(service).filter_map(|path| inside(root, path)).into_set();
        for kind in ["configs", "secrets"] {
            for name in items(&service[kind]).filter_map(|it| it["source"].as_str()) {
                let definition = &self.document[kind][name];
                paths.extend(definition["file"].as_str().and_then(|path| inside(root, path)));
                if let Some(content) = definition["content"].as_str() {
                    parts.insert(format!("{kind} {name} {}", Digest::of(content.as_bytes())));
                }
            }
        }
        for (path, file) in archive.files().iter().filter(|(path, _)| paths.iter().any(|of| is_at_or_below(path, of))) {
            parts.insert(format!("{path} {:o} {}", file.mode, Digest::of(&file.bytes)));
        }
        let text: String = parts.iter().map(|part| format!("{part}\n")).collect();
        (!parts.is_empty()).then(|| Digest::of(text.as_bytes()))
    }

    /// Adds labels to a service.
    pub(super) fn label(&mut self, service: &str, labels: impl IntoIterator<Item = (String, String)>) {
        let Some(service) = self.document["services"][service].as_object_mut() else { return };
        let present = service.entry("labels").or_insert(Value::Null);
        if present.is_null() {
            *present = Value::Object(Map::new());
        }
        if let Some(present) = present.as_object_mut() {
            present.extend(labels.into_iter().map(|(name, value)| (name, value.into())));
        }
    }

    /// The file that runs: JSON, which is YAML, that resolves to itself.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut document = self.document.clone();
        each_text(&mut document, false, &|text| text.replace('$', "$$"));
        let mut text = String::new();
        for c in format!("{document:#}\n").chars() {
            if is_unsafe_in_yaml(c) { text.push_str(&format!("\\u{:04x}", u32::from(c))) } else { text.push(c) }
        }
        text.into_bytes()
    }

    fn each_path(&mut self, change: &dyn Fn(&str) -> Option<String>) {
        let apply = |value: &mut Value| {
            if let Some(new) = value.as_str().and_then(change) {
                *value = new.into();
            }
        };
        let section = |document: &mut Value, name: &str, act: &dyn Fn(&mut Value)| {
            document.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten().for_each(|(_, it)| act(it));
        };
        for kind in ["configs", "secrets"] {
            section(&mut self.document, kind, &|it| it.get_mut("file").into_iter().for_each(apply));
        }
        section(&mut self.document, "services", &|service| {
            let mounts = service.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten();
            mounts.filter(|it| it["type"] == "bind").filter_map(|it| it.get_mut("source")).for_each(apply);
        });
    }
}

/// The part of `path` below `root`, without `..`; empty for `root` itself.
pub(super) fn inside(root: &Path, path: &str) -> Option<String> {
    let rest = Path::new(path).strip_prefix(root).ok()?;
    let plain = rest.components().all(|part| matches!(part, Part::Normal(_)));
    plain.then(|| rest.to_str().map(str::to_owned)).flatten()
}

/// The items of a list; none of anything else.
pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn binds(service: &Value) -> impl Iterator<Item = &str> {
    items(&service["volumes"]).filter(|mount| mount["type"] == "bind").filter_map(|mount| mount["source"].as_str())
}

fn is_at_or_below(path: &str, of: &str) -> bool {
    of.is_empty() || path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn each_text(value: &mut Value, names_too: bool, change: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, names_too, change)),
        Value::Object(map) => {
            map.values_mut().for_each(|value| each_text(value, names_too, change));
            if names_too {
                let entries = std::mem::take(map).into_iter();
                *map = json::object(entries.map(|(name, value)| (change(&name), value)));
            }
        }
        _ => {}
    }
}

/// Characters that are legal in JSON text and not, or not unchanged, in YAML; JSON has them inside strings only.
fn is_unsafe_in_yaml(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtimes::compose::testing::archive;

    fn resolved(document: Value) -> Resolved {
        Resolved::parse(document.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn what_is_written_means_the_same_when_it_is_read_as_yaml() {
        let text = "a$b$$c \"'\\ \n\r\t \u{1} \u{7f} \u{85} \u{2028} \u{2029} \u{feff} é 😀";
        let document = resolved(json!({"services": {"a": {"environment": {"A$$B": text.replace('$', "$$")}}}}));
        assert_eq!(document.document()["services"]["a"]["environment"]["A$B"], text);
        let written = String::from_utf8(document.encode()).unwrap();
        assert!(!written.chars().any(|c| is_unsafe_in_yaml(c) || (c.is_control() && c != '\n')), "{written}");
        let read: Value = serde_yaml::from_str(&written).unwrap();
        assert_eq!(read["services"]["a"]["environment"]["A$B"], text.replace('$', "$$"));
    }

    #[test]
    fn paths_of_the_archive_move_and_others_stay() {
        let mut document = resolved(json!({
            "configs": {"c": {"file": "/stage/c.txt"}}, "secrets": {"s": {"file": "/stage2/s"}},
            "services": {"a": {"volumes": [{"type": "bind", "source": "/stage"}, {"type": "bind", "source": "/stage/../x"},
                {"type": "volume", "source": "/stage/v"}]}},
        }));
        document.rebase(Path::new("/stage"), Path::new("/p/files"));
        let found = document.document();
        assert_eq!(found["configs"]["c"]["file"], "/p/files/c.txt");
        assert_eq!(found["secrets"]["s"]["file"], "/stage2/s");
        let sources: Vec<_> =
            items(&found["services"]["a"]["volumes"]).map(|it| it["source"].as_str().unwrap()).collect();
        assert_eq!(sources, ["/p/files", "/stage/../x", "/stage/v"]);
    }

    #[test]
    fn the_files_digest_changes_with_what_a_service_mounts_and_with_nothing_else() {
        let document = resolved(json!({
            "configs": {"c": {"file": "/f/c.txt"}, "inline": {"content": "x"}},
            "services": {
                "dir": {"volumes": [{"type": "bind", "source": "/f/conf"}]}, "file": {"configs": [{"source": "c"}]},
                "inline": {"configs": [{"source": "inline"}]}, "none": {"volumes": [{"type": "bind", "source": "/f/data"}]},
            },
        }));
        let digest =
            |service: &str, files: &[(&str, &str)]| document.files_digest(service, &archive(files), Path::new("/f"));
        let before = [("compose.yaml", "1"), ("conf/a", "1"), ("confuse", "1"), ("c.txt", "1")];
        let after = [("compose.yaml", "2"), ("conf/a", "1"), ("confuse", "2"), ("c.txt", "2")];
        assert_eq!(digest("dir", &before), digest("dir", &after));
        assert_ne!(digest("file", &before), digest("file", &after));
        assert!(digest("inline", &before).is_some());
        assert_eq!(digest("none", &before), None);
    }
}
