//! What helm says of releases: which there are, what one is now, and when it last was good.

use std::collections::BTreeSet;

use repo_model::IntoSet;
use serde::Deserialize;

use super::HelmRuntime;
use super::client::HELM;
use super::release::{Listed, Release, is_absent, joined};
use crate::decision::component::{Component, Kind};
use crate::runtimes::RuntimeError;

/// All states in which a release's newest revision can be. Helm 4 has no `--all`.
const ALL: &[&str] = &["--deployed", "--failed", "--pending", "--superseded", "--uninstalled", "--uninstalling"];

/// Revision, status, a line for each label, an empty line, and the description.
const TEMPLATE: &str = "{{.Release.Version}}\n{{.Release.Info.Status}}\n\
                        {{range $name, $value := .Release.Labels}}{{$name}}={{$value}}\n{{end}}\n\
                        {{.Release.Info.Description}}";

/// One line of `helm history`.
#[derive(Debug, Deserialize)]
struct Revision {
    revision: u32,
    status: String,
}

/// The events of each hook, a line each.
const HOOKS: &str = "{{range .Release.Hooks}}{{range .Events}}{{.}}\n{{end}}{{end}}";

/// How far each hook came, a line each; an empty one for a hook that hasn't begun. Helm notes it before a hook begins.
const PHASES: &str = "{{range .Release.Hooks}}{{.LastRun.Phase}}\n{{end}}";

impl HelmRuntime {
    /// The events at which a release's newest revision runs hooks while it is applied; none if there is no such release.
    pub fn begun_once(&self, namespace: &str, name: &str) -> Result<BTreeSet<String>, RuntimeError> {
        let output = self.helm.try_ask(&["get", "all", name, "--namespace", namespace, "--template", HOOKS])?;
        if !output.status.success() {
            return if is_absent(&output.stderr) { Ok(BTreeSet::new()) } else { Err(self.helm.no_answer(&output)) };
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let runs = |event: &&str| event.ends_with("-install") || event.ends_with("-upgrade");
        Ok(text.lines().filter(runs).map(str::to_owned).into_set())
    }

    /// Whether a hook has begun of the newest revision of this release, as far as that can be known.
    pub(super) fn hook_began(&self, component: &Component) -> bool {
        let Kind::Helm { namespace, .. } = &component.kind else { return false };
        let args = ["get", "all", &component.project, "--namespace", namespace, "--template", PHASES];
        self.helm.ask_text(&args).is_ok_and(|phases| !phases.trim().is_empty())
    }

    /// The newest revision of every release of ours, in all namespaces.
    pub(super) fn list(&self) -> Result<Vec<Listed>, RuntimeError> {
        let selector = joined(self.owner.common());
        let args = ["list", "--all-namespaces", "--max", "0", "--output", "json", "--selector", &selector];
        read(&self.helm.ask(&[&args, ALL].concat())?)
    }

    /// What a release is now, whoever's it is; `None` if there is none of that name.
    pub(super) fn release(&self, namespace: &str, name: &str) -> Result<Option<Release>, RuntimeError> {
        let output = self.helm.try_ask(&["get", "all", name, "--namespace", namespace, "--template", TEMPLATE])?;
        if !output.status.success() {
            return if is_absent(&output.stderr) { Ok(None) } else { Err(self.helm.no_answer(&output)) };
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let problem = || HELM.unavailable("what `helm get` printed can't be read".to_owned(), None);
        Release::parse(&text).map(Some).ok_or_else(problem)
    }

    /// The newest revision at which the release was good, if it ever was.
    pub(super) fn last_good(&self, namespace: &str, name: &str) -> Result<Option<u32>, RuntimeError> {
        let args = ["history", name, "--namespace", namespace, "--max", "1000", "--output", "json"];
        let history: Vec<Revision> = read(&self.helm.ask(&args)?)?;
        let good = history.iter().filter(|one| matches!(one.status.as_str(), "deployed" | "superseded"));
        Ok(good.map(|one| one.revision).max())
    }
}

fn read<T: for<'a> Deserialize<'a>>(json: &[u8]) -> Result<T, RuntimeError> {
    serde_json::from_slice(json)
        .map_err(|error| HELM.unavailable(format!("what helm printed can't be read: {error}"), None))
}
