//! What the heartbeat says, and when it says it anew.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use repo_model::report::{CurrentComponent, CurrentDeployment, CurrentState};
use repo_model::{DeploymentId, envelope};

use crate::decision::device_state::DeviceState;
use crate::decision::health::ComponentHealth;
use crate::decision::observation::Observation;
use crate::decision::status::Report;

/// How every component that `status` speaks of is now. `attempts` gives the failures in a row of a project.
pub fn current_state(
    device_state: &DeviceState,
    observation: &Observation,
    attempts: &dyn Fn(&str) -> u32,
    serial: u64,
    time: Timestamp,
) -> CurrentState {
    let mut deployments: BTreeMap<_, CurrentDeployment> = BTreeMap::new();
    for (id, reported) in &Report::read(&device_state.status).deployments {
        for component in &reported.components {
            let project = id.runtime_name(&component.name);
            let found = observation.found.iter().find(|found| found.project == project);
            let ComponentHealth { health, drift, reason, is_crash_looping: crash_looping } =
                ComponentHealth::of(&project, observation, device_state);
            let current = CurrentComponent {
                input_digest: found.and_then(|found| found.input_digest),
                state: component.state.to_string(),
                health: health.to_string(),
                drift: drift.to_string(),
                reason,
                crash_looping,
                attempts: attempts(&project),
                restart: device_state.restarts.get(&project).map_or(0, |restarts| restarts.done),
            };
            deployments.entry(*id).or_default().components.insert(component.name.clone(), current);
        }
    }
    let asked = Some(device_state.asked.map_or(0, |asked| asked.number));
    CurrentState { layout: envelope::LAYOUT, time, serial, deployments, asked }
}

/// Whether the heartbeat's time has come, or anything is in other health than the one before says, if there was one; or it is of
/// another state, which may list another key to sign with.
pub fn is_due(before: Option<&CurrentState>, now: &CurrentState, interval: Duration) -> bool {
    let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
    let says_else = |last: &CurrentState| last.serial != now.serial || words(last) != words(now);
    before.is_none_or(|last| says_else(last) || now.time.duration_since(last.time).abs() >= interval)
}

/// Digest, state, health, drift and restart of each component, and whether it is crash-looping: what is reported at once. A reason may be another
/// one at each observation.
fn words(state: &CurrentState) -> BTreeMap<DeploymentId, CurrentDeployment> {
    let mut deployments = state.deployments.clone();
    for component in deployments.values_mut().flat_map(|deployment| deployment.components.values_mut()) {
        (component.reason, component.attempts) = (None, 0);
    }
    deployments
}
