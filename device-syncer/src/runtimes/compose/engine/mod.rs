//! What the engine is asked: over its API where it listens on a socket of this machine, else by `docker`.
//!
//! Whatever changes something goes through `docker`, and most of it through compose; but for a restart, which is the engine's
//! own.

mod answers;
mod api;
mod program;
mod pull;
mod shortened;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use repo_http::{Body, Credential};
use serde::Deserialize;

pub(super) use answers::{Details, Image, Listed, Mount, Object, Volume};
pub(super) use pull::{Pull, PullError};

use super::docker::DOCKER;
use super::settings::ComposeSettings;
use crate::runtimes::RuntimeError;
use crate::runtimes::client::{Client, QUERY};
use answers::Layered;
use api::{Api, encoded, filters};
use pull::account_header;

/// How many containers are inspected, or ended, with one call of `docker`.
pub(super) const BATCH: usize = 50;

/// How many images are inspected for their layers; a device has some ten.
const IMAGES: usize = 200;

/// Limit of inspecting one container or image.
const ONE: Duration = Duration::from_secs(10);

/// How long one is listened to that tells nothing: an engine that is gone without a word isn't waited for any longer.
const LISTEN: Duration = Duration::from_secs(3600);

/// Where the engine listens unless `DOCKER_HOST` or a context says otherwise.
const SOCKET: &str = "/var/run/docker.sock";

/// How much of a text is read, in bytes: no label of ours is longer, and no path of Linux.
const LABEL: usize = 1024;
const PATH: usize = 4096;

/// What is asked of a container, or why the engine can't show it.
pub(super) type Looked<T> = Result<T, String>;

/// The engine that runs containers.
#[derive(Debug)]
pub(super) struct Engine {
    docker: Client,
    api: Option<Api>,
}

/// What the engine tells of containers.
#[derive(Debug)]
pub(super) struct EventStream {
    api: Api,
    path: String,
}

/// What the engine says of itself.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    docker_root_dir: PathBuf,
    #[serde(default)]
    https_proxy: String,
}

/// A container in a list, with its mounts.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Mounted {
    mounts: Option<Vec<Mount>>,
}

/// What is read of each image in the engine's list, which doesn't say its layers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HasId {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Volumes<T> {
    volumes: Option<Vec<T>>,
}

impl Engine {
    /// The engine that `docker` reaches with the same settings. Nothing is asked yet.
    pub(super) fn new(settings: &ComposeSettings, docker: Client) -> Self {
        Self { docker, api: socket(&settings.environment, &settings.home).as_deref().map(Api::new) }
    }

    /// Ends all requests to its API, and each that is still to come.
    pub(super) fn end_questions(&self) {
        self.api.iter().for_each(Api::end);
    }

    /// All containers with these labels (`name` or `name=value`), stopped ones, too.
    pub(super) fn list(&self, labels: &[String]) -> Result<Vec<Listed>, RuntimeError> {
        let Some(api) = &self.api else { return program::list(&self.docker, labels) };
        all(api, &format!("/containers/json?all=1&filters={}", filters(&[("label", labels)])), LABEL)
    }

    /// What is asked of those containers that are still there, by id. One that can't be read hides no other one; an error
    /// if the engine doesn't answer at all.
    pub(super) fn inspect<T: Details>(&self, ids: &[&str]) -> Result<BTreeMap<String, Looked<T>>, RuntimeError> {
        let Some(api) = &self.api else { return program::inspect(&self.docker, ids) };
        let mut found = BTreeMap::new();
        for id in ids {
            match api.get::<T>(&format!("/containers/{}/json", encoded(id)), PATH, ONE) {
                Ok(details) => found.extend(details.map(|details| ((*id).to_owned(), Ok(details)))),
                Err(reason) => {
                    api.ping().map_err(unavailable)?;
                    found.insert((*id).to_owned(), Err(reason));
                }
            }
        }
        Ok(found)
    }

    /// Restarts a container, which may take so many seconds to stop, as it is; one that is gone is none. The inner error says
    /// why it doesn't start; the outer one that the engine doesn't answer.
    pub(super) fn restart(&self, id: &str, seconds: u64) -> Result<Looked<()>, RuntimeError> {
        let limit = Duration::from_secs(seconds) + QUERY;
        let Some(api) = &self.api else { return program::restart(&self.docker, id, seconds, limit) };
        match api.post(&format!("/containers/{}/restart?t={seconds}", encoded(id)), limit) {
            Ok(()) => Ok(Ok(())),
            Err(reason) => api.ping().map(|()| Err(reason)).map_err(unavailable),
        }
    }

