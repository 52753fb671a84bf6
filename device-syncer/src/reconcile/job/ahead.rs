//! What changes need is fetched while they wait.

use jiff::Timestamp;

use super::{Job, failure};
use crate::decision::backoff;
use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::fetched::Fetched;
use crate::runtimes::{RuntimeError, Runtimes, Source};
use crate::state::store::StoreError;

impl<H: Runtimes + ?Sized> Job<'_, H> {
    /// Changes nothing that runs. What an image meant is durable as soon as it is here, because its name may mean something
    /// else by the time of the change.
    pub(super) fn fetch_ahead(&self, wanted: &DesiredDeployment, inputs: &[Component]) -> Result<bool, StoreError> {
        for input in inputs {
            if (self.halt)() || !(self.may_fetch)() {
                break;
            }
            tracing::info!(project = input.project, "fetching ahead");
            let result = self.runtimes.prefetch(input, Source::Anywhere, self.halt);
            let mut change = self.begin(wanted);
            let known = match result {
                Err(RuntimeError::Cancelled) => break,
                Ok(ready) => {
                    change.next.lock_images(input, self.runtimes.first_use(&ready));
                    change.commit()?;
                    change.state.retries.succeeded(&input.project);
                    Fetched::Here
                }
                Err(error) => {
                    let failure = failure(&error);
                    let (code, error) = (&failure.code, &failure.message);
                    tracing::warn!(project = input.project, code, error, "can't be fetched ahead");
                    change.state.retries.failed(&input.project, backoff::jitter(Timestamp::now()));
                    let before = change.state.fetched.as_ref().and_then(|all| all.get(&input.input_digest));
                    Fetched::failed(failure.message, before, Timestamp::now())
                }
            };
            change.state.fetched.get_or_insert_default().insert(input.input_digest, known);
        }
        Ok(false)
    }
}
