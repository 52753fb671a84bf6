//! What this device has and can run: found on it, completed by its own configuration, told on `status` when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use repo_model::DeviceId;
use repo_model::margo::capabilities::{ARCHITECTURES, Cpu, Dialect, INTERFACES, PERIPHERALS, Peripheral, bytes_of};
use repo_model::margo::{DeviceCapabilities, ProfileType};
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
    /// Its processors; found if absent.
    pub cpus: Option<Vec<DescribedCpu>>,
    /// Memory such as `4Gi`; found if absent.
    pub memory: Option<String>,
    /// Storage in the same way.
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
    /// How many cores; told are whole ones.
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
    /// Whether the next look asks anew.
    pub fn is_due(&self) -> bool {
        self.last.as_ref().is_none_or(|(when, _)| when.elapsed() >= FRESH)
    }

    /// The document to tell, as its bytes; `None` while the runtimes don't answer, so that what was told before stays.
    ///
    /// Storage is the file system of `disk`; `versions` asks the runtimes, by name.
    pub fn look(
        &mut self,
        device: &DeviceId,
        described: &Described,
        disk: &Path,
        types: &BTreeSet<ProfileType>,
        versions: impl FnOnce() -> Option<BTreeMap<String, String>>,
    ) -> Option<&[u8]> {
        if self.is_due() {
            let found = Found::here(disk, versions()?);
            self.last = Some((Instant::now(), found.document(device, described, types).to_bytes()));
        }
        self.last.as_ref().map(|(_, bytes)| bytes.as_slice())
    }
}

/// What was found on the machine.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    cores: u32,
    /// Absent if Margo has no word for it.
    architecture: Option<&'static str>,
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
            // What the machine has, and not what this process was given of it.
            cores: text("/sys/devices/system/cpu/online")
                .and_then(|text| online(&text))
                .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
                .and_then(|cores| u32::try_from(cores).ok())
                .unwrap_or(1),
            architecture: told_architecture(std::env::consts::ARCH),
            memory: text("/proc/meminfo").and_then(|text| total_memory(&text)).map(|total| {
                let installed = installed_memory(Path::new("/sys/devices/system/memory"));
                installed.filter(|installed| is_near(*installed, total)).unwrap_or(total)
            }),
            storage,
            interfaces: interfaces(Path::new("/sys/class/net")),
            vendor: dmi("sys_vendor"),
            model: dmi("product_name").or_else(|| model(&text("/proc/device-tree/model")?)),
            serial: dmi("product_serial"),
            versions,
        }
    }

    fn document(self, device: &DeviceId, described: &Described, types: &BTreeSet<ProfileType>) -> DeviceCapabilities {
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
            cpus: described.told_cpus(self.architecture).unwrap_or_else(|| vec![found]),
            memory: memory.or(self.memory.map(capacity)),
            storage: storage.or(self.storage.map(capacity)),
            peripherals: Some(described.told_peripherals()),
            interfaces: Some(described.told_interfaces().unwrap_or(self.interfaces)),
            // rc.3 wants `true` of a device that hosts workloads: one without a collector says that it has none.
            otel_collector: Some(described.otel_collector.unwrap_or(false)),
            supported_runtimes: vec!["oci".to_owned()],
            supported_deployment_types: types.iter().map(ToString::to_string).collect(),
            extensions: runtimes.into_iter().map(|runtimes| (EXTENSION.to_owned(), runtimes)).collect(),
            ..identity
        }
    }
}

