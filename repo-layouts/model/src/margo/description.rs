//! ApplicationDescription (`margo.yaml`): what a vendor offers, and how it can be deployed.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::capabilities::DeviceCapabilities;
use super::configuration::Configuration;
use super::header::{Form, Header};
use super::parameter::check_unique;
use super::{Component, Extensions, ProfileType, Requirements, Target};
use crate::problem::Problems;
use crate::value::{ParamValue, Strictness};
use crate::yaml::{self, Field, Reader, Value};
use crate::{ApplicationId, IntoSet};

/// rc.3 has `apiVersion: v1` alone: its schema is closed and has no `kind`.
const FORM: Form = Form {
    versions: &["margo.org/v1-alpha1", "margo.org/v1alpha1", "application.margo.org/v1alpha1", "v1"],
    kind: "ApplicationDescription",
    // Its text of 2024 is the pre-draft's, and is read.
    of_2024: &[],
    lacks: "",
};

/// What a vendor offers (Margo, *ApplicationDescription*).
#[derive(Debug, Clone, PartialEq)]
pub struct ApplicationDescription {
    pub id: ApplicationId,
    pub header: Header,
    /// Whether the id stands in `metadata` (pre-draft).
    pub id_in_metadata: bool,
    pub name: String,
    pub description: Option<String>,
    pub version: String,
    /// What a catalogue shows, as written.
    pub catalog: Option<serde_json::Value>,
    /// The ways to deploy it, in the vendor's order; at least one.
    pub profiles: Vec<DeploymentProfile>,
    /// The parameters with their defaults.
    pub parameters: BTreeMap<String, ParameterDefinition>,
    /// How parameters are shown and checked.
    pub configuration: Option<Configuration>,
    /// Vendors' own keys.
    pub extensions: Extensions,
}

/// One way to deploy an application (Margo, *DeploymentProfile*).
#[derive(Debug, Clone, PartialEq)]
pub struct DeploymentProfile {
    /// Its identity in this description.
    pub id: String,
    pub kind: ProfileType,
    /// Whether the type is written `docker-compose` or `helm.v3`.
    pub old_type: bool,
    /// One paragraph for the people who choose it.
    pub description: Option<String>,
    /// What is applied, in this order; at least one.
    pub components: Vec<Component>,
    /// The pre-draft's requirements, as written.
    pub required_resources: Option<serde_json::Value>,
    /// rc.3's requirements, as written.
    pub device_constraints: Option<serde_json::Value>,
    /// What the two of them mean: all of it must be met.
    pub requirements: Vec<Requirements>,
    /// Vendors' own keys.
    pub extensions: Extensions,
}

/// A parameter with its default.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParameterDefinition {
    /// The default; absent if there is none.
    #[serde(rename = "value", skip_serializing_if = "Option::is_none")]
    pub default: Option<ParamValue>,
    /// Where a value goes, over all profiles.
    pub targets: Vec<Target>,
}

impl ApplicationDescription {
    /// Reads either dialect: the document with warnings, or all that is wrong with it.
    pub fn read(file: &str, bytes: &[u8]) -> Result<(Self, Problems), Problems> {
        yaml::read(file, bytes, Strictness::Vendor, |field| field.mapping(document))
    }

    /// The profile with this id.
    pub fn profile(&self, id: &str) -> Option<&DeploymentProfile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// The document in its dialect.
    pub fn to_yaml(&self) -> Vec<u8> {
        yaml::to_yaml(self)
    }
}

impl DeploymentProfile {
    /// Everything that a device with these capabilities lacks for this profile, in words; empty if it fits. A device
    /// that lists what it can run must list the profile's type.
    pub fn unmet(&self, device: &DeviceCapabilities) -> Vec<String> {
        let types = &device.supported_deployment_types;
        let known =
            types.is_empty() || types.iter().any(|kind| kind == self.kind.as_str() || kind == self.kind.old_name());
        let listed = || format!("it is a {} profile, and the device runs {}", self.kind, types.join(", "));
        let kind = (!known).then(listed);
        kind.into_iter().chain(self.requirements.iter().flat_map(|one| one.unmet(device))).collect()
    }
}

impl ParameterDefinition {
    /// The targets whose pointers fit this profile, each with only the components that the profile has.
    pub fn targets_in(&self, profile: &DeploymentProfile) -> Vec<Target> {
        let ours = |target: &Target| {
            let of_profile = |name: &&_| profile.components.iter().any(|component| component.name == **name);
            let components: Vec<_> = target.components.iter().filter(of_profile).cloned().collect();
            let fits = target.is_valid(profile.kind) && !components.is_empty();
            fits.then(|| Target { pointer: target.pointer.clone(), components })
        };
        self.targets.iter().filter_map(ours).collect()
    }
}

fn document(reader: &mut Reader<'_>) -> Option<ApplicationDescription> {
    let extensions = reader.extensions();
    let header = FORM.read(reader);
    let id = reader.optional("id", Field::parse);
    let metadata = reader.required("metadata", |field| field.mapping(metadata));
    let profiles = reader.required("deploymentProfiles", profiles);
    let parameters = match &profiles {
        Some(profiles) => reader.optional("parameters", |field| parameters(field, profiles)),
        None => {
            reader.ignore("parameters");
            None
        }
    };
    let names = parameters.iter().flatten().map(|(name, _)| name.as_str()).into_set();
    let configuration = if profiles.is_some() && (parameters.is_some() || !reader.has("parameters")) {
        reader.optional("configuration", |field| Configuration::read(field, &names))
    } else {
        reader.ignore("configuration");
        None
    };
    let metadata = metadata?;
    let id_in_metadata = id.is_none() && metadata.id.is_some();
    let Some(id) = id.or(metadata.id) else {
        let field = reader.field();
        // What is there but wrong has been reported.
        if !reader.has("id") && field.node().at(&["metadata", "id"]).is_none() {
            field.report(field.problem("is missing").key("id"));
        }
        return None;
    };
    Some(ApplicationDescription {
        id,
        header,
        id_in_metadata,
        name: metadata.name,
        description: metadata.description,
        version: metadata.version,
        catalog: metadata.catalog,
        profiles: profiles?,
        parameters: parameters.unwrap_or_default(),
        configuration,
        extensions,
    })
}

