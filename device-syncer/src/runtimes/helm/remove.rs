//! Removes a release.

use std::ffi::OsString;
use std::time::Duration;

use super::HelmRuntime;
use super::client::{GRACE, HELM};
use super::release::{Listed, is_absent};
use crate::runtimes::client::Call;
use crate::runtimes::command::{CommandError, last_lines};
use crate::runtimes::{Redactor, RuntimeError};

impl HelmRuntime {
    /// `uninstall` of every release of ours that has this name. Without one nothing happens.
    pub(super) fn remove_release(
        &self,
        name: &str,
        timeout: Duration,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let listed = self.list()?;
        listed.iter().filter(|one| one.name == name).try_for_each(|one| self.uninstall(one, timeout, cancel))
    }

    /// With the chart's hooks, which may have something to save: one that fails keeps the release.
    pub(super) fn uninstall(
        &self,
        release: &Listed,
        timeout: Duration,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let Listed { name, namespace, .. } = release;
        let limit = format!("{}s", timeout.as_secs().max(1));
        let args = ["uninstall", name, "--namespace", namespace, "--wait", "--timeout", &limit];
        let args = args.into_iter().map(OsString::from).collect();
        let failed = |reason: String| RuntimeError::RemovalFailed {
            project: name.clone(),
            reason: format!(
                "{reason}; it is tried again. Without the chart's hooks it goes by: helm uninstall {name} --namespace \
                 {namespace} --no-hooks"
            ),
        };
        let call = Call { args, timeout: timeout + GRACE, redactor: &Redactor::default(), parameters: &[], cancel };
        let output = match self.helm.try_run(call) {
            Err(CommandError::TimedOut { stderr, seconds, .. }) => {
                return Err(failed(format!("it took longer than {seconds} s: {}", last_lines(&stderr, 1024))));
            }
            output => output.map_err(|error| HELM.broken_off(error))?,
        };
        if output.status.success() || is_absent(&output.stderr) {
            return Ok(());
        }
        Err(self.helm.failure(&output, failed))
    }
}