impl Described {
    /// Whether the document that comes of it can be read again; the text says what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
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
        let found = Found { interfaces: Vec::new(), ..Found::here(Path::new("/"), BTreeMap::new()) };
        let bytes = found.document(&device, self, &BTreeSet::from([ProfileType::Compose])).to_bytes();
        DeviceCapabilities::read("capabilities", &bytes).map(drop).map_err(|problems| problems.to_string())
    }

    /// What isn't told as it is described, because Margo has closed sets of words and whole cores: each in words. It is
    /// no mistake that stops the syncer, because what an earlier one took must not keep this one from starting.
    pub fn left_out(&self) -> Vec<String> {
        let cpus = self.cpus.iter().flatten().enumerate().flat_map(|(index, cpu)| {
            let is_known = cpu.architecture.as_deref().is_none_or(|name| told_architecture(name).is_some());
            let unknown = cpu.architecture.as_ref().filter(|_| !is_known);
            let cores = (cpu.cores.fract() != 0.0).then(|| {
                format!("`capabilities.cpus[{index}].cores` is {}, and {} are told", cpu.cores, cpu.cores.floor())
            });
            cores
                .into_iter()
                .chain(unknown.map(|name| not_told(&format!("cpus[{index}].architecture"), name, ARCHITECTURES)))
        });
        let peripherals = self.peripherals.iter().enumerate().filter(|(_, one)| !PERIPHERALS.contains(&&*one.kind));
        let peripherals =
            peripherals.map(|(index, one)| not_told(&format!("peripherals[{index}].type"), &one.kind, PERIPHERALS));
        let interfaces = self.interfaces.iter().flatten().enumerate();
        let interfaces = interfaces.filter(|(_, kind)| !INTERFACES.contains(&kind.as_str()));
        let interfaces = interfaces.map(|(index, kind)| not_told(&format!("interfaces[{index}]"), kind, INTERFACES));
        cpus.chain(peripherals).chain(interfaces).collect()
    }

    /// The processors with their whole cores; those without any are none.
    fn told_cpus(&self, found: Option<&'static str>) -> Option<Vec<Cpu>> {
        let told = |cpu: &DescribedCpu| {
            let architecture = match &cpu.architecture {
                Some(name) => told_architecture(name),
                None => found,
            };
            Cpu { cores: cpu.cores.floor() as u32, architecture: architecture.map(str::to_owned) }
        };
        Some(self.cpus.as_ref()?.iter().map(told).filter(|cpu| cpu.cores > 0).collect())
    }

    fn told_peripherals(&self) -> Vec<Peripheral> {
        let told = self.peripherals.iter().filter(|one| PERIPHERALS.contains(&one.kind.as_str()));
        let told = told.cloned().map(|DescribedPeripheral { kind, manufacturer, model }| Peripheral {
            kind,
            manufacturer,
            model,
        });
        told.collect()
    }

    fn told_interfaces(&self) -> Option<Vec<String>> {
        Some(self.interfaces.as_ref()?.iter().filter(|kind| INTERFACES.contains(&kind.as_str())).cloned().collect())
    }
}

fn not_told(key: &str, value: &str, words: &[&str]) -> String {
    format!("`capabilities.{key}` is `{value}`, which isn't told: Margo knows {}", words.join(", "))
}

/// Margo's word for an architecture, also where it is written as kernels write it.
fn told_architecture(name: &str) -> Option<&'static str> {
    let name = architecture(name);
    ARCHITECTURES.iter().copied().find(|known| *known == name)
}

/// A capacity as rc.3 writes it: without a space, and in one of these units.
fn written(text: &str, units: &[&str]) -> String {
    let text: String = text.split_whitespace().collect();
    if units.iter().any(|unit| text.ends_with(unit)) { text } else { bytes_of(&text).map_or(text, capacity) }
}

/// Go's names, which images and Margo's documents use.
fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The memory that is built in, in the blocks that the kernel manages it in; `MemTotal` lacks what the kernel keeps for
/// itself, so that a machine of 4 GiB would never have 4Gi.
fn installed_memory(dir: &Path) -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let size = u64::from_str_radix(read(&dir.join("block_size_bytes"))?.trim(), 16).ok()?;
    let blocks = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path().join("state"));
    let online = blocks.filter(|state| read(state).is_some_and(|state| state.trim() == "online")).count();
    size.checked_mul(online as u64).filter(|bytes| *bytes > 0)
}

