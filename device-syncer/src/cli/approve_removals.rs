//! `approve --removals`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::{DeploymentId, Digest, IntoMap, IntoSet, json, text};
use serde::Serialize;

use super::{OutputArgs, show, status};
use crate::config::Home;
use crate::error::CliError;
use crate::state::approved_removals::{self, ApprovedRemovals};
use crate::state::loaded;

/// The least characters of a change's name that are compared.
const LEAST: usize = 8;

/// A person's word for a change.
#[derive(Debug)]
pub(super) struct Named {
    /// The beginning of its name, as that person gave it.
    pub(super) change: String,
    pub(super) by: String,
    pub(super) why: String,
}

impl Named {
    /// Whether it names this change, by enough of its name.
    pub(super) fn is(&self, change: &str) -> bool {
        self.change.len() >= LEAST && change.starts_with(&self.change)
    }
}

/// What would go, for `approve --removals --output json`.
#[derive(Debug, Serialize)]
struct RemovalsOut {
    /// Names it: 64 hex digits.
    change: String,
    deployments: Vec<String>,
    /// Whether that was approved now.
    approved: bool,
}

/// Shows what would go, or lets it go.
pub(super) fn run(home: &Home, word: Option<Named>, output: OutputArgs) -> Result<(), CliError> {
    let going = going(home)?;
    if going.is_empty() {
        return Err(CliError::Input("nothing is to be removed from this device".to_owned()));
    }
    let change = Digest::of(&json::to_bytes(&going.keys().collect::<Vec<_>>())).hex();
    let (approved, deployments) = (word.is_some(), going.values().cloned().collect());
    if let Some(word) = word {
        if !word.is(&change) {
            let (short, named) = (&change[..12], &word.change);
            let text =
                format!("what is to be removed is change {short}, and not {named}: look at it by `approve --removals`");
            return Err(CliError::Input(text));
        }
        let Named { by, why, .. } = word;
        let approved = ApprovedRemovals { deployments: going.into_keys().into_set(), by, why, at: Timestamp::now() };
        let failed = |source| CliError::Io { doing: "can't note the approval".to_owned(), source };
        approved_removals::write(home, &approved).map_err(failed)?;
    }
    let out = RemovalsOut { change, deployments, approved };
    output.print(|| out.text(), || show::json(&out))
}

impl RemovalsOut {
    fn text(&self) -> String {
        if self.approved {
            let count = self.deployments.len();
            return format!(
                "approved: the next pass removes these {count} (`device-syncer once`, or the running one)\n"
            );
        }
        let list: String = self.deployments.iter().map(|name| format!("- {}\n", text::cell(name))).collect();
        let how = format!("device-syncer approve --removals --change {} --by NAME --why TEXT", &self.change[..12]);
        format!("{list}Nothing is approved yet. All of this may go with `{how}`.\n")
    }
}

/// The deployments that are here and that the accepted state doesn't want, with their names.
fn going(home: &Home) -> Result<BTreeMap<DeploymentId, String>, CliError> {
    let (device_state, desired) = loaded::peek(&home.repository());
    let Some(desired) = desired else {
        return Err(CliError::Input(
            "no state was accepted on this device yet, so nothing is to be removed".to_owned(),
        ));
    };
    let found = status::observe(home, None).map_err(CliError::Input)?.found;
    let seen = found.iter().filter_map(|found| found.deployment);
    let all = device_state.deployments.keys().copied().chain(seen);
    let going = all.filter(|id| !desired.envelope.deployments.contains_key(id));
    Ok(going.map(|id| (id, device_state.name_of(id, Some(&desired)))).into_map())
}
