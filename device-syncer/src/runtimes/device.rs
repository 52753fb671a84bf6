//! All of a device's runtimes as one: each component goes to that of its type, and one that doesn't answer hides nothing
//! of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use repo_artifacts::Mirrors;
use repo_model::margo::ProfileType;
use repo_model::{Digest, IntoSet, error_chain};

use super::{
    Cancel, ComposeRuntime, HelmRuntime, Lasting, LockedImage, Runtime, RuntimeError, Runtimes, Source, Watch, compose,
    helm,
};
use crate::config::FromFleet;
use crate::decision::component::{Component, Kind};
use crate::decision::drift::DriftIgnored;
use crate::decision::failure::Failure;
use crate::decision::kept::Kept;
use crate::decision::observation::{Observation, Observed};
use crate::decision::restart::Started;

/// What a device has; nothing more runs on it.
#[derive(Debug)]
pub struct DeviceRuntimes {
    pub compose: Option<ComposeRuntime>,
    pub helm: Option<HelmRuntime>,
    /// What the next ones have in common with these, also if nothing runs compose components in between.
    pub lasting: Arc<Lasting>,
}

/// What a runtime answers.
#[derive(Debug)]
pub struct Asked {
    pub found: Result<Vec<Observed>, RuntimeError>,
    /// `None` where nobody wants them, or it doesn't tell.
    pub facts: Option<Facts>,
}

/// What a runtime is, which changes seldom.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The versions of tools and of what they talk to, by name.
    pub versions: BTreeMap<String, String>,
    /// Where images and containers lie, if that is known.
    pub data_root: Option<PathBuf>,
}

/// A component that is ready to be applied.
#[derive(Debug)]
pub enum Ready {
    Compose(compose::Prepared),
    Helm(helm::Prepared),
}

impl DeviceRuntimes {
    /// The types of profiles that have a runtime here.
    pub fn types(&self) -> BTreeSet<ProfileType> {
        let compose = self.compose.iter().map(|_| ProfileType::Compose);
        compose.chain(self.helm.iter().map(|_| ProfileType::Helm)).into_set()
    }

    /// What each runtime shows; one that doesn't answer is in `unreachable`, with why.
    pub fn observe(&self) -> Observation {
        self.observe_each().0
    }

    /// Asks each of them; an error if there are any and none of them answers.
    pub fn observe_any(&self) -> Result<Observation, RuntimeError> {
        let (observation, error) = self.observe_each();
        match error {
            Some(error) if observation.unreachable.len() == self.types().len() => Err(error),
            _ => Ok(observation),
        }
    }

    /// What was observed, and the first error in the order of the types.
    fn observe_each(&self) -> (Observation, Option<RuntimeError>) {
        let (mut observation, mut first) = (Observation::default(), None);
        for kind in self.types() {
            let answer = self.observe_one(kind).map_err(|error| {
                let failure = Failure::new(error.code(), error_chain(&error));
                first.get_or_insert(error);
                failure
            });
            observation.add(kind, answer);
        }
        (observation, first)
    }

    fn observe_one(&self, kind: ProfileType) -> Result<Vec<Observed>, RuntimeError> {
        match kind {
            ProfileType::Compose => self.compose()?.observe(),
            ProfileType::Helm => self.helm()?.observe(),
            ProfileType::Custom => Err(nothing_runs(kind)),
        }
    }

    /// Asks the runtime of this type what it shows, and what it is, where that is wanted.
    pub fn ask(&self, kind: ProfileType, wants_facts: bool) -> Asked {
        let found = self.observe_one(kind);
        let facts = if wants_facts && found.is_ok() { self.facts(kind) } else { None };
        Asked { found, facts }
    }

    fn facts(&self, kind: ProfileType) -> Option<Facts> {
        match kind {
            ProfileType::Compose => {
                let compose = self.compose.as_ref()?;
                Some(Facts { versions: compose.versions()?, data_root: compose.data_root() })
            }
            ProfileType::Helm => Some(Facts { versions: self.helm.as_ref()?.versions()?, data_root: None }),
            ProfileType::Custom => None,
        }
    }

    /// Says of a runtime that it is being asked.
    pub fn unanswered(kind: ProfileType) -> RuntimeError {
        let tool = match kind {
            ProfileType::Compose => "docker",
            ProfileType::Helm => "helm",
            ProfileType::Custom => "no runtime",
        };
        missing(tool, "it hasn't answered yet")
    }

    /// Ends all questions that are open, in whatever thread, and each that is still to come: others take the place of these
    /// runtimes, or the program ends.
    pub fn end_questions(&self) {
        if let Some(compose) = &self.compose {
            compose.end_questions();
        }
        if let Some(helm) = &self.helm {
            helm.end_questions();
        }
    }

    /// From now on this counts of what the fleet says of the site's policy. Returns whether something else did before.
    pub fn follow_fleet(&self, from_fleet: FromFleet) -> bool {
        self.compose.as_ref().is_some_and(|compose| compose.follow_fleet(from_fleet))
    }

    /// From now on these are the mirrors of registries.
    pub fn follow_mirrors(&self, mirrors: &Mirrors) {
        if let Some(compose) = &self.compose {
            compose.follow_mirrors(mirrors.clone());
        }
        if let Some(helm) = &self.helm {
            helm.follow_mirrors(mirrors.clone());
        }
    }

    /// From now on this is ignored of charts' drift. Returns whether something else was before.
    pub fn ignore_drift(&self, ignored: DriftIgnored) -> bool {
        self.helm.as_ref().is_some_and(|helm| helm.ignore_drift(ignored))
    }

