//! What lasts from pass to pass, on the device's disk.

/// The accepted state, read from the clone.
pub mod accepted;
/// What a device never goes below, outside the clone.
pub mod floor;
/// Why the last pass failed.
pub mod last_failure;
/// What of the device state a clone holds, or still holds.
pub mod loaded;
/// What only this device can show, because the host can't be told.
pub mod local_condition;
/// Makes a change durable, with the `status` commit that says so.
pub mod record;
/// What a person at the device asked for.
pub mod requests;
/// The clone: one pack and one move of `refs/syncer/state` per change.
pub mod store;
