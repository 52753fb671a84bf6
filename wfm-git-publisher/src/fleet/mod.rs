//! The fleet as operators write it, read from files that are already in memory.
//!
//! The order of a reading: each file is parsed on its own (`settings`, `application`, `device`, `deployment`), then
//! `check` joins them by their names. Every problem is collected. What can't be used is remembered by its id in
//! [`Broken`], because a file that can't be read must never remove anything from a device.

mod allowance;
mod application;
mod ask;
mod check;
mod cycles;
mod deployment;
mod device;
mod device_list;
mod doubts;
mod enrolled_by;
mod expression;
mod file;
mod group;
mod guards;
mod images;
mod labels;
mod layers;
mod listed;
mod names;
mod package;
mod part;
mod path_pattern;
mod place;
mod policy;
mod retired;
mod rollout_policy;
mod rollout_words;
pub(crate) mod schema;
mod secrets;
mod selector;
mod settings;
mod signers;
mod site;
mod template;
mod token;
mod uses;
mod values;
mod version;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use repo_model::problem::Problems;
use repo_model::{DeploymentName, DeviceId};

pub use allowance::{Allowance, Allowances, AllowedOnDevice, read_allowance};
pub use application::{Application, MARGO_YAML, Profile, Rule as ParameterRule};
pub use check::check_value;
pub(crate) use cycles::circle;
pub use deployment::{Choice, Deployment, Override};
pub use device::Device;
pub use device_list::{ListedDevice, read_device_list};
pub use enrolled_by::{EnrolledBy, is_token_name};
pub(crate) use file::is_device;
pub use file::{Content, PARTS, SourceFile, is_relevant};
pub use group::Group;
pub use guards::{Guards, Limit};
pub use images::ImageSettings;
pub use layers::{Layers, Rule};
pub use package::{MAX_BYTES, MAX_FILES, Package, PackageFile, PackageFileKind, licence, resources, vendors};
pub use part::{read_selectors, read_values};
pub use path_pattern::{InvalidPattern, PathPattern};
pub use place::Place;
pub use policy::{Approval, Policy, Seconds};
pub use retired::Retired;
pub use rollout_policy::{Amount, DisruptionBudget, Percent, RolloutPolicy, RolloutRule, WaveSpec};
pub use rollout_words::{Promoted, RolloutWords, read_rollout, rollout_path};
pub use secrets::{NotReadable, Secrets, is_secret_name, keys_of, secret_path};
pub use selector::{Selector, Terms};
pub use settings::Settings;
pub use signers::{NotCounting, Signers, SigningRule};
pub use site::ForSites;
pub use template::Names;
pub use token::Token;
pub use uses::{Named, Use, uses};
pub use values::{Given, Setting, Values};
pub(crate) use values::{shown_source, shown_value};
pub use version::compare_versions;
pub use windows::Windows;
pub(crate) use windows::{is_silent, talks_again};

/// The file that every fleet has at its root.
pub const SETTINGS: &str = "fleet.yaml";

/// The file at its root that says who has to agree to changes.
pub const SIGNERS: &str = "signers.yaml";

/// The folder with what persons let pass of what guards hold.
pub const ALLOWED: &str = "allowed";

/// Everything usable in a fleet, and the names of what isn't.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub settings: Settings,
    pub devices: BTreeMap<DeviceId, Arc<Device>>,
    /// All deployments that can be read, also those that no device fits.
    pub deployments: BTreeMap<DeploymentName, Arc<Deployment>>,
    /// The batch tokens that can be read, by their names.
    pub tokens: BTreeMap<String, Token>,
    /// Values that are encrypted to devices.
    pub secrets: Secrets,
    /// What persons said of rollouts, by their numbers; `None` where that can't be read.
    pub rollouts: BTreeMap<u32, Option<RolloutWords>>,
    /// What persons let pass of what guards hold.
    pub allowances: Allowances,
    /// What has a name but can't be used.
    pub broken: Broken,
}

