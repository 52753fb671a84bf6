//! What became of a device in one line: what was published for it, and what it said.

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::Branch;
use repo_model::report::{ClosedGate, Condition};
use serde::Serialize;

use super::record::{Adoption, Change, Record, Transition};

/// Something that a commit says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event<'a> {
    /// By the clock of who signed it.
    pub time: Timestamp,
    /// `desired`, or `status` across its epochs.
    pub branch: Branch,
    pub commit: CommitId,
    #[serde(flatten)]
    pub what: What<'a>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", content = "what", rename_all = "kebab-case")]
pub enum What<'a> {
    Published(&'a Change),
    Accepted(&'a Adoption),
    /// Of a deployment as a whole.
    Transition(&'a Transition),
    Condition(&'a Condition),
    ConditionCleared(&'a Condition),
    GateClosed(&'a ClosedGate),
    GateOpened(&'a ClosedGate),
}

impl Record {
    /// All that happened, the oldest first: by time, but what a device says of a state comes after that was published, whatever
    /// its clock says.
    pub fn timeline(&self) -> Vec<Event<'_>> {
        let mut told = self.told().into_iter().peekable();
        let mut events = Vec::new();
        for change in &self.changes {
            let is_before = |(event, serial): &(Event<'_>, u64)| *serial < change.serial && event.time < change.time;
            while let Some((event, _)) = told.next_if(is_before) {
                events.push(event);
            }
            let Change { time, commit, .. } = *change;
            events.push(Event { time, branch: Branch::Desired, commit, what: What::Published(change) });
        }
        events.extend(told.map(|(event, _)| event));
        events
    }

    /// What the device said, in its order, each with the highest serial that it had answered by then.
    fn told(&self) -> Vec<(Event<'_>, u64)> {
        let event = |time, commit, what| Event { time, branch: Branch::Status, commit, what };
        let adoptions = self.adoptions.iter().map(|one| event(one.time, one.commit, What::Accepted(one)));
        let whole = self.transitions.iter().filter(|one| one.component == "*");
        let transitions = whole.map(|one| event(one.time, one.commit, What::Transition(one)));
        let conditions = self.conditions.iter().map(|one| event(one.time, one.commit, What::Condition(&one.what)));
        let cleared = self.conditions.iter().filter_map(|one| Some((one.ended?, &one.what)));
        let cleared = cleared.map(|(end, one)| event(end.time, end.commit, What::ConditionCleared(one)));
        let gates = self.gates.iter().map(|one| event(one.time, one.commit, What::GateClosed(&one.what)));
        let opened = self.gates.iter().filter_map(|one| Some((one.ended?, &one.what)));
        let opened = opened.map(|(end, one)| event(end.time, end.commit, What::GateOpened(one)));
        let all = adoptions.chain(opened).chain(transitions).chain(gates).chain(conditions).chain(cleared);
        let mut all: Vec<_> = all.map(|event| (self.places.get(&event.commit).copied(), event)).collect();
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(place, event)| (event, place.map_or(0, |(_, serial)| serial))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(number: u64) -> CommitId {
        format!("{number:040}").parse().unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn published(serial: u64, second: i64) -> Change {
        Change {
            time: at(second),
            commit: commit(serial),
            subject: String::new(),
            serial,
            author: String::new(),
            publisher_key: None,
            fleet_commit: None,
            operator_key: None,
            cause: None,
            continues: None,
            retired: false,
            deployments: Vec::new(),
            rollouts: Vec::new(),
        }
    }

    #[test]
    fn what_is_said_of_a_state_comes_after_it_also_by_a_clock_that_is_behind() {
        let mut record = Record::default();
        record.changes.extend([published(1, 100), published(2, 200)]);
        for (place, (serial, second)) in [(1, 10), (2, 20)].into_iter().enumerate() {
            let commit = commit(10 + serial);
            record.adoptions.push(Adoption { time: at(second), commit, serial, desired: String::new() });
            record.places.insert(commit, (place, serial));
        }
        let told: Vec<_> = record.timeline().iter().map(|event| event.commit).collect();
        assert_eq!(told, [1, 11, 2, 12].map(commit));
    }
}
