//! Rosters that a person brings to a device, because its host can't or won't show them.

use repo_model::desired::Refusal;
use repo_model::roster::{RosterError, RosterSteps, Trust};

use crate::host::fetch::Fetcher;
use crate::host::verify::roster_signer;
use crate::reconcile::pass::{DeviceSide, Syncer};
use crate::state::floor::FloorError;
use crate::state::roster;

/// Rosters that a person brought are left alone, and what counted before still does.
#[derive(Debug, thiserror::Error)]
pub enum BelieveError {
    /// What this device believes can't be read.
    #[error("the roster that this device believes can't be read: {}", .0.message)]
    Known(Refusal),
    /// One of them isn't signed by the threshold of the roots before it, or a version between is missing.
    #[error("the rosters aren't proven by what this device believes")]
    Unproven(#[from] RosterError),
    /// What is believed can't be kept.
    #[error(transparent)]
    Floor(#[from] FloorError),
}

/// Follows them from the newest roster that is believed, and never goes below what they lead to. Returns that, and whether it is
/// newer.
pub fn believe(syncer: &mut Syncer, steps: &RosterSteps) -> Result<(Trust, bool), BelieveError> {
    let DeviceSide { device, state, floor, .. } = &mut syncer.here;
    let known = {
        let (connection, view) = (&syncer.host.client.connection, &state.view());
        Fetcher { connection, device, view, floor }.trust().map_err(BelieveError::Known)?
    };
    let Some((newest, text)) = steps.follow(&known, &roster_signer)? else { return Ok((known, false)) };
    roster::keep(&device.home, &device.join, &newest, text.as_bytes())
        .map_err(|source| FloorError::Roster { path: device.home.roster(), source })?;
    if floor.lift_to_roster(&newest) {
        floor.raise(&device.home.floor())?;
    }
    Ok((newest, true))
}
