//! What a person has to allow before it is done, and what a device is too old for.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::DeploymentName;
use repo_model::envelope::Feature;

use super::{ChangeKind, DevicePlan};
use crate::fleet::{Guards, counted};

/// What a person allowed for this run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Any number of removals (`--allow-removals`).
    pub removals: bool,
    /// Deployments that take the place of others.
    pub replacements: bool,
    /// Other keys of vendors than before.
    pub new_keys: bool,
    /// A clock that nothing vouches for.
    pub clock: bool,
}

/// Why something isn't published for a device although it differs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Guarded {
    /// Too much would go from the device.
    #[error("{} of its {of} deployments would be removed, and the guard is {percent} %: {}", .names.len(), listed(.names))]
    Removals {
        /// What would go.
        names: Vec<DeploymentName>,
        /// Of so many that there are now.
        of: usize,
        /// The share that the guard lets go.
        percent: u8,
    },
    /// Too much would go from the fleet.
    #[error(
        "{removed} of the {of} deployments on all devices would be removed, and the guard is {percent} %{}",
        counts(names)
    )]
    FleetRemovals {
        removed: usize,
        /// What would go, each from so many devices; none where a rollout of it began before.
        names: BTreeMap<DeploymentName, usize>,
        /// Of so many that there are now.
        of: usize,
        /// The share that the guard lets go.
        percent: u8,
    },
    /// Another deployment takes the place of one.
    #[error("`{new}` would replace `{old}`: its data is not carried")]
    Replaced { old: DeploymentName, new: DeploymentName },
    /// What a rollout holds back there can't stay as it was.
    #[error("`{0}` is held back by a rollout, and its repository doesn't hold any more what it had of it")]
    NotKept(DeploymentName),
    /// The device doesn't know what it must not ignore.
    #[error("its syncer is version {version}, and `{}` needs {}", feature.name, feature.since)]
    TooOld {
        feature: Feature,
        /// The version of its syncer, by its own signed word.
        version: String,
    },
}

impl Guarded {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Removals { names, .. } => {
                by_words("look at `plan`; if it is meant", names.iter(), "--allow-removals")
            }
            Self::FleetRemovals { names, .. } => {
                by_words("look at `plan`; if it is meant", names.keys(), "--allow-removals")
            }
            Self::Replaced { old, new } => {
                let when = format!("put the id `{old}` back, or if `{new}` shall begin anew");
                by_words(&when, [new].into_iter(), "--allow-replace")
            }
            Self::NotKept(_) => {
                "it runs on, and gets what is new with its wave, or by `rollout promote`: see `rollout list`".to_owned()
            }
            Self::TooOld { feature, .. } => {
                format!("update device-syncer there to {} or newer; until then it keeps what it has", feature.since)
            }
        }
    }
}

/// How a person lets these pass: by a commit, from wherever, or by an option of `publish`.
fn by_words<'a>(when: &str, names: impl Iterator<Item = &'a DeploymentName>, option: &str) -> String {
    let names: String = names.map(|name| format!(" {name}")).collect();
    let by_commit = format!("`wfm-git-publisher allow{names} -m WHY`, which is a commit, or ");
    let by_commit = if names.is_empty() { "" } else { &by_commit };
    format!("{when}: {by_commit}`publish {option}` beside the publisher's home")
}

fn listed(names: &[DeploymentName]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn counts(names: &BTreeMap<DeploymentName, usize>) -> String {
    let all: Vec<_> = names.iter().map(|(name, devices)| format!("`{name}` on {}", counted(*devices))).collect();
    if all.is_empty() { String::new() } else { format!(": {}", all.join(", ")) }
}

/// The reason why nothing is removed from any device, if that is too much of what there is on all of them. `names` is what goes,
/// each from so many devices.
pub fn of_fleet(
    guards: &Guards,
    allowed: Allowed,
    names: &BTreeMap<DeploymentName, usize>,
    (removed, of): (usize, usize),
) -> Option<Guarded> {
    let percent = guards.fleet.percent;
    let guarded = || Guarded::FleetRemovals { removed, names: names.clone(), of, percent };
    (!allowed.removals && guards.fleet.is_passed(removed, of)).then(guarded)
}

impl DevicePlan {
    /// The device's deployments that would go, but for those about which guards were `asked` before.
    pub fn removals(&self, asked: &BTreeSet<DeploymentName>) -> impl Iterator<Item = &DeploymentName> {
        let removed = self.changes.iter().filter(|change| change.kind == ChangeKind::Remove).map(|change| &change.name);
        removed.filter(|name| !asked.contains(*name))
    }

    /// What a guard holds back of this: the deployments that it is about, and what would come in their place. None where it is
    /// about the device as a whole.
    pub fn held_by(&self, guarded: &Guarded, asked: &BTreeSet<DeploymentName>) -> BTreeSet<DeploymentName> {
        let mut names: BTreeSet<_> = match guarded {
            Guarded::Removals { names, .. } => names.iter().cloned().collect(),
            Guarded::FleetRemovals { .. } => self.removals(asked).cloned().collect(),
            Guarded::Replaced { old, new } => [old.clone(), new.clone()].into(),
            Guarded::NotKept(_) | Guarded::TooOld { .. } => BTreeSet::new(),
        };
        let replaces = |old: &Option<DeploymentName>| old.as_ref().is_some_and(|old| names.contains(old));
        let new: Vec<_> =
            self.changes.iter().filter(|one| replaces(&one.replaces)).map(|one| one.name.clone()).collect();
        names.extend(new);
        names
    }

    /// The first reason why this isn't carried out without a person. `version` is what the device's syncer says it is, and
    /// `asked` the deployments whose removal or replacement was let go already: `by_rollouts`, when one of all of it began, or by
    /// a person. What a person let go counts with all that goes from the device, or not at all.
    pub fn guarded(
        &self,
        guards: &Guards,
        allowed: Allowed,
        version: Option<&str>,
        (asked, by_rollouts): (&BTreeSet<DeploymentName>, &BTreeSet<DeploymentName>),
    ) -> Option<Guarded> {
        let too_old = || {
            let version = version.filter(|_| !self.is_empty())?;
            let unknown = |feature: &Feature| numbers(version).zip(numbers(feature.since)).is_some_and(|(a, b)| a < b);
            let feature = self.target.features().into_iter().find(unknown)?;
            Some(Guarded::TooOld { feature, version: version.to_owned() })
        };
        let removals = || {
            let (names, of): (Vec<_>, _) = (self.removals(by_rollouts).cloned().collect(), self.present);
            let is_let_go = allowed.removals || self.target.retired || self.removals(asked).next().is_none();
            let percent = guards.device.percent;
            (!is_let_go && guards.device.is_passed(names.len(), of)).then_some(Guarded::Removals { names, of, percent })
        };
        let replaced = || {
            let mut replacing = self.changes.iter().filter(|one| !allowed.replacements && !one.is_let_go(asked));
            replacing
                .find_map(|change| Some(Guarded::Replaced { old: change.replaces.clone()?, new: change.name.clone() }))
        };
        too_old().or_else(removals).or_else(replaced)
    }
}

/// The three numbers of a version; what follows them says nothing here.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let core = version.split(['-', '+']).next()?;
    let numbers: Vec<_> = core.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("0.10.0") > numbers("0.2.0") && numbers("0.2.0-rc.1") == numbers("0.2.0"));
        assert_eq!((numbers("0.2"), numbers("new"), numbers("")), (None, None, None));
    }
}
