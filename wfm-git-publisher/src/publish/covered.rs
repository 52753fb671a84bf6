//! Up to which commit of the fleet each device has everything, so that the cause of a change, and its author, can be
//! named. Losing it costs an author's name and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write;

use repo_git::CommitId;
use repo_model::DeviceId;

use crate::repos::{Home, HomeError};

/// The newest commit of the fleet of which each device has everything that it can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredCommits {
    /// The commit of all devices but those in `further`; absent before the first complete pass.
    all: Option<CommitId>,
    /// What those have that are further, because a later commit couldn't be published for all.
    further: BTreeMap<DeviceId, CommitId>,
}

impl CoveredCommits {
    pub(super) const NONE: Self = Self { all: None, further: BTreeMap::new() };

    /// What earlier passes left; nothing if that can't be read.
    pub fn read(home: &Home) -> Self {
        let text = std::fs::read_to_string(home.index().join(FILE)).unwrap_or_default();
        let mut lines = text.lines();
        let all = lines.next().and_then(|line| line.parse().ok());
        let device = |line: &str| {
            let (device, commit) = line.split_once(' ')?;
            Some((device.parse().ok()?, commit.parse().ok()?))
        };
        Self { all, further: lines.filter_map(device).collect() }
    }

    /// Keeps it for the next pass.
    pub(super) fn write(&self, home: &Home) -> Result<(), HomeError> {
        if *self == Self::read(home) {
            return Ok(());
        }
        let mut text = self.all.map_or_else(|| "none".to_owned(), |commit| commit.to_string()) + "\n";
        self.further.iter().for_each(|(device, commit)| _ = writeln!(text, "{device} {commit}"));
        home.write(&home.index().join(FILE), text.as_bytes(), 0o600)
    }

    /// The commit of which this device has everything.
    pub fn of(&self, device: &DeviceId) -> Option<CommitId> {
        self.further.get(device).copied().or(self.all)
    }

    /// The commit of which all devices have everything that have no further one, unless it is this one.
    pub(super) fn before(&self, commit: CommitId) -> Option<CommitId> {
        self.all.filter(|all| *all != commit)
    }

    /// All different commits that devices have.
    pub(super) fn commits(&self) -> impl Iterator<Item = Option<CommitId>> {
        [self.all].into_iter().chain(self.further.values().map(|commit| Some(*commit)))
    }

    /// Every device has everything of this commit.
    pub(super) fn cover_all(&mut self, commit: CommitId) {
        *self = Self { all: Some(commit), further: BTreeMap::new() };
    }

    /// These devices have everything of this commit that they can have.
    pub(super) fn cover(&mut self, commit: CommitId, devices: impl IntoIterator<Item = DeviceId>) {
        self.further.extend(devices.into_iter().map(|device| (device, commit)));
        self.further.retain(|_, further| Some(*further) != self.all);
    }
}

/// The file in the index: the commit of all devices, then a line for each that is further.
const FILE: &str = "published";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        repo_git::durable::create_dir_all(&home.index(), 0o700).unwrap();
        let [one, two]: [CommitId; 2] = ["1", "2"].map(|digit| digit.repeat(40).parse().unwrap());
        let [a, b]: [DeviceId; 2] = ["a", "b"].map(|id| id.parse().unwrap());
        let mut covered = CoveredCommits::NONE;
        covered.cover(one, [a.clone()]);
        covered.write(&home).unwrap();
        assert_eq!(CoveredCommits::read(&home), covered);
        covered.cover_all(one);
        covered.cover(two, [b.clone()]);
        covered.write(&home).unwrap();
        let read = CoveredCommits::read(&home);
        assert_eq!((read.of(&a), read.of(&b)), (Some(one), Some(two)));
        assert_eq!(read.commits().collect::<Vec<_>>(), [Some(one), Some(two)]);
    }
}