    /// The mounts of a container that can't be inspected: what it has isn't hidden. Each is taken for written to.
    pub(super) fn mounts(&self, id: &str) -> Result<Vec<Mount>, RuntimeError> {
        let Some(api) = &self.api else { return program::mounts(&self.docker, id) };
        let path = format!("/containers/json?all=1&filters={}", filters(&[("id", &[id.to_owned()])]));
        let listed: Vec<Mounted> = all(api, &path, PATH)?;
        let mounts = listed.into_iter().flat_map(|one| one.mounts.unwrap_or_default());
        Ok(mounts.map(|mount| Mount { writes: true, ..mount }).collect())
    }

    pub(super) fn networks(&self) -> Result<Vec<Object>, RuntimeError> {
        let Some(api) = &self.api else { return program::objects(&self.docker, "network") };
        all(api, "/networks", LABEL)
    }

    pub(super) fn volumes(&self) -> Result<Vec<Object>, RuntimeError> {
        let Some(api) = &self.api else { return program::objects(&self.docker, "volume") };
        all::<Volumes<Object>>(api, "/volumes", LABEL).map(|found| found.volumes.unwrap_or_default())
    }

    /// The volumes of the engine's own driver, and what of the host they show.
    pub(super) fn local_volumes(&self) -> Result<Vec<Volume>, RuntimeError> {
        let Some(api) = &self.api else { return program::volumes(&self.docker) };
        let path = format!("/volumes?filters={}", filters(&[("driver", &["local".to_owned()])]));
        all::<Volumes<Volume>>(api, &path, PATH).map(|found| found.volumes.unwrap_or_default())
    }

    /// The image of this name or id, if the engine has it.
    pub(super) fn image(&self, name: &str) -> Result<Option<Image>, RuntimeError> {
        let Some(api) = &self.api else { return program::image(&self.docker, name) };
        api.get(&format!("/images/{}/json", encoded(name)), PATH, QUERY).map_err(unavailable)
    }

    /// The layers of the images that it has, as digests of what is in them, the lowest first of each; of [`IMAGES`] at most, and
    /// of none where this isn't asked over its API.
    pub(super) fn layers(&self) -> Result<Vec<Vec<String>>, RuntimeError> {
        let Some(api) = &self.api else { return Ok(Vec::new()) };
        let images: Vec<HasId> = all(api, "/images/json", LABEL)?;
        let layers = images.iter().take(IMAGES).map(|image| {
            let found = api.get::<Layered>(&format!("/images/{}/json", encoded(&image.id)), LABEL, ONE);
            found.map(|found| found.map(Layered::layers)).map_err(unavailable)
        });
        layers.filter_map(Result::transpose).collect()
    }

    /// Pulls an image in the name of an account; `None` where this isn't asked over its API: only docker's own accounts count
    /// there.
    pub(super) fn pull(&self, pull: &Pull<'_>) -> Option<Result<(), PullError>> {
        self.api.as_ref().map(|api| pull.run(api.socket()))
    }

    /// Whether the engine itself may have an image from its registry, at this `host[:port]`, in the name of this account;
    /// `None` where it can't be asked over its API.
    pub(super) fn distribution(&self, image: &str, host: &str, account: &Credential) -> Option<Result<(), String>> {
        let api = self.api.as_ref()?;
        let path = format!("/distribution/{}/json", encoded(image));
        let header = account_header(host, account);
        let headers = header.as_deref().map(|value| ("X-Registry-Auth", value));
        Some(api.get_as::<serde_json::Value>(&path, headers.as_slice(), LABEL, ONE).and_then(|found| match found {
            Some(_) => Ok(()),
            None => Err("the registry has no such image".to_owned()),
        }))
    }

    /// What this engine tells of containers with these labels; `None` if it can't be listened to.
    pub(super) fn events(&self, labels: &[String], events: &[&str]) -> Option<EventStream> {
        Some(EventStream::of(self.api.as_ref()?.socket(), labels, events))
    }

    pub(super) fn version(&self) -> Result<String, RuntimeError> {
        let Some(api) = &self.api else { return program::version(&self.docker) };
        all::<Version>(api, "/version", LABEL).map(|found| found.version)
    }

    /// Whether it is this machine's, by its socket.
    pub(super) fn is_local(&self) -> bool {
        self.api.is_some()
    }

