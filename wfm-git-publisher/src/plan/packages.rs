//! What is different between two packages, for whoever decides about an update.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::Digest;
use repo_model::margo::configuration::Schema;
use repo_model::margo::description::DeploymentProfile;
use repo_model::value::ParamValue;
use serde_json::Value;

use super::difference::{Difference, of_components, of_maps, of_requirements};
use crate::fleet::{Application, MARGO_YAML, Package, PackageFileKind, licence, resources, shown_value, vendors};

/// Everything that an operator could care about, in this order: the application itself, its profiles, its parameters, and
/// its other files.
pub fn of_packages(old: (&Application, &Package), new: (&Application, &Package)) -> Vec<Difference> {
    let ((old, old_files), (new, new_files)) = (old, new);
    let mut all = of_description(old, new);
    all.extend(Difference::between("licence", licence_text(old, old_files), licence_text(new, new_files)));
    all.extend(of_profiles(old, new));
    let names: BTreeSet<_> = old.description.parameters.keys().chain(new.description.parameters.keys()).collect();
    all.extend(names.into_iter().flat_map(|name| of_parameter(name, old, new)));
    all.extend(of_maps(&files(old_files), &files(new_files)));
    all
}

fn of_description(old: &Application, new: &Application) -> Vec<Difference> {
    let (old, new) = (&old.description, &new.description);
    let vendor = |names: Vec<&str>| (!names.is_empty()).then(|| names.join(", "));
    let all = [
        Difference::between("application", Some(old.id.to_string()), Some(new.id.to_string())),
        Difference::between("version", Some(old.version.clone()), Some(new.version.clone())),
        Difference::between("name", Some(old.name.clone()), Some(new.name.clone())),
        Difference::between("description", old.description.clone(), new.description.clone()),
        Difference::between("vendor", vendor(vendors(old)), vendor(vendors(new))),
    ];
    all.into_iter().flatten().collect()
}

/// The licence as the package has it: where its file is here, with what is in it.
fn licence_text(application: &Application, package: &Package) -> Option<String> {
    let name = licence(&application.description)?;
    let mut named = resources(&application.description).filter(|(key, _)| key.ends_with(".licenseFile"));
    let file = named.next().and_then(|(_, path)| package.files.get(path));
    Some(file.map_or_else(|| name.to_owned(), |file| format!("{name} ({})", Digest::of(&file.bytes))))
}

fn of_profiles(old: &Application, new: &Application) -> Vec<Difference> {
    let profiles = |application: &Application| application.description.profiles.clone();
    let (old, new) = (profiles(old), profiles(new));
    let ids: BTreeSet<_> = old.iter().chain(&new).map(|profile| &profile.id).collect();
    let find = |all: &[DeploymentProfile], id: &str| all.iter().find(|profile| profile.id == id).cloned();
    let mut all: Vec<_> = ids.iter().flat_map(|id| of_profile(id, find(&old, id), find(&new, id))).collect();
    let order = |all: &[DeploymentProfile], others: &[DeploymentProfile]| {
        let both = all.iter().filter(|one| others.iter().any(|other| other.id == one.id));
        Some(both.map(|one| one.id.as_str()).collect::<Vec<_>>().join(", "))
    };
    all.extend(Difference::between("order of profiles", order(&old, &new), order(&new, &old)));
    all
}

fn of_profile(id: &str, old: Option<DeploymentProfile>, new: Option<DeploymentProfile>) -> Vec<Difference> {
    let kind = |profile: &Option<DeploymentProfile>| profile.as_ref().map(|profile| profile.kind.to_string());
    let mut all: Vec<_> = Difference::between("", kind(&old), kind(&new)).into_iter().collect();
    if let (Some(old), Some(new)) = (&old, &new) {
        all.extend(of_components(&old.components, &new.components));
        let (rc3, pre_draft) = ("deviceConstraints", "requiredResources");
        all.extend(of_requirements(rc3, old.device_constraints.as_ref(), new.device_constraints.as_ref()));
        all.extend(of_requirements(pre_draft, old.required_resources.as_ref(), new.required_resources.as_ref()));
    }
    for one in &mut all {
        one.what = format!("profile {id} {}", one.what).trim_end().to_owned();
    }
    all
}

