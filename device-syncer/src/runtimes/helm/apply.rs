//! Makes a prepared release run.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::client::{GRACE, HELM};
use super::release::{Listed, Release, description, joined};
use super::values::ValuesFile;
use super::{HelmRuntime, Prepared};
use crate::decision::component::Kind;
use crate::runtimes::client::Call;
use crate::runtimes::command::{CommandError, last_lines};
use crate::runtimes::{Redactor, RuntimeError};

/// Limit of what only puts helm's own books in order.
const RECOVERY: Duration = Duration::from_secs(120);

impl HelmRuntime {
    /// Ownership, recovery, what is left in another namespace, and `upgrade`.
    pub(super) fn apply_release(&self, prepared: &Prepared, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        let started = Instant::now();
        let component = &prepared.component;
        let Kind::Helm { namespace, values, .. } = &component.kind else {
            let reason = "it isn't a helm component's".to_owned();
            return Err(RuntimeError::ArtifactInvalid { what: component.repository.clone(), reason });
        };
        let release = component.project.as_str();
        if let Some(found) = self.release(namespace, release)? {
            if !self.owner.owns(&found.labels) {
                return Err(RuntimeError::NotOurs {
                    found: format!("release `{release}` in namespace `{namespace}`"),
                    command: format!("helm uninstall {release} --namespace {namespace}"),
                });
            }
            self.recover(namespace, release, &found, cancel)?;
        }
        self.leave_others(namespace, release, started, component.timeout, cancel)?;
        let values = ValuesFile::write(&self.settings.values_dir, release, values)?;
        if !prepared.is_admitted {
            self.admit(prepared, namespace, &values, cancel)?;
        }
        self.upgrade(prepared, namespace, &values, started, cancel)
    }

    /// Brings a release that a crash left under way to where it last was good, or removes one that never was: helm
    /// refuses to touch it otherwise. Hooks are left out, because they are what helm may have been killed in.
    fn recover(
        &self,
        namespace: &str,
        release: &str,
        found: &Release,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        if !found.is_under_way() {
            return Ok(());
        }
        let is_pending = found.status.starts_with("pending-");
        let good = if is_pending { self.last_good(namespace, release)? } else { None };
        tracing::warn!(release, namespace, status = found.status, good, "recovering a release that was left under way");
        let good = good.map(|revision| revision.to_string());
        let history = self.settings.history_max.to_string();
        let mut args = match &good {
            Some(revision) => vec!["rollback", release, revision, "--history-max", &history],
            None => vec!["uninstall", release, "--wait"],
        };
        let limit = format!("{}s", RECOVERY.as_secs());
        args.extend(["--no-hooks", "--timeout", &limit, "--namespace", namespace]);
        if good.is_some() {
            args.extend(self.forced()?);
        }
        let args = args.into_iter().map(OsString::from).collect();
        let call = Call { args, timeout: RECOVERY + GRACE, redactor: &Redactor::default(), parameters: &[], cancel };
        let output = self.helm.run(call)?;
        if output.status.success() {
            return Ok(());
        }
        let status = &found.status;
        Err(self.helm.failure(&output, |reason| {
            HELM.unavailable(format!("`{release}` was left {status}, and can't be brought back: {reason}"), None)
        }))
    }

    /// Helm 4 lets the server apply, which refuses what somebody else changed since; Helm 3 just puts it back.
    fn forced(&self) -> Result<&'static [&'static str], RuntimeError> {
        let is_old = self.helm_version()?.starts_with("v3.");
        Ok(if is_old { &[] } else { &["--server-side=true", "--force-conflicts"] })
    }

    /// A component has one release: what another namespace has of it goes first.
    fn leave_others(
        &self,
        namespace: &str,
        release: &str,
        started: Instant,
        timeout: Duration,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let listed = self.list()?;
        let is_other = |one: &&Listed| one.name == release && one.namespace != namespace;
        listed.iter().filter(is_other).try_for_each(|other| {
            let rest = timeout.saturating_sub(started.elapsed()).max(Duration::from_secs(1));
            self.uninstall(other, rest, cancel)
        })
    }

    /// The arguments of an apply, which are also those by which its chart is rendered before.
    pub(super) fn upgrade_args(
        &self,
        prepared: &Prepared,
        namespace: &str,
        values: &ValuesFile,
        timeout: Duration,
    ) -> Result<Vec<OsString>, RuntimeError> {
        let component = &prepared.component;
        let chart = self.cache.path(&prepared.content);
        let labels = joined(self.owner.labels(component.deployment, &component.component));
        let mut args: Vec<OsString> =
            vec!["upgrade".into(), (&component.project).into(), chart.into(), "--install".into()];
        args.extend(self.forced()?.iter().map(OsString::from));
        args.extend(["--namespace", namespace, "--create-namespace", "--reset-values", "--values"].map(OsString::from));
        args.push(values.path().into());
        args.extend(["--labels".into(), labels.into()]);
        args.extend(["--description".into(), description(&component.input_digest).into()]);
        args.extend(["--history-max".into(), self.settings.history_max.to_string().into()]);
        args.extend(["--timeout".into(), format!("{}s", timeout.as_secs().max(1)).into()]);
        if component.wait {
            args.push("--wait".into());
        }
        Ok(args)
    }

    fn upgrade(
        &self,
        prepared: &Prepared,
        namespace: &str,
        values: &ValuesFile,
        started: Instant,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let component = &prepared.component;
        let release = &component.project;
        let rest = component.timeout.saturating_sub(started.elapsed()).max(Duration::from_secs(1));
        let until = Instant::now() + rest;
        let args = self.upgrade_args(prepared, namespace, values, rest)?;
        let call = Call { args, timeout: rest + GRACE, redactor: &prepared.redactor, parameters: &[], cancel };
        let not_ready = |stderr: &str| RuntimeError::NotReady {
            release: release.clone(),
            seconds: started.elapsed().as_secs(),
            reason: last_lines(stderr, 1024),
        };
        let output = match self.helm.try_run(call) {
            Err(CommandError::TimedOut { stderr, .. }) => return Err(not_ready(&stderr)),
            output => output.map_err(|error| HELM.broken_off(error))?,
        };
        if output.status.success() {
            self.note_healed(namespace, release);
            return self.check_applied(namespace, release);
        }
        // What helm itself waited for came to the same end as its limit.
        let is_late = Instant::now() + Duration::from_secs(1) >= until && is_about_time(&output.stderr);
        Err(self.helm.failure(&output, |reason| match is_late {
            true => not_ready(&output.stderr),
            false => RuntimeError::HelmFailed { release: release.clone(), reason },
        }))
    }
}

/// How Helm 3 and 4 say that a limit passed.
fn is_about_time(stderr: &str) -> bool {
    ["deadline exceeded", "timed out", "timeout"].iter().any(|words| stderr.contains(words))
}
