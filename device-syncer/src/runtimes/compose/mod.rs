//! Runs components as Docker Compose projects (`repo-layouts/README.md`, *Compose archives*).
//!
//! A component becomes a project in this order. `prefetch`: the archive comes from the cache or its registry, its raw
//! files are checked, `docker compose config` resolves it in a sandbox that sees nothing else, the result is held
//! against the allow-list and the site's policy, and its images are fetched and get names of ours. `apply`: ownership
//! and mounts are checked, the marker says *applying*, the files and the resolved document are written, `up` runs
//! exactly that document (after `up --no-start`, where what ran may be slow to stop), the marker says that all was started,
//! health is waited for, and the marker says *applied*. Killed anywhere in between, a project has no input digest and is
//! applied again; where all was started, without another `up` of what is there. `restore`: what
//! of it doesn't run any more is restored from the document that was applied, service by service. `restart`: its running
//! containers are restarted, and nothing is resolved, made or pulled. Images that nothing needs any more are evicted, a day
//! later or where a fetch needs their room.

mod apply;
mod ask;
mod bounds;
mod containers;
mod docker;
mod engine;
mod events;
mod eviction;
mod files;
mod images;
mod known;
mod logging;
mod mounts;
mod observe;
mod ownership;
mod parameters;
mod prepare;
mod privileges;
mod project;
mod resolved;
mod restart;
mod restore;
mod room;
mod settings;
mod stopping;
#[cfg(test)]
mod testing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use repo_artifacts::{Archive, Mirrors, Registry};
use repo_git::durable;
use repo_model::{Digest, IntoMap};

pub use events::Watch;
pub use images::is_refused;
pub use settings::ComposeSettings;

use super::client::Client;
use super::sandbox::{Confinement, Sandbox};
use super::{Cancel, LockedImage, Redactor, Runtime, RuntimeError, Source, files_failed, labels};
use crate::artifacts::Cache;
use crate::config::{FromFleet, SitePolicy};
use crate::decision::component::Component;
use crate::decision::observation::Observed;
use engine::Engine;
use eviction::ImageStore;
use known::KnownContainers;
use labels::Owner;
use mounts::Claims;
use project::KnownProjects;
use resolved::Resolved;
use room::Reserved;

/// Runs each component as a compose project of its own.
#[derive(Debug)]
pub struct ComposeRuntime {
    settings: ComposeSettings,
    docker: Client,
    engine: Engine,
    sandbox: Sandbox,
    owner: Owner,
    cache: Cache,
    registry: Registry,
    judged: Mutex<Judged>,
    /// What was observed of containers.
    known: Mutex<KnownContainers<containers::State>>,
    /// What was read of projects.
    projects: Mutex<KnownProjects>,
    lasting: Arc<Lasting>,
}

/// What outlives other settings: jobs go on with the runtime that they began with, beside those that begin with the next one.
#[derive(Debug)]
pub struct Lasting {
    claims: Claims,
    images: ImageStore,
    /// The room on the engine's disk that fetches have reserved.
    reserved: Reserved,
    /// What the fleet says of the site's policy, and may.
    from_fleet: Mutex<FromFleet>,
}

impl Lasting {
    /// Of a home whose archives are cached in this directory. Nothing is read yet.
    pub fn new(cache_dir: &Path) -> Self {
        let images = ImageStore::new(cache_dir);
        Self { claims: Claims::default(), images, reserved: Reserved::default(), from_fleet: Mutex::default() }
    }
}

/// What the site's policy doesn't admit of an applied project, if anything, by the project's name and for one input.
type Judged = BTreeMap<String, (Digest, Option<String>)>;

/// A component whose archive is checked and whose images are here.
#[derive(Debug)]
pub struct Prepared {
    component: Component,
    content: Digest,
    archive: Archive,
    resolved: Resolved,
    redactor: Redactor,
    first_use: BTreeMap<String, LockedImage>,
}

impl Prepared {
    pub fn component(&self) -> &Component {
        &self.component
    }

    /// The digest of its archive.
    pub fn content(&self) -> Digest {
        self.content
    }

    /// The images of services that nobody had locked before.
    pub fn first_use(&self) -> &BTreeMap<String, LockedImage> {
        &self.first_use
    }
}

