//! One device in full: since when each deployment is as it is, and what rollouts mean it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::{DeploymentId, DeviceId};
use serde::{Deserialize, Serialize};

use super::trace::{MAX_TOLD, Moment};
use super::{DeviceStatus, Membership};
use crate::fleet::Device;
use crate::publish::Findings;
use crate::repos::{Control, ControlError, DeviceRepo, Home, Rosters};
use crate::rollout::{Phase, Record};

/// What there is to say of one device beside its status.
#[derive(Debug, Default)]
pub struct DeviceView {
    /// When each deployment came to the state that it is in, by the device's clock; nothing of those that are so for longer than is looked
    /// at.
    pub since: BTreeMap<DeploymentId, Moment>,
    /// The rollouts that aren't finished and mean the device.
    pub rollouts: Vec<RolloutPlace>,
}

/// A device's place in a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPlace {
    pub rollout: u32,
    pub state: Phase,
    /// The wave that released it, or the one that is meant for it; 0 where its change came to it before the first one.
    pub wave: u32,
    pub last_wave: u32,
    /// Absent while the rollout holds back what the device has of its deployments.
    pub released: Option<Timestamp>,
}

/// Looks at a device. What can't be read is left out; its status says so.
pub fn view(home: &Home, device: Option<&Device>, status: &DeviceStatus) -> Result<DeviceView, ControlError> {
    let ((ledger, rosters), findings) = (Control::read(home)?, Findings::read(home));
    let rollouts = ledger.rollouts.open.values().filter_map(|record| place_in(record, &status.device));
    // Nothing comes any more to whoever isn't in service, so nothing is held back.
    let is_in_service = status.membership == Membership::Enrolled;
    let is_held = |one: &RolloutPlace| is_in_service && findings.is_held(one.rollout, &status.device);
    let rollouts = rollouts.filter(|one| one.released.is_some() || is_held(one));
    let since = since(home, &rosters, device, status).unwrap_or_default();
    Ok(DeviceView { since, rollouts: rollouts.collect() })
}

/// Absent if the rollout doesn't mean the device.
pub(super) fn place_in(record: &Record, device: &DeviceId) -> Option<RolloutPlace> {
    let member = record.members.get(device)?;
    let released = record.released_with(device);
    Some(RolloutPlace {
        rollout: record.number(),
        state: record.state.state,
        wave: released.map_or(member.wave, |released| released.wave),
        last_wave: record.last_wave(),
        released: released.map(|released| released.at),
    })
}

fn since(
    home: &Home,
    rosters: &Rosters,
    device: Option<&Device>,
    status: &DeviceStatus,
) -> Option<BTreeMap<DeploymentId, Moment>> {
    let repo = DeviceRepo::open(home, rosters.fleet(), &status.device).ok()??;
    let tip = repo.desired(&rosters.publishers).ok()?;
    let enrolled = device.map_or(&[][..], |device| &device.status_keys);
    let verified = repo.verified_status(tip.as_ref(), enrolled, &rosters.publishers)?;
    let mut since = BTreeMap::new();
    for step in repo.line(verified.commit).map_while(Result::ok).take(MAX_TOLD) {
        for one in step.message.transitions().filter(|one| one.is_whole()) {
            since.entry(one.deployment).or_insert_with(|| Moment::of(&step));
        }
        if status.deployments.iter().all(|row| since.contains_key(&row.deployment_id)) {
            break;
        }
    }
    Some(since)
}
