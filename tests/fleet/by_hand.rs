//! A device's half made by hand, by the script that knows nothing but the contract.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::plant::Plant;
use crate::stand::{BY_HAND, text};

/// Somebody with a key of ssh-keygen, who writes a device's status with stock Git.
pub(crate) struct Hand {
    key: PathBuf,
}

impl Hand {
    /// A hand with a new key in the directory `dir`.
    pub(crate) fn with_key(dir: &Path) -> Self {
        std::fs::create_dir(dir).expect("made");
        let key = dir.join("key");
        let mut make = Command::new("ssh-keygen");
        text(make.args(["-q", "-t", "ed25519", "-N", "", "-C", "hand", "-f"]).arg(&key).output().expect("run"));
        Self { key }
    }

    /// The public half.
    pub(crate) fn line(&self) -> String {
        std::fs::read_to_string(self.key.with_extension("pub")).expect("the key is made").trim().to_owned()
    }

    /// Commits this state of everything on `status` of a device that something was published for.
    pub(crate) fn status(&self, plant: &Plant, device: &str, state: &str) {
        let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(BY_HAND));
        script.arg("status").arg(plant.device(device)).arg(&self.key).arg(state);
        text(script.output().expect("the script runs"));
    }
}