/// What can't be used; whatever the devices have of it stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Broken {
    /// Devices that are left as they are.
    pub devices: BTreeSet<DeviceId>,
    /// Deployments that are left as they are on every device that has them.
    pub deployments: BTreeSet<DeploymentName>,
    /// Files that don't even tell what they are about; with any of them nothing is removed from any device.
    pub unidentified: BTreeSet<String>,
    /// What the files are about in which these devices and deployments are written.
    pub files: BTreeMap<String, Subject>,
}

/// What a file of the fleet is about, where it is about one device or deployment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Device(DeviceId),
    Deployment(DeploymentName),
}

impl Fleet {
    /// How often a device reports, in seconds; 0 where its file can't be read.
    pub(crate) fn report_seconds(&self, device: &DeviceId) -> u64 {
        self.devices.get(device).and_then(|device| device.policy_in(self).report_seconds).unwrap_or(0)
    }

    /// The deployments for a device, each in the version that the device gets.
    pub fn meant_for<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = &'a Deployment> {
        self.deployments.values().filter(|one| one.is_for(device)).map(|one| one.on(device))
    }

    /// A device of the fleet.
    pub fn device(&self, id: &DeviceId) -> Option<&Device> {
        self.devices.get(id).map(Arc::as_ref)
    }

    /// All of its devices, by their ids.
    pub fn all_devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.values().map(Arc::as_ref)
    }

    /// The devices that came by this token.
    pub fn enrolled_by(&self, token: &str) -> impl Iterator<Item = &Device> {
        self.all_devices().filter(move |device| device.enrolled_by.as_ref().is_some_and(|by| by.token == token))
    }

    /// How a change of a deployment reaches devices: by its own word, else by the fleet's, as for one that was deleted.
    /// `None` where nobody says anything.
    pub fn rollout_rule(&self, deployment: &DeploymentName) -> Option<&RolloutRule> {
        let own = self.deployments.get(deployment).and_then(|deployment| deployment.rollout.as_ref());
        own.or(self.settings.rollout.as_ref())
    }
}

/// So many devices, in words.
pub(crate) fn counted(devices: usize) -> String {
    if devices == 1 { "1 device".to_owned() } else { format!("{devices} devices") }
}

impl Broken {
    /// Adds what can't be used either.
    fn extend(&mut self, other: Self) {
        self.devices.extend(other.devices);
        self.deployments.extend(other.deployments);
        self.unidentified.extend(other.unidentified);
        self.files.extend(other.files);
    }

    /// Whether this deployment must stay on the devices that have it, although it isn't rendered for them.
    pub fn keeps(&self, deployment: &DeploymentName) -> bool {
        !self.unidentified.is_empty() || self.deployments.contains(deployment)
    }
}

/// What a reading gives: the fleet unless `fleet.yaml` itself can't be used, and everything that is wrong.
#[derive(Debug)]
pub struct Reading {
    /// What can be used; absent if `fleet.yaml` itself can't be used.
    pub fleet: Option<Fleet>,
    /// What is wrong or doubtful, by file.
    pub problems: Problems,
}

/// Reads a fleet; the order of `files` doesn't matter.
pub fn read(files: &[SourceFile]) -> Reading {
    read_on(files, 1)
}

/// The same on so many threads; nothing depends on how many.
pub fn read_on(files: &[SourceFile], threads: usize) -> Reading {
    read_with(files, Vec::new(), threads)
}

/// The same with devices whose files were read before.
pub(crate) fn read_with(files: &[SourceFile], devices: Vec<Arc<Device>>, threads: usize) -> Reading {
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut problems = Problems::default();
    let parts = check::Parts::read(&files, devices, threads, &mut problems);
    let settings = settings::read(&files, &mut problems);
    let signers = files.iter().find(|file| file::Role::of(&file.path) == Some(file::Role::Signers));
    problems.extend(signers.and_then(|file| Signers::read(file).err()).unwrap_or_default());
    let tokens = token::read_all(&files, &mut problems);
    let rollouts = rollout_words::read_all(&files, &mut problems);
    let allowances = Allowances::read(&files, &mut problems);
    let secrets = Secrets::read(&files, &mut problems);
    let (devices, deployments, broken) = parts.join(settings.as_ref(), &mut problems);
    let fleet = settings.map(|settings| Fleet {
        settings,
        devices,
        deployments,
        tokens,
        secrets,
        rollouts,
        allowances,
        broken,
    });
    Reading { fleet, problems: sorted(problems) }
}

