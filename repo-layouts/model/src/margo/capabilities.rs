//! DeviceCapabilitiesManifest: what a device has and can run.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Extensions, read_header};
use crate::problem::Problems;
use crate::yaml::{self, Field, Reader};
use crate::{DeviceId, json};

const API_VERSION: &str = "device.margo.org/v1alpha1";
const KIND: &str = "DeviceCapabilitiesManifest";

/// What a device has and can run (Margo, *DeviceCapabilitiesManifest*). A gateway that hosts nothing leaves out all but
/// its identity.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceCapabilities {
    /// Whether the document is of the pre-draft.
    pub pre_draft: bool,
    /// The device's identity.
    pub id: DeviceId,
    /// Who made it.
    pub vendor: String,
    /// Its model.
    pub model_number: String,
    /// Its serial number.
    pub serial_number: String,
    /// `Standalone Cluster`, `Standalone Device` (pre-draft only).
    pub roles: Vec<String>,
    /// Its processors.
    pub cpus: Vec<Cpu>,
    /// Memory with its binary unit, as written: `59 Gi`; see [`bytes_of`].
    pub memory: Option<String>,
    /// Storage in the same way.
    pub storage: Option<String>,
    /// GPUs, displays, cameras …
    pub peripherals: Vec<Peripheral>,
    /// `ethernet`, `wifi` …
    pub interfaces: Vec<String>,
    /// Whether it collects telemetry.
    pub otel_collector: Option<bool>,
    /// `oci`, `custom`.
    pub supported_runtimes: Vec<String>,
    /// `helm`, `compose`, `custom`.
    pub supported_deployment_types: Vec<String>,
    /// The supplier's own labels: strings, numbers, booleans or lists of those.
    pub labels: BTreeMap<String, Value>,
    /// Vendors' own keys.
    pub extensions: Extensions,
}

/// A processor.
#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    /// How many cores.
    pub cores: f64,
    /// `amd64`, `arm64`, `arm` …
    pub architecture: Option<String>,
}

/// A peripheral that a device has, or one that it needs, where what isn't said may be anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peripheral {
    /// `gpu`, `display`, `camera`, `microphone`, `speaker`.
    pub kind: String,
    /// Who made it.
    pub manufacturer: Option<String>,
    /// Its model.
    pub model: Option<String>,
}

impl DeviceCapabilities {
    /// Reads either dialect.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, Problems> {
        yaml::read_json(file, bytes, |field| field.mapping(document)).map(|(capabilities, _)| capabilities)
    }

    /// The bytes that are written, in the document's dialect: RFC 8785 and a final newline.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut document = Map::new();
        if self.pre_draft {
            document.insert("apiVersion".to_owned(), API_VERSION.into());
            document.insert("kind".to_owned(), KIND.into());
        }
        document.insert("properties".to_owned(), self.properties());
        put(&mut document, "labels", json!(self.labels));
        document.extend(self.extensions.clone());
        json::to_bytes(&document)
    }

    /// The properties as rc.3 writes them: what the keys of requirements point into, whatever the dialect.
    pub fn properties_rc3(&self) -> Value {
        if self.pre_draft { Self { pre_draft: false, ..self.clone() }.properties() } else { self.properties() }
    }

    fn properties(&self) -> Value {
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
        if self.pre_draft {
            put(&mut properties, "resources", resources.into());
        } else {
            properties.append(&mut resources);
        }
        properties.into()
    }

    fn resources(&self) -> Map<String, Value> {
        let mut resources = Map::new();
        let cpus: Vec<_> = self.cpus.iter().map(Cpu::to_json).collect();
        match cpus.first() {
            Some(cpu) if self.pre_draft => put(&mut resources, "cpu", cpu.clone()),
            _ => put(&mut resources, "cpus", cpus.into()),
        }
        put(&mut resources, "memory", json!(self.memory));
        put(&mut resources, "storage", json!(self.storage));
        put(&mut resources, "peripherals", self.peripherals.iter().map(Peripheral::to_json).collect());
        put(&mut resources, "interfaces", self.interfaces.iter().map(|kind| json!({ "type": kind })).collect());
        resources
    }
}

/// Inserts what isn't empty.
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

    fn read(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            let cores = reader.required("cores", |field| match field.clone().json()?.as_f64() {
                Some(cores) if cores > 0.0 => Some(cores),
                _ => field.fail("must be a number above 0"),
            });
            let architecture = reader.optional("architecture", Field::string);
            Some(Self { cores: cores?, architecture })
        })
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

    pub(super) fn read(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            let kind = reader.required("type", Field::string);
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
    let pre_draft = read_header(reader, &[API_VERSION], KIND);
    let labels = reader.optional("labels", |field| field.entries(|_, field| label(field))).unwrap_or_default();
    let properties = reader.required("properties", |field| field.mapping(properties))?;
    let pre_draft = pre_draft || properties.pre_draft;
    Some(DeviceCapabilities { pre_draft, labels, extensions, ..properties })
}

fn properties(reader: &mut Reader<'_>) -> Option<DeviceCapabilities> {
    let id = reader.required("id", Field::parse);
    let vendor = reader.required("vendor", Field::string);
    let model_number = reader.required("modelNumber", Field::string);
    let serial_number = reader.required("serialNumber", Field::string);
    let roles = strings(reader, "roles");
    let otel_collector = reader.optional("otelCollector", Field::bool);
    let supported_runtimes = strings(reader, "supportedRuntimes");
    let supported_deployment_types = strings(reader, "supportedDeploymentTypes");
    let pre_draft = reader.has("resources");
    let nested = reader.optional("resources", |field| field.mapping(|reader| Some(Resources::read(reader))));
    let resources = nested.unwrap_or_else(|| Resources::read(reader));
    Some(DeviceCapabilities {
        pre_draft,
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
    cpus: Vec<Cpu>,
    memory: Option<String>,
    storage: Option<String>,
    peripherals: Vec<Peripheral>,
    interfaces: Vec<String>,
}

impl Resources {
    fn read(reader: &mut Reader<'_>) -> Self {
        let cpu = reader.optional("cpu", Cpu::read);
        let cpus = reader.optional("cpus", |field| field.list(Cpu::read)).unwrap_or_default();
        let interface = |field: Field<'_>| field.mapping(|reader| reader.required("type", Field::string));
        Self {
            cpus: cpu.into_iter().chain(cpus).collect(),
            memory: reader.optional("memory", capacity),
            storage: reader.optional("storage", capacity),
            peripherals: reader.optional("peripherals", |field| field.list(Peripheral::read)).unwrap_or_default(),
            interfaces: reader.optional("interfaces", |field| field.list(interface)).unwrap_or_default(),
        }
    }
}

fn strings(reader: &mut Reader<'_>, key: &'static str) -> Vec<String> {
    reader.optional(key, |field| field.list(Field::string)).unwrap_or_default()
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