impl ComposeRuntime {
    /// Makes the directories of its own; neither docker nor a registry is asked yet.
    pub fn new(settings: ComposeSettings, lasting: Arc<Lasting>) -> Result<Self, RuntimeError> {
        for dir in [&settings.home, &settings.projects_dir, &settings.cache_dir] {
            durable::create_dir_all(dir, 0o700).map_err(files_failed("make", dir))?;
        }
        let registry = Registry::new(settings.registry.clone());
        let docker = docker::client(&settings);
        let engine = Engine::new(&settings, docker.clone());
        let sandbox = Sandbox::new(settings.sandbox.clone());
        let owner = Owner::new(settings.fleet, &settings.device, labels::is_plain);
        let cache = Cache::new(&settings.cache_dir);
        Ok(Self {
            settings,
            docker,
            engine,
            sandbox,
            owner,
            cache,
            registry,
            judged: Mutex::default(),
            known: Mutex::default(),
            projects: Mutex::default(),
            lasting,
        })
    }

    /// From now on this counts of what the fleet says of the site's policy.
    /// Returns whether something else did before.
    pub fn follow_fleet(&self, from_fleet: FromFleet) -> bool {
        let mut now = self.lasting.from_fleet.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *now, from_fleet.clone());
        let is_other = before != from_fleet;
        if is_other {
            self.judged.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        is_other
    }

    /// From now on these are the mirrors of registries.
    pub fn follow_mirrors(&self, mirrors: Mirrors) {
        self.registry.follow_mirrors(mirrors);
    }

    /// Ends all questions to the engine, and each that is still to come.
    pub fn end_questions(&self) {
        self.docker.end_questions();
        self.engine.end_questions();
    }

    /// What applications may ask for here now.
    fn policy(&self) -> SitePolicy {
        self.settings.policy.with_fleet(&self.lasting.from_fleet.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What runs Compose now: it may have been installed since the last time.
    fn compose(&self) -> Client {
        docker::compose_client(&self.settings, &self.docker)
    }

    /// The versions of engine and compose, by name; `None` while the engine doesn't answer.
    pub fn versions(&self) -> Option<BTreeMap<String, String>> {
        let engine = self.engine.version().ok()?;
        let compose = self.compose_version().ok();
        let all = [("docker", Some(engine)), ("compose", compose)];
        let known = all.into_iter().filter_map(|(name, version)| {
            let version = version?.trim().to_owned();
            (!version.is_empty() && !version.contains(char::is_control)).then(|| (name.to_owned(), version))
        });
        Some(known.into_map())
    }

    /// Whether anything keeps what resolves archives' files from the rest of the host; `None` while that isn't known.
    pub fn is_confined(&self) -> Option<bool> {
        self.sandbox.confinement().ok().map(Confinement::is_closed)
    }

    /// Where the engine keeps images and volumes, if this process sees that too.
    pub fn data_root(&self) -> Option<PathBuf> {
        self.engine.data_root().ok().filter(|path| path.is_absolute() && path.is_dir())
    }

    /// Removes every archive from the cache but these, and those that the projects on this device were made from.
    pub fn prune_cache(&self, keep: &BTreeSet<Digest>) -> Result<(), RuntimeError> {
        let applied = project::Project::list(&self.settings.projects_dir)?;
        let keep = keep.iter().copied().chain(applied.into_iter().map(|(_, marker)| marker.content_digest)).collect();
        self.cache.prune(&keep).map_err(files_failed("prune the cache", &self.settings.cache_dir))
    }
}

impl Runtime for ComposeRuntime {
    type Prepared = Prepared;

    fn observe(&self) -> Result<Vec<Observed>, RuntimeError> {
        self.observe_projects()
    }

    fn prefetch(
        &self,
        component: &Component,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Prepared, RuntimeError> {
        let mut prepared = self.prepare(component, from, cancel)?;
        self.fetch_images(&mut prepared, from, cancel)?;
        Ok(prepared)
    }

    fn apply(&self, prepared: &Prepared, cancel: &Cancel<'_>) -> Result<(), RuntimeError> {
        self.apply_project(prepared, cancel)
    }

    fn remove(&self, project: &str, timeout: Duration, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        self.remove_project(project, timeout, cancel)
    }
}