    /// Whether it asks registries by a proxy; `None` where it can't be asked over its API.
    pub(super) fn has_proxy(&self) -> Option<bool> {
        let info = all::<Info>(self.api.as_ref()?, "/info", PATH).ok()?;
        Some(!info.https_proxy.is_empty())
    }

    /// Where it keeps images and volumes, as it sees that itself.
    pub(super) fn data_root(&self) -> Result<PathBuf, RuntimeError> {
        let Some(api) = &self.api else { return program::data_root(&self.docker) };
        all::<Info>(api, "/info", PATH).map(|found| found.docker_root_dir)
    }
}

impl EventStream {
    /// Over a connection of its own, which is never given back.
    pub(super) fn of(socket: &Path, labels: &[String], events: &[&str]) -> Self {
        let events: Vec<_> = events.iter().map(|event| (*event).to_owned()).collect();
        let filters = filters(&[("type", &["container".to_owned()]), ("event", &events), ("label", labels)]);
        Self { api: Api::new(socket), path: format!("/events?filters={filters}") }
    }

    /// Opens it: whatever comes is an event. It ends with the engine, and after [`LISTEN`] at the latest.
    pub(super) fn open(&self) -> Result<Body, String> {
        self.api.open(&self.path, LISTEN)
    }

    /// Ends the listening, from whatever thread.
    pub(super) fn interrupt(&self) {
        self.api.interrupt();
    }
}

/// What is at a path that every engine has: without it, the engine can't be used.
fn all<T: serde::de::DeserializeOwned>(api: &Api, path: &str, longest: usize) -> Result<T, RuntimeError> {
    let found = api.get(path, longest, QUERY).map_err(unavailable)?;
    found.ok_or_else(|| unavailable(format!("the engine's API has no `{}`", path.split('?').next().unwrap_or(path))))
}

fn unavailable(reason: String) -> RuntimeError {
    DOCKER.unavailable(reason, None)
}

/// One that is gone by now is named on standard error; what was asked of the others is done all the same.
pub(super) fn vanished(stderr: &str) -> bool {
    stderr.to_lowercase().contains("no such")
}

/// Where the engine listens on this machine; `None` if it is reached otherwise, as `docker` sees it.
fn socket(environment: &BTreeMap<OsString, OsString>, home: &Path) -> Option<PathBuf> {
    let variable = |name| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
    match variable("DOCKER_HOST") {
        Some(host) => host.to_str()?.strip_prefix("unix://").map(PathBuf::from).filter(|path| path.is_absolute()),
        None => {
            let config = variable("DOCKER_CONFIG").map_or_else(|| home.join(".docker"), PathBuf::from);
            (!names_a_context(&config.join("config.json"))).then(|| PathBuf::from(SOCKET))
        }
    }
}

/// Whether docker's own configuration says which engine is meant.
fn names_a_context(config: &Path) -> bool {
    let config = fs::read(config).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap_or_default();
    config["currentContext"].as_str().is_some_and(|context| !["", "default"].contains(&context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test's own files")]
    fn the_api_is_asked_where_docker_itself_would_use_a_socket_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.json");
        let of = |host: Option<&str>| {
            let host = host.map(|host| ("DOCKER_HOST".into(), host.into()));
            let config = ("DOCKER_CONFIG".into(), dir.path().into());
            socket(&host.into_iter().chain([config]).collect(), Path::new("/nowhere"))
        };
        let default = Some(PathBuf::from(SOCKET));
        assert_eq!(of(Some("unix:///run/user/1000/docker.sock")), Some("/run/user/1000/docker.sock".into()));
        for elsewhere in ["tcp://127.0.0.1:2375", "ssh://box", "fake:///dir", "unix://relative", "/run/docker.sock"] {
            assert_eq!(of(Some(elsewhere)), None, "{elsewhere}");
        }
        assert_eq!((of(None), of(Some(""))), (default.clone(), default.clone()));
        for (text, expected) in [
            (r#"{"currentContext": "rootless"}"#, None),
            (r#"{"currentContext": "default"}"#, default.clone()),
            (r#"{"auths": {}}"#, default.clone()),
            ("no JSON", default),
        ] {
            fs::write(&config, text).unwrap();
            assert_eq!(of(None), expected, "{text}");
        }
        assert!(of(Some("unix:///run/docker.sock")).is_some(), "what device.yaml says comes first");
    }
}