    /// Calls `changed` whenever something of ours ended or went, for as long as what this gives lives; `None` where that
    /// isn't heard, so that only looking helps.
    pub fn watch(&self, changed: impl Fn() + Send + 'static) -> Option<Watch> {
        self.compose.as_ref()?.watch(changed)
    }

    /// The versions of tools and of what they talk to, by name; `None` while one of them doesn't answer.
    pub fn versions(&self) -> Option<BTreeMap<String, String>> {
        let mut all = BTreeMap::new();
        if let Some(compose) = &self.compose {
            all.extend(compose.versions()?);
        }
        if let Some(helm) = &self.helm {
            all.extend(helm.versions()?);
        }
        Some(all)
    }

    /// Where images and containers lie; `None` if that isn't known.
    pub fn data_root(&self) -> Option<PathBuf> {
        self.compose.as_ref()?.data_root()
    }

    /// Whether applications' files are resolved without a sandbox.
    pub fn is_unconfined(&self) -> bool {
        self.compose.as_ref().and_then(ComposeRuntime::is_confined) == Some(false)
    }

    /// Notes of what was observed what has come to its end by itself; what is at work is left alone.
    pub fn note_ended(&self, observation: &Observation, is_at_work: impl Fn(&str) -> bool) -> Result<(), RuntimeError> {
        self.compose.as_ref().map_or(Ok(()), |compose| compose.note_ended(&observation.found, is_at_work))
    }

    /// What of an input runs only once and has, or may have, begun: services that run to their end, hooks of a release.
    pub fn begun_once(&self, component: &Component) -> Result<BTreeSet<String>, RuntimeError> {
        match &component.kind {
            Kind::Compose { .. } => self.compose()?.begun_once(component),
            Kind::Helm { namespace, .. } => self.helm()?.begun_once(namespace, &component.project),
        }
    }

    /// Removes every archive and chart from the cache but these, and those that the projects on this device were made
    /// from.
    pub fn prune_cache(&self, keep: &BTreeSet<Digest>) -> Result<(), RuntimeError> {
        match (&self.compose, &self.helm) {
            (Some(compose), _) => compose.prune_cache(keep),
            (None, Some(helm)) => helm.prune_cache(keep),
            (None, None) => Ok(()),
        }
    }

    /// From now on no image is evicted of what this keeps.
    pub fn keep(&self, kept: Kept) {
        if let Some(compose) = &self.compose {
            compose.keep(kept);
        }
    }

    /// Evicts the images that nothing has needed for a day. What a cluster's nodes have is theirs.
    pub fn evict_images(&self) -> Result<(), RuntimeError> {
        self.compose.as_ref().map_or(Ok(()), ComposeRuntime::evict_images)
    }

    fn compose(&self) -> Result<&ComposeRuntime, RuntimeError> {
        self.compose.as_ref().ok_or_else(|| missing("docker", "device.yaml says `docker: {use: false}`"))
    }

    fn helm(&self) -> Result<&HelmRuntime, RuntimeError> {
        self.helm.as_ref().ok_or_else(|| missing("helm", "device.yaml has no `helm`"))
    }
}

fn missing(tool: &'static str, reason: &str) -> RuntimeError {
    RuntimeError::RuntimeUnavailable { tool, reason: reason.to_owned(), source: None }
}

/// Never asked for: a component of another type has no input.
fn nothing_runs(kind: ProfileType) -> RuntimeError {
    missing("any runtime", &format!("nothing here runs {kind} components"))
}

impl Runtimes for DeviceRuntimes {
    type Ready = Ready;

    fn prefetch(&self, component: &Component, from: Source, cancel: &dyn Fn() -> bool) -> Result<Ready, RuntimeError> {
        match component.profile_type() {
            ProfileType::Compose => self.compose()?.prefetch(component, from, cancel).map(Ready::Compose),
            ProfileType::Helm => self.helm()?.prefetch(component, from, cancel).map(Ready::Helm),
            kind @ ProfileType::Custom => Err(nothing_runs(kind)),
        }
    }

    fn apply(&self, ready: &Ready, cancel: &Cancel<'_>) -> Result<(), RuntimeError> {
        match ready {
            Ready::Compose(prepared) => self.compose()?.apply(prepared, cancel),
            Ready::Helm(prepared) => self.helm()?.apply(prepared, cancel),
        }
    }

    fn first_use(&self, ready: &Ready) -> BTreeMap<String, LockedImage> {
        match ready {
            Ready::Compose(prepared) => prepared.first_use().clone(),
            Ready::Helm(_) => BTreeMap::new(),
        }
    }

    fn restore(&self, component: &Component, cancel: &Cancel<'_>) -> Result<(), RuntimeError> {
        self.compose()?.restore(component, cancel)
    }

    fn containers(&self, component: &Component) -> Result<Vec<Started>, RuntimeError> {
        self.compose()?.containers(component)
    }

    fn restart(
        &self,
        component: &Component,
        containers: &[String],
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        self.compose()?.restart(component, containers, cancel)
    }

    fn remove(
        &self,
        kind: ProfileType,
        project: &str,
        timeout: Duration,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        match kind {
            ProfileType::Compose => self.compose()?.remove(project, timeout, cancel),
            ProfileType::Helm => self.helm()?.remove(project, timeout, cancel),
            kind @ ProfileType::Custom => Err(nothing_runs(kind)),
        }
    }
}
