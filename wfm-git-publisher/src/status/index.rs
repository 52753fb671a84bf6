//! What was read of each device's repository, so that one of which no branch moved isn't opened again.
//!
//! A file of the home's index, with a line for each repository that was read, the newest last: its digest, and what was read. Lines
//! are only added, and aren't synced: one that is torn, damaged, or of another program, fleet or roster doesn't have the digest that
//! it should have, and counts as none. Losing them costs time and nothing else. Once most of them are old the file is made anew.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable;
use repo_git::repo::{BranchStamps, stamped_branches};
use repo_model::{Branch, DeviceId, Digest, KeyText, error_chain};
use serde::{Deserialize, Serialize};
use tracing::{debug, info};

use super::evidence::Evidence;
use crate::parallel;
use crate::publish::program;
use crate::repos::{Control, ControlError, Home, Rosters};

/// The branches that [`Evidence`] is read from.
const BRANCHES: [&str; 4] =
    [Branch::Desired.as_str(), Branch::Status.as_str(), Branch::Heartbeat.as_str(), Branch::Site.as_str()];

/// How many bytes of the file may be of old lines, beside as many as are of those that count.
const OLD: usize = 1 << 20;

/// The longest line: of whoever says more than that nothing is kept.
const LONGEST: usize = 64 << 10;

/// The repositories of a home, read through what is known of them.
pub(super) struct Index<'a> {
    home: &'a Home,
    rosters: &'a Rosters,
    now: Timestamp,
    basis: Digest,
    known: HashMap<DeviceId, Read>,
    /// How many bytes of the file are of lines that count no more, and how many lines never did.
    old: usize,
    strange: usize,
    /// What was read anew.
    anew: Mutex<Vec<Read>>,
}

/// What was read of a repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Read {
    device: DeviceId,
    /// What tells that nobody touched its branches since.
    stamps: BranchStamps,
    /// By this machine's clock, in Unix seconds.
    at: i64,
    evidence: Evidence,
    /// How long its line is, in bytes.
    #[serde(skip)]
    length: usize,
}

impl<'a> Index<'a> {
    /// Nothing is known, and what is read is added.
    fn new(home: &'a Home, rosters: &'a Rosters, now: Timestamp) -> Self {
        let basis = Digest::of(format!("{} {} {:?}", program(), rosters.fleet(), rosters.files).as_bytes());
        Self { home, rosters, now, basis, known: HashMap::new(), old: 0, strange: 0, anew: Mutex::default() }
    }

    /// What is known of a home's repositories, read on so many threads.
    pub(super) fn open(home: &'a Home, rosters: &'a Rosters, threads: usize, now: Timestamp) -> Self {
        let index = Self::new(home, rosters, now);
        let text = fs::read(home.status_index()).unwrap_or_default();
        let lines: Vec<_> = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let parts = lines.chunks((lines.len() / threads.max(1)).max(1)).collect();
        let read = |lines: &[&[u8]]| lines.iter().map(|line| Read::parse(line, &index.basis)).collect::<Vec<_>>();
        let read = parallel::map(parts, threads, read).into_iter().flatten();
        let (mut known, mut old, mut strange) = (HashMap::with_capacity(lines.len()), 0, 0);
        for one in read {
            match one {
                Some(one) => old += known.insert(one.device.clone(), one).map_or(0, |before: Read| before.length),
                None => strange += 1,
            }
        }
        if strange > 0 {
            info!(
                lines = strange,
                "what was read of devices is damaged, or was read by another program or roster: it is read anew"
            );
        }
        Self { known, old, strange, ..index }
    }

    /// What a device's repository says, which is read where a branch of it moved.
    pub(super) fn evidence(&self, device: &DeviceId, enrolled: &[KeyText]) -> Evidence {
        let path = self.home.device(device);
        // A clock that was set back may lead to other doubts.
        let known = self.known.get(device).filter(|known| known.at <= self.now.as_second());
        if let Some(known) = known.filter(|known| known.stamps == BranchStamps::of(&path, BRANCHES)) {
            return known.evidence.clone();
        }
        // Of the files, whose times are those of this machine.
        let stamped = stamped_branches(&path, BRANCHES, Timestamp::now().as_second());
        let evidence = Evidence::read(self.home, self.rosters, device, enrolled, self.now);
        let stamps = stamped.ok().and_then(|(_, stamps)| stamps).filter(|_| evidence.lasts());
        self.anew.lock().unwrap_or_else(PoisonError::into_inner).extend(stamps.map(|stamps| Read {
            device: device.clone(),
            stamps,
            at: self.now.as_second(),
            evidence: evidence.clone(),
            length: 0,
        }));
        evidence
    }

    /// Keeps what was read anew; how many bytes that is. That it can't be kept costs time and nothing else.
    pub(super) fn keep(mut self) -> usize {
        let anew = std::mem::take(self.anew.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut lines = String::new();
        for read in anew {
            let line = read.line(&self.basis);
            if line.len() <= LONGEST {
                lines.push_str(&line);
                let read = Read { length: line.len(), ..read };
                self.old += self.known.insert(read.device.clone(), read).map_or(0, |before| before.length);
            }
        }
        let kept = match self.strange == 0 && self.old <= self.length() + OLD {
            true if lines.is_empty() => Ok(()),
            true => self.add(&lines),
            false => self.replace(),
        };
        if let Err(error) = kept {
            debug!(%error, "what was read of devices isn't kept");
        }
        lines.len()
    }

    /// How many bytes the lines have that count.
    fn length(&self) -> usize {
        self.known.values().map(|read| read.length).sum()
    }

    /// Adds lines, all of them at once, so that another process adds its own before or after them.
    fn add(&self, lines: &str) -> io::Result<()> {
        let path = self.home.status_index();
        match OpenOptions::new().append(true).open(&path) {
            Ok(mut file) => file.write_all(lines.as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.replace(),
            Err(error) => Err(error),
        }
    }

    fn replace(&self) -> io::Result<()> {
        let lines: String = self.known.values().map(|read| read.line(&self.basis)).collect();
        durable::replace_file(&self.home.status_index(), lines.as_bytes(), 0o600)
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
        let index = if self.added <= self.known + OLD {
            Index::new(&self.home, &rosters, now)
        } else {
            // Whoever knows what is old makes the file anew.
            let index = Index::open(&self.home, &rosters, 1, now);
            (self.known, self.added) = (index.length(), 0);
            index
        };
        devices.iter().for_each(|device| _ = index.evidence(device, &[]));
        self.added += index.keep();
        Ok(())
    }
}

impl Read {
    /// A line that begins anew, wherever the one before ended.
    fn line(&self, basis: &Digest) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        format!("\n{} {text}", digest(basis, text.as_bytes()))
    }

    /// `None` if it isn't what this program wrote for this fleet and its rosters.
    fn parse(line: &[u8], basis: &Digest) -> Option<Self> {
        let at = line.iter().position(|byte| *byte == b' ')?;
        let (said, text) = (std::str::from_utf8(&line[..at]).ok()?, &line[at + 1..]);
        let read: Self = (said == digest(basis, text).to_string()).then(|| serde_json::from_slice(text).ok())??;
        Some(Self { length: line.len() + 1, ..read })
    }
}

fn digest(basis: &Digest, text: &[u8]) -> Digest {
    Digest::of(&[basis.as_bytes(), text].concat())
}
