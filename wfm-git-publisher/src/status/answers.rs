//! What a device answered to what the fleet asked it for, as far as signatures prove it.

use jiff::Timestamp;
use repo_model::DeviceId;
use repo_model::ask::Answer;
use repo_model::report::Doubt;
use serde::{Deserialize, Serialize};

use super::evidence::{Said, unreadable};
use crate::fleet::Device;
use crate::repos::{Checked, Control, ControlError, DeviceRepo, Home};

/// The answers on a device's `heartbeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceAnswers {
    pub device: DeviceId,
    /// The highest number that it is done with, by its own word; absent where it says none: its syncer is older than 0.3, or it
    /// never reported.
    pub asked: Option<u64>,
    /// By their numbers, the lowest first.
    pub answers: Vec<Answer>,
    /// Why others don't count.
    pub doubts: Vec<Doubt>,
}

/// Reads the answers of a device that is in the fleet, or was.
pub fn answers(
    home: &Home,
    id: &DeviceId,
    device: Option<&Device>,
    now: Timestamp,
) -> Result<DeviceAnswers, ControlError> {
    let (_, rosters) = Control::read(home)?;
    let enrolled = device.map_or(&[][..], |device| &device.status_keys);
    let said = DeviceRepo::open(home, rosters.fleet(), id)
        .and_then(|repo| repo.map(|repo| Said::read(&repo, &rosters, enrolled, now)).transpose());
    let mut read = DeviceAnswers { device: id.clone(), asked: None, answers: Vec::new(), doubts: Vec::new() };
    let heartbeat = match said {
        Ok(said) => said.map(|said| {
            read.doubts = said.doubts;
            said.reports.heartbeat
        }),
        Err(error) => {
            read.doubts.push(unreadable(&error));
            None
        }
    };
    match heartbeat {
        Some(Checked::Verified(heartbeat)) => {
            (read.asked, read.answers) = (heartbeat.state.asked, heartbeat.answers.into_values().collect());
            read.doubts.extend(heartbeat.doubts);
        }
        Some(Checked::Unverified(why)) => read.doubts.push(why),
        Some(Checked::Absent) | None => {}
    }
    Ok(read)
}