/// Whether this is `MemTotal` and what the kernel keeps, and not the machine behind a container that sees less of it.
fn is_near(installed: u64, total: u64) -> bool {
    installed >= total && installed - total <= installed / 8
}

/// How many there are in a list such as `0-3,8`.
fn online(list: &str) -> Option<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim().split(',').map(range).try_fold(0_usize, |sum, one| sum.checked_add(one?)).filter(|count| *count > 0)
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
        let types = BTreeSet::from([ProfileType::Helm, ProfileType::Compose]);
        let versions = || Some(BTreeMap::from([("docker".to_owned(), "28.0.1".to_owned())]));
        let mut probe = Probe::default();
        let first = probe.look(&device, &described(), Path::new("/"), &types, versions).unwrap().to_vec();
        let read = DeviceCapabilities::read("capabilities.json", &first).unwrap();
        assert!(read.dialect == Dialect::default() && read.id == device && read.vendor == "Acme");
        assert_eq!(read.interfaces.as_deref(), Some(&["ethernet".to_owned()][..]));
        assert!(read.cpus[0].cores >= 1 && read.memory.is_some() && read.storage.is_some(), "{read:?}");
        assert_eq!(read.labels["slots"], json!([1, 2]));
        assert_eq!(read.extensions[EXTENSION]["runtimes"]["docker"], "28.0.1");
        assert_eq!(read.supported_deployment_types, ["compose", "helm"]);
        let asked = || panic!("asked again within the hour");
        let again = probe.look(&device, &described(), Path::new("/"), &types, asked);
        assert_eq!(again.unwrap(), first);
    }

    #[test]
    fn while_the_runtimes_do_not_answer_nothing_new_is_told() {
        let device: DeviceId = "press-04".parse().unwrap();
        assert_eq!(
            Probe::default().look(&device, &Described::default(), Path::new("/"), &BTreeSet::new(), || None),
            None
        );
    }

    #[test]
    fn what_the_machine_says_is_read() {
        assert_eq!(total_memory("MemTotal:       16000000 kB\nMemFree: 1 kB\n"), Some(16_000_000 << 10));
        assert_eq!(total_memory("MemTotal: many\n"), None);
        let all = ["x86_64", "aarch64", "arm", "riscv64"].map(told_architecture);
        assert_eq!(all, [Some("amd64"), Some("arm64"), Some("arm"), None]);
        assert_eq!(model("Raspberry Pi 4\0"), Some("Raspberry Pi 4".to_owned()));
        assert_eq!(capacity((2 << 30) + 4096), "2048Mi");
        for (list, count) in [("0-3\n", Some(4)), ("0", Some(1)), ("0-1,4-7,9", Some(7)), ("", None), ("3-1", None)] {
            assert_eq!(online(list), count, "{list}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "test data needs no syncing")]
    fn a_machine_of_four_gibibytes_has_them_whatever_its_kernel_keeps() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("block_size_bytes"), "8000000\n").unwrap();
        for block in 0..33 {
            let state = if block == 32 { "offline\n" } else { "online\n" };
            let block = dir.path().join(format!("memory{block}"));
            fs::create_dir(&block).unwrap();
            fs::write(block.join("state"), state).unwrap();
        }
        let installed = installed_memory(dir.path()).unwrap();
        assert_eq!(capacity(installed), "4096Mi");
        assert!(is_near(installed, 4_021_000 << 10) && is_near(installed, installed));
        assert!(!is_near(installed, 2 << 30) && !is_near(installed, 5 << 30), "that is a container's, or nonsense");
        assert_eq!(installed_memory(&dir.path().join("none")), None);
    }

    #[test]
    fn what_the_configuration_says_stands_before_what_was_found() {
        let text = "cpus: [{cores: 4, architecture: arm64}, {cores: 2}]\nmemory: 1 Ti\nstorage: 1 Ti\n";
        let described: Described = serde_yaml::from_str(text).unwrap();
        assert_eq!((described.check(), described.left_out()), (Ok(()), vec![]));
        let document = told(&described, &[ProfileType::Compose]);
        assert_eq!((document.memory.as_deref(), document.storage.as_deref()), (Some("1048576Mi"), Some("1Ti")));
        let architectures: Vec<_> = document.cpus.iter().map(|cpu| (cpu.cores, cpu.architecture.as_deref())).collect();
        assert_eq!(architectures, [(4, Some("arm64")), (2, told_architecture(std::env::consts::ARCH))]);
    }

    fn told(described: &Described, types: &[ProfileType]) -> DeviceCapabilities {
        let found = Found::here(Path::new("/"), BTreeMap::new());
        let document = found.document(&"any".parse().unwrap(), described, &types.iter().copied().collect());
        DeviceCapabilities::read("capabilities.json", &document.to_bytes()).unwrap()
    }

    #[test]
    fn a_device_that_hosts_workloads_says_whether_it_has_a_collector_and_one_that_hosts_none_says_who_it_is() {
        for (text, expected) in [("{}\n", false), ("otelCollector: true\n", true), ("otelCollector: false\n", false)] {
            let described: Described = serde_yaml::from_str(text).unwrap();
            let host = told(&described, &[ProfileType::Helm]);
            assert_eq!(host.otel_collector, Some(expected), "{text}");
            assert!(host.peripherals.is_some() && host.interfaces.is_some() && host.supported_runtimes == ["oci"]);
            let gateway = told(&described, &[]);
            let rest = (gateway.otel_collector, gateway.cpus.len(), gateway.memory, gateway.peripherals);
            assert_eq!(rest, (None, 0, None, None), "{text}");
            assert!(gateway.supported_runtimes.is_empty() && gateway.supported_deployment_types.is_empty());
        }
    }

    #[test]
    fn what_an_earlier_syncer_took_and_margo_has_no_word_for_is_left_out_and_said() {
        let text = "cpus: [{cores: 3.5, architecture: x86_64}, {cores: 0.5}, {cores: 1, architecture: riscv64}]\n\
                    peripherals: [{type: plc}, {type: gpu}]\ninterfaces: [profinet, usb]\n";
        let described: Described = serde_yaml::from_str(text).unwrap();
        assert_eq!(described.check(), Ok(()), "an update must not keep the syncer from starting");
        let document = told(&described, &[ProfileType::Compose]);
        let cpus: Vec<_> = document.cpus.iter().map(|cpu| (cpu.cores, cpu.architecture.as_deref())).collect();
        assert_eq!(cpus, [(3, Some("amd64")), (1, None)]);
        assert_eq!(document.peripherals.unwrap().len(), 1);
        assert_eq!(document.interfaces.unwrap(), ["usb"]);
        let said = described.left_out();
        assert_eq!(said.len(), 5, "{said:?}");
        assert_eq!(said[0], "`capabilities.cpus[0].cores` is 3.5, and 3 are told");
        assert!(said[3].starts_with("`capabilities.peripherals[0].type` is `plc`, which isn't told: Margo knows gpu"));
    }

    #[test]
    fn a_description_that_margo_would_not_read_is_refused() {
        assert_eq!(described().check(), Ok(()));
        let nested: Described = serde_yaml::from_str("labels: {a: {b: c}}\n").unwrap();
        assert!(nested.check().unwrap_err().contains("labels.a"));
        for (text, expected) in [
            ("memory: 4GB\n", "memory: `4GB`"),
            ("storage: \"5\"\n", "storage: `5`"),
            ("cpus: [{cores: 0}]\n", "cpus[0].cores: must be"),
            ("cpus: [{cores: -1}]\n", "cpus[0].cores: must be"),
        ] {
            let wrong = serde_yaml::from_str::<Described>(text).unwrap().check().unwrap_err();
            assert!(wrong.contains(expected), "{text}: {wrong}");
        }
    }
}
