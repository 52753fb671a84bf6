//! What lasts from pass to pass, on the device's disk.

pub mod accepted;
pub mod floor;
pub mod last_failure;
pub mod local_condition;
pub mod record;
pub mod requests;
pub mod store;
