//! Which work of a plan may begin now: pure.
//!
//! What was applied and stopped comes first, also where another input is wanted by now, which may have to wait: nothing that
//! is still to go stood in its way before. Then removals, those that
//! depend on others before these; each is tried once before anything is applied, because it may hold a port or a name. What
//! is at work goes on meanwhile.

use std::collections::BTreeSet;

use repo_model::{DeploymentName, IntoSet};

use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::plan::{Action, Plan, Planned, PutBack, Removal};
use crate::reconcile::job::{Apply, Restart, Work};
use crate::reconcile::jobs::AtWork;
use crate::state::shared::Transaction;

/// What may begin now, in order; what waits for another deployment says so.
pub(super) fn choose(
    plan: &Plan,
    wanted: &[DesiredDeployment],
    state: &mut Transaction<'_>,
    at_work: &AtWork,
) -> Vec<Work> {
    let mut chosen = restores(plan, wanted, state, at_work);
    let outstanding: Vec<_> = plan.removals.iter().filter(|one| !is_over(one, state, at_work)).collect();
    if !outstanding.is_empty() {
        chosen.extend(removals(&outstanding, wanted, state, at_work));
        return chosen;
    }
    for (planned, one) in plan.deployments.iter().zip(wanted) {
        let is_put_back =
            |project: &str| chosen.iter().any(|work| matches!(work, Work::Lost(one) if one.project == project));
        if planned.components.iter().any(|part| at_work.works_on(&part.project) || is_put_back(&part.project)) {
            continue;
        }
        let inputs = taken_down(planned, state, at_work);
        if !inputs.is_empty() {
            chosen.push(Work::TakeDown { wanted: one.clone(), inputs });
            continue;
        }
        let inputs = ahead(planned, one, state, at_work);
        if !inputs.is_empty() {
            chosen.push(Work::Fetch { wanted: one.clone(), inputs });
            continue;
        }
        let parts = restarted(planned, state, at_work);
        if !parts.is_empty() {
            chosen.push(Work::Restart { wanted: one.clone(), parts });
            continue;
        }
        // What is put back ran before without waiting.
        if let Some(name) = state.awaited(one, wanted).filter(|_| one.rolled_back.is_none()) {
            state.wait_for(planned, &name, wanted);
            continue;
        }
        let applies = applies(planned, state, at_work, one.rolled_back.is_some());
        if !applies.is_empty() {
            chosen.push(Work::Deployment { wanted: one.clone(), applies, from_here: planned.from_here });
        }
    }
    chosen
}

fn restores(plan: &Plan, wanted: &[DesiredDeployment], state: &Transaction<'_>, at_work: &AtWork) -> Vec<Work> {
    // Beside what is only fetched for another input.
    let may_begin =
        |one: &&PutBack| !at_work.changes(&one.input.project) && !state.state.restores.is_waiting(&one.input.project);
    let mut chosen: Vec<_> = plan.put_back().filter(may_begin).map(|one| Work::Lost(one.input.clone())).collect();
    for (planned, one) in plan.deployments.iter().zip(wanted) {
        for component in &planned.components {
            let project = &component.project;
            let waits = state.state.retries.is_waiting(project) || state.state.restores.is_waiting(project);
            if let Action::Restore { reason, input } = &component.action
                && !waits
                && !at_work.is_taken(project)
            {
                let (wanted, input, reason) = (one.clone(), input.clone(), reason.clone());
                chosen.push(Work::Restore { wanted, input, reason });
            }
        }
    }
    chosen
}

/// What of a deployment is restarted now: components in their order, up to one that has to wait.
fn restarted(planned: &Planned, state: &Transaction<'_>, at_work: &AtWork) -> Vec<Restart> {
    let restarts = planned.components.iter().filter_map(|part| match &part.action {
        Action::Restart { cause, input } => Some(Restart { input: input.clone(), cause: *cause }),
        _ => None,
    });
    let may_begin =
        |one: &Restart| !at_work.works_on(&one.input.project) && !state.state.retries.is_waiting(&one.input.project);
    restarts.take_while(may_begin).collect()
}

