//! Which devices are meant: by labels as in Kubernetes, or by name.

use std::collections::BTreeMap;

use repo_model::DeviceId;
use repo_model::problem::Problem;
use repo_model::yaml::{Field, Reader, Span};

use super::Device;
use super::file::refuse_unbuilt;

/// One way to name devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Every device that has all of these labels.
    Labels(BTreeMap<String, String>),
    /// These devices.
    Devices(Vec<(DeviceId, Place)>),
}

/// Where something stands in a file, for problems that are only found later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    span: Span,
    key: String,
}

impl Place {
    pub(super) fn of(field: &Field<'_>) -> Self {
        Self { span: field.node().span, key: field.path().to_owned() }
    }

    pub(super) fn problem(&self, file: &str, message: impl Into<String>) -> Problem {
        Problem::error(file, message).at(self.span.line, self.span.column).key(&self.key)
    }
}

/// Whether any of the selectors means the device.
pub(super) fn selects(selectors: &[Selector], device: &Device) -> bool {
    selectors.iter().any(|selector| selector.selects(device))
}

impl Selector {
    /// Whether this means the device.
    pub fn selects(&self, device: &Device) -> bool {
        match self {
            Self::Labels(labels) => labels.iter().all(|(key, value)| device.labels.get(key) == Some(value)),
            Self::Devices(devices) => devices.iter().any(|(id, _)| *id == device.id),
        }
    }

    pub(super) fn read(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            refuse_unbuilt(reader, &["matchExpressions"]);
            let by_labels = reader.optional("matchLabels", labels);
            let by_name = reader.optional("devices", devices);
            one_of(reader, by_labels, by_name)
        })
    }

    pub(super) fn read_list(field: Field<'_>) -> Option<Vec<Self>> {
        field.list(Self::read)
    }
}

fn one_of(
    reader: &Reader<'_>,
    labels: Option<BTreeMap<String, String>>,
    devices: Option<Vec<(DeviceId, Place)>>,
) -> Option<Selector> {
    match (labels, devices) {
        (Some(labels), None) if !reader.has("devices") => Some(Selector::Labels(labels)),
        (None, Some(devices)) if !reader.has("matchLabels") => Some(Selector::Devices(devices)),
        _ if reader.has("matchLabels") && reader.has("devices") => {
            reader.field().fail_hint("has both `matchLabels` and `devices`", "write them as two items of the list")
        }
        // What is there was wrong, and is reported.
        _ if reader.has("matchLabels") || reader.has("devices") || reader.has("matchExpressions") => None,
        _ => reader.field().fail("needs `matchLabels` or `devices`"),
    }
}

fn devices(field: Field<'_>) -> Option<Vec<(DeviceId, Place)>> {
    let devices = field.clone().list(|field| {
        let place = Place::of(&field);
        Some((field.parse()?, place))
    })?;
    if devices.is_empty() { field.fail("names no device") } else { Some(devices) }
}

/// Labels by Kubernetes' rules, without its limit on what may stand before a key's `/`.
pub(super) fn labels(field: Field<'_>) -> Option<BTreeMap<String, String>> {
    field.entries(|key, field| {
        if !is_label(key, 253, b"._-/") || key.is_empty() {
            return field.fail(format!("`{key}` is not a label's name: letters, digits and inner `. _ - /`"));
        }
        let value = field.clone().string()?;
        if is_label(&value, 63, b"._-") {
            Some(value)
        } else {
            field.fail("must be at most 63 letters, digits and inner `. _ -`")
        }
    })
}

fn is_label(text: &str, max: usize, inner: &[u8]) -> bool {
    let edge = |c: Option<u8>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= max
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || inner.contains(&c))
}
