//! What deployments on one device wait for has to be on that device, and nothing there may wait for itself.
//!
//! What is left as it is, and what can't come yet, because a tag's meaning isn't known or a rollout holds it back, waits for
//! what it waited for before.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::DeploymentName;
use repo_model::problem::Problem;

use super::{Artifact, Facts, Left, Rendered, RenderedDeployment};
use crate::fleet::{Device, Fleet, circle};

/// Leaves what would wait for something that the device doesn't get, or for itself; and keeps what is still waited for.
pub(super) fn check(fleet: &Fleet, device: &Device, facts: Facts<'_>, rendered: &mut Rendered) {
    let envelopes = facts.parent.iter().flat_map(|parent| parent.envelope.deployments.values());
    let before: Waits<'_> = envelopes.map(|one| (&one.id, one.policy.depends_on.as_slice())).collect();
    // On most devices nothing waits for anything.
    if before.values().all(|waits| waits.is_empty()) && rendered.deployments.values().all(|one| waits(one).is_empty()) {
        return;
    }
    while let Some((name, resolution)) = Candidates::of(fleet, device, &before, rendered).next() {
        match resolution {
            Resolution::Leave(problem) => {
                rendered.deployments.retain(|_, one| one.envelope.id != name);
                let suspended = fleet.deployments.get(&name).map(|deployment| deployment.suspended);
                let left = rendered.left.entry(name).or_insert_with(|| Left { suspended, ..Left::default() });
                left.problems.extend(problem);
            }
            Resolution::Await { unresolved, held } => {
                let one = rendered.deployments.values_mut().find(|one| one.envelope.id == name);
                one.into_iter().for_each(|one| {
                    one.unresolved.extend(unresolved.iter().cloned());
                    one.held |= held;
                });
            }
            Resolution::Stay => _ = rendered.stay.insert(name),
        }
    }
}

/// What is done with a deployment that can't be as it is rendered.
enum Resolution {
    /// What the device has of it stays, if it has anything.
    Leave(Option<Problem>),
    /// It comes when the meaning of these tags is known, and nothing that it waits for is held back any more.
    Await { unresolved: BTreeSet<Artifact>, held: bool },
    /// It would go, and stays for what is held back.
    Stay,
}

impl Resolution {
    /// What waits for these comes with them.
    fn after<'a>(mut pending: impl Iterator<Item = &'a RenderedDeployment> + Clone, held: bool) -> Self {
        let unresolved = pending.clone().flat_map(|one| one.unresolved.iter().cloned()).collect();
        Self::Await { unresolved, held: held || pending.any(|one| one.held) }
    }
}

/// Deployments, and what each waits for.
type Waits<'a> = BTreeMap<&'a DeploymentName, &'a [DeploymentName]>;

fn waits(one: &RenderedDeployment) -> &[DeploymentName] {
    &one.envelope.policy.depends_on
}

/// What the device would have, as far as it is rendered.
struct Candidates<'a> {
    fleet: &'a Fleet,
    device: &'a Device,
    rendered: &'a Rendered,
    /// The deployments that it has.
    before: &'a Waits<'a>,
    /// Those that it would have.
    after: Waits<'a>,
    /// What can't come yet.
    pending: BTreeMap<&'a DeploymentName, &'a RenderedDeployment>,
}

impl<'a> Candidates<'a> {
    fn of(fleet: &'a Fleet, device: &'a Device, before: &'a Waits<'a>, rendered: &'a Rendered) -> Self {
        let (pending, new): (Vec<_>, Vec<_>) = rendered.deployments.values().partition(|one| one.is_pending());
        let pending: BTreeMap<_, _> = pending.into_iter().map(|one| (&one.envelope.id, one)).collect();
        let stays = |name: &DeploymentName| {
            rendered.left.contains_key(name)
                || rendered.stay.contains(name)
                || fleet.broken.keeps(name)
                || pending.contains_key(name)
        };
        let kept = before.iter().filter(|(name, _)| stays(name)).map(|(name, waits)| (*name, *waits));
        let after = kept.chain(new.into_iter().map(|one| (&one.envelope.id, waits(one)))).collect();
        Self { fleet, device, rendered, before, after, pending }
    }

