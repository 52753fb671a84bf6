//! What this device has and can run: found on it, completed by its own configuration, reported on `status` when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use repo_model::margo::ProfileType;
use repo_model::{DeviceId, sort_few};

use crate::decision::capabilities::{Described, Found, architecture_of};

/// How long what was found is taken to be so. Hardware and engines change seldom, and asking costs a process.
const FRESH: Duration = Duration::from_secs(3600);

/// Finds out what the machine has, once an hour, and keeps the document of it in between.
#[derive(Debug, Default)]
pub struct Probe {
    last: Option<(Instant, Vec<u8>)>,
}

impl Probe {
    /// Whether the next document is found out anew: there is none yet, or it is an hour old.
    pub fn is_due(&self) -> bool {
        self.last.as_ref().is_none_or(|(when, _)| when.elapsed() >= FRESH)
    }

    /// The document to tell, as its bytes; `None` while the runtimes don't answer, so that what was reported before stays.
    ///
    /// `facts` has the runtimes' versions, by name, and the directory whose file system is the storage.
    pub fn document(
        &mut self,
        device: &DeviceId,
        described: &Described,
        types: &BTreeSet<ProfileType>,
        facts: impl FnOnce() -> Option<(BTreeMap<String, String>, PathBuf)>,
    ) -> Option<&[u8]> {
        if self.is_due() {
            let (versions, disk) = facts()?;
            let found = found_here(&disk, versions);
            self.last = Some((Instant::now(), found.document(device, described, types).to_bytes()));
        }
        self.last.as_ref().map(|(_, bytes)| bytes.as_slice())
    }
}

