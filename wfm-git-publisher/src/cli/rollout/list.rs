//! `rollout list`.

use serde_json::json;

use super::super::{OutputArgs, Place, table};
use crate::error::Failure;
use crate::rollout::RolloutState;
use crate::status::rollouts;

/// Lists the rollouts that the publisher remembers, the newest first
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
    let all = rollouts(&place.home()?)?;
    let mut states: Vec<_> = all.open.values().map(|record| &record.state).chain(all.ended.values()).collect();
    states.sort_by_key(|state| std::cmp::Reverse(state.rollout));
    let head = ["ROLLOUT", "STATE", "WAVES", "RELEASED", "DEPLOYMENTS", "FLEET COMMIT"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(states.iter().map(|state| row(state))).collect();
    args.output.print(&table(&rows), || json!({ "rollouts": states }));
    Ok(0)
}

fn row(state: &RolloutState) -> [String; 6] {
    let released: usize = state.own_waves().map(|release| release.devices.len()).sum();
    let names: Vec<_> = state.deployments.iter().map(ToString::to_string).collect();
    [
        state.rollout.to_string(),
        state.state.as_str().to_owned(),
        state.newest_wave().map_or_else(|| "-".to_owned(), |wave| wave.to_string()),
        released.to_string(),
        names.join(", "),
        state.fleet_commit.chars().take(12).collect(),
    ]
}
