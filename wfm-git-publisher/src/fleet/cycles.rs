//! Deployments that wait for each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use repo_model::DeploymentName;
use repo_model::problem::Problems;

use super::Deployment;

type Deployments = BTreeMap<DeploymentName, Arc<Deployment>>;

/// Everything that is part of a circle; each circle is shown once, from its first member on.
pub(super) fn find(deployments: &Deployments, problems: &mut Problems) -> BTreeSet<DeploymentName> {
    let (mut done, mut broken) = (BTreeSet::new(), BTreeSet::new());
    for start in deployments.keys() {
        visit(start, deployments, &mut Vec::new(), &mut done, &mut |circle: &[&DeploymentName]| {
            if !circle.iter().any(|id| broken.contains(*id)) {
                problems.extend(shown(circle, deployments));
            }
            broken.extend(circle.iter().copied().cloned());
        });
    }
    broken
}

/// Goes down from `id` along what is waited for. `path` leads there, and `done` needs no second visit.
fn visit<'a>(
    id: &'a DeploymentName,
    deployments: &'a Deployments,
    path: &mut Vec<&'a DeploymentName>,
    done: &mut BTreeSet<&'a DeploymentName>,
    found: &mut dyn FnMut(&[&'a DeploymentName]),
) {
    if let Some(from) = path.iter().position(|one| *one == id) {
        return found(&path[from..]);
    }
    let Some((id, deployment)) = deployments.get_key_value(id).filter(|(id, _)| !done.contains(id)) else { return };
    path.push(id);
    for (next, _) in &deployment.depends_on {
        visit(next, deployments, path, done, found);
    }
    path.pop();
    done.insert(id);
}

fn shown(circle: &[&DeploymentName], deployments: &Deployments) -> Option<repo_model::problem::Problem> {
    let first = circle.iter().min()?;
    let turn = circle.iter().position(|id| id == first)?;
    let mut round: Vec<_> = circle[turn..].iter().chain(&circle[..turn]).map(|id| id.as_str()).collect();
    let next = *round.get(1).unwrap_or(&first.as_str());
    round.push(first.as_str());
    let edges = &deployments.get(*first)?.depends_on;
    let (_, place) = edges.iter().find(|(id, _)| id.as_str() == next)?;
    let problem = place.problem(format!("waits for itself: {}", round.join(" → ")));
    Some(problem.hint("leave one of these out of its `dependsOn`"))
}
