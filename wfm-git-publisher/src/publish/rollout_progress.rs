//! What a pass, or a plan, says of rollouts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rollout::{Decided, Decision, Look, Phase, Record, Waiting};

/// What is decided about rollouts, and what these wait for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RolloutProgress {
    /// What was decided, or would be, one sentence each; nothing where a pass decides nothing.
    #[serde(skip)]
    pub decided: Vec<String>,
    pub waiting: Vec<Waiting>,
    /// When time alone may change something; absent where only devices or persons can.
    pub again: Option<Timestamp>,
    /// The rollouts that aren't finished.
    pub unfinished: BTreeMap<u32, Phase>,
}

impl RolloutProgress {
    pub(super) fn of(look: &Look) -> Self {
        Self {
            decided: look.decided.iter().map(sentence).collect(),
            waiting: look.waiting.clone(),
            again: look.again,
            unfinished: look.records.iter().map(|(number, record)| (*number, record.state.state)).collect(),
        }
    }

    /// Whether one of them is stopped, and goes on only if a person says so.
    pub fn is_stopped(&self) -> bool {
        self.unfinished.values().any(|phase| *phase == Phase::Stopped)
    }

    /// A line for each decision and for each rollout that waits.
    pub fn to_text(&self) -> String {
        let decided = self.decided.iter().map(|decided| format!("rollout: {decided}\n"));
        let waiting = self.waiting.iter().map(|one| {
            let again = one.again.map(|again| format!("; look again at {again:.0}")).unwrap_or_default();
            format!("rollout: {} {one}{again}\n", one.rollout)
        });
        decided.chain(waiting).collect()
    }

    /// The same for programs.
    pub fn to_json(&self) -> Value {
        let waiting = self.waiting.iter().map(
            |one| json!({ "rollout": one.rollout, "why": one.to_string(), "devices": one.devices, "again": one.again }),
        );
        json!({
            "decided": self.decided,
            "waiting": waiting.collect::<Vec<_>>(),
            "again": self.again,
            "unfinished": self.unfinished,
        })
    }
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
