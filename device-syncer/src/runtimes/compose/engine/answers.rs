//! What is read of the engine's answers, whether its API gives them or `docker` prints them by a template of the same form
//! (Docker Engine API 1.41 to 1.51). All else of them is passed over.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A container as it is listed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Listed {
    pub(crate) id: String,
    #[serde(default)]
    names: Vec<String>,
    /// `running`, `exited` and so on.
    #[serde(default)]
    pub(crate) state: String,
    /// Since when it is in that state, how its health is and with what it ended, in words: `Up 3 minutes (healthy)`. Empty where
    /// `docker` lists it.
    #[serde(default)]
    pub(crate) status: String,
    /// The name that it was made with, or the id where that means another image by now.
    #[serde(default)]
    pub(crate) image: String,
    labels: Option<Labels>,
}

/// A label that isn't there is empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Labels {
    #[serde(rename = "com.docker.compose.project")]
    pub(crate) project: String,
    #[serde(rename = "com.docker.compose.service")]
    pub(crate) service: String,
    #[serde(rename = "device-syncer.fleet")]
    pub(crate) fleet: String,
    #[serde(rename = "device-syncer.device")]
    pub(crate) device: String,
    #[serde(rename = "device-syncer.deployment")]
    pub(crate) deployment: String,
    #[serde(rename = "device-syncer.component")]
    pub(crate) component: String,
}

static NONE: Labels = Labels {
    project: String::new(),
    service: String::new(),
    fleet: String::new(),
    device: String::new(),
    deployment: String::new(),
    component: String::new(),
};

/// What one request for a container alone tells of it.
pub(crate) trait Details: DeserializeOwned {
    /// The same by `docker inspect`, with the container's `Id`.
    const TEMPLATE: &str;
}

/// A mount of a container.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Mount {
    /// Empty where nothing of the host is mounted.
    #[serde(rename = "Source", default)]
    pub(crate) source: PathBuf,
    #[serde(rename = "RW")]
    pub(crate) writes: bool,
}

/// A network or a volume.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Object {
    pub(crate) name: String,
    labels: Option<Labels>,
}

/// A volume of the engine's own driver.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Volume {
    pub(crate) name: String,
    options: Option<Options>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Options {
    #[serde(default)]
    device: PathBuf,
}

/// An image that the engine has.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Image {
    /// `sha256:…` of its configuration, or of its manifest, as the engine's store has it.
    pub(crate) id: String,
    repo_digests: Option<Vec<String>>,
}

/// The layers of an image that the engine has.
#[derive(Debug, Deserialize)]
pub(super) struct Layered {
    #[serde(rename = "RootFS")]
    root_fs: RootFs,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RootFs {
    layers: Option<Vec<String>>,
}

impl Layered {
    /// The digest of what is in each, the lowest first.
    pub(super) fn layers(self) -> Vec<String> {
        self.root_fs.layers.unwrap_or_default()
    }
}

impl Listed {
    pub(crate) fn labels(&self) -> &Labels {
        self.labels.as_ref().unwrap_or(&NONE)
    }

    /// Its own name, and those by which others link to it. No name has a comma, with which `docker ps` parts them.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().flat_map(|names| names.split(',')).map(|name| name.trim_start_matches('/'))
    }
}

impl Object {
    /// The compose project of its label.
    pub(crate) fn project(&self) -> &str {
        self.labels.as_ref().map_or("", |labels| &labels.project)
    }
}

impl Volume {
    /// What is mounted as the volume; `None` where the engine keeps it itself.
    pub(crate) fn shows(self) -> Option<PathBuf> {
        self.options.map(|options| options.device).filter(|device| device.is_absolute())
    }
}

impl Image {
    /// `name@sha256:…` of what it was pulled as.
    pub(crate) fn pulled(&self) -> &[String] {
        self.repo_digests.as_deref().unwrap_or_default()
    }
}
