//! DeviceCapabilitiesManifest: what a device has and can run.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Extensions;
use super::header::{Form, Header};
use crate::problem::Problems;
use crate::yaml::{self, Field, Reader};
use crate::{DeviceId, json};

/// rc.3 has no header.
const FORM: Form = Form {
    versions: &["device.margo.org/v1alpha1"],
    kind: "DeviceCapabilitiesManifest",
    of_2024: &["device.margo/v1"],
    lacks: "sizes have no binary units, and processors and peripherals other words",
};

/// The roles of the pre-draft; rc.3 has none.
pub const ROLES: &[&str] = &["Standalone Cluster", "Cluster Leader", "Standalone Device"];

/// What a processor of a device can be (rc.3, *CpuArchitectureType*).
pub const ARCHITECTURES: &[&str] = &["amd64", "arm64", "arm"];

/// The same for the pre-draft's key `cpu`.
const PRE_DRAFT_ARCHITECTURES: &[&str] = &["amd64", "arm64", "arm", "x86_64"];

/// What a peripheral can be (rc.3, *PeripheralType*).
pub const PERIPHERALS: &[&str] = &["gpu", "display", "camera", "microphone", "speaker"];

/// What an interface can be (rc.3, *CommunicationInterfaceType*).
pub const INTERFACES: &[&str] = &["ethernet", "wifi", "cellular", "bluetooth", "usb", "canbus", "rs232"];

/// What can run containers (rc.3, *SupportedRuntime*).
pub const RUNTIMES: &[&str] = &["oci", "custom"];

/// The types of profiles that a device can run (rc.3, *SupportedDeploymentType*).
pub const DEPLOYMENT_TYPES: &[&str] = &["helm", "compose", "custom"];

/// What a device has and can run (Margo, *DeviceCapabilitiesManifest*). A device that hosts nothing, such as a gateway,
/// leaves out all but its identity. Words are of the closed sets above.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceCapabilities {
    pub dialect: Dialect,
    pub id: DeviceId,
    pub vendor: String,
    pub model_number: String,
    pub serial_number: String,
    /// Of [`ROLES`] (pre-draft only).
    pub roles: Vec<String>,
    pub cpus: Vec<Cpu>,
    /// Memory with its binary unit, as written: `59 Gi`; see [`bytes_of`].
    pub memory: Option<String>,
    /// Storage with its binary unit, as written.
    pub storage: Option<String>,
    /// GPUs, displays, cameras …; absent where the device doesn't say.
    pub peripherals: Option<Vec<Peripheral>>,
    /// Of [`INTERFACES`]; absent where the device doesn't say.
    pub interfaces: Option<Vec<String>>,
    /// Whether an OpenTelemetry collector is on it. rc.3 wants `true` of a device that hosts workloads.
    pub otel_collector: Option<bool>,
    /// Of [`RUNTIMES`].
    pub supported_runtimes: Vec<String>,
    /// Of [`DEPLOYMENT_TYPES`].
    pub supported_deployment_types: Vec<String>,
    /// The supplier's own labels: strings, numbers, booleans or lists of those.
    pub labels: BTreeMap<String, Value>,
    /// Vendors' own keys.
    pub extensions: Extensions,
}

/// Which forms of the pre-draft and its examples a document has, key by key; none is `1.0.0-rc.3`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dialect {
    /// `apiVersion` and `kind`.
    pub header: Header,
    /// What the device has stands in `properties.resources`.
    pub nested: bool,
    /// How the processors are written.
    pub cpus: CpusForm,
}

/// How the processors are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CpusForm {
    /// A list under `cpus` (rc.3).
    #[default]
    Cpus,
    /// A list under `cpu`.
    List,
    /// One mapping under `cpu`.
    Mapping,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// How many cores; at least 1.
    pub cores: u32,
    /// Of [`ARCHITECTURES`]; the pre-draft also has `x86_64`.
    pub architecture: Option<String>,
}

/// A peripheral that a device has, or one that is required of it, where what is left out may be anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peripheral {
    /// Of [`PERIPHERALS`].
    pub kind: String,
    pub manufacturer: Option<String>,
    pub model: Option<String>,
}