/// The problems by file and place, each once.
pub(crate) fn sorted(mut problems: Problems) -> Problems {
    problems.0.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    problems.0.dedup();
    problems
}

/// Reads one device's file on its own.
pub fn read_device(file: &SourceFile) -> Result<Device, Problems> {
    let mut problems = Problems::default();
    match file::decode::<DeviceId, _>(file, &mut problems, |reader| Device::read(&file.path, reader)) {
        file::Decoded::Good((device, _)) => Ok(device),
        _ => Err(problems),
    }
}

/// Reads the batch tokens alone.
pub fn read_tokens(files: &[SourceFile]) -> (BTreeMap<String, Token>, Problems) {
    let mut problems = Problems::default();
    let tokens = token::read_all(&files.iter().collect::<Vec<_>>(), &mut problems);
    (tokens, problems)
}

/// Reads the application packages alone, by their ids and from the oldest version to the newest.
pub fn read_applications(files: &[SourceFile]) -> (Vec<Application>, Problems) {
    let mut problems = Problems::default();
    let described = files.iter().filter(|file| file::Role::of(&file.path) == Some(file::Role::Application));
    let mut all: Vec<_> = described.filter_map(|file| Application::read(file, &mut problems)).collect();
    all.sort_by(|a, b| {
        let (a, b) = (&a.description, &b.description);
        a.id.cmp(&b.id).then_with(|| compare_versions(&a.version, &b.version))
    });
    (all, sorted(problems))
}

/// Which file is about which device, also where the rest of it can't be used.
pub fn device_files(files: &[SourceFile]) -> Vec<(DeviceId, String)> {
    let ids = files.iter().filter(|file| file::Role::of(&file.path) == Some(file::Role::Device));
    ids.filter_map(|file| Some((file.id()?, file.path.clone()))).collect()
}

/// The names of the deployments, also where the rest of their files can't be used.
pub fn deployment_names(files: &[SourceFile]) -> Vec<DeploymentName> {
    let all = files.iter().filter(|file| file::Role::of(&file.path) == Some(file::Role::Deployment));
    all.filter_map(SourceFile::id).collect()
}

/// The file of a deployment, also where the rest of it can't be used.
pub fn deployment_file(files: &[SourceFile], id: &DeploymentName) -> Option<String> {
    let mut all = files.iter().filter(|file| file::Role::of(&file.path) == Some(file::Role::Deployment));
    all.find(|file| file.id().as_ref() == Some(id)).map(|file| file.path.clone())
}

/// The files that lie where files of the fleet lie, and aren't read because of the ending of their names.
pub fn misnamed(files: &[SourceFile]) -> impl Iterator<Item = &str> {
    let found = files.iter().filter(|file| file::Role::of(&file.path) == Some(file::Role::Misnamed));
    found.map(|file| file.path.as_str())
}

/// The files of devices and deployments that have no `id` at all.
pub fn without_id(files: &[SourceFile]) -> Vec<String> {
    let named = |file: &&SourceFile| {
        matches!(file::Role::of(&file.path), Some(file::Role::Device | file::Role::Deployment)) && file.lacks_id()
    };
    files.iter().filter(named).map(|file| file.path.clone()).collect()
}

/// Whether a file in the same folder as `path` has this id.
pub fn has_id(files: &[SourceFile], path: &str, id: &str) -> bool {
    let role = file::Role::of(path);
    files.iter().any(|file| file::Role::of(&file.path) == role && file.id::<String>().as_deref() == Some(id))
}
