//! What a push must be to be accepted, checked while its objects are still in quarantine.
//!
//! Runs in a process of its own: this program, called by stock git as its `pre-receive` and `update` hooks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use repo_git::repo::TreeLimits;
use repo_git::{Ancestry, Commit, CommitId, OpenError, PublicKey, ReadError, Repo};
use repo_model::branch::epoch_of;
use repo_model::message::Message;
use repo_model::site::SiteList;
use repo_model::{Branch, DeviceId, FleetId, KeyText};
use serde::{Deserialize, Serialize};

use crate::epochs::Epochs;
use crate::wire::object_name;

/// The environment variable with the [`Policy`], as JSON.
pub const POLICY: &str = "WFM_PUSH";

/// What a hook writes in front of the reason for a refusal.
pub const REFUSED: &str = "refused:";

/// The most that the tree of a device's commit may hold.
const TREE: TreeLimits = TreeLimits { files: 5_000, bytes: 16 << 20, depth: 8, strict: true };

/// The same of a site's commit, which has one file.
const SITE_TREE: TreeLimits = TreeLimits { files: 10, bytes: 256 << 10, depth: 2, strict: true };

/// What is to be checked: who pushes, and what the publisher lets them push.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// A device pushes to its own repository.
    Device(DevicePolicy),
    /// A person of a device's site pushes to that device's repository.
    Site(SitePolicy),
    /// An operator changes the fleet, which the publisher judges.
    Fleet {
        home: PathBuf,
        account: String,
        /// The paths that the account may change; all if there are none.
        paths: Vec<String>,
    },
}

/// What a device may push: its own branches, in commits that a key of its own signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePolicy {
    /// The fleet that the commits must name.
    pub fleet: FleetId,
    /// The device that the commits must name.
    pub device: DeviceId,
    /// The keys that the verified tip of its `desired` allows.
    pub keys: BTreeSet<KeyText>,
}

/// What a person of a device's site may push: `site`, in a commit for this device that somebody signed. Whose key counts
/// only the device knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SitePolicy {
    /// The fleet that the commit must name.
    pub fleet: FleetId,
    /// The device that it must name.
    pub device: DeviceId,
}

/// A push whose objects are in quarantine.
#[derive(Debug, Clone, Copy)]
pub struct Push<'a> {
    /// The repository that it goes to.
    pub repository: &'a Path,
    /// Where the pushed objects are, until Git takes them in.
    pub quarantine: &'a Path,
    /// The refs that shall move.
    pub moves: &'a [Move],
}

/// A ref that shall move, by a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Where it stands; `None`: it is new.
    pub old: Option<CommitId>,
    /// Where it goes; `None`: it is deleted.
    pub new: Option<CommitId>,
    /// In full: `refs/heads/status`.
    pub name: String,
}

/// Why a push is not accepted, in words for the one who pushes.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// It breaks a rule, which is told to whoever pushes.
    #[error("{0}")]
    Rule(String),
    /// The repository can't be opened.
    #[error("the host can't open the repository")]
    Open(#[from] OpenError),
    /// A commit can't be read.
    #[error("{name}: {source}")]
    Read { name: String, source: ReadError },
}

/// Reads what stock git tells a `pre-receive` hook: a line for each ref.
pub fn moves(text: &str) -> Option<Vec<Move>> {
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mut id = || object_name(words.next()?.as_bytes());
        let (old, new) = (id()?, id()?);
        Some(Move { old, new, name: words.next()?.to_owned() })
    };
    text.lines().map(line).collect()
}

impl DevicePolicy {
    /// Checks a push of the device.
    pub fn judge(&self, push: &Push<'_>) -> Result<(), Rejected> {
        let repo = Repo::open_with_quarantine(push.repository, push.quarantine)?;
        let rules = Rules { repo: &repo, policy: self };
        push.moves.iter().try_for_each(|step| rules.check(step))
    }

    /// Whether it is a key of the device.
    pub(crate) fn allows(&self, signer: PublicKey) -> bool {
        signer.to_string().parse().is_ok_and(|key: KeyText| self.keys.contains(&key))
    }
}

impl SitePolicy {
    /// Checks a push of the site.
    pub fn judge(&self, push: &Push<'_>) -> Result<(), Rejected> {
        let repo = Repo::open_with_quarantine(push.repository, push.quarantine)?;
        push.moves.iter().try_for_each(|step| self.check(&repo, step))
    }

