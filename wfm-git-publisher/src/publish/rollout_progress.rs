//! What a pass, or a plan, says of rollouts.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::DeviceId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rollout::{Decided, Decision, Look, Phase, Record, Waiting, Waits};

/// What is decided about rollouts, and what these wait for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RolloutProgress {
    /// What was decided, or would be, one sentence each; nothing where a pass decides nothing.
    #[serde(skip)]
    pub decided: Vec<String>,
    pub waiting: Vec<Waiting>,
    /// What those wait for from now on that released somebody; nothing where a pass decides nothing.
    #[serde(skip)]
    pub following: Vec<Waiting>,
    /// When time alone may change something; absent where only devices or persons can.
    pub again: Option<Timestamp>,
    /// The rollouts that aren't finished.
    pub unfinished: BTreeMap<u32, Phase>,
    /// Members of each that aren't released, and of which it holds nothing back, because nothing differs for them any more.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped_out: BTreeMap<u32, BTreeSet<DeviceId>>,
}

impl RolloutProgress {
    pub(super) fn of(look: &Look) -> Self {
        let dropped_out = look.records.iter().map(|(number, record)| (*number, dropped_out(look, record)));
        Self {
            decided: look.decided.iter().map(sentence).collect(),
            waiting: look.waiting.clone(),
            following: look.following.clone(),
            again: look.again,
            unfinished: look.records.iter().map(|(number, record)| (*number, record.state.state)).collect(),
            dropped_out: dropped_out.filter(|(_, devices)| !devices.is_empty()).collect(),
        }
    }

    /// Whether one of them is stopped, and goes on only if a person says so.
    pub fn is_stopped(&self) -> bool {
        self.unfinished.values().any(|phase| *phase == Phase::Stopped)
    }

    /// A line for each decision and for each rollout that waits.
    pub fn to_text(&self) -> String {
        let decided = self.decided.iter().map(|decided| format!("rollout: {decided}\n"));
        let waiting = self.waits().map(|one| format!("rollout: {} {one}\n", one.rollout));
        decided.chain(waiting).collect()
    }

    /// What they wait for, but for the moments until which they do.
    pub fn waiting_text(&self) -> String {
        self.waits().map(|one| format!("rollout: {} {}\n", one.rollout, one.what())).collect()
    }

    fn waits(&self) -> impl Iterator<Item = Waits> {
        self.waiting.iter().map(Waits::from)
    }

    /// The same for programs.
    pub fn to_json(&self) -> Value {
        json!({
            "decided": self.decided,
            "waiting": self.waits().collect::<Vec<_>>(),
            "again": self.again,
            "unfinished": self.unfinished,
        })
    }
}

fn dropped_out(look: &Look, record: &Record) -> BTreeSet<DeviceId> {
    let (released, number) = (record.released(), Some(record.number()));
    let is_held =
        |device: &DeviceId| look.held.get(device).is_some_and(|names| names.values().any(|by| by.rollout == number));
    let others = record.members.keys().filter(|device| !released.contains_key(*device));
    others.filter(|device| !is_held(device)).cloned().collect()
}

fn sentence(Decided { decision, reason, record }: &Decided) -> String {
    let number = record.number();
    match decision {
        Decision::Start => format!("starts {number}: {reason}; {}", shape(record)),
        Decision::Join => format!("{number} grows: {reason}"),
        Decision::Supersede => format!("{number} is superseded: {reason}"),
        Decision::Back => format!("{number} goes back: {reason}"),
        Decision::Stop(stop) => format!("{number} stops (stop {stop}): {reason}"),
        Decision::Resume(stop) => format!("{number} goes on after stop {stop}: {reason}"),
        Decision::Release(wave) => format!("{number} releases wave {wave}: {reason}"),
        Decision::Finish => format!("{number} is done: {reason}"),
    }
}

/// The totals of its waves, and what it comes in the place of.
fn shape(record: &Record) -> String {
    let mut waves: BTreeMap<u32, usize> = BTreeMap::new();
    record.changed().for_each(|member| *waves.entry(member.wave).or_default() += 1);
    let rest = waves.remove(&record.last_wave()).map(|_| "rest".to_owned());
    let totals = waves.values().scan(0, |total, count| {
        *total += count;
        Some(total.to_string())
    });
    let waves: Vec<_> = totals.chain(rest).collect();
    let old: Vec<_> = record.state.supersedes.iter().map(u32::to_string).collect();
    let supersedes = if old.is_empty() { String::new() } else { format!("; supersedes {}", old.join(", ")) };
    format!("waves {}{supersedes}", waves.join(", "))
}
