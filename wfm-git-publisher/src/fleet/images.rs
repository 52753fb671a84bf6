//! Images in `fleet.yaml`: whose word counts for the bytes behind their names.

use std::collections::BTreeSet;

use repo_model::yaml::Field;

/// `images` of `fleet.yaml`: whose images the publisher locks, and whose it leaves to devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageSettings {
    /// Registries (`host[:port]`) out of the publisher's reach, whose images devices lock when they first use them.
    locked_by_devices: BTreeSet<String>,
}

/// In place of a registry: all of them.
const ALL: &str = "*";

impl ImageSettings {
    /// Whether devices lock the images of this registry.
    pub fn is_locked_by_devices(&self, registry: &str) -> bool {
        [registry, ALL].iter().any(|one| self.locked_by_devices.contains(*one))
    }

    pub(super) fn read(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            let registries = reader.optional("lockedByDevices", |field| field.list(registry));
            Some(Self { locked_by_devices: registries.unwrap_or_default().into_iter().collect() })
        })
    }
}

fn registry(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    let is_host = !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b".-:[]".contains(&c));
    if text == ALL || is_host {
        return Some(text);
    }
    field.fail_hint(format!("`{text}` is not a registry"), "write its host and port as images are named, or \"*\"")
}