    fn check(&self, repo: &Repo, step: &Move) -> Result<(), Rejected> {
        let name = &step.name;
        let (Some(Branch::Site), Some(new)) = (Branch::of_ref(name), step.new) else {
            return rule(format!("{name} is not for a person of the site to move"));
        };
        let commit = repo.commit(new).map_err(|source| Rejected::Read { name: name.clone(), source })?;
        if let Err(error) = commit.signer() {
            return rule(format!("{name}: commit {new}: {error}"));
        }
        let files = match repo.files(new, &SITE_TREE) {
            Ok(files) => files,
            Err(error) => return rule(format!("{name}: commit {new}: {error}")),
        };
        let (message, has_parents) = (Message::parse(&commit.message), !commit.parents.is_empty());
        match SiteList::read(&files, &message, has_parents, (self.fleet, &self.device)) {
            Ok(_) => Ok(()),
            Err(refusal) => rule(format!("{name}: commit {new}: {refusal}")),
        }
    }
}

/// What a device may do with its own branches.
struct Rules<'a> {
    repo: &'a Repo,
    policy: &'a DevicePolicy,
}

impl Rules<'_> {
    fn check(&self, step: &Move) -> Result<(), Rejected> {
        let name = &step.name;
        if let Some((number, tip)) = epoch_of(name).zip(step.new) {
            let checked = Epochs::read(self.repo)
                .and_then(|epochs| epochs.check_end(&|signer| self.policy.allows(signer), (number, tip)));
            return checked.map_err(|source| Rejected::Read { name: name.clone(), source })?.or_else(rule);
        }
        let branch = Branch::of_ref(name).filter(|branch| Branch::BY_DEVICE.contains(branch));
        let (Some(branch), Some(new)) = (branch, step.new) else {
            return rule(format!("{name} is not for a device to move"));
        };
        let commit = self.commit(name, new)?;
        self.check_commit(branch, &commit)?;
        if branch == Branch::Heartbeat {
            return if commit.parents.is_empty() {
                Ok(())
            } else {
                rule(format!("{name}: a heartbeat has no parents"))
            };
        }
        match step.old {
            None => Ok(()),
            Some(old) => self.check_history(name, old, &commit),
        }
    }

    fn check_commit(&self, branch: Branch, commit: &Commit) -> Result<(), Rejected> {
        let id = commit.id;
        let signer = match commit.signer() {
            Ok(signer) => signer,
            Err(error) => return rule(format!("{branch}: commit {id}: {error}")),
        };
        if !self.policy.allows(signer) {
            let signer = signer.fingerprint();
            return rule(format!("{branch}: commit {id} is signed by {signer}, which is no key of this device"));
        }
        let message = Message::parse(&commit.message);
        if let Some((key, value)) = message.wrong_identity(branch, self.policy.fleet, &self.policy.device) {
            return rule(format!("{branch}: commit {id}: its trailer `{key}` is not `{value}`"));
        }
        match self.repo.tree_files(commit.tree, &TREE) {
            Ok(_) => Ok(()),
            Err(error) => rule(format!("{branch}: commit {id}: {error}")),
        }
    }

    /// `status` is added to, or begins an epoch whose predecessor is kept.
    fn check_history(&self, name: &str, old: CommitId, new: &Commit) -> Result<(), Rejected> {
        let read = |source| Rejected::Read { name: name.to_owned(), source };
        if self.repo.is_ancestor(old, new.id).map_err(read)? == Ancestry::Yes {
            return Ok(());
        }
        let first = self.first(new).map_err(read)?;
        let message = Message::parse(&first.message);
        let epochs = Epochs::read(self.repo).map_err(read)?;
        epochs.check_begin(&|signer| self.policy.allows(signer), (old, first.id, &message)).map_err(read)?.or_else(rule)
    }

    /// The first commit of the line that ends with this one.
    fn first(&self, tip: &Commit) -> Result<Commit, ReadError> {
        let line = self.repo.history(tip.id, None, usize::MAX)?;
        self.repo.commit(line.last().copied().unwrap_or(tip.id))
    }

    fn commit(&self, name: &str, id: CommitId) -> Result<Commit, Rejected> {
        self.repo.commit(id).map_err(|source| Rejected::Read { name: name.to_owned(), source })
    }
}

fn rule<T>(text: String) -> Result<T, Rejected> {
    Err(Rejected::Rule(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_tells_a_hook_is_read() {
        let (zeros, id) = ("0".repeat(40), "1".repeat(40));
        let text = format!("{zeros} {id} refs/heads/status\n{id} {zeros} refs/heads/a b\n");
        let id = Some(id.parse().unwrap());
        let moved = |old, new, name: &str| Move { old, new, name: name.to_owned() };
        let expected = [moved(None, id, "refs/heads/status"), moved(id, None, "refs/heads/a b")];
        assert_eq!(moves(&text).unwrap(), expected);
        assert_eq!(moves("nonsense"), None);
    }
}
