//! What this device has and can run: found on it, completed by its own configuration, told on `status` when it changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use repo_model::DeviceId;
use repo_model::margo::DeviceCapabilities;
use repo_model::margo::capabilities::{Cpu, Peripheral};
use serde::Deserialize;
use serde_json::json;

/// How long what was found is taken to be so. Hardware and engines change seldom, and asking costs two processes.
const FRESH: Duration = Duration::from_secs(3600);

/// The key under which versions of the runtimes are told: Margo has none for them.
const EXTENSION: &str = "x-device-syncer-extensions";

/// What a device's configuration says of it, because it can't be found or should be told otherwise.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Described {
    /// Who made it.
    pub vendor: Option<String>,
    /// Its model.
    pub model_number: Option<String>,
    /// Its serial number.
    pub serial_number: Option<String>,
    /// What packages may ask for: strings, numbers, booleans or lists of those.
    pub labels: BTreeMap<String, serde_json::Value>,
    /// GPUs, displays, cameras …
    pub peripherals: Vec<DescribedPeripheral>,
    /// `ethernet`, `wifi` …; found if absent.
    pub interfaces: Option<Vec<String>>,
}

/// A peripheral as the configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribedPeripheral {
    /// `gpu`, `display`, `camera`, `microphone`, `speaker`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Who made it.
    #[serde(default)]
    pub manufacturer: Option<String>,
    /// Its model.
    #[serde(default)]
    pub model: Option<String>,
}

/// Looks from time to time, and remembers.
#[derive(Debug, Default)]
pub struct Probe {
    last: Option<(Instant, Vec<u8>)>,
}

impl Probe {
    /// The document to tell, as its bytes; `None` while the runtimes don't answer, so that what was told before stays.
    ///
    /// `versions` asks the runtimes, by name.
    pub fn look(
        &mut self,
        device: &DeviceId,
        described: &Described,
        disk: &Path,
        versions: impl FnOnce() -> Option<BTreeMap<String, String>>,
    ) -> Option<&[u8]> {
        if self.last.as_ref().is_none_or(|(when, _)| when.elapsed() >= FRESH) {
            let found = Found::here(disk, versions()?);
            self.last = Some((Instant::now(), found.document(device, described).to_bytes()));
        }
        self.last.as_ref().map(|(_, bytes)| bytes.as_slice())
    }
}

/// What was found on the machine.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    cores: usize,
    architecture: &'static str,
    /// In bytes.
    memory: Option<u64>,
    /// The file system that applications are on, in bytes.
    storage: Option<u64>,
    interfaces: Vec<String>,
    vendor: Option<String>,
    model: Option<String>,
    serial: Option<String>,
    versions: BTreeMap<String, String>,
}

impl Found {
    fn here(disk: &Path, versions: BTreeMap<String, String>) -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let dmi = |name: &str| {
            let text = text(&format!("/sys/class/dmi/id/{name}"))?.trim().to_owned();
            (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
        };
        let storage = rustix::fs::statvfs(disk).ok().map(|stat| stat.f_blocks.saturating_mul(stat.f_frsize));
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            architecture: architecture(std::env::consts::ARCH),
            memory: text("/proc/meminfo").and_then(|text| total_memory(&text)),
            storage,
            interfaces: interfaces(Path::new("/sys/class/net")),
            vendor: dmi("sys_vendor"),
            model: dmi("product_name").or_else(|| model(&text("/proc/device-tree/model")?)),
            serial: dmi("product_serial"),
            versions,
        }
    }

    fn document(self, device: &DeviceId, described: &Described) -> DeviceCapabilities {
        let or = |described: &Option<String>, found: Option<String>| {
            described.clone().or(found).unwrap_or_else(|| "unknown".to_owned())
        };
        let peripheral = |one: &DescribedPeripheral| Peripheral {
            kind: one.kind.clone(),
            manufacturer: one.manufacturer.clone(),
            model: one.model.clone(),
        };
        let mut extensions = BTreeMap::new();
        if !self.versions.is_empty() {
            extensions.insert(EXTENSION.to_owned(), json!({ "runtimes": self.versions }));
        }
        DeviceCapabilities {
            pre_draft: false,
            id: device.clone(),
            vendor: or(&described.vendor, self.vendor),
            model_number: or(&described.model_number, self.model),
            serial_number: or(&described.serial_number, self.serial),
            roles: Vec::new(),
            cpus: vec![Cpu { cores: self.cores as f64, architecture: Some(self.architecture.to_owned()) }],
            memory: self.memory.map(capacity),
            storage: self.storage.map(capacity),
            peripherals: described.peripherals.iter().map(peripheral).collect(),
            interfaces: described.interfaces.clone().unwrap_or(self.interfaces),
            otel_collector: None,
            supported_runtimes: vec!["oci".to_owned()],
            supported_deployment_types: vec!["compose".to_owned()],
            labels: described.labels.clone(),
            extensions,
        }
    }
}

