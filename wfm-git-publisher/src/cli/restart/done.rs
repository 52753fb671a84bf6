//! Which numbers of restarts devices say that they have done.

use std::time::Duration;

use repo_model::{DeploymentName, DeviceId};
use serde::{Deserialize, Serialize};

use super::super::{Place, asked, deployment_show, questions, wait};
use crate::error::Failure;
use crate::fleet::{Deployment, Fleet, counted};
use crate::operator::FleetHost;
use crate::status::{DeploymentRow, Health};

/// From here on a device's word doesn't count when the next number is chosen, so that none uses them up.
const IMPLAUSIBLE: u64 = 1 << 32;

/// Of a device that has never said of anything that the fleet asks for that it has done it.
const OLD: &str = "doesn't say that it restarts anything; device-syncer does since version 0.3";

/// What is restarted, and where.
pub(super) struct Asked<'a> {
    pub(super) place: &'a Place,
    pub(super) fleet: &'a Fleet,
    pub(super) deployment: &'a Deployment,
    /// Absent where it is for all of the deployment's devices.
    pub(super) device: Option<&'a DeviceId>,
}

/// What `deployment show` says for programs.
#[derive(Deserialize)]
pub(super) struct Known {
    /// The rollouts that bring a change of it.
    rollouts: Vec<u32>,
    devices: Vec<OnDevice>,
}

/// A device with the deployment.
#[derive(Deserialize)]
struct OnDevice {
    device: DeviceId,
    health: Health,
    why: String,
    refused: Option<String>,
    row: Option<DeploymentRow>,
}

/// Who has done a restart, and who hasn't.
#[derive(Default)]
pub(super) struct Done {
    pub(super) done: Vec<DeviceId>,
    pub(super) left: Vec<Left>,
}

/// A device that hasn't done it.
#[derive(Serialize)]
pub(super) struct Left {
    pub(super) device: DeviceId,
    pub(super) why: String,
    /// Whether it may do it yet: its site doesn't refuse it, and it tells what it has done.
    #[serde(skip)]
    may_come: bool,
}

impl Asked<'_> {
    /// What is known of the devices; `None` where neither the publisher's home is here nor a host can be asked.
    pub(super) fn done(&self, cached: bool) -> Result<Option<Known>, Failure> {
        let (place, id, devices) = (self.place, &self.deployment.id, self.device.map_or(&[][..], std::slice::from_ref));
        if place.home()?.check_ledger().is_err() {
            let Some(host) = FleetHost::of_clone(&place.root()?)? else { return Ok(None) };
            return asked::read(&asked::ask(&host, &questions::deployment(id, devices))?).map(Some);
        }
        let told = deployment_show::told(place, id, devices, cached)?;
        serde_json::from_value(told).map(Some).map_err(|error| Failure::new(error.to_string()))
    }

    /// Waits until each device says that it has done this restart, or nothing more can come. Tells how many have on standard error.
    pub(super) fn wait(&self, number: u64, time: Duration) -> Result<Done, Failure> {
        let mut told = None;
        let is_enough = |known: &Known| {
            let Done { done, left } = self.of(known, number);
            if told.replace(done.len()) != Some(done.len()) {
                eprintln!("note: done on {} of {}", done.len(), counted(done.len() + left.len()));
            }
            !left.iter().any(|one| one.may_come)
        };
        let known = wait::until(self.place, time, || self.done(false), is_enough)?.ok_or_else(wait::nowhere)?;
        Ok(self.of(&known, number))
    }

    fn of(&self, known: &Known, number: u64) -> Done {
        let mut all = Done::default();
        for device in self.devices() {
            match known.why_not(device, &self.deployment.id, number) {
                None => all.done.push(device.clone()),
                Some((why, may_come)) => all.left.push(Left { device: device.clone(), why, may_come }),
            }
        }
        all
    }

    /// The devices that it is for, and that may get anything.
    fn devices(&self) -> Vec<&DeviceId> {
        let all = self.fleet.devices.values().filter(|one| one.is_enrolled() && self.deployment.is_for(one));
        self.device.map_or_else(|| all.map(|one| &one.id).collect(), |device| vec![device])
    }
}

impl Known {
    /// The highest number that is known to be used.
    pub(super) fn highest(&self, id: &DeploymentName) -> u64 {
        let rows = self.devices.iter().filter_map(|one| Some((&one.device, one.row.as_ref()?.restarts?)));
        let numbers = rows.map(|(device, restarts)| match restarts.highest {
            highest @ ..IMPLAUSIBLE => highest.max(restarts.asked),
            highest => {
                eprintln!("warning: {device} says that it has done restart {highest} of {id}; that isn't counted");
                restarts.asked
            }
        });
        numbers.max().unwrap_or(0)
    }

    /// Why a device hasn't done a restart, and whether it may yet; `None` where it has.
    fn why_not(&self, device: &DeviceId, id: &DeploymentName, number: u64) -> Option<(String, bool)> {
        let one = self.devices.iter().find(|one| one.device == *device);
        let row = one.and_then(|one| one.row.as_ref());
        let restarts = row.and_then(|row| row.restarts);
        let done = restarts.and_then(|restarts| restarts.done);
        if done.is_some_and(|done| done >= number) {
            return None;
        }
        let published = one.zip(row).filter(|_| restarts.is_some_and(|restarts| restarts.asked >= number));
        let Some((one, row)) = published else {
            let blocked = one.filter(|one| one.health == Health::NotPublishable).map(|one| format!(": {}", one.why));
            let rollouts = || self.rollouts.iter().map(|one| format!("; rollout {one} is open")).collect();
            return Some((format!("not published for it{}", blocked.unwrap_or_else(rollouts)), true));
        };
        let refused = one.refused.as_ref().filter(|why| why.starts_with(&format!("restart {number} of `{id}` ")));
        match refused {
            Some(why) => Some((why.clone(), false)),
            // It was heard, and nothing that it says is a newer syncer's.
            None if done.is_none() && row.actual.is_some() => Some((OLD.to_owned(), false)),
            None if one.health == Health::Ready => Some(("hasn't done it yet".to_owned(), true)),
            None if one.why.is_empty() => Some((one.health.to_string(), true)),
            None => Some((format!("{}: {}", one.health, one.why), true)),
        }
    }
}
