//! What `device.yaml` says of this runtime, and where its files lie.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use repo_model::{DeviceId, FleetId};

use crate::config::SitePolicy;
use crate::runtimes::sandbox::SandboxSettings;

/// What `device.yaml` says of Docker, policy and registries, with the places in the home.
#[derive(Debug, Clone)]
pub struct ComposeSettings {
    pub docker: PathBuf,
    /// Compose's own program; where this is absent it is looked for as docker looks for its plugins, unless `docker` is
    /// somebody's choice.
    pub compose: Option<PathBuf>,
    pub path: String,
    /// `HOME` of child processes: a directory of our own.
    pub home: PathBuf,
    /// The variables `DOCKER_*` that the client gets; nothing else of the environment is passed on.
    pub environment: BTreeMap<OsString, OsString>,
    pub projects_dir: PathBuf,
    /// Archives by digest, and the staging directory.
    pub cache_dir: PathBuf,
    pub fleet: FleetId,
    pub device: DeviceId,
    /// The kernel's id of this boot.
    pub boot_id: String,
    pub policy: SitePolicy,
    pub registry: repo_artifacts::Settings,
    /// Where archives' files are resolved.
    pub sandbox: SandboxSettings,
    /// How long what is removed, or replaced by an update, may take to stop; then it is killed.
    pub stop_timeout: Duration,
    /// How long the engine may take to pull an image, from one place.
    pub pull_timeout: Duration,
}
