//! Deployments that wait for each other in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use repo_model::DeploymentName;
use repo_model::problem::Problems;

use super::Deployment;

type Deployments = BTreeMap<DeploymentName, Arc<Deployment>>;

/// Everything that is part of a circle. Each that is in none of those already shown is shown with the shortest circle
/// through it, from its first member on.
pub(super) fn find(deployments: &Deployments, problems: &mut Problems) -> BTreeSet<DeploymentName> {
    let mut broken = BTreeSet::new();
    for start in deployments.keys() {
        if broken.contains(start) {
            continue;
        }
        let waits_for = |id| deployments.get(id).into_iter().flat_map(|one| one.depends_on.iter().map(|(id, _)| id));
        if let Some(circle) = circle(start, waits_for) {
            problems.extend(shown(&circle, deployments));
            broken.extend(circle.into_iter().cloned());
        }
    }
    broken
}

/// The shortest way from `start` along what is waited for back to it, without its end.
pub(crate) fn circle<'a, I: IntoIterator<Item = &'a DeploymentName>>(
    start: &'a DeploymentName,
    waits_for: impl Fn(&'a DeploymentName) -> I,
) -> Option<Vec<&'a DeploymentName>> {
    let mut from: BTreeMap<&DeploymentName, &DeploymentName> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(id) = open.pop_front() {
        for next in waits_for(id) {
            if next == start {
                let back = std::iter::successors(Some(id), |id| from.get(id).copied());
                let mut circle: Vec<_> = back.collect();
                circle.reverse();
                return Some(circle);
            }
            if !from.contains_key(next) {
                from.insert(next, id);
                open.push_back(next);
            }
        }
    }
    None
}

fn shown(circle: &[&DeploymentName], deployments: &Deployments) -> Option<repo_model::problem::Problem> {
    let first = circle.iter().min()?;
    let turn = circle.iter().position(|id| id == first)?;
    let round: Vec<_> = circle[turn..].iter().chain(&circle[..turn]).chain([first]).collect();
    let way: Vec<_> = round.iter().map(|id| id.as_str()).collect();
    let problem = deployments.get(*first)?.waits_at(round[1]).problem(format!("waits for itself: {}", way.join(" → ")));
    Some(problem.hint("leave one of these out of its `dependsOn`"))
}
