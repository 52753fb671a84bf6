//! What templates can name, of the fleet, the device and the deployment.

use std::collections::BTreeMap;

use minijinja::Value;
use repo_model::value::ParamValue;

use super::Fleet;
use super::deployment::Deployment;
use super::device::Device;
use super::template::Names;

impl Names {
    /// What is known of the deployment on the device.
    pub fn of(fleet: &Fleet, device: &Device, deployment: &Deployment) -> Self {
        let text = |text: &dyn ToString| Value::from(text.to_string());
        let map = |entries: Vec<(&'static str, Value)>| Value::from_pairs(entries);
        let labels = device.labels.iter().map(|(key, value)| (key.as_str(), Value::from(value.as_str())));
        let description = &deployment.application.description;
        Self(map(vec![
            (
                "device",
                map(vec![
                    ("id", text(&device.id)),
                    ("labels", Value::from_pairs(labels)),
                    ("data", data(&device.data)),
                ]),
            ),
            (
                "fleet",
                map(vec![
                    ("id", text(&fleet.settings.id)),
                    ("name", text(&fleet.settings.name)),
                    ("data", data(&fleet.settings.data)),
                ]),
            ),
            ("deployment", map(vec![("id", text(&deployment.id))])),
            ("application", map(vec![("id", text(&description.id)), ("version", text(&description.version))])),
        ]))
    }
}

fn data(data: &BTreeMap<String, ParamValue>) -> Value {
    Value::from_pairs(data.iter().map(|(key, value)| (key.as_str(), value_of(value))))
}

fn value_of(value: &ParamValue) -> Value {
    match value {
        ParamValue::String(text) => Value::from(text.as_str()),
        ParamValue::Integer(number) => Value::from(*number),
        ParamValue::Double(number) => Value::from(*number),
        ParamValue::Boolean(value) => Value::from(*value),
        ParamValue::Array(items) => items.iter().map(value_of).collect(),
    }
}
