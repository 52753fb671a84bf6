//! The rollouts that `control.git` remembers: `rollouts/<n>/state.json`, and `members.json` until the end.

use std::collections::BTreeMap;

use repo_model::{FileTree, json};
use serde::de::DeserializeOwned;

use super::control_error::ControlError;
use crate::rollout::{Record, RolloutState};

/// How many rollouts that ended are remembered.
const ENDED: usize = 50;

/// All that is remembered of rollouts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rollouts {
    /// Those that aren't finished, by their numbers.
    pub open: BTreeMap<u32, Record>,
    /// The last ones that are.
    pub ended: BTreeMap<u32, RolloutState>,
}

impl Rollouts {
    /// The highest number that is remembered; 0 if there is none.
    pub fn highest(&self) -> u32 {
        self.open.keys().chain(self.ended.keys()).max().copied().unwrap_or(0)
    }

    /// What is known of one, whether it ended or not.
    pub fn state(&self, number: u32) -> Option<&RolloutState> {
        self.open.get(&number).map(|record| &record.state).or_else(|| self.ended.get(&number))
    }

    /// Reads all of them. One whose members are lost has none: whatever of it still differs begins anew.
    pub(super) fn read(tree: &FileTree) -> Result<Self, ControlError> {
        let mut rollouts = Self::default();
        for path in tree.keys().filter(|path| path.starts_with("rollouts/") && path.ends_with("/state.json")) {
            let Some(state) = read::<RolloutState>(tree, path)? else { continue };
            let number = state.rollout;
            if state.state.is_finished() {
                rollouts.ended.insert(number, state);
            } else {
                let members = read(tree, &members_path(number))?.unwrap_or_default();
                rollouts.open.insert(number, Record { state, members });
            }
        }
        Ok(rollouts)
    }

    /// Remembers a rollout as it is now. Its members go when it ends, and of those that ended the oldest.
    pub(super) fn put(&mut self, record: &Record, tree: &mut FileTree) {
        let (number, state) = (record.state.rollout, &record.state);
        tree.insert(state_path(number), json::to_bytes(state));
        if state.state.is_finished() {
            tree.remove(&members_path(number));
            self.open.remove(&number);
            self.ended.insert(number, state.clone());
        } else {
            tree.insert(members_path(number), json::to_bytes(&record.members));
            self.open.insert(number, record.clone());
        }
        while self.ended.len() > ENDED {
            let Some((oldest, _)) = self.ended.pop_first() else { break };
            tree.remove(&state_path(oldest));
        }
    }
}

fn state_path(number: u32) -> String {
    format!("rollouts/{number}/state.json")
}

fn members_path(number: u32) -> String {
    format!("rollouts/{number}/members.json")
}

fn read<T: DeserializeOwned>(tree: &FileTree, path: &str) -> Result<Option<T>, ControlError> {
    let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes);
    tree.get(path).map(read).transpose().map_err(|source| ControlError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::RolloutPolicy;
    use crate::rollout::{Member, Phase};

    fn record(number: u32, phase: Phase) -> Record {
        let (order, back, since, before) = (Default::default(), false, None, None);
        let member = Member { had: None, want: None, wave: 1, order, back, since, before };
        let state = RolloutState {
            rollout: number,
            state: phase,
            fleet_commit: "4be1".to_owned(),
            operator_key: "unverified".to_owned(),
            deployments: ["digitron".parse().unwrap()].into(),
            policy: RolloutPolicy::default(),
            supersedes: [].into(),
            allowed: [].into(),
            waves: Vec::new(),
            stops: Vec::new(),
            end: None,
        };
        Record { state, members: BTreeMap::from([("press-07".parse().unwrap(), member)]) }
    }

    #[test]
    fn what_is_remembered_is_read_back() {
        let (mut rollouts, mut tree) = (Rollouts::default(), FileTree::new());
        rollouts.put(&record(12, Phase::Stopped), &mut tree);
        assert_eq!(tree.keys().collect::<Vec<_>>(), ["rollouts/12/members.json", "rollouts/12/state.json"]);
        assert_eq!(Rollouts::read(&tree).unwrap(), rollouts);
        assert_eq!((rollouts.highest(), rollouts.open.len()), (12, 1));
        let text = String::from_utf8(tree["rollouts/12/members.json"].clone()).unwrap();
        assert_eq!(text, "{\"press-07\":{\"had\":null,\"want\":null,\"wave\":1}}\n");
        rollouts.put(&record(12, Phase::Done), &mut tree);
        assert_eq!(tree.keys().collect::<Vec<_>>(), ["rollouts/12/state.json"]);
        let read = Rollouts::read(&tree).unwrap();
        assert_eq!((read.open.len(), read.state(12).map(|state| state.state)), (0, Some(Phase::Done)));
    }

    #[test]
    fn members_of_an_older_and_of_a_newer_publisher_can_be_read() {
        let (mut rollouts, mut tree) = (Rollouts::default(), FileTree::new());
        let mut record = record(12, Phase::Running);
        rollouts.put(&record, &mut tree);
        let member = record.members.values_mut().next().unwrap();
        member.since = Some("2026-11-22T10:00:00Z".parse().unwrap());
        let mut with = FileTree::new();
        rollouts.put(&record, &mut with);
        assert_eq!(Rollouts::read(&with).unwrap().open[&12], record);
        let text = String::from_utf8(with["rollouts/12/members.json"].clone()).unwrap();
        assert!(text.contains("\"since\":\"2026-11-22T10:00:00Z\""), "{text}");
        // What is new to it is nothing to a reader, and what it misses is nothing, either.
        let newer = text.replace("\"since\"", "\"sooner\"");
        with.insert("rollouts/12/members.json".to_owned(), newer.into_bytes());
        assert_eq!(Rollouts::read(&with).unwrap(), Rollouts::read(&tree).unwrap());
        // That a device had nothing before is known, too.
        for before in [None, Some("9f1c03d2a6b77e10".to_owned().try_into().unwrap())] {
            record.members.values_mut().for_each(|member| member.before = Some(before.clone()));
            rollouts.put(&record, &mut with);
            assert_eq!(Rollouts::read(&with).unwrap().open[&12], record);
        }
    }

    #[test]
    fn the_last_fifty_that_ended_stay_and_none_that_did_not() {
        let (mut rollouts, mut tree) = (Rollouts::default(), FileTree::new());
        rollouts.put(&record(1, Phase::Running), &mut tree);
        (2..=60).for_each(|number| rollouts.put(&record(number, Phase::Done), &mut tree));
        assert_eq!((rollouts.ended.len(), rollouts.ended.keys().next().copied()), (50, Some(11)));
        assert_eq!((tree.len(), rollouts.highest()), (52, 60));
        assert_eq!(Rollouts::read(&tree).unwrap(), rollouts);
    }

    #[test]
    fn a_record_that_can_not_be_read_is_named() {
        let tree = FileTree::from([("rollouts/12/state.json".to_owned(), b"{}".to_vec())]);
        let error = Rollouts::read(&tree).unwrap_err().to_string();
        assert!(error.contains("rollouts/12/state.json"), "{error}");
    }
}