struct Metadata {
    id: Option<ApplicationId>,
    name: String,
    description: Option<String>,
    version: String,
    catalog: Option<serde_json::Value>,
}

fn metadata(reader: &mut Reader<'_>) -> Option<Metadata> {
    let id = reader.optional("id", Field::parse);
    let name = reader.required("name", Field::string);
    let description = reader.optional("description", Field::string);
    let version = reader.required("version", Field::string);
    // A catalogue is the vendor's to fill: whatever is in it is carried.
    let catalog = reader.optional("catalog", Field::json);
    Some(Metadata { id, name: name?, description, version: version?, catalog })
}

fn profiles(field: Field<'_>) -> Option<Vec<DeploymentProfile>> {
    let profiles = field.clone().list(|field| field.mapping(profile))?;
    if profiles.is_empty() {
        return field.fail("lists no profile");
    }
    for (index, profile) in profiles.iter().enumerate() {
        let before = &profiles[..index];
        if before.iter().any(|other| other.id == profile.id) {
            return field.fail(format!("has two profiles with the id `{}`", profile.id));
        }
    }
    Some(profiles)
}

fn profile(reader: &mut Reader<'_>) -> Option<DeploymentProfile> {
    let extensions = reader.extensions();
    let id = reader.required("id", Field::string);
    let kind = reader.required("type", ProfileType::read);
    let description = reader.optional("description", Field::string);
    let components = reader.required("components", |field| Component::read_list(field, kind.map(|(kind, _)| kind)));
    let required_resources = reader
        .optional("requiredResources", |field| Some((Requirements::read_resources(field.clone())?, field.json()?)));
    let device_constraints = reader
        .optional("deviceConstraints", |field| Some((Requirements::read_constraints(field.clone())?, field.json()?)));
    let (resources, required_resources) = required_resources.unzip();
    let (constraints, device_constraints) = device_constraints.unzip();
    let (kind, old_type) = kind?;
    let (id, components) = (id?, components?);
    Some(DeploymentProfile {
        id,
        kind,
        old_type,
        description,
        components,
        required_resources,
        device_constraints,
        requirements: resources.into_iter().chain(constraints).filter(|one| !one.is_empty()).collect(),
        extensions,
    })
}

fn parameters(field: Field<'_>, profiles: &[DeploymentProfile]) -> Option<BTreeMap<String, ParameterDefinition>> {
    let components: Vec<_> = profiles.iter().flat_map(|p| p.components.iter().map(|c| (p.kind, c))).collect();
    let definitions = field.clone().entries(|_, field| {
        field.mapping(|reader| {
            let default = reader.optional("value", default_value);
            let targets = reader.required("targets", |field| Target::read_list(field, &components));
            Some(ParameterDefinition { default, targets: targets? })
        })
    })?;
    for profile in profiles {
        let ours: Vec<_> = definitions.iter().map(|(name, parameter)| (name, parameter.targets_in(profile))).collect();
        let targets = ours.iter().flat_map(|(name, targets)| targets.iter().map(|target| (name.as_str(), target)));
        check_unique(&field, profile.kind, targets)?;
    }
    Some(definitions)
}

/// A default; a key without a value is none, as vendors write it.
fn default_value(field: Field<'_>) -> Option<ParamValue> {
    match field.node().value {
        Value::Null => {
            field.report(field.problem("has no value, and is read as without a default").warning());
            None
        }
        _ => ParamValue::read(field),
    }
}

impl Serialize for ApplicationDescription {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        FORM.write(&self.header, &mut map)?;
        if !self.id_in_metadata {
            map.serialize_entry("id", &self.id)?;
        }
        map.serialize_entry("metadata", &MetadataOut(self))?;
        map.serialize_entry("deploymentProfiles", &self.profiles)?;
        if !self.parameters.is_empty() {
            map.serialize_entry("parameters", &self.parameters)?;
        }
        if let Some(configuration) = &self.configuration {
            map.serialize_entry("configuration", configuration)?;
        }
        for (key, value) in &self.extensions {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

struct MetadataOut<'a>(&'a ApplicationDescription);

impl Serialize for MetadataOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(document) = self;
        let mut map = serializer.serialize_map(None)?;
        if document.id_in_metadata {
            map.serialize_entry("id", &document.id)?;
        }
        map.serialize_entry("name", &document.name)?;
        if let Some(description) = &document.description {
            map.serialize_entry("description", description)?;
        }
        map.serialize_entry("version", &document.version)?;
        if let Some(catalog) = &document.catalog {
            map.serialize_entry("catalog", catalog)?;
        }
        map.end()
    }
}

impl Serialize for DeploymentProfile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", if self.old_type { self.kind.old_name() } else { self.kind.as_str() })?;
        map.serialize_entry("id", &self.id)?;
        if let Some(description) = &self.description {
            map.serialize_entry("description", description)?;
        }
        map.serialize_entry("components", &self.components)?;
        for (key, value) in
            [("requiredResources", &self.required_resources), ("deviceConstraints", &self.device_constraints)]
        {
            if let Some(value) = value {
                map.serialize_entry(key, value)?;
            }
        }
        for (key, value) in &self.extensions {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
