//! What deployments on one device wait for has to be on that device.

use repo_model::DeploymentName;

use super::{Facts, Rendered};
use crate::fleet::{Device, Fleet};

/// Leaves out what waits for a deployment that the device doesn't get, and what waits for that in turn.
pub(super) fn check(fleet: &Fleet, device: &Device, facts: Facts<'_>, rendered: &mut Rendered) {
    let has = |rendered: &Rendered, name: &DeploymentName| {
        let stays = || rendered.left.contains_key(name) || fleet.broken.keeps(name);
        let present = |facts: Facts<'_>| {
            facts.parent.is_some_and(|parent| parent.envelope.deployments.values().any(|one| one.id == *name))
        };
        rendered.deployments.values().any(|one| one.envelope.id == *name) || (stays() && present(facts))
    };
    loop {
        let missing = rendered.deployments.iter().find_map(|(id, one)| {
            let missing = one.envelope.policy.depends_on.iter().find(|name| !has(rendered, name))?;
            Some((*id, one.envelope.id.clone(), missing.clone()))
        });
        let Some((id, name, missing)) = missing else { return };
        rendered.deployments.remove(&id);
        let problems = rendered.left.entry(name.clone()).or_default();
        let Some(deployment) = fleet.deployments.get(&name) else { continue };
        let place = deployment.depends_on.iter().find(|(id, _)| *id == missing).map(|(_, place)| place);
        let why = match fleet.deployments.get(&missing) {
            Some(other) if !other.is_for(device) => "isn't for this device",
            _ => "can't come to this device",
        };
        let problem = place.unwrap_or(&deployment.place).problem(format!("waits for `{missing}`, which {why}"));
        problems.push(problem.hint(format!("let `{missing}` have the same targets, or leave it out here")));
    }
}
