//! What is no longer wanted goes; volumes and the application's own files stay.

use std::time::Duration;

use repo_model::margo::{ProfileType, State};

use super::{Job, failure};
use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::plan::Removal;
use crate::runtimes::{RuntimeError, Runtimes};
use crate::state::shared::Transaction;
use crate::state::store::StoreError;

/// How long a removal may take, besides the time that containers have for stopping.
const REMOVAL: Duration = Duration::from_secs(120);

impl<H: Runtimes + ?Sized> Job<'_, H> {
    /// Removals of one deployment, which were announced. Returns whether any was tried. A removal that is repeated after a
    /// crash does nothing.
    pub(super) fn remove_all(
        &self,
        removals: &[Removal],
        stays: Option<&DesiredDeployment>,
    ) -> Result<bool, StoreError> {
        let mut of = removals.iter().filter_map(|one| one.deployment);
        if !of.next().is_none_or(|deployment| (self.may_change)(deployment)) {
            return Ok(false);
        }
        let mut acted = false;
        let is_waiting = |project: &str| self.state.lock().retries.is_waiting(project);
        for removal in removals {
            if is_waiting(&removal.project) || (self.halt)() {
                continue;
            }
            acted = true;
            if let Some(stays) = stays {
                let mut change = self.begin(stays);
                change.begin_by_removal(stays)?;
            } else if let Some(deployment) = removal.deployment {
                let mut change = self.state.begin();
                change.next.note_going(deployment);
                change.commit()?;
            }
            tracing::info!(project = removal.project, "removing");
            let result = self.runtimes.remove(removal.kind, &removal.project, REMOVAL, self.cancel.changing);
            let mut change = stays.map_or_else(|| self.state.begin(), |stays| self.begin(stays));
            match result {
                Ok(()) => {
                    change.state.retries.succeeded(&removal.project);
                    change.next.forget(&removal.project);
                    change.report_removed(removal, stays.is_some());
                }
                Err(RuntimeError::Cancelled) => {}
                Err(error) => {
                    change.back_off(&removal.project);
                    let failure = failure(&error);
                    tracing::warn!(
                        project = removal.project,
                        code = failure.code,
                        error = failure.message,
                        "not removed"
                    );
                    if let Some((id, name)) = removal.component() {
                        change.report.explain(id, name, State::Removing, failure);
                    }
                }
            }
            change.commit()?;
        }
        Ok(acted)
    }

    /// Removes the containers of a component that stays wanted.
    pub(super) fn remove_containers(&self, input: &Component) -> Result<(), RuntimeError> {
        self.runtimes.remove(input.profile_type(), &input.project, REMOVAL, self.cancel.changing)
    }

    /// Removes what runs of the component under another type, with a status of its own. Returns whether it is gone.
    pub(super) fn replace<'a>(
        &'a self,
        mut change: Transaction<'a>,
        wanted: &DesiredDeployment,
        input: &Component,
        kind: ProfileType,
    ) -> Result<(Transaction<'a>, bool), StoreError> {
        let (id, name) = (input.deployment, &input.component);
        if change.report.get(id, name).is_none_or(|now| now.state != State::Removing) {
            change.report.set(id, name, State::Removing, None);
        }
        change.begin_by_removal(wanted)?;
        drop(change);
        tracing::info!(project = input.project, %kind, "removing, because its type changed");
        let result = self.runtimes.remove(kind, &input.project, REMOVAL, self.cancel.changing);
        let mut change = self.begin(wanted);
        let gone = result.is_ok();
        match result {
            Ok(()) => {
                change.note(wanted, input, None);
                change.report.set(id, name, State::Removed, None);
            }
            Err(error) => change.failed(wanted, input, &error, State::Removing, false),
        }
        change.commit()?;
        Ok((change, gone))
    }
}

impl Transaction<'_> {
    /// Makes durable that a deployment begins, with what goes of it: the rest is brought to its end.
    fn begin_by_removal(&mut self, wanted: &DesiredDeployment) -> Result<(), StoreError> {
        if !self.next.has_begun(wanted) {
            self.next.note_begun(wanted);
        }
        self.commit()?;
        Ok(())
    }

    /// A removed deployment stays as such until the next adoption; a component that left a deployment which stays is
    /// no longer listed.
    fn report_removed(&mut self, removal: &Removal, stays: bool) {
        let Some((id, name)) = removal.component() else { return };
        if stays {
            self.report.drop_component(id, name);
        } else {
            self.report.set(id, name, State::Removed, None);
        }
    }
}
