//! What was applied and doesn't run any more is restored.

use repo_model::ErrorCode;
use repo_model::margo::State;

use super::{Actor, failure};
use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::failure::{Failure, shown};
use crate::decision::plan::{Action, Plan};
use crate::runtimes::{RuntimeError, Runtimes};
use crate::state::store::StoreError;

impl<H: Runtimes + ?Sized> Actor<'_, H> {
    /// Restores what was applied and doesn't run. It goes first: nothing that is still to go stood in its way before.
    pub(super) fn restore_all(&mut self, plan: &Plan, wanted: &[DesiredDeployment]) -> Result<bool, StoreError> {
        let mut acted = false;
        for (planned, one) in plan.deployments.iter().zip(wanted) {
            for component in &planned.components {
                if let Action::Restore { reason, input } = &component.action {
                    acted |= self.restore(one, input, reason)?;
                }
            }
        }
        Ok(acted)
    }

    /// Returns whether it was tried. However it fails, it is tried again, with a back-off: it did run here. What had to be
    /// restored more than once in a row is reported as such, and is installed once a later pass finds it whole.
    fn restore(&mut self, wanted: &DesiredDeployment, input: &Component, reason: &str) -> Result<bool, StoreError> {
        let project = &input.project;
        if self.retries.is_waiting(project) || self.restores.is_waiting(project) || (self.cancel)() {
            return Ok(false);
        }
        if !self.begin(wanted, input, Some(input.input_digest))? {
            return Ok(false);
        }
        tracing::warn!(project, reason, "putting back what doesn't run");
        let result = self.runtimes.restore(input, self.cancel);
        if let Some(attempt) = self.next.attempt(input) {
            attempt.open = 0;
        }
        match result {
            Ok(()) => match self.restores.note(project) {
                1 if !self.is_known_to_stop(input) => self.succeeded(wanted, input),
                times => {
                    self.retries.succeeded(project);
                    self.next.attempts.remove(project);
                    let text = format!("it stops again and again, and was put back {times} times in a row: {reason}");
                    self.explain(input, State::Installing, Failure::new(ErrorCode::HealthTimeout, shown(&text)));
                }
            },
            Err(RuntimeError::Cancelled) => {}
            Err(error) => {
                let failure = failure(&error);
                tracing::warn!(project, code = failure.code, error = failure.message, "not put back");
                self.postpone(project);
                let state = if error.is_transient() { State::Installing } else { State::Failed };
                self.explain(input, state, failure);
            }
        }
        self.commit()?;
        Ok(true)
    }

    /// Whether an earlier process has told so.
    fn is_known_to_stop(&self, input: &Component) -> bool {
        let now = self.report.get(input.deployment, &input.component).and_then(|now| now.failure.as_ref());
        now.is_some_and(|failure| failure.code == ErrorCode::HealthTimeout)
    }
}
