//! `deployments/**/*.yaml`: an application, the devices that get it, and the values it gets there.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use repo_model::envelope::ValueFrom;
use repo_model::margo::description::DeploymentProfile;
use repo_model::value::ParamValue;
use repo_model::yaml::{Field, Reader, Value};
use repo_model::{ApplicationId, DeploymentName};

use super::application::Application;
use super::device::Device;
use super::file::refuse_unbuilt;
use super::selector::{Place, Selector, selects};

/// A deployment whose names all lead somewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Deployment {
    /// Where it is written.
    pub file: String,
    /// Its identity.
    pub id: DeploymentName,
    /// What it deploys.
    pub application: Arc<Application>,
    /// The profile of it that is used.
    pub profile: DeploymentProfile,
    /// The devices that get it …
    pub targets: Vec<Selector>,
    /// … except these.
    pub exclude: Vec<Selector>,
    /// Values for every device.
    pub parameters: BTreeMap<String, Setting>,
    /// Values for some of them, in order: the later wins.
    pub overrides: Vec<Override>,
}

impl Deployment {
    /// Whether the device gets it.
    pub fn is_for(&self, device: &Device) -> bool {
        selects(&self.targets, device) && !selects(&self.exclude, device)
    }

    /// What the operator gave for a parameter: the last override that means the device, else the deployment's own.
    pub fn setting(&self, name: &str, device: &Device) -> Option<&Setting> {
        let overrides = self.overrides.iter().rev().filter(|one| one.when.selects(device));
        overrides.map(|one| &one.parameters).chain([&self.parameters]).find_map(|values| values.get(name))
    }
}

/// Values for some devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// The devices.
    pub when: Selector,
    /// The values.
    pub parameters: BTreeMap<String, Setting>,
}

/// A value as the operator gave it.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// The value itself.
    Literal(ParamValue),
    /// The name of a file on the device that holds it.
    DeviceFile(String),
}

/// A file as it was read, before its names were looked up.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) id: DeploymentName,
    pub(super) id_place: Place,
    pub(super) application: (ApplicationId, String),
    pub(super) application_place: Place,
    pub(super) profile: Option<(String, Place)>,
    pub(super) targets: Vec<Selector>,
    pub(super) exclude: Vec<Selector>,
    pub(super) parameters: Placed,
    pub(super) overrides: Vec<(Selector, Placed)>,
}

/// Settings with the places where they stand.
pub(super) type Placed = BTreeMap<String, (Setting, Place)>;

const UNBUILT: &[&str] = &[
    "dependsOn",
    "rollout",
    "onFailure",
    "drift",
    "approval",
    "windows",
    "suspended",
    "namespace",
    "policy",
    "replaces",
];

impl Written {
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let id = reader.required("id", placed_id);
        let application = reader.required("application", |field| {
            let place = Place::of(&field);
            Some((field.mapping(application)?, place))
        });
        let targets = reader.required("targets", Selector::read_list);
        let exclude = reader.optional("exclude", Selector::read_list).unwrap_or_default();
        let profile = reader.optional("profile", profile);
        let parameters = reader.optional("parameters", settings).unwrap_or_default();
        let overrides = reader.optional("overrides", |field| field.list(read_override)).unwrap_or_default();
        refuse_unbuilt(reader, UNBUILT);
        let ((id, id_place), (application, application_place)) = id.zip(application)?;
        Some(Self {
            id,
            id_place,
            application,
            application_place,
            profile,
            targets: targets?,
            exclude,
            parameters,
            overrides,
        })
    }
}

/// An id with its place, for a problem with another file that has the same.
pub(super) fn placed_id<T: FromStr<Err: Display>>(field: Field<'_>) -> Option<(T, Place)> {
    let place = Place::of(&field);
    Some((field.parse()?, place))
}

fn application(reader: &mut Reader<'_>) -> Option<(ApplicationId, String)> {
    let id = reader.required("id", Field::parse);
    let version = reader.required("version", Field::string);
    Some((id?, version?))
}

fn profile(field: Field<'_>) -> Option<(String, Place)> {
    let place = Place::of(&field);
    match field.clone().string()? {
        auto if auto == "auto" => field.fail_hint("`auto` is not built yet", "write the id of a profile"),
        id => Some((id, place)),
    }
}

fn read_override(field: Field<'_>) -> Option<(Selector, Placed)> {
    field.mapping(|reader| {
        let when = reader.required("when", Selector::read);
        let parameters = reader.required("parameters", settings);
        Some((when?, parameters?))
    })
}

fn settings(field: Field<'_>) -> Option<Placed> {
    field.entries(|_, field| {
        let place = Place::of(&field);
        Some((setting(field)?, place))
    })
}

fn setting(field: Field<'_>) -> Option<Setting> {
    match field.node().value {
        Value::Mapping(_) => field.mapping(|reader| reader.required("valueFrom", |field| field.mapping(value_from))),
        _ => {
            let value = ParamValue::read(field.clone())?;
            if has_template(&value) {
                return field.fail_hint("templates (`{{ … }}`) are not built yet", "write the value itself");
            }
            Some(Setting::Literal(value))
        }
    }
}

fn value_from(reader: &mut Reader<'_>) -> Option<Setting> {
    reader.required("deviceFile", |field| {
        let name = field.clone().string()?;
        if ValueFrom::is_bare(&name) {
            return Some(Setting::DeviceFile(name));
        }
        let rule = "write 1 to 100 letters, digits and `. _ -`, the first a letter or digit";
        field.fail_hint(format!("`{name}` is not the bare name of a file"), rule)
    })
}

fn has_template(value: &ParamValue) -> bool {
    match value {
        ParamValue::String(text) => text.contains("{{"),
        ParamValue::Array(items) => items.iter().any(has_template),
        _ => false,
    }
}
