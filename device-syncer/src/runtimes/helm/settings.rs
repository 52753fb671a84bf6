//! What `device.yaml` says of this runtime, and where its files lie.

use std::path::PathBuf;

use repo_model::{DeviceId, FleetId};

use crate::decision::kubernetes::ObjectPolicy;

/// The section `helm` of `device.yaml`, with the places in the home.
#[derive(Debug, Clone)]
pub struct HelmSettings {
    /// The program, of Helm 3.13 or later.
    pub program: PathBuf,
    /// Names the API server, and what it is asked with.
    pub kubeconfig: PathBuf,
    pub context: String,
    /// How many revisions of a release are kept.
    pub history_max: u32,
    pub path: String,
    /// `HOME` of child processes: a directory of our own.
    pub home: PathBuf,
    /// Where values lie for as long as helm reads them.
    pub values_dir: PathBuf,
    pub cache_dir: PathBuf,
    pub fleet: FleetId,
    pub device: DeviceId,
    /// What the site says of the objects that charts render to.
    pub policy: ObjectPolicy,
    /// How registries and chart repositories are reached.
    pub registry: repo_artifacts::Settings,
}
