//! A plant with devices of its own in a temporary directory.

use std::path::Path;

use tempfile::TempDir;

use crate::device::Device;
use crate::plant::Plant;

/// A fleet whose devices run on the stand-in for docker.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) plant: Plant,
    pub(crate) devices: Vec<Device>,
}

impl Site {
    /// A new fleet with these devices joined and enrolled; nothing is published yet.
    pub(crate) fn new(ids: &[&str]) -> Self {
        Self::with(ids, Device::join)
    }

    /// The same with another way to join.
    pub(crate) fn with(ids: &[&str], join: impl Fn(&Plant, &str, &Path) -> Device) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let plant = Plant::init(dir.path(), &registry_name(dir.path()));
        plant.push_application();
        let devices = ids.iter().map(|id| {
            let root = dir.path().join(id);
            std::fs::create_dir(&root).expect("made");
            join(&plant, id, &root)
        });
        let devices = devices.collect();
        Self { dir, plant, devices }
    }

    /// Publishes; what was printed.
    pub(crate) fn publish(&self) -> String {
        self.plant.run(&["publish"])
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