impl DeviceCapabilities {
    /// Reads a document of either dialect. Fails with all its problems.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, Problems> {
        let read = |field: Field<'_>| FORM.refuse_2024(&field).and_then(|()| field.mapping(document));
        yaml::read_json(file, bytes, read).map(|(capabilities, _)| capabilities)
    }

    /// The bytes that are written, in the document's dialect: RFC 8785 and a final newline.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut document = Map::new();
        let Header { api_version, kind } = &self.dialect.header;
        put(&mut document, "apiVersion", json!(api_version));
        put(&mut document, "kind", json!(kind.then_some(FORM.kind)));
        document.insert("properties".to_owned(), self.properties().into());
        put(&mut document, "labels", json!(self.labels));
        document.extend(self.extensions.clone());
        json::to_bytes(&document)
    }

    /// The properties as rc.3 writes them, without empty lists: what the keys of requirements point into, whatever the
    /// dialect.
    pub fn properties_rc3(&self) -> Value {
        let mut properties = Self { dialect: Dialect::default(), ..self.clone() }.properties();
        properties.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
        properties.into()
    }

    fn properties(&self) -> Map<String, Value> {
        let mut properties = Map::new();
        put(&mut properties, "id", json!(self.id));
        put(&mut properties, "vendor", json!(self.vendor));
        put(&mut properties, "modelNumber", json!(self.model_number));
        put(&mut properties, "serialNumber", json!(self.serial_number));
        put(&mut properties, "roles", json!(self.roles));
        put(&mut properties, "otelCollector", json!(self.otel_collector));
        put(&mut properties, "supportedRuntimes", json!(self.supported_runtimes));
        put(&mut properties, "supportedDeploymentTypes", json!(self.supported_deployment_types));
        let mut resources = self.resources();
        if self.dialect.nested {
            put(&mut properties, "resources", resources.into());
        } else {
            properties.append(&mut resources);
        }
        properties
    }

    fn resources(&self) -> Map<String, Value> {
        let mut resources = Map::new();
        let mut cpus: Vec<_> = self.cpus.iter().map(Cpu::to_json).collect();
        match self.dialect.cpus {
            CpusForm::Cpus => put(&mut resources, "cpus", cpus.into()),
            CpusForm::Mapping if cpus.len() == 1 => put(&mut resources, "cpu", cpus.remove(0)),
            CpusForm::List | CpusForm::Mapping => put(&mut resources, "cpu", cpus.into()),
        }
        put(&mut resources, "memory", json!(self.memory));
        put(&mut resources, "storage", json!(self.storage));
        // What is said to be none is something else than what isn't said.
        if let Some(all) = &self.peripherals {
            resources.insert("peripherals".to_owned(), all.iter().map(Peripheral::to_json).collect());
        }
        if let Some(all) = &self.interfaces {
            resources.insert("interfaces".to_owned(), all.iter().map(|kind| json!({ "type": kind })).collect());
        }
        resources
    }
}

/// Inserts the value, unless it is empty.
fn put(map: &mut Map<String, Value>, key: &str, value: Value) {
    let empty = match &value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    };
    if !empty {
        map.insert(key.to_owned(), value);
    }
}

impl Cpu {
    fn to_json(&self) -> Value {
        let mut cpu = Map::new();
        put(&mut cpu, "cores", json!(self.cores));
        put(&mut cpu, "architecture", json!(self.architecture));
        cpu.into()
    }

    fn read(field: Field<'_>, architectures: &[&str]) -> Option<Self> {
        field.mapping(|reader| {
            let cores = reader.required("cores", cores);
            let architecture = reader.optional("architecture", |field| field.word(architectures));
            Some(Self { cores: cores?, architecture })
        })
    }
}

/// rc.3's schema has a number, and its data model an integer.
fn cores(field: Field<'_>) -> Option<u32> {
    match field.clone().json()?.as_f64() {
        Some(cores) if cores.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&cores) => Some(cores as u32),
        _ => field.fail("must be a whole number above 0"),
    }
}

impl Peripheral {
    /// Whether this one is what is needed.
    pub fn meets(&self, need: &Self) -> bool {
        let same = |need: &Option<String>, has: &Option<String>| {
            need.as_ref().is_none_or(|need| has.as_ref().is_some_and(|has| has.eq_ignore_ascii_case(need)))
        };
        self.kind == need.kind && same(&need.manufacturer, &self.manufacturer) && same(&need.model, &self.model)
    }

    fn to_json(&self) -> Value {
        let mut peripheral = Map::new();
        put(&mut peripheral, "type", json!(self.kind));
        put(&mut peripheral, "manufacturer", json!(self.manufacturer));
        put(&mut peripheral, "model", json!(self.model));
        peripheral.into()
    }

    /// Reads one; `kind` reads its type.
    pub(super) fn read(field: Field<'_>, kind: impl FnOnce(Field<'_>) -> Option<String>) -> Option<Self> {
        field.mapping(|reader| {
            let kind = reader.required("type", kind);
            let manufacturer = reader.optional("manufacturer", Field::string);
            let model = reader.optional("model", Field::string);
            Some(Self { kind: kind?, manufacturer, model })
        })
    }
}

