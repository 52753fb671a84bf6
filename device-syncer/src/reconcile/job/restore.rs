//! What was applied and doesn't run any more is restored.

use repo_model::ErrorCode;
use repo_model::margo::State;

use super::{Job, failure};
use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::failure::{Failure, shown};
use crate::runtimes::{RuntimeError, Runtimes};
use crate::state::shared::Transaction;
use crate::state::store::StoreError;

impl<H: Runtimes + ?Sized> Job<'_, H> {
    /// Returns whether it was tried. However it fails, it is tried again, with a back-off: it did run here. What had to be
    /// restored more than once in a row is reported as such, and is installed once a later pass finds it whole.
    pub(super) fn restore(
        &self,
        wanted: &DesiredDeployment,
        input: &Component,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let project = &input.project;
        let (change, may_begin) = self.begin_attempt(self.begin(wanted), wanted, input, Some(input.input_digest))?;
        drop(change);
        if !may_begin {
            return Ok(false);
        }
        tracing::warn!(project, reason, "putting back what doesn't run");
        let result = self.runtimes.restore(input, &self.cancel);
        let mut change = self.begin(wanted);
        change.close_attempt(input);
        match result {
            Ok(()) => match change.state.restores.note(project) {
                1 if !change.is_known_to_stop(input) => self.succeeded(&mut change, wanted, input),
                times => {
                    change.state.retries.succeeded(project);
                    change.next.attempts.retain(|of, attempt| of != project || attempt.on_trial);
                    let text = format!("it stops again and again, and was put back {times} times in a row: {reason}");
                    change.explain(input, State::Installing, Failure::new(ErrorCode::HealthTimeout, shown(&text)));
                }
            },
            Err(RuntimeError::Cancelled) => {}
            Err(error) => {
                let failure = failure(&error);
                tracing::warn!(project, code = failure.code, error = failure.message, "not put back");
                change.back_off(project);
                let state = if error.is_transient() { State::Installing } else { State::Failed };
                change.explain(input, state, failure);
            }
        }
        change.commit()?;
        Ok(true)
    }

    /// Restores what only the runtime knows more of. `status` keeps what it says of it: the documents that it speaks of are lost,
    /// or of another input. Returns whether it was tried.
    pub(super) fn restore_lost(&self, component: &Component) -> bool {
        let project = &component.project;
        if (self.halt)() {
            return false;
        }
        self.state.lock().restores.note(project);
        tracing::warn!(project, "putting back what doesn't run");
        if let Err(error) = self.runtimes.restore(component, &self.cancel) {
            // Its words could hold a secret: which of the values are secret is lost.
            tracing::warn!(project, code = error.code().as_str(), "not put back");
        }
        true
    }
}

impl Transaction<'_> {
    /// Whether `status` reports a `health-timeout` of it: how often it was restored is kept no longer than the process.
    fn is_known_to_stop(&self, input: &Component) -> bool {
        let now = self.report.get(input.deployment, &input.component).and_then(|now| now.failure.as_ref());
        now.is_some_and(|failure| failure.code == ErrorCode::HealthTimeout)
    }
}
