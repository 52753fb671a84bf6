//! The running containers of what was applied are restarted as they are: nothing is made anew, pulled, or run a second time
//! that came to its end.

use repo_model::ErrorCode;
use repo_model::margo::State;

use super::{Job, Restart, failure};
use crate::decision::deployment::DesiredDeployment;
use crate::decision::failure::Failure;
use crate::runtimes::{RuntimeError, Runtimes};
use crate::state::store::StoreError;

impl<H: Runtimes + ?Sized> Job<'_, H> {
    /// Restarts components in their order; one that can't be holds those behind it. Returns whether anything was tried.
    pub(super) fn restart_all(&self, wanted: &DesiredDeployment, parts: &[Restart]) -> Result<bool, StoreError> {
        if !(self.may_change)(wanted.id) {
            return Ok(false);
        }
        let mut acted = false;
        for part in parts {
            if (self.halt)() || !self.restart(wanted, part, &mut acted)? {
                break;
            }
        }
        Ok(acted)
    }

    /// Which containers are left to be restarted is durable before the first one is. Returns whether all of them were.
    fn restart(&self, wanted: &DesiredDeployment, part: &Restart, acted: &mut bool) -> Result<bool, StoreError> {
        let Restart { input, cause } = part;
        *acted = true;
        let there = self.runtimes.containers(input);
        let mut change = self.begin(wanted);
        let result = match there {
            Ok(there) => {
                let left = change.next.begin_restart(&input.project, *cause, &there);
                let now = change.report.get(wanted.id, &input.component).map(|now| now.state);
                if !left.is_empty() && wanted.rolled_back.is_none() && now != Some(State::Installing) {
                    let why = Failure::new(ErrorCode::RestartRequested, cause.to_string());
                    change.report.set(wanted.id, &input.component, State::Installing, Some(why));
                }
                change.commit()?;
                drop(change);
                tracing::info!(project = input.project, containers = left.len(), %cause, "restarting");
                let result = self.runtimes.restart(input, &left, self.halt);
                change = self.begin(wanted);
                result
            }
            Err(error) => Err(error),
        };
        let done = result.is_ok();
        match result {
            Ok(()) => {
                change.next.end_restart(&input.project);
                self.succeeded(&mut change, wanted, input);
            }
            Err(RuntimeError::Cancelled) => {}
            Err(error) => {
                let failure = failure(&error);
                tracing::warn!(project = input.project, code = failure.code, error = failure.message, "not restarted");
                change.back_off(&input.project);
                if wanted.rolled_back.is_none() {
                    change.explain(input, State::Installing, failure);
                }
            }
        }
        change.commit()?;
        Ok(done)
    }
}
