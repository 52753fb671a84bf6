//! What a plan shows of one device.

use repo_model::DeviceId;
use repo_model::problem::Problems;

use super::{Blocked, DevicePlan};

/// What there is to say about one device.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// It was compared; with what of it can't be published.
    Plan(Box<DevicePlan>, Vec<Blocked>),
    /// Nothing changed for it since it had everything, with this serial.
    UpToDate(DeviceId, u64),
    /// No key of it is known, so nothing is published for it yet.
    NotEnrolled(DeviceId),
    /// Its file is broken, so it is left as it is.
    Broken(DeviceId),
    /// It can't be compared, for this reason.
    Failed(DeviceId, Box<Blocked>),
    /// It is retired, and nothing more is published for it.
    Retired(DeviceId),
    /// It left the fleet. Its account, if that still counts, ends with the next publish.
    Gone(DeviceId, Option<String>),
}

/// What stays of a device that left the fleet.
pub const GONE: &str = "it left the fleet: what it runs runs on, and its repository stays";

/// What to do about a device that left the fleet.
pub const GONE_HINT: &str = "to stop what it runs, put its file back (`git revert`), exclude it from its deployments, \
    publish, and remove the file once `status` shows nothing there";

impl Shown {
    pub fn device(&self) -> &DeviceId {
        match self {
            Self::Plan(plan, _) => &plan.device,
            Self::UpToDate(device, _) | Self::Gone(device, _) | Self::Failed(device, _) => device,
            Self::NotEnrolled(device) | Self::Broken(device) | Self::Retired(device) => device,
        }
    }

    /// What is wrong with what is meant for it.
    pub fn problems(&self) -> Option<(&DeviceId, Problems)> {
        if let Self::Plan(plan, _) = self { Some((&plan.device, plan.problems())) } else { None }
    }

    /// What of it can't be published.
    pub fn blocked(&self) -> &[Blocked] {
        if let Self::Plan(_, blocked) = self { blocked } else { &[] }
    }

    /// Whether `publish` would change its repository, or end its account.
    pub fn differs(&self) -> bool {
        match self {
            Self::Plan(plan, _) => !plan.is_empty(),
            Self::Gone(_, account) => account.is_some(),
            _ => false,
        }
    }
}
