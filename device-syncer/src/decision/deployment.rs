//! A deployment as it shall be on this device, resolved to what the runtimes get.

use repo_model::{ComponentName, DeploymentId, DeploymentName};

use super::component::Component;
use super::failure::Failure;

/// A deployment as it shall be, resolved on this device.
#[derive(Debug, Clone)]
pub struct DesiredDeployment {
    /// Margo's `deploymentId`.
    pub id: DeploymentId,
    /// The operator's id of it.
    pub name: DeploymentName,
    /// `metadata.name`, the source of errors of the deployment as a whole.
    pub title: String,
    /// The exact ApplicationDeployment.
    pub document: Vec<u8>,
    /// Whether the operator told the device to leave it as it is.
    pub suspended: bool,
    /// The deployments that are installed before it is applied, by the operator's ids.
    pub depends_on: Vec<DeploymentName>,
    /// Whether the device has what it asks for.
    pub requirements: Requirements,
    /// Its components in the order in which they are applied.
    pub components: Vec<DesiredComponent>,
}

/// Whether the device has what a deployment asks for (Margo, *deviceConstraints*).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirements {
    /// It has, or nothing is asked for.
    Met,
    /// It lacks something.
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
