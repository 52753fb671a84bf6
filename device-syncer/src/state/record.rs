//! Makes what changed durable: the device state and the `status` commit that says so, in one step.

use jiff::Timestamp;

use crate::decision::device_state::DeviceState;
use crate::decision::message::{Identity, message};
use crate::decision::status::Report;
use crate::state::store::{Store, StoreError};

/// Puts `next` with these states in force; the message names every transition. Returns whether `status` moved.
pub fn record(
    store: &mut Store,
    mut next: DeviceState,
    report: &Report,
    identity: &Identity,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let manifest_version = next.accepted.as_ref().map_or(0, |accepted| accepted.manifest_version);
    report.write(&mut next.status, &identity.device, manifest_version);
    next.report_images();
    let message = message(&next, &store.device_state, identity);
    store.commit(next, &message, now.as_second())
}
