//! What the site's hook is asked for a plan, and when it is told the end.

use std::collections::BTreeMap;

use repo_model::{DeploymentId, IntoMap};

use super::{Action, Plan, PlannedComponent, Removal};
use crate::decision::hook::{HookAsk, HookChange};

impl Plan {
    /// All that the hook has to allow, and nothing else holds back.
    pub fn hook_asks(&self) -> BTreeMap<DeploymentId, HookAsk> {
        let ask = |(id, change): (&DeploymentId, &HookChange)| {
            let set = self.changes.get(id)?.digest();
            Some((*id, HookAsk { deployment: self.shown_name(*id), deployment_id: *id, change: *change, set }))
        };
        self.asks.iter().filter_map(ask).into_map()
    }

    /// Whether nobody knows what the hook has to allow of a deployment that hasn't begun, because a runtime doesn't answer.
    pub fn is_unseen(&self, id: DeploymentId) -> bool {
        let parts = || self.deployments.iter().filter(|one| one.id == id).flat_map(|one| &one.components);
        parts().any(|one| matches!(one.action, Action::Unknown)) && !parts().any(|one| one.has_begun)
    }

    /// Whether nothing of a deployment is left to do now, nor later without asking again, and nothing is at work on it.
    pub fn is_over(&self, id: DeploymentId, is_at_work: impl Fn(&str) -> bool) -> bool {
        let parts = || self.deployments.iter().filter(|one| one.id == id).flat_map(|one| &one.components);
        let mut projects = parts()
            .map(|one| &one.project)
            .chain(self.all_removals().filter(|one| one.deployment == Some(id)).map(|one| &one.project));
        let goes = self.removals.iter().any(|one| one.deployment == Some(id));
        let stays = self.held.iter().any(|one| one.has_begun && one.removal.deployment == Some(id));
        !goes && !stays && !is_left(parts()) && !projects.any(|project| is_at_work(project))
    }

    fn all_removals(&self) -> impl Iterator<Item = &Removal> {
        self.removals.iter().chain(self.held.iter().map(|held| &held.removal))
    }

    /// The operator's id of a deployment, or Margo's.
    fn shown_name(&self, id: DeploymentId) -> String {
        let wanted = self.deployments.iter().find(|one| one.id == id).map(|one| &one.name);
        let gone = || self.all_removals().find(|one| one.deployment == Some(id))?.name.as_ref();
        wanted.or_else(gone).map_or_else(|| id.to_string(), ToString::to_string)
    }
}

/// Whether anything of these is done now, or waits without being asked for again. What is behind one that failed for good isn't applied.
fn is_left<'a>(parts: impl Iterator<Item = &'a PlannedComponent>) -> bool {
    let mut has_failed = false;
    for part in parts {
        let is_left = match part.action {
            Action::Apply { .. } => !has_failed,
            Action::Wait(_) | Action::Unknown => !has_failed && part.has_begun,
            _ => part.action.is_done(),
        };
        if is_left {
            return true;
        }
        has_failed |= matches!(part.action, Action::Fail(_));
    }
    false
}
