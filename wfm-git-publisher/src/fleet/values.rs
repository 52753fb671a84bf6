//! Values that operators give to parameters, and the places where they say them.

use std::collections::BTreeMap;

use repo_model::Digest;
use repo_model::envelope::{ValueFrom, ValueSource};
use repo_model::text;
use repo_model::value::ParamValue;
use repo_model::yaml::{Field, Reader, Value};

use super::place::Place;
use super::template::{Template, Text, is_template};

/// Values by the parameters' names.
pub type Values = BTreeMap<String, Given>;

/// A value as the operator gave it, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    pub setting: Setting,
    pub place: Place,
}

/// A value as the operator gave it.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    Literal(ParamValue),
    /// What makes the value on each device.
    Template(Template),
    /// The name of a file on the device that holds it.
    DeviceFile(String),
    /// The name of a secret of the fleet, which is encrypted to each device's key.
    Encrypted(String),
}

impl Setting {
    /// As a file of the fleet has it, on one line and for any place in it. What can't be seen is escaped.
    pub fn to_yaml(&self) -> String {
        let yaml = match self {
            Self::Literal(value) => shown_value(value),
            Self::Template(Template::Text(text)) => quoted(text.source()),
            Self::Template(Template::List(items)) => {
                let item = |item: &Result<ParamValue, Text>| match item {
                    Ok(plain) => shown_value(plain),
                    Err(text) => quoted(text.source()),
                };
                format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(","))
            }
            Self::DeviceFile(name) => format!("{{valueFrom: {{deviceFile: {}}}}}", quoted(name)),
            Self::Encrypted(name) => format!("{{valueFrom: {{encrypted: {}}}}}", quoted(name)),
        };
        text::json(&yaml)
    }
}

/// The value so that its type can be seen: text in quotes.
pub(crate) fn shown_value(value: &ParamValue) -> String {
    match value {
        ParamValue::String(text) => quoted(text),
        other => other.text(),
    }
}

/// Where a value is that only the device knows, in words; an encrypted one is told apart by its digest.
pub(crate) fn shown_source(source: &ValueSource) -> String {
    match source {
        ValueSource::DeviceFile(name) => format!("file {name} of the device"),
        ValueSource::Encrypted(text) => format!("encrypted value {}", &Digest::of(text.as_bytes()).hex()[..12]),
    }
}

/// JSON's strings are YAML's too, and never mean anything else.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

pub(super) fn values(field: Field<'_>) -> Option<Values> {
    field.entries(|_, field| {
        let place = Place::of(&field);
        Some(Given { setting: setting(field)?, place })
    })
}

/// Data for templates: values of the same types, under any names.
pub(super) fn data(field: Field<'_>) -> Option<BTreeMap<String, ParamValue>> {
    field.entries(|_, field| {
        let value = ParamValue::read(field.clone())?;
        if is_template(&value) { field.fail("must be a value, not a template") } else { Some(value) }
    })
}

fn setting(field: Field<'_>) -> Option<Setting> {
    match field.node().value {
        Value::Mapping(_) => field.mapping(|reader| reader.required("valueFrom", |field| field.mapping(value_from))),
        _ => match ParamValue::read(field.clone())? {
            value if is_template(&value) => Template::read(&field, value).map(Setting::Template),
            value => Some(Setting::Literal(value)),
        },
    }
}

fn value_from(reader: &mut Reader<'_>) -> Option<Setting> {
    if reader.has("encrypted") {
        reader.refuse("deviceFile", "stands beside `encrypted`: the value is from one of them");
        return reader.required("encrypted", |field| bare(field, "name of a secret")).map(Setting::Encrypted);
    }
    reader.required("deviceFile", |field| bare(field, "bare name of a file")).map(Setting::DeviceFile)
}

fn bare(field: Field<'_>, what: &str) -> Option<String> {
    let name = field.clone().string()?;
    if ValueFrom::is_bare(&name) {
        return Some(name);
    }
    let rule = "write 1 to 100 letters, digits and `. _ -`, the first a letter or digit";
    field.fail_hint(format!("`{name}` is not the {what}"), rule)
}