    /// The next deployment that can't be as it is. Each resolution takes one from those that come, or adds one to those that
    /// stay, so there is an end.
    fn next(&self) -> Option<(DeploymentName, Resolution)> {
        self.missing().or_else(|| self.waited_for()).or_else(|| self.circle())
    }

    /// The new ones that can come.
    fn new_ones(&self) -> impl Iterator<Item = &'a RenderedDeployment> {
        self.rendered.deployments.values().filter(|one| !one.is_pending())
    }

    /// Something that waits for what doesn't come to the device, or not yet.
    fn missing(&self) -> Option<(DeploymentName, Resolution)> {
        let resolution = |one: &RenderedDeployment, missing: &DeploymentName| match self.pending.get(missing) {
            Some(awaited) => (!one.is_pending()).then(|| Resolution::after(std::iter::once(*awaited), false)),
            None => Some(Resolution::Leave(self.unmet(&one.envelope.id, missing))),
        };
        self.rendered.deployments.values().find_map(|one| {
            let mut missing = waits(one).iter().filter(|name| !self.after.contains_key(name));
            Some((one.envelope.id.clone(), missing.find_map(|missing| resolution(one, missing))?))
        })
    }

    fn unmet(&self, name: &DeploymentName, missing: &DeploymentName) -> Option<Problem> {
        let deployment = self.fleet.deployments.get(name)?;
        let why = match self.fleet.deployments.get(missing) {
            Some(other) if !other.is_for(self.device) => "isn't for this device",
            _ => "can't come to this device",
        };
        let problem = deployment.waits_at(missing).problem(format!("waits for `{missing}`, which {why}"));
        Some(problem.hint(format!("let `{missing}` have the same targets, or leave it out here")))
    }

    /// Something of the device's that would go, although one that stays as it is waits for it.
    fn waited_for(&self) -> Option<(DeploymentName, Resolution)> {
        let all = self.after.iter().flat_map(|(name, others)| others.iter().map(move |other| (*name, other)));
        // A tip that another publisher made may lack what it waits for.
        let goes = |other: &DeploymentName| self.before.contains_key(other) && !self.after.contains_key(other);
        let (name, other) = all.into_iter().find(|(_, other)| goes(other))?;
        let is_held = self.pending.get(name).is_some_and(|one| one.held) || self.rendered.stay.contains(name);
        if is_held {
            return Some((other.clone(), Resolution::Stay));
        }
        let place = self.fleet.deployments.get(name).map(|one| &one.place);
        let problem = place.filter(|_| self.rendered.left.contains_key(name)).map(|place| {
            let problem = place.problem(format!("is left as it is and waits for `{other}`, which stays for that"));
            problem.warning().hint(format!("`{other}` goes once this deployment can be changed or removed"))
        });
        Some((other.clone(), Resolution::Leave(problem)))
    }

    /// Something new that would wait for itself by way of what stays as it is.
    fn circle(&self) -> Option<(DeploymentName, Resolution)> {
        let next = |name: &DeploymentName| self.after.get(name).copied().unwrap_or_default();
        let waited = |name: &DeploymentName, other| self.before.get(name).is_some_and(|before| before.contains(other));
        self.new_ones().map(|one| &one.envelope.id).find_map(|name| {
            let circle = circle(name, next)?;
            let second = circle.get(1).copied().unwrap_or(name);
            if waited(name, second) {
                return None;
            }
            let stays = circle.iter().any(|one| self.rendered.stay.contains(*one));
            let awaited = circle.iter().filter_map(|one| self.pending.get(*one).copied());
            if stays || awaited.clone().next().is_some() {
                return Some((name.clone(), Resolution::after(awaited, stays)));
            }
            let way: Vec<_> = circle.iter().chain([&name]).map(|one| one.as_str()).collect();
            let problem = self.fleet.deployments.get(name).map(|deployment| {
                let text = format!("would wait for itself on this device: {}", way.join(" → "));
                let problem = deployment.waits_at(second).problem(text);
                problem.hint("correct first what is wrong with those of them that are left as they are")
            });
            Some((name.clone(), Resolution::Leave(problem)))
        })
    }
}
