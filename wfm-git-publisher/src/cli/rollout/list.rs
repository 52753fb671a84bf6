//! `rollout list`.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::super::{OutputArgs, Place, table};
use crate::error::Failure;
use crate::rollout::{RolloutState, Waits};
use crate::status::{rollouts, waiting};

/// Lists the rollouts that the publisher remembers, the newest first
///
/// NOW is what one waited for at the last look: why, for whom, and until when at the earliest.
///
///   wfm-git-publisher rollout list
///   wfm-git-publisher rollout list --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &ListArgs) -> Result<u8, Failure> {
    let home = place.home()?;
    let all = rollouts(&home)?;
    let mut waiting = waiting(&home, &all, Timestamp::now());
    let states = all.open.values().map(|record| &record.state).chain(all.ended.values());
    let mut listed: Vec<_> = states.map(|state| Listed { state, waiting: waiting.remove(&state.rollout) }).collect();
    listed.sort_by_key(|one| std::cmp::Reverse(one.state.rollout));
    let head = ["ROLLOUT", "STATE", "WAVES", "RELEASED", "DEPLOYMENTS", "FLEET COMMIT", "NOW"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(listed.iter().map(row)).collect();
    args.output.print(&table(&rows), || json!({ "rollouts": listed }));
    Ok(0)
}

/// A rollout, and what it waits for.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    state: &'a RolloutState,
    waiting: Option<Waits>,
}

fn row(Listed { state, waiting }: &Listed<'_>) -> [String; 7] {
    let released: usize = state.own_waves().map(|release| release.devices.len()).sum();
    let names: Vec<_> = state.deployments.iter().map(ToString::to_string).collect();
    [
        state.rollout.to_string(),
        state.state.as_str().to_owned(),
        state.newest_wave().map_or_else(|| "-".to_owned(), |wave| wave.to_string()),
        released.to_string(),
        names.join(", "),
        state.fleet_commit.chars().take(12).collect(),
        waiting.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
    ]
}