/// What this machine is: `disk` is on the file system that applications are on.
fn found_here(disk: &Path, versions: BTreeMap<String, String>) -> Found {
    let text = |path: &str| fs::read_to_string(path).ok();
    let dmi = |name: &str| {
        let text = text(&format!("/sys/class/dmi/id/{name}"))?.trim().to_owned();
        (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
    };
    let storage = rustix::fs::statvfs(disk).ok().map(|stat| stat.f_blocks.saturating_mul(stat.f_frsize));
    Found {
        // What the machine has, and not what this process was given of it.
        cores: text("/sys/devices/system/cpu/online")
            .and_then(|text| online(&text))
            .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
            .and_then(|cores| u32::try_from(cores).ok())
            .unwrap_or(1),
        architecture: architecture_of(std::env::consts::ARCH),
        memory: memory(),
        storage,
        interfaces: interfaces(Path::new("/sys/class/net")),
        vendor: dmi("sys_vendor"),
        model: dmi("product_name").or_else(|| model(&text("/proc/device-tree/model")?)),
        serial: dmi("product_serial"),
        versions,
    }
}

/// What the firmware says that this machine is: its model and its serial number.
pub fn identity() -> (Option<String>, Option<String>) {
    let text = |path: &str| fs::read_to_string(path).ok().and_then(|text| model(&text));
    let tree = |name: &str| text(&format!("/proc/device-tree/{name}"));
    let of = |dmi: &str, other: &str| text(&format!("/sys/class/dmi/id/{dmi}")).or_else(|| tree(other));
    (of("product_name", "model"), of("product_serial", "serial-number"))
}

/// The address of this machine's first network interface that is a real device.
pub fn mac() -> Option<String> {
    let entries = fs::read_dir("/sys/class/net").ok()?.flatten().map(|entry| entry.path());
    let mut real: Vec<_> = entries.filter(|path| path.join("device").exists()).collect();
    sort_few(&mut real, Ord::cmp);
    real.iter().find_map(|path| model(&fs::read_to_string(path.join("address")).ok()?))
}

/// The memory of this machine, in bytes; `None` where the kernel doesn't tell.
pub fn memory() -> Option<u64> {
    let total = total_memory(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let installed = installed_memory(Path::new("/sys/devices/system/memory"));
    Some(installed.filter(|installed| is_near(*installed, total)).unwrap_or(total))
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

#[cfg(test)]
mod tests {
    use repo_model::margo::DeviceCapabilities;
    use repo_model::margo::capabilities::Dialect;
    use serde_json::json;

    use super::*;
    use crate::decision::capabilities::{EXTENSION, capacity};

    fn described() -> Described {
        let text = "labels: {line: \"2\", slots: [1, 2], armed: true}\nvendor: Acme\n\
                    peripherals: [{type: gpu, manufacturer: NVIDIA}]\ninterfaces: [ethernet]\n";
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn what_is_told_is_margos_document_and_stays_the_same() {
        let device: DeviceId = "press-04".parse().unwrap();
        let types = BTreeSet::from([ProfileType::Helm, ProfileType::Compose]);
        let facts = || Some((BTreeMap::from([("docker".to_owned(), "28.0.1".to_owned())]), "/".into()));
        let mut probe = Probe::default();
        let first = probe.document(&device, &described(), &types, facts).unwrap().to_vec();
        let read = DeviceCapabilities::read("capabilities.json", &first).unwrap();
        assert!(read.dialect == Dialect::default() && read.id == device && read.vendor == "Acme");
        assert_eq!(read.interfaces.as_deref(), Some(&["ethernet".to_owned()][..]));
        assert!(read.cpus[0].cores >= 1 && read.memory.is_some() && read.storage.is_some(), "{read:?}");
        assert_eq!(read.labels["slots"], json!([1, 2]));
        assert_eq!(read.extensions[EXTENSION]["runtimes"]["docker"], "28.0.1");
        assert_eq!(read.supported_deployment_types, ["compose", "helm"]);
        let asked = || panic!("asked again within the hour");
        let again = probe.document(&device, &described(), &types, asked);
        assert_eq!(again.unwrap(), first);
    }

    #[test]
    fn while_the_runtimes_do_not_answer_nothing_new_is_told() {
        let device: DeviceId = "press-04".parse().unwrap();
        assert_eq!(Probe::default().document(&device, &Described::default(), &BTreeSet::new(), || None), None);
    }

    #[test]
    fn what_the_machine_says_is_read() {
        assert_eq!(total_memory("MemTotal:       16000000 kB\nMemFree: 1 kB\n"), Some(16_000_000 << 10));
        assert_eq!(total_memory("MemTotal: many\n"), None);
        let all = ["x86_64", "aarch64", "arm", "riscv64"].map(architecture_of);
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
        let document = reported(&described, &[ProfileType::Compose]);
        assert_eq!((document.memory.as_deref(), document.storage.as_deref()), (Some("1048576Mi"), Some("1Ti")));
        let architectures: Vec<_> = document.cpus.iter().map(|cpu| (cpu.cores, cpu.architecture.as_deref())).collect();
        assert_eq!(architectures, [(4, Some("arm64")), (2, architecture_of(std::env::consts::ARCH))]);
    }

    fn reported(described: &Described, types: &[ProfileType]) -> DeviceCapabilities {
        let found = found_here(Path::new("/"), BTreeMap::new());
        let document = found.document(&"any".parse().unwrap(), described, &types.iter().copied().collect());
        DeviceCapabilities::read("capabilities.json", &document.to_bytes()).unwrap()
    }

    #[test]
    fn a_device_that_hosts_workloads_says_whether_it_has_a_collector_and_one_that_hosts_none_says_who_it_is() {
        for (text, expected) in [("{}\n", false), ("otelCollector: true\n", true), ("otelCollector: false\n", false)] {
            let described: Described = serde_yaml::from_str(text).unwrap();
            let host = reported(&described, &[ProfileType::Helm]);
            assert_eq!(host.otel_collector, Some(expected), "{text}");
            assert!(host.peripherals.is_some() && host.interfaces.is_some() && host.supported_runtimes == ["oci"]);
            let gateway = reported(&described, &[]);
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
        let document = reported(&described, &[ProfileType::Compose]);
        let cpus: Vec<_> = document.cpus.iter().map(|cpu| (cpu.cores, cpu.architecture.as_deref())).collect();
        assert_eq!(cpus, [(3, Some("amd64")), (1, None)]);
        assert_eq!(document.peripherals.unwrap().len(), 1);
        assert_eq!(document.interfaces.unwrap(), ["usb"]);
        let left_out = described.left_out();
        assert_eq!(left_out.len(), 5, "{left_out:?}");
        assert_eq!(left_out[0], "`capabilities.cpus[0].cores` is 3.5, and 3 are told");
        assert!(
            left_out[3].starts_with("`capabilities.peripherals[0].type` is `plc`, which isn't told: Margo knows gpu")
        );
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
