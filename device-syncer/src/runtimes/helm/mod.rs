//! Runs components as Helm releases, with Helm 3 or 4 as the only way to the Kubernetes API
//! (`docs/decisions/0014-helm-is-the-only-way-to-kubernetes.md`).
//!
//! `prefetch`: the chart comes from the cache, its registry or its chart repository, verified by the lock, so that helm
//! needs neither; where the site's policy says something of objects, what the chart renders to is held against it. `apply`: what a release of that name is now is asked; one that isn't ours is left alone, one that a
//! crash left *pending* is brought back to where it last was good; then `helm upgrade --install` does everything else.
//! A release's description holds the input digest only once helm is done, its waiting and hooks included: killed
//! anywhere before that, the release has no input digest and is applied again. `observe`: an object of the manifest that
//! is gone, or that somebody changed, is a reason to apply again too.

mod admit;
mod apply;
mod ask;
mod chart;
mod client;
mod drift;
mod known;
mod objects;
mod observe;
mod query;
mod release;
mod remove;
mod rendered;
mod settings;
mod values;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use repo_artifacts::{Mirrors, Registry};
use repo_git::durable;
use repo_model::Digest;

pub use settings::HelmSettings;

use super::client::Client;
use super::labels::Owner;
use super::{Cancel, Redactor, Runtime, RuntimeError, Source};
use crate::artifacts::Cache;
use crate::decision::component::Component;
use crate::decision::drift::DriftIgnored;
use crate::decision::observation::Observed;
use known::{Healed, Known};
use release::fits_label;

/// Runs each component as a helm release of its own.
#[derive(Debug)]
pub struct HelmRuntime {
    settings: HelmSettings,
    helm: Client,
    owner: Owner,
    cache: Cache,
    registry: Registry,
    known: Mutex<Known>,
    healed: Mutex<Healed>,
    ignored: Mutex<DriftIgnored>,
    version: OnceLock<String>,
}

/// A component whose chart is here and verified.
#[derive(Debug)]
pub struct Prepared {
    component: Component,
    content: Digest,
    redactor: Redactor,
    /// Whether what it renders to was judged already.
    is_admitted: bool,
}

impl HelmRuntime {
    /// Makes the directories of its own; helm isn't asked yet.
    pub fn new(settings: HelmSettings) -> Result<Self, RuntimeError> {
        for dir in [&settings.home, &settings.cache_dir] {
            durable::create_dir_all(dir, 0o700).map_err(super::files_failed("make", dir))?;
        }
        let registry = Registry::new(settings.registry.clone());
        let helm = client::client(&settings);
        let owner = Owner::new(settings.fleet, &settings.device, fits_label);
        let cache = Cache::new(&settings.cache_dir);
        Ok(Self {
            settings,
            helm,
            owner,
            cache,
            registry,
            known: Mutex::default(),
            healed: Mutex::default(),
            ignored: Mutex::default(),
            version: OnceLock::new(),
        })
    }
}

impl HelmRuntime {
    /// The versions of helm and Kubernetes, by name; `None` while the API server doesn't answer.
    pub fn versions(&self) -> Option<BTreeMap<String, String>> {
        let all = [("helm", self.helm_version().ok()?.to_owned()), ("kubernetes", self.kubernetes()?)];
        let clean =
            |(name, version): (&str, String)| (name.to_owned(), version.trim().trim_start_matches('v').to_owned());
        Some(all.map(clean).into())
    }

    /// From now on these are the mirrors of registries.
    pub fn follow_mirrors(&self, mirrors: Mirrors) {
        self.registry.follow_mirrors(mirrors);
    }

    /// Ends all questions to helm, and each that is still to come.
    pub fn end_questions(&self) {
        self.helm.end_questions();
    }

    /// `v4.0.0` and the like; asked once.
    fn helm_version(&self) -> Result<&str, RuntimeError> {
        if let Some(version) = self.version.get() {
            return Ok(version);
        }
        let version = self.helm.ask_text(&["version", "--template", "{{.Version}}"])?;
        Ok(self.version.get_or_init(|| version.trim().to_owned()))
    }

    /// What helm sees of the API server.
    fn kubernetes(&self) -> Option<String> {
        let chart = self.probe("version", "{{ .Capabilities.KubeVersion.Version }}").ok()?;
        let args = ["install", "device-syncer-probe", &chart, "--dry-run=server", "--output", "json"];
        let shown: serde_json::Value = serde_json::from_slice(&self.helm.ask(&args).ok()?).ok()?;
        shown["info"]["notes"].as_str().map(str::to_owned)
    }

    /// A chart that is never installed: its notes answer a question.
    fn probe(&self, question: &str, template: &str) -> Result<String, RuntimeError> {
        let chart = self.settings.home.join("probe").join(question);
        let chart_yaml = "apiVersion: v2\nname: probe\nversion: 0.0.0\n";
        let make = || {
            durable::create_dir_all(&chart.join("templates"), 0o700)?;
            for (path, text) in [("Chart.yaml", chart_yaml), ("templates/NOTES.txt", template)] {
                let path = chart.join(path);
                if std::fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
                    durable::replace_file(&path, text.as_bytes(), 0o600)?;
                }
            }
            Ok(())
        };
        make().map_err(super::files_failed("write", &chart))?;
        Ok(chart.to_string_lossy().into_owned())
    }

    /// Removes the values that a killed syncer left: only for who holds the home's lock, because helm may read them.
    pub fn sweep(&self) -> Result<(), RuntimeError> {
        values::sweep(&self.settings.values_dir)
    }

    /// Removes every chart from the cache but these.
    pub fn prune_cache(&self, keep: &BTreeSet<Digest>) -> Result<(), RuntimeError> {
        self.cache.prune(keep).map_err(super::files_failed("prune the cache", &self.settings.cache_dir))
    }
}

impl Runtime for HelmRuntime {
    type Prepared = Prepared;

    fn observe(&self) -> Result<Vec<Observed>, RuntimeError> {
        self.observe_releases()
    }

    fn prefetch(
        &self,
        component: &Component,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Prepared, RuntimeError> {
        let mut prepared = self.prepare(component, from)?;
        self.admit_early(&mut prepared, cancel)?;
        Ok(prepared)
    }

    fn apply(&self, prepared: &Prepared, cancel: &Cancel<'_>) -> Result<(), RuntimeError> {
        let began = Cell::new(false);
        // One that began stays so. Helm waits for health itself, so that this counts as changing, too.
        let has_begun = || {
            began.set(began.get() || self.hook_began(&prepared.component));
            began.get()
        };
        self.apply_release(prepared, &|| cancel.ends_unless(has_begun))
    }

    fn remove(&self, release: &str, timeout: Duration, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        self.remove_release(release, timeout, cancel)
    }
}
