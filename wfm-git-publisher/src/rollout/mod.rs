//! Rollouts: how a change reaches devices that run something already, wave by wave, with proof from a few.
//!
//! Pure. Each look compares what the fleet means with what each `desired` holds (`facts`). What differs and no rollout
//! releases begins one, joins one or comes in the place of one (`changes`). Then the first row that fits says what happens
//! next with each rollout (`next`): by what persons said in `rollouts/<n>.yaml`, and by what released devices are (`state`),
//! which their verified branches tell (`evidence`). A decision is a new record (`record`); it is committed to `control.git`
//! before anything of it is done. Whatever no record releases is held, whatever caused it.
//!
//! Nothing here remembers anything: the same records, facts and time make the same decisions, and after one that releases
//! somebody the rest waits for the next look.

mod changes;
mod evidence;
mod facts;
mod look;
mod meaning;
mod members;
mod next;
mod record;
mod state;
mod waits;
mod waves;

#[cfg(test)]
mod tests;

pub use changes::{MAX_AT_ONCE, Refused};
pub use evidence::{Adoption, Beat, Component, Evidence, Report};
pub use facts::{Difference, Facts, Proposal, Standing};
pub use look::{HeldBy, Look, look};
pub use meaning::{Meaning, meaning, meaning_of, meanings};
pub use next::{Decided, Decision, Waiting, Why, approval_ahead, states};
pub use record::{End, Member, Order, Phase, Record, Release, Released, RolloutState, Stop, waves_of};
pub use state::{Case, DeviceState, Judged, silence};
pub use waits::Waits;
