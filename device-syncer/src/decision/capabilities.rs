//! What this device says of itself: what was found on it, completed by its own configuration. Margo's document of it.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::margo::capabilities::{ARCHITECTURES, Cpu, Dialect, INTERFACES, PERIPHERALS, Peripheral, bytes_of};
use repo_model::margo::{DeviceCapabilities, ProfileType};
use repo_model::{DeviceId, IntoMap};
use serde::Deserialize;
use serde_json::json;

/// The key under which versions of the runtimes are reported: Margo has none for them.
pub(crate) const EXTENSION: &str = "x-device-syncer-extensions";

/// What a device's configuration says of it, because it can't be found or shall be reported otherwise.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Described {
    pub vendor: Option<String>,
    pub model_number: Option<String>,
    pub serial_number: Option<String>,
    /// Its processors; found if absent.
    pub cpus: Option<Vec<DescribedCpu>>,
    /// Memory such as `4Gi`; found if absent.
    pub memory: Option<String>,
    /// Storage such as `64Gi`; found if absent.
    pub storage: Option<String>,
    /// What packages may ask for: strings, numbers, booleans or lists of those.
    pub labels: BTreeMap<String, serde_json::Value>,
    /// GPUs, displays, cameras …
    pub peripherals: Vec<DescribedPeripheral>,
    /// `ethernet`, `wifi` …; found if absent.
    pub interfaces: Option<Vec<String>>,
    /// Whether an OpenTelemetry collector is on it, which can't be found; not, if absent.
    pub otel_collector: Option<bool>,
}

/// A processor as the configuration describes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribedCpu {
    /// How many cores; a part of one is left out of the report.
    pub cores: f64,
    /// `amd64`, `arm64` or `arm`; found if absent.
    #[serde(default)]
    pub architecture: Option<String>,
}

/// A peripheral as the configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribedPeripheral {
    /// `gpu`, `display`, `camera`, `microphone`, `speaker`.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub manufacturer: Option<String>,
    #[serde(default)]
    pub model: Option<String>,
}

/// What was found on the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    pub cores: u32,
    /// Absent if Margo has no word for it.
    pub architecture: Option<&'static str>,
    /// In bytes; `None` where it can't be found out.
    pub memory: Option<u64>,
    /// The file system that applications are on, in bytes.
    pub storage: Option<u64>,
    pub interfaces: Vec<String>,
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub versions: BTreeMap<String, String>,
}