impl std::fmt::Display for Peripheral {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = [self.manufacturer.as_deref(), self.model.as_deref(), Some(self.kind.as_str())];
        write!(f, "`{}`", words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// How many bytes a capacity such as `59Gi` or `59 Gi` is; `None` if it is no whole number with a binary unit.
pub fn bytes_of(capacity: &str) -> Option<u64> {
    let unit = capacity.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = capacity.split_at(unit);
    let units = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let power = units.iter().position(|name| *name == unit.trim_start())? as u32 + 1;
    number.parse::<u64>().ok()?.checked_mul(1024_u64.checked_pow(power)?)
}

fn document(reader: &mut Reader<'_>) -> Option<DeviceCapabilities> {
    let extensions = reader.extensions();
    let header = FORM.read(reader);
    let labels = reader.optional("labels", |field| field.entries(|_, field| label(field))).unwrap_or_default();
    let properties = reader.required("properties", |field| field.mapping(properties))?;
    let dialect = Dialect { header, ..properties.dialect };
    Some(DeviceCapabilities { dialect, labels, extensions, ..properties })
}

fn properties(reader: &mut Reader<'_>) -> Option<DeviceCapabilities> {
    let id = reader.required("id", Field::parse);
    let vendor = reader.required("vendor", Field::string);
    let model_number = reader.required("modelNumber", Field::string);
    let serial_number = reader.required("serialNumber", Field::string);
    let roles = words(reader, "roles", ROLES);
    let otel_collector = reader.optional("otelCollector", Field::bool);
    let supported_runtimes = words(reader, "supportedRuntimes", RUNTIMES);
    let supported_deployment_types = words(reader, "supportedDeploymentTypes", DEPLOYMENT_TYPES);
    let nested = reader.has("resources");
    let resources = reader.optional("resources", |field| field.mapping(|reader| Some(Resources::read(reader))));
    let resources = resources.unwrap_or_else(|| Resources::read(reader));
    Some(DeviceCapabilities {
        dialect: Dialect { header: Header::default(), nested, cpus: resources.form },
        id: id?,
        vendor: vendor?,
        model_number: model_number?,
        serial_number: serial_number?,
        roles,
        cpus: resources.cpus,
        memory: resources.memory,
        storage: resources.storage,
        peripherals: resources.peripherals,
        interfaces: resources.interfaces,
        otel_collector,
        supported_runtimes,
        supported_deployment_types,
        labels: BTreeMap::new(),
        extensions: Extensions::new(),
    })
}

struct Resources {
    form: CpusForm,
    cpus: Vec<Cpu>,
    memory: Option<String>,
    storage: Option<String>,
    peripherals: Option<Vec<Peripheral>>,
    interfaces: Option<Vec<String>>,
}

impl Resources {
    fn read(reader: &mut Reader<'_>) -> Self {
        let (form, cpus) = if reader.has("cpu") {
            reader.refuse("cpus", "stands beside `cpu`: the processors are in one of them");
            let found = reader.optional("cpu", |field| match &field.node().value {
                yaml::Value::Sequence(_) => {
                    let cpus = field.list(|field| Cpu::read(field, PRE_DRAFT_ARCHITECTURES))?;
                    Some((CpusForm::List, cpus))
                }
                _ => Some((CpusForm::Mapping, vec![Cpu::read(field, PRE_DRAFT_ARCHITECTURES)?])),
            });
            found.unwrap_or_default()
        } else {
            let cpus = reader.optional("cpus", |field| field.list(|field| Cpu::read(field, ARCHITECTURES)));
            (CpusForm::Cpus, cpus.unwrap_or_default())
        };
        let peripheral = |field: Field<'_>| Peripheral::read(field, |field| field.word(PERIPHERALS));
        let interface =
            |field: Field<'_>| field.mapping(|reader| reader.required("type", |field| field.word(INTERFACES)));
        Self {
            form,
            cpus,
            memory: reader.optional("memory", capacity),
            storage: reader.optional("storage", capacity),
            peripherals: reader.optional("peripherals", |field| field.list(peripheral)),
            interfaces: reader.optional("interfaces", |field| field.list(interface)),
        }
    }
}

fn words(reader: &mut Reader<'_>, key: &'static str, set: &[&str]) -> Vec<String> {
    reader.optional(key, |field| field.list(|field| field.word(set))).unwrap_or_default()
}

/// A capacity, as written.
pub(super) fn capacity(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    if bytes_of(&text).is_none() {
        return field
            .fail_hint(format!("`{text}` is no capacity"), "write a whole number and Ki, Mi, Gi, Ti, Pi or Ei");
    }
    Some(text)
}

fn label(field: Field<'_>) -> Option<Value> {
    let value = field.clone().json()?;
    let is_scalar = |value: &Value| value.is_string() || value.is_number();
    let good = match &value {
        Value::Array(items) => items.iter().all(is_scalar),
        value => is_scalar(value) || value.is_boolean(),
    };
    if good { Some(value) } else { field.fail("must be a string, number, boolean or a list of strings or numbers") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_a_whole_number_with_a_binary_unit() {
        for (text, bytes) in [("59 Gi", 59 << 30), ("1Ki", 1024), ("1024Mi", 1 << 30), ("15Ei", 15 << 60), ("0Gi", 0)] {
            assert_eq!(bytes_of(text), Some(bytes), "{text}");
        }
        for text in ["", "5", "Gi", "1.5Gi", "-1Gi", "16Ei", "1GB", "1gi", "1Gi ", "99999999999999999999Ki"] {
            assert_eq!(bytes_of(text), None, "{text}");
        }
    }
}
