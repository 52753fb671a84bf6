//! Which devices are meant: by labels as in Kubernetes, or by name.

use std::collections::BTreeMap;

use repo_model::DeviceId;
use repo_model::yaml::{Field, Reader};

use super::Device;
use super::expression::Expression;
use super::labels;
use super::place::Place;

/// One way to name devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    pub place: Place,
    pub terms: Terms,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terms {
    /// Every device that has all of these labels and meets all of these requirements.
    Labels(BTreeMap<String, String>, Vec<Expression>),
    /// By id, each with its place.
    Devices(BTreeMap<DeviceId, Place>),
}

/// The first of the selectors that means the device.
pub(super) fn selects<'a>(selectors: &'a [Selector], device: &Device) -> Option<&'a Selector> {
    selectors.iter().find(|selector| selector.selects(device))
}

impl Selector {
    /// Whether this means the device.
    pub fn selects(&self, device: &Device) -> bool {
        match &self.terms {
            Terms::Labels(labels, expressions) => {
                labels.iter().all(|(key, value)| device.labels.get(key) == Some(value))
                    && expressions.iter().all(|expression| expression.holds(&device.labels))
            }
            Terms::Devices(devices) => devices.contains_key(&device.id),
        }
    }

    /// What the device lacks for this, in words; `None` if this means it.
    pub fn lacks(&self, device: &Device) -> Option<String> {
        match &self.terms {
            Terms::Labels(labels, expressions) => {
                let wrong = labels.iter().find_map(|(key, wanted)| match device.labels.get(key) {
                    Some(value) if value == wanted => None,
                    Some(value) => Some(format!("its label `{key}` is `{value}`, not `{wanted}`")),
                    None => Some(format!("it has no label `{key}`, which has to be `{wanted}`")),
                });
                let failing = || expressions.iter().find(|expression| !expression.holds(&device.labels));
                wrong.or_else(|| failing().map(|expression| format!("its labels don't meet {expression}")))
            }
            Terms::Devices(devices) => (!devices.contains_key(&device.id)).then(|| "it isn't named".to_owned()),
        }
    }

    /// The devices that it names.
    pub(super) fn named(&self) -> impl Iterator<Item = (&DeviceId, &Place)> {
        let named = if let Terms::Devices(devices) = &self.terms { Some(devices) } else { None };
        named.into_iter().flatten()
    }

    pub(super) fn read(field: Field<'_>) -> Option<Self> {
        let place = Place::of(&field);
        let terms = field.mapping(|reader| {
            let by_labels = reader.optional("matchLabels", labels::read);
            let expressions = reader.optional("matchExpressions", Expression::read_list);
            let by_name = reader.optional("devices", devices);
            terms(reader, by_labels, expressions, by_name)
        });
        Some(Self { place, terms: terms? })
    }

    pub(super) fn read_list(field: Field<'_>) -> Option<Vec<Self>> {
        field.list(Self::read)
    }
}

fn terms(
    reader: &Reader<'_>,
    labels: Option<BTreeMap<String, String>>,
    expressions: Option<Vec<Expression>>,
    devices: Option<BTreeMap<DeviceId, Place>>,
) -> Option<Terms> {
    let has = |key| reader.has(key);
    let by_labels = has("matchLabels") || has("matchExpressions");
    match (by_labels, has("devices")) {
        (true, true) => {
            let rule = "write labels and `devices` as two items of the list";
            reader.field().fail_hint("has both labels and `devices`", rule)
        }
        // What is there and wrong was reported.
        (true, false) if has("matchLabels") != labels.is_some() => None,
        (true, false) if has("matchExpressions") != expressions.is_some() => None,
        (true, false) => Some(Terms::Labels(labels.unwrap_or_default(), expressions.unwrap_or_default())),
        (false, true) => devices.map(Terms::Devices),
        (false, false) => reader.field().fail("needs `matchLabels`, `matchExpressions` or `devices`"),
    }
}

fn devices(field: Field<'_>) -> Option<BTreeMap<DeviceId, Place>> {
    let devices = field.clone().list(|field| {
        let place = Place::of(&field);
        Some((field.parse()?, place))
    })?;
    if devices.is_empty() { field.fail("names no device") } else { Some(devices.into_iter().collect()) }
}
