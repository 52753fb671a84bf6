//! What the host asks of this publisher: who may push what, what became damaged, and how the fleet does.

mod keys;
mod paths;
mod proposed;
mod push;
mod readmission;
mod survey;

use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use jiff::Timestamp;
use repo_model::DeviceId;
use repo_model::enrolment::{Approved, Claim};
use repo_model::roster::{RosterStep, roster_path};
use wfm_git_host::judge::DevicePolicy;
use wfm_git_host::{AuditIndex, FleetFigures, Places, PolicyError, Publisher, ReadmitError, Reason};

use self::keys::Keys;
use self::survey::Survey;
use crate::repos::{Control, ControlError, Home, repair_at};
use crate::status::Gatherer;

pub use proposed::{Proposed, ProposedError};
pub use push::judge_fleet_push;

/// A home whose repositories are hosted.
#[derive(Debug)]
pub struct HostedHome {
    home: Home,
    keys: Keys,
    survey: Mutex<Survey>,
    pushed: mpsc::Sender<DeviceId>,
}

impl HostedHome {
    /// The host's view of a home. What devices push is read in a thread of its own, so that it is known before somebody asks.
    pub fn new(home: Home) -> Self {
        let (pushed, devices) = mpsc::channel();
        let gatherer = Gatherer::new(home.clone());
        thread::spawn(move || gatherer.run(&devices));
        Self { home, keys: Keys::default(), survey: Mutex::default(), pushed }
    }

    /// Where the host finds what it serves.
    pub fn places(&self) -> Places {
        let Self { home, .. } = self;
        Places {
            root: home.root().to_owned(),
            accounts: home.accounts(),
            ca: home.ca(),
            ssh: home.ssh(),
            enrolments: home.enrolments(),
            index: home.index(),
        }
    }
}

impl Publisher for HostedHome {
    fn is_ready(&self) -> bool {
        self.home.check().is_ok()
    }

    fn device_policy(&self, device: &DeviceId) -> Result<Option<DevicePolicy>, PolicyError> {
        self.keys.policy(&self.home, device)
    }

    fn readmit(&self, claim: &Claim) -> Result<Approved, ReadmitError> {
        self.let_in_again(claim)
    }

    fn may_rekey(&self, claim: &Claim) -> Result<DeviceId, ReadmitError> {
        self.known_by_old_key(claim)
    }

    fn rebuild(&self, repository: &Path) -> Result<(), Reason> {
        repair_at(repository)?;
        Ok(())
    }

    fn pushed(&self, device: DeviceId) {
        // Without whoever reads it, it is read once somebody asks.
        let _ = self.pushed.send(device);
    }

    fn figures(&self) -> Result<FleetFigures, Reason> {
        let mut survey = self.survey.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(survey.figures(&self.home, Timestamp::now())?)
    }

    fn audit_index(&self) -> Result<AuditIndex, Reason> {
        let (ledger, rosters) = Control::read(&self.home)?;
        let path = roster_path(1);
        let roster = rosters.files.get(&path).ok_or_else(|| ControlError::NoRoster(path))?;
        Ok(AuditIndex {
            layout: AuditIndex::LAYOUT,
            devices: ledger.devices().filter(|device| self.home.device(device).exists()).cloned().collect(),
            roster: String::from_utf8(roster.clone())?,
            allowed_signers: std::fs::read_to_string(self.home.allowed_signers())?,
            fleet: self.home.hosted_fleet().is_dir(),
        })
    }

    fn rosters_after(&self, version: u64) -> Result<Vec<RosterStep>, Reason> {
        let rosters = self.keys.newest_rosters(&self.home)?.ok_or_else(|| ControlError::NoRoster(roster_path(1)))?;
        Ok(rosters.after(version))
    }
}
