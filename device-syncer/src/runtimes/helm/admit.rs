//! What a chart would make, before it makes anything: rendered with the arguments of the real apply, and judged by the
//! site's policy. Where that says nothing of objects, nothing is rendered.

use std::ffi::OsString;
use std::time::Duration;

use repo_artifacts::Chart;
use repo_model::{IntoSet, error_chain};

use super::client::HELM;
use super::rendered::Rendered;
use super::values::ValuesFile;
use super::{HelmRuntime, Prepared};
use crate::decision::component::{Component, Kind};
use crate::decision::kubernetes::{ENFORCE, PodSecurity, Verdict};
use crate::runtimes::client::Call;
use crate::runtimes::command::{CommandError, Output};
use crate::runtimes::{RuntimeError, files_failed};

/// Limit of one rendering.
const RENDERING: Duration = Duration::from_secs(120);

/// Prints what the namespace of the release enforces; nothing where there is no such namespace, or it enforces nothing.
const ENFORCED: &str = "{{ with (lookup \"v1\" \"Namespace\" \"\" .Release.Namespace) }}\
                        {{ get (default dict .metadata.labels) \"pod-security.kubernetes.io/enforce\" }}{{ end }}";

/// Prints the kinds that others than Kubernetes define and that lie in namespaces, a line each.
const KINDS: &str = "{{ range (lookup \"apiextensions.k8s.io/v1\" \"CustomResourceDefinition\" \"\" \"\").items }}\
                     {{ if eq .spec.scope \"Namespaced\" }}{{ .spec.names.kind }}.{{ .spec.group }}{{ \"\\n\" }}\
                     {{ end }}{{ end }}";

impl HelmRuntime {
    /// Judges a component before anything of its deployment is changed. Not where a release has to be put in order
    /// before helm would even render the next one: then its apply does it.
    pub(super) fn admit_early(&self, prepared: &mut Prepared, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        let Kind::Helm { namespace, values, .. } = &prepared.component.kind else { return Ok(()) };
        if self.settings.policy.is_silent() || self.is_in_the_way(&prepared.component, namespace)? {
            return Ok(());
        }
        let values = ValuesFile::write(&self.settings.values_dir, &prepared.component.project, values)?;
        self.admit(prepared, namespace, &values, cancel)?;
        prepared.is_admitted = true;
        Ok(())
    }

    /// Whether there is a release of that name that is a stranger's, was left under way, or lies elsewhere.
    fn is_in_the_way(&self, component: &Component, namespace: &str) -> Result<bool, RuntimeError> {
        let release = component.project.as_str();
        let found = self.release(namespace, release)?;
        if found.is_some_and(|found| found.is_under_way() || !self.owner.owns(&found.labels)) {
            return Ok(true);
        }
        Ok(self.list()?.iter().any(|one| one.name == release && one.namespace != namespace))
    }

    /// Judges everything that an apply would make.
    pub(super) fn admit(
        &self,
        prepared: &Prepared,
        namespace: &str,
        values: &ValuesFile,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let policy = &self.settings.policy;
        if policy.is_silent() {
            return Ok(());
        }
        let release = prepared.component.project.as_str();
        let mut args = self.upgrade_args(prepared, namespace, values, prepared.component.timeout)?;
        args.extend(["--dry-run=server", "--output", "json"].map(OsString::from));
        let rendered = self.rendering(prepared, args, cancel)?;
        let rendered: Rendered = serde_json::from_slice(&rendered.stdout).map_err(|error| {
            HELM.unavailable(format!("what `helm upgrade --dry-run` printed can't be read: {error}"), None)
        })?;
        let mut verdict = rendered.judge(policy, namespace, &self.crds(prepared)?);
        self.ask_the_cluster(&mut verdict, namespace)?;
        denied(release, verdict)
    }

    /// What helm makes before anything else, and no rendering shows.
    fn crds(&self, prepared: &Prepared) -> Result<Vec<String>, RuntimeError> {
        let Component { repository, revision, .. } = &prepared.component;
        let what = || format!("{repository}:{revision}");
        let chart =
            self.cache.get(&prepared.content).map_err(files_failed("use the cache", &self.settings.cache_dir))?;
        let gone = || RuntimeError::ArtifactUnavailable {
            what: what(),
            reason: "it went from the cache".to_owned(),
            source: None,
        };
        Chart::crds(&chart.ok_or_else(gone)?)
            .map_err(|error| RuntimeError::ArtifactInvalid { what: what(), reason: error_chain(&error) })
    }

    /// What only the cluster knows: where kinds lie, and what the namespace enforces.
    pub(super) fn ask_the_cluster(&self, verdict: &mut Verdict, namespace: &str) -> Result<(), RuntimeError> {
        if verdict.asks_for_kinds() {
            let kinds = self.ask_by_template("kinds", namespace, KINDS)?;
            let kinds = kinds.iter().flat_map(|text| text.lines()).map(|it| it.trim().to_owned()).into_set();
            verdict.settle(&kinds);
        }
        if let Some(level) = self.settings.policy.pod_security() {
            let enforced = self.ask_by_template("enforced", namespace, ENFORCED)?.unwrap_or_default();
            if !level.is_enforced_by(Some(enforced.trim())) {
                verdict.deny(not_enforced(namespace, enforced.trim(), level));
            }
        }
        Ok(())
    }

    /// What a template prints of what it looks up; `None` where the context's user may not look there. Each question has
    /// a chart of its own, which is never installed.
    pub(super) fn ask_by_template(
        &self,
        question: &str,
        namespace: &str,
        template: &str,
    ) -> Result<Option<String>, RuntimeError> {
        let chart = self.probe(question, template)?;
        let name = "device-syncer-probe";
        let args = ["install", name, &chart, "--namespace", namespace, "--dry-run=server", "--output", "json"];
        let output = self.helm.try_ask(&args)?;
        if !output.status.success() {
            return if output.stderr.contains("forbidden") { Ok(None) } else { Err(self.helm.no_answer(&output)) };
        }
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok(Some(shown["info"]["notes"].as_str().unwrap_or_default().to_owned()))
    }

    fn rendering(
        &self,
        prepared: &Prepared,
        args: Vec<OsString>,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Output, RuntimeError> {
        let release = &prepared.component.project;
        let call = Call { args, timeout: RENDERING, redactor: &prepared.redactor, parameters: &[], cancel };
        let output = match self.helm.try_run(call) {
            Err(CommandError::TooMuch { limit, .. }) => {
                let reason = format!("its chart renders to more than {limit} bytes");
                return Err(RuntimeError::PolicyDenied { project: release.clone(), reasons: vec![reason] });
            }
            output => output.map_err(|error| HELM.broken_off(error))?,
        };
        if output.status.success() {
            return Ok(output);
        }
        Err(self.helm.failure(&output, |reason| RuntimeError::HelmFailed { release: release.clone(), reason }))
    }
}

pub(super) fn denied(release: &str, verdict: Verdict) -> Result<(), RuntimeError> {
    let reasons = verdict.reasons();
    if reasons.is_empty() { Ok(()) } else { Err(RuntimeError::PolicyDenied { project: release.to_owned(), reasons }) }
}

/// What a person has to do: this program changes no namespace.
fn not_enforced(namespace: &str, found: &str, level: PodSecurity) -> String {
    let (level, found) = (level.as_str(), if found.is_empty() { "nothing, or isn't there" } else { found });
    format!(
        "namespace `{namespace}` enforces {found}, and `policy.kubernetes.podSecurity` wants {level}: kubectl create \
         namespace {namespace}; kubectl label namespace {namespace} {ENFORCE}={level}"
    )
}
