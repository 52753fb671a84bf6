//! What was read of each device's repository, so that one of which no branch moved isn't opened again.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::repo::{BranchStamps, moved_at, stamped_branches};
use repo_model::{Branch, DeviceId, Digest, KeyText, error_chain};
use tracing::debug;

use super::evidence::Evidence;
use super::lines::{self, Lines, OLD};
use crate::publish::program;
use crate::repos::{Control, ControlError, Heard, Home, Rosters};

/// The branches that [`Evidence`] is read from.
const BRANCHES: [&str; 4] =
    [Branch::Desired.as_str(), Branch::Status.as_str(), Branch::Heartbeat.as_str(), Branch::Site.as_str()];

/// When what the device says came here, of all [`BRANCHES`].
fn heard([_, status, heartbeat, _]: [Option<i64>; BRANCHES.len()]) -> Heard {
    Heard { status, heartbeat }
}

/// The repositories of a home, read through what is known of them.
#[derive(Debug)]
pub(super) struct Index<'a> {
    home: &'a Home,
    rosters: &'a Rosters,
    now: Timestamp,
    /// Where the repositories are, open; absent where that can't be.
    devices: Option<File>,
    lines: Lines<'a>,
    /// The lines of what was read anew.
    anew: Mutex<Vec<String>>,
}

/// What was read of a repository: what tells that nobody touched its branches since, when that was by this machine's clock, in Unix
/// seconds, and what it says.
type Read<E> = (BranchStamps, i64, E);

impl<'a> Index<'a> {
    /// What is known of a home's repositories by the text of the index, checked on so many threads.
    pub(super) fn open(home: &'a Home, rosters: &'a Rosters, text: &'a str, threads: usize, now: Timestamp) -> Self {
        let basis = Digest::of(format!("{} {} {:?}", program(), rosters.fleet(), rosters.files).as_bytes());
        let lines = Lines::open(home.status_index(), basis, text, threads);
        let devices = File::open(home.devices()).ok();
        Self { home, rosters, now, devices, lines, anew: Mutex::default() }
    }

    /// What a device's repository says, which is read where a branch of it moved, and when that came.
    pub(super) fn evidence(&self, device: &DeviceId, enrolled: &[KeyText]) -> (Evidence, Heard) {
        let path = self.home.device(device);
        if let Some((stamps, at, evidence)) = self.lines.get::<Read<Evidence>>(device.as_str()) {
            let stood = |devices| BranchStamps::moved_below(devices, Home::device_name(device).as_ref(), BRANCHES);
            // A clock that was set back may lead to other doubts.
            let stood = self.devices.as_ref().map(stood).filter(|_| at <= self.now.as_second());
            if let Some((_, moved)) = stood.filter(|(stood, _)| stamps == *stood) {
                return (evidence, heard(moved));
            }
        }
        // Of the files, whose times are those of this machine.
        let stamped = stamped_branches(&path, BRANCHES, Timestamp::now().as_second());
        let evidence = Evidence::read(self.home, self.rosters, device, enrolled, self.now);
        if let Some(stamps) = stamped.ok().and_then(|(_, stamps)| stamps).filter(|_| evidence.lasts()) {
            let read: Read<_> = (stamps, self.now.as_second(), &evidence);
            let line = self.lines.line(device.as_str(), &read);
            self.anew.lock().unwrap_or_else(PoisonError::into_inner).extend(line);
        }
        // After it was read, so that whatever it says came by then.
        (evidence, heard(moved_at(&path, BRANCHES)))
    }

    /// Keeps what was read anew; how many bytes that is.
    pub(super) fn keep(self) -> usize {
        self.lines.keep(&self.anew.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many bytes the lines have that count.
    fn length(&self) -> usize {
        self.lines.length()
    }
}

/// Reads what devices push, for whoever asks next.
#[derive(Debug)]
pub struct Gatherer {
    home: Home,
    /// How many bytes counted when the file was read last, and how many were added since.
    known: usize,
    added: usize,
}

/// How long nobody may have touched a file so that its stamp shows the next change.
const QUIET: Duration = Duration::from_secs(3);

impl Gatherer {
    pub fn new(home: Home) -> Self {
        Self { home, known: 0, added: 0 }
    }

    /// Reads each device that comes out of the receiver, until nobody sends any more.
    pub fn run(mut self, pushed: &mpsc::Receiver<DeviceId>) {
        while let Ok(first) = pushed.recv() {
            let devices = BTreeSet::from_iter(pushed.try_iter().chain([first]));
            thread::sleep(QUIET);
            if let Err(error) = self.gather(&devices) {
                debug!(error = error_chain(&error), "what devices pushed is read once somebody asks");
            }
        }
    }

    fn gather(&mut self, devices: &BTreeSet<DeviceId>) -> Result<(), ControlError> {
        let (rosters, now) = (Control::read_rosters(&self.home)?, Timestamp::now());
        // Whoever knows what is old makes the file anew; others only add to it.
        let is_old = self.added > self.known + OLD;
        let text = if is_old { lines::text(&self.home.status_index()) } else { String::new() };
        let index = Index::open(&self.home, &rosters, &text, 1, now);
        if is_old {
            (self.known, self.added) = (index.length(), 0);
        }
        devices.iter().for_each(|device| _ = index.evidence(device, &[]));
        self.added += index.keep();
        Ok(())
    }
}