impl Described {
    /// Whether the document that comes of it can be read again; the text says what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let device: DeviceId = "any".parse().map_err(|_| "no device id can be made".to_owned())?;
        let found = Found { interfaces: Vec::new(), ..Found::here(Path::new("/"), BTreeMap::new()) };
        let bytes = found.document(&device, self).to_bytes();
        DeviceCapabilities::read("capabilities", &bytes).map(drop).map_err(|problems| problems.to_string())
    }
}

/// Go's names, which images and Margo's documents use.
fn architecture(rust: &'static str) -> &'static str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn model(text: &str) -> Option<String> {
    let text = text.trim_end_matches('\0').trim();
    (!text.is_empty() && !text.contains(char::is_control)).then(|| text.to_owned())
}

/// The kinds of the interfaces that are real devices; bridges and the like come and go with containers.
fn interfaces(class: &Path) -> Vec<String> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let real = entries.map(|entry| entry.path()).filter(|path| path.join("device").exists());
    let kind = |path: &Path| if path.join("wireless").exists() { "wifi" } else { "ethernet" };
    let mut kinds: Vec<_> = real.map(|path| kind(&path).to_owned()).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// Whole mebibytes, rounded down, so that the few pages that a kernel keeps for itself change nothing.
fn capacity(bytes: u64) -> String {
    format!("{}Mi", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> Described {
        let text = "labels: {line: \"2\", slots: [1, 2], armed: true}\nvendor: Acme\n\
                    peripherals: [{type: gpu, manufacturer: NVIDIA}]\ninterfaces: [ethernet]\n";
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn what_is_told_is_margos_document_and_stays_the_same() {
        let device: DeviceId = "press-04".parse().unwrap();
        let versions = || Some(BTreeMap::from([("docker".to_owned(), "28.0.1".to_owned())]));
        let mut probe = Probe::default();
        let first = probe.look(&device, &described(), Path::new("/"), versions).unwrap().to_vec();
        let read = DeviceCapabilities::read("capabilities.json", &first).unwrap();
        assert!(!read.pre_draft && read.id == device && read.vendor == "Acme" && read.interfaces == ["ethernet"]);
        assert!(read.cpus[0].cores >= 1.0 && read.memory.is_some() && read.storage.is_some(), "{read:?}");
        assert_eq!(read.labels["slots"], json!([1, 2]));
        assert_eq!(read.extensions[EXTENSION]["runtimes"]["docker"], "28.0.1");
        let again = probe.look(&device, &described(), Path::new("/"), || panic!("asked again within the hour"));
        assert_eq!(again.unwrap(), first);
    }

    #[test]
    fn while_the_runtimes_do_not_answer_nothing_new_is_told() {
        let device: DeviceId = "press-04".parse().unwrap();
        assert_eq!(Probe::default().look(&device, &Described::default(), Path::new("/"), || None), None);
    }

    #[test]
    fn what_the_machine_says_is_read() {
        assert_eq!(total_memory("MemTotal:       16000000 kB\nMemFree: 1 kB\n"), Some(16_000_000 << 10));
        assert_eq!(total_memory("MemTotal: many\n"), None);
        assert_eq!((architecture("x86_64"), architecture("aarch64"), architecture("arm")), ("amd64", "arm64", "arm"));
        assert_eq!(model("Raspberry Pi 4\0"), Some("Raspberry Pi 4".to_owned()));
        assert_eq!(capacity((2 << 30) + 4096), "2048Mi");
    }

    #[test]
    fn a_description_that_margo_would_not_read_is_refused() {
        assert_eq!(described().check(), Ok(()));
        let nested: Described = serde_yaml::from_str("labels: {a: {b: c}}\n").unwrap();
        assert!(nested.check().unwrap_err().contains("labels.a"));
    }
}