fn of_parameter(name: &str, old: &Application, new: &Application) -> Vec<Difference> {
    let (before, after) = (old.description.parameters.get(name), new.description.parameters.get(name));
    let (Some(before), Some(after)) = (before, after) else {
        let whole = |application: &Application| {
            let parameter = application.description.parameters.get(name)?;
            let default = parameter.default.as_ref().map_or("no default".to_owned(), shown_value);
            Some(format!("{}, {default}", parameter_type(application, name)))
        };
        return Difference::between(format!("parameter {name}"), whole(old), whole(new)).into_iter().collect();
    };
    let targets = |application: &Application| {
        let profiles = application.profiles.iter().filter_map(|profile| {
            let targets = profile.parameters.get(name)?.iter();
            let targets = targets.map(|target| format!("{} in {:?}", target.pointer, target.components));
            Some(format!("{}: {}", profile.description.id, targets.collect::<Vec<_>>().join(", ")))
        });
        Some(profiles.collect::<Vec<_>>().join("; "))
    };
    let immutable = |application: &Application| {
        application.rules.get(name).is_some_and(|rule| rule.immutable).then(|| "yes".to_owned())
    };
    let part = |what: &str, old, new| Difference::between(format!("parameter {name} {what}"), old, new);
    let kind = |application| Some(parameter_type(application, name));
    let rules = |application| parameter_rules(application, name);
    let default = |value: &Option<ParamValue>| value.as_ref().map(shown_value);
    let all = [
        part("type", kind(old), kind(new)),
        part("default", default(&before.default), default(&after.default)),
        part("rules", rules(old), rules(new)),
        part("immutable", immutable(old), immutable(new)),
        part("targets", targets(old), targets(new)),
    ];
    all.into_iter().flatten().collect()
}

/// The type of a parameter's values: as its rule says, else that of its default.
pub fn parameter_type(application: &Application, name: &str) -> String {
    if let Some(Value::String(kind)) = schema(application, name).and_then(|mut rule| rule.remove("dataType")) {
        return kind;
    }
    let default = application.description.parameters.get(name).and_then(|one| one.default.as_ref());
    let kind = match default {
        None => "any",
        Some(ParamValue::String(_)) => "string",
        Some(ParamValue::Integer(_)) => "integer",
        Some(ParamValue::Double(_)) => "double",
        Some(ParamValue::Boolean(_)) => "boolean",
        Some(ParamValue::Array(_)) => "array",
    };
    kind.to_owned()
}

/// What its rule says besides the type; absent if nothing.
pub fn parameter_rules(application: &Application, name: &str) -> Option<String> {
    let mut rule = schema(application, name)?;
    rule.retain(|key, _| !["name", "dataType"].contains(&key.as_str()));
    let rules: Vec<_> = rule.iter().map(|(key, value)| format!("{key} {value}")).collect();
    (!rules.is_empty()).then(|| rules.join(", "))
}

fn schema(application: &Application, name: &str) -> Option<serde_json::Map<String, Value>> {
    let rule: &Schema = application.rules.get(name)?.schema();
    match serde_json::to_value(rule) {
        Ok(Value::Object(rule)) => Some(rule),
        _ => None,
    }
}

/// The files beside `margo.yaml`.
fn files(package: &Package) -> BTreeMap<String, String> {
    let others = package.files.iter().filter(|(path, _)| *path != MARGO_YAML);
    let shown = others.map(|(path, file)| {
        let kind = if file.kind == PackageFileKind::Executable { ", executable" } else { "" };
        (format!("file {path}"), format!("{}{kind}", Digest::of(&file.bytes)))
    });
    shown.collect()
}
