//! A deployment as it shall be on this device, resolved to what the runtimes get.

use std::time::Duration;

use repo_model::envelope::{DriftPolicy, OnFailure};
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest, ErrorCode, IntoMap, json};

use super::component::Component;
use super::failure::Failure;
use super::restart::RestartsAsked;

/// A deployment as it shall be, resolved on this device.
#[derive(Debug, Clone)]
pub struct DesiredDeployment {
    /// Margo's `deploymentId`.
    pub id: DeploymentId,
    /// The operator's id of it.
    pub name: DeploymentName,
    /// `metadata.name`, the source of errors of the deployment as a whole.
    pub title: String,
    /// The bytes of its ApplicationDeployment, as they were signed.
    pub document: Vec<u8>,
    /// Whether the operator told the device to leave it as it is.
    pub suspended: bool,
    /// The deployments that are installed before it is applied, by the operator's ids.
    pub depends_on: Vec<DeploymentName>,
    /// Whether the device has what it asks for.
    pub requirements: Requirements,
    /// What is done where it can't run as it is wanted.
    pub on_failure: OnFailure,
    /// For how long all of it runs well before it counts as good.
    pub stabilise: Duration,
    /// Whether what doesn't run as it was applied is put back; the site may be stricter.
    pub drift: DriftPolicy,
    /// The restarts that are asked for.
    pub restarts: RestartsAsked,
    /// What `status` says of it where this isn't the set that is wanted, but the last good one.
    pub rolled_back: Option<Failure>,
    /// Its components in the order in which they are applied.
    pub components: Vec<DesiredComponent>,
}

impl DesiredDeployment {
    /// Its components with their inputs, as one digest: what is applied together, and good or bad together.
    pub fn set(&self) -> Digest {
        self.set_by(|input| input.input_digest)
    }

    /// The same by what the fleet says of them, whatever files of the device hold.
    pub fn fleet_set(&self) -> Digest {
        self.set_by(|input| input.fleet_digest)
    }

    fn set_by(&self, digest: fn(&Component) -> Digest) -> Digest {
        let inputs = self.components.iter().map(|one| (&one.name, one.input.as_ref().ok().map(digest)));
        Digest::of(&json::to_bytes(&(self.id, inputs.into_map())))
    }

    /// What is said of a final failure: that of putting back what was good has a code of its own.
    pub fn final_failure(&self, failure: Failure) -> Failure {
        match &self.rolled_back {
            Some(_) if failure.code != ErrorCode::RollbackFailed => {
                let text = format!("what ran before can't be put back: {}: {}", failure.code, failure.message);
                Failure::new(ErrorCode::RollbackFailed, text)
            }
            _ => failure,
        }
    }
}

/// Whether the device has what a deployment asks for (Margo, *deviceConstraints*).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirements {
    /// It has, or nothing is asked for.
    Met,
    /// The device lacks something that the profile asks for.
    Unmet(Failure),
    /// What the device has isn't known yet, because a runtime doesn't answer.
    Unknown,
}

/// A component as it shall be.
#[derive(Debug, Clone)]
pub struct DesiredComponent {
    pub name: ComponentName,
    /// The name under which the runtime knows it.
    pub project: String,
    /// What the runtime gets, or why this device can't run it at all.
    pub input: Result<Component, Failure>,
}

/// Puts each deployment behind those that it waits for, as far as they are among them. Those in a circle come last.
pub(crate) fn in_order<T>(
    mut all: Vec<T>,
    name: impl Fn(&T) -> &DeploymentName,
    depends_on: impl Fn(&T) -> &[DeploymentName],
) -> Vec<T> {
    let mut ordered = Vec::with_capacity(all.len());
    loop {
        let waits = |other: &DeploymentName| all.iter().any(|one| name(one) == other);
        let Some(next) = all.iter().position(|one| !depends_on(one).iter().any(waits)) else { break };
        ordered.push(all.remove(next));
    }
    ordered.append(&mut all);
    ordered
}