impl Found {
    /// The document that tells what was found, as the configuration completes it.
    pub fn document(
        self,
        device: &DeviceId,
        described: &Described,
        types: &BTreeSet<ProfileType>,
    ) -> DeviceCapabilities {
        let or = |described: &Option<String>, found: Option<String>| {
            described.clone().or(found).unwrap_or_else(|| "unknown".to_owned())
        };
        let identity = DeviceCapabilities {
            dialect: Dialect::default(),
            id: device.clone(),
            vendor: or(&described.vendor, self.vendor),
            model_number: or(&described.model_number, self.model),
            serial_number: or(&described.serial_number, self.serial),
            roles: Vec::new(),
            cpus: Vec::new(),
            memory: None,
            storage: None,
            peripherals: None,
            interfaces: None,
            otel_collector: None,
            supported_runtimes: Vec::new(),
            supported_deployment_types: Vec::new(),
            labels: described.labels.clone(),
            extensions: BTreeMap::new(),
        };
        // A device that hosts nothing says so by leaving all of this out.
        if types.is_empty() {
            return identity;
        }
        let found = Cpu { cores: self.cores, architecture: self.architecture.map(str::to_owned) };
        let memory = described.memory.as_deref().map(|text| written(text, &["Ki", "Mi", "Gi"]));
        let storage = described.storage.as_deref().map(|text| written(text, &["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]));
        let runtimes = (!self.versions.is_empty()).then(|| json!({ "runtimes": self.versions }));
        DeviceCapabilities {
            cpus: described.reported_cpus(self.architecture).unwrap_or_else(|| vec![found]),
            memory: memory.or(self.memory.map(capacity)),
            storage: storage.or(self.storage.map(capacity)),
            peripherals: Some(described.reported_peripherals()),
            interfaces: Some(described.reported_interfaces().unwrap_or(self.interfaces)),
            // rc.3 wants `true` of a device that hosts workloads: one without a collector says that it has none.
            otel_collector: Some(described.otel_collector.unwrap_or(false)),
            supported_runtimes: vec!["oci".to_owned()],
            supported_deployment_types: types.iter().map(ToString::to_string).collect(),
            extensions: runtimes.into_iter().map(|runtimes| (EXTENSION.to_owned(), runtimes)).into_map(),
            ..identity
        }
    }
}

impl Described {
    /// Whether the document that comes of it can be read again; the text says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let is_positive = |cpu: &DescribedCpu| cpu.cores > 0.0 && cpu.cores <= f64::from(u32::MAX);
        if let Some(index) = self.cpus.iter().flatten().position(|cpu| !is_positive(cpu)) {
            return Err(format!("cpus[{index}].cores: must be a number above 0"));
        }
        let sizes = [("memory", &self.memory), ("storage", &self.storage)];
        let wrong = sizes
            .into_iter()
            .find_map(|(key, size)| Some((key, size.as_ref().filter(|size| bytes_of(size).is_none())?)));
        if let Some((key, size)) = wrong {
            return Err(format!("{key}: `{size}` is no capacity: write a whole number and Ki, Mi, Gi, Ti, Pi or Ei"));
        }
        let device: DeviceId = "any".parse().map_err(|_| "no device id can be made".to_owned())?;
        let found = Found { cores: 1, memory: Some(1 << 30), storage: Some(1 << 30), ..Found::default() };
        let bytes = found.document(&device, self, &BTreeSet::from([ProfileType::Compose])).to_bytes();
        DeviceCapabilities::read("capabilities", &bytes).map(drop).map_err(|problems| problems.to_string())
    }

    /// What isn't reported as it is described, because Margo has closed sets of words and whole cores: each in words.
    /// It is no mistake that stops the syncer, because what an earlier one took must not keep this one from starting.
    pub fn left_out(&self) -> Vec<String> {
        let cpus = self.cpus.iter().flatten().enumerate().flat_map(|(index, cpu)| {
            let is_known = cpu.architecture.as_deref().is_none_or(|name| architecture_of(name).is_some());
            let unknown = cpu.architecture.as_ref().filter(|_| !is_known);
            let cores = (cpu.cores.fract() != 0.0).then(|| {
                format!("`capabilities.cpus[{index}].cores` is {}, and {} are told", cpu.cores, cpu.cores.floor())
            });
            cores
                .into_iter()
                .chain(unknown.map(|name| not_reported(&format!("cpus[{index}].architecture"), name, ARCHITECTURES)))
        });
        let peripherals = self.peripherals.iter().enumerate().filter(|(_, one)| !PERIPHERALS.contains(&&*one.kind));
        let peripherals =
            peripherals.map(|(index, one)| not_reported(&format!("peripherals[{index}].type"), &one.kind, PERIPHERALS));
        let interfaces = self.interfaces.iter().flatten().enumerate();
        let interfaces = interfaces.filter(|(_, kind)| !INTERFACES.contains(&kind.as_str()));
        let interfaces =
            interfaces.map(|(index, kind)| not_reported(&format!("interfaces[{index}]"), kind, INTERFACES));
        cpus.chain(peripherals).chain(interfaces).collect()
    }

    /// The processors with their whole cores; those without any are none.
    fn reported_cpus(&self, found: Option<&'static str>) -> Option<Vec<Cpu>> {
        let reported = |cpu: &DescribedCpu| {
            let architecture = match &cpu.architecture {
                Some(name) => architecture_of(name),
                None => found,
            };
            Cpu { cores: cpu.cores.floor() as u32, architecture: architecture.map(str::to_owned) }
        };
        Some(self.cpus.as_ref()?.iter().map(reported).filter(|cpu| cpu.cores > 0).collect())
    }

    fn reported_peripherals(&self) -> Vec<Peripheral> {
        let known = self.peripherals.iter().filter(|one| PERIPHERALS.contains(&one.kind.as_str()));
        let known = known.cloned().map(|DescribedPeripheral { kind, manufacturer, model }| Peripheral {
            kind,
            manufacturer,
            model,
        });
        known.collect()
    }

    fn reported_interfaces(&self) -> Option<Vec<String>> {
        Some(self.interfaces.as_ref()?.iter().filter(|kind| INTERFACES.contains(&kind.as_str())).cloned().collect())
    }
}

fn not_reported(key: &str, value: &str, words: &[&str]) -> String {
    format!("`capabilities.{key}` is `{value}`, which isn't told: Margo knows {}", words.join(", "))
}

/// Margo's word for an architecture, also where it is written as kernels write it.
pub(crate) fn architecture_of(name: &str) -> Option<&'static str> {
    let name = architecture(name);
    ARCHITECTURES.iter().copied().find(|known| *known == name)
}

/// A capacity as rc.3 writes it: without a space, and in one of these units.
fn written(text: &str, units: &[&str]) -> String {
    let text: String = text.split_whitespace().collect();
    if units.iter().any(|unit| text.ends_with(unit)) { text } else { bytes_of(&text).map_or(text, capacity) }
}

/// Go's names, which images and Margo's documents use.
pub(crate) fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Whole mebibytes, rounded down, so that the few pages that a kernel keeps for itself change nothing.
pub(crate) fn capacity(bytes: u64) -> String {
    format!("{}Mi", bytes >> 20)
}