/// What of a deployment is removed, though it is wanted: in no order, because the device goes down with it.
fn taken_down(planned: &Planned, state: &Transaction<'_>, at_work: &AtWork) -> Vec<Component> {
    let waits = |project: &str| at_work.is_taken(project) || state.state.retries.is_waiting(project);
    let inputs = planned.components.iter().filter_map(|part| match &part.action {
        Action::TakeDown { input, .. } if !waits(&part.project) => Some((**input).clone()),
        _ => None,
    });
    inputs.collect()
}

/// What is fetched now of what waits.
fn ahead(planned: &Planned, wanted: &DesiredDeployment, state: &Transaction<'_>, at_work: &AtWork) -> Vec<Component> {
    let waits = |project: &str| at_work.is_taken(project) || state.state.retries.is_waiting(project);
    let parts = planned.components.iter().zip(&wanted.components);
    let inputs = parts.filter(|(part, _)| part.ahead && !waits(&part.project));
    inputs.filter_map(|(_, one)| one.input.as_ref().ok().cloned()).collect()
}

/// Whether a removal was tried, and isn't tried again yet.
fn is_over(removal: &Removal, state: &Transaction<'_>, at_work: &AtWork) -> bool {
    !at_work.works_on(&removal.project)
        && (at_work.was_tried(&removal.project) || state.state.retries.is_waiting(&removal.project))
}

/// Those that are outstanding, by deployment, and not before what depends on them is tried.
fn removals(
    outstanding: &[&Removal],
    wanted: &[DesiredDeployment],
    state: &Transaction<'_>,
    at_work: &AtWork,
) -> Vec<Work> {
    let needed: BTreeSet<&DeploymentName> = outstanding
        .iter()
        .filter_map(|one| state.next.deployments.get(&one.deployment?))
        .flat_map(|applied| &applied.inputs.depends_on)
        .into_set();
    let is_needed = |one: &Removal| one.name.as_ref().is_some_and(|name| needed.contains(name));
    // Those in a circle wait for nothing.
    let is_circle = outstanding.iter().all(|one| is_needed(one));
    let mut works: Vec<(_, Vec<Removal>)> = Vec::new();
    for removal in outstanding {
        // What is done of a deployment may be needed by what is still applied of it.
        let is_applied = removal.deployment.is_some_and(|id| at_work.applies(id));
        if is_needed(removal) && !is_circle || is_applied || at_work.works_on(&removal.project) {
            continue;
        }
        match works.iter_mut().find(|(deployment, _)| removal.deployment.is_some() && *deployment == removal.deployment)
        {
            Some((_, removals)) => removals.push((*removal).clone()),
            None => works.push((removal.deployment, vec![(*removal).clone()])),
        }
    }
    let stays = |id| wanted.iter().find(|one| Some(one.id) == id).cloned();
    let work = |(deployment, removals)| Work::Removal { removals, stays: stays(deployment) };
    works.into_iter().map(work).collect()
}

/// What of a deployment is applied now: components in their order, up to one that can't be, or has to wait. Those behind it
/// wait for it.
fn applies(planned: &Planned, state: &mut Transaction<'_>, at_work: &AtWork, is_rolled_back: bool) -> Vec<Apply> {
    let (mut applies, mut awaited) = (Vec::new(), None);
    for component in &planned.components {
        let retries = &state.state.retries;
        let is_retried_later = retries.is_waiting(&component.project)
            || state.is_down(planned.id) && retries.count(&component.project) > 0;
        let waits = at_work.is_taken(&component.project) || is_retried_later;
        match (&component.action, &awaited) {
            (Action::Keep, _) => {}
            (Action::Apply { .. }, Some(_)) if is_rolled_back => {}
            (Action::Apply { input, .. }, Some(before)) => {
                state.wait(input, format!("waits for component `{before}`, which is listed before it"));
            }
            (Action::Apply { input, replaces, .. }, None) if !waits => {
                applies.push(Apply { input: input.clone(), replaces: *replaces });
            }
            _ => awaited = awaited.or_else(|| Some(component.name.clone())),
        }
    }
    applies
}
