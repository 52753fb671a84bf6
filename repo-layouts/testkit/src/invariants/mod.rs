//! What must always hold, as checks over both sides' repositories, homes and what the runtime was told.
//!
//! One list for all crash tests: `ARCHITECTURE.md` numbers the invariants, and each message here begins with the number
//! of the one that is broken. Stock git reads everything, so that our own reader can't hide what our own writer did.

mod device;
mod history;
mod ledger;
mod releases;
mod signed;

use std::path::Path;
use std::time::Duration;

use crate::cluster::Cluster;

#[derive(Debug, Clone, Copy, Default)]
pub struct World<'a> {
    pub fleet: Option<&'a Path>,
    /// The publisher's home: its ledger, and all device repositories.
    pub publisher: Option<&'a Path>,
    /// The device's repository on the host.
    pub host: Option<&'a Path>,
    pub device: Option<&'a Path>,
    /// The stand-in's state directory.
    pub runtime: Option<&'a Path>,
    /// Where the device's charts run.
    pub cluster: Option<&'a Cluster>,
    /// Everybody has made all the passes that were needed: all must be done, not only whole.
    pub converged: bool,
}

impl World<'_> {
    /// Everything that is broken, each beginning with its invariant's number.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if let Some(fleet) = self.fleet {
            whole(&fleet.join(".git"), "the fleet repository", &mut broken);
        }
        if let Some(publisher) = self.publisher {
            ledger::check(publisher, self.converged, &mut broken);
        }
        if let Some(host) = self.host {
            history::check(host, &mut broken);
        }
        if let Some(device) = self.device {
            device::check(device, self, &mut broken);
        }
        if let (Some(host), Some(cluster)) = (self.host, self.cluster) {
            releases::check(host, cluster, self.converged, &mut broken);
        }
        broken
    }

    /// Panics with all that is broken.
    ///
    /// # Panics
    /// If anything is.
    pub fn assert_whole(&self, when: &str) {
        let broken = self.broken();
        assert!(broken.is_empty(), "{when}:\n  {}", broken.join("\n  "));
    }
}

/// Invariant 3: after any cut, stock git finds nothing wrong. Returns whether there is anything to look at.
fn whole(repository: &Path, what: &str, broken: &mut Vec<String>) -> bool {
    // One whose making was cut short holds nothing yet.
    if !["HEAD", "objects/pack", "refs/heads"].iter().all(|part| repository.join(part).exists()) {
        return false;
    }
    // A git that outlived its killed caller may move a ref while fsck looks; real damage stays.
    let damage = (0..10).fold(damage(repository), |found, _| {
        found.and_then(|_| {
            std::thread::sleep(Duration::from_secs(1));
            damage(repository)
        })
    });
    if let Some(damage) = &damage {
        broken.push(format!("3: fsck of {what}: {damage}"));
    }
    damage.is_none()
}

/// What stock git finds wrong with a repository.
fn damage(repository: &Path) -> Option<String> {
    let output = crate::git::try_git(repository, &["fsck", "--strict", "--no-dangling", "--no-progress"]);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // A branch that HEAD names and that doesn't exist yet is a notice, not damage.
    let damage: Vec<_> = said.lines().filter(|line| !line.starts_with("notice:")).collect();
    (!output.status.success() || !damage.is_empty()).then(|| damage.join("; "))
}
