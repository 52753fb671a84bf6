//! A fleet with devices of its own in a temporary directory.

use std::path::Path;

use tempfile::TempDir;

use repo_testkit::device::Device;
use repo_testkit::fleet::Fleet;

/// A fleet whose devices run on the stand-in for docker.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) fleet: Fleet,
    pub(crate) devices: Vec<Device>,
}

impl Site {
    /// A new fleet with these devices joined and enrolled; nothing is published yet.
    pub(crate) fn new(ids: &[&str]) -> Self {
        Self::with(ids, Device::join)
    }

    /// The same with another way to join.
    pub(crate) fn with(ids: &[&str], join: impl Fn(&Fleet, &str, &Path) -> Device) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
        fleet.push_application();
        let devices = ids.iter().map(|id| {
            let root = dir.path().join(id);
            std::fs::create_dir(&root).expect("made");
            join(&fleet, id, &root)
        });
        let devices = devices.collect();
        Self { dir, fleet, devices }
    }

    /// Publishes; what was printed.
    pub(crate) fn publish(&self) -> String {
        self.fleet.run(&["publish"])
    }

    /// One good pass on every device.
    pub(crate) fn pass(&self) {
        self.devices.iter().for_each(|device| drop(device.pass()));
    }

    pub(crate) fn device(&self, id: &str) -> &Device {
        self.devices.iter().find(|device| device.id == id).expect("a device of this site")
    }
}

/// A name that nothing else in the registry has.
pub(crate) fn registry_name(dir: &Path) -> String {
    let name = dir.file_name().expect("a name").to_string_lossy().to_lowercase();
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}
