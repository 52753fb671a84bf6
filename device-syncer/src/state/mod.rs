//! What lasts from pass to pass, on the device's disk.

/// The accepted state, read from the clone.
pub mod accepted;
/// What this device answered to what the fleet asked for.
pub mod answers;
/// What persons at the device said of changes.
pub mod approvals;
/// The removals that a person at the device approved.
pub mod approved_removals;
/// How far a device came that asks to be enrolled.
pub mod enrolment;
/// What a device never goes below, outside the clone.
pub mod floor;
/// What this device reported, newest first.
pub mod history;
/// What the site holds.
pub mod hold;
/// Which installation this is.
pub mod installation;
/// Small JSON files of a home, which commands write beside a running syncer.
pub mod json_file;
/// Why the last pass failed.
pub mod last_failure;
/// Whether a newer program has been at work.
pub mod layout;
/// What of the device state a clone holds, or still holds.
pub mod loaded;
/// What only this device can show, because it can't be reported.
pub mod local_condition;
/// Where the host is: by the join file, by the newest roster, or by a person at the device.
pub mod moved;
/// What the site's hook let through.
pub mod opened;
/// New random bytes, for what is to be a secret.
pub mod random;
/// How often what isn't a change of state is told anew.
pub mod rate_limit;
/// A new key that shall take the place of this device's.
pub mod rekey;
/// What a person at the device asked for.
pub mod requests;
pub mod restart_requests;
/// How often what was applied had to be restored.
pub mod restores;
/// When failed steps may be tried again.
pub mod retries;
/// When they are, for who asks.
pub mod retry_times;
/// The newest roster that is believed, beside the clone.
pub mod roster;
/// All of it as one value behind one lock, and the transactions that change it.
pub mod shared;
/// The lists of the site that this device believed.
pub mod site;
/// For how long deployments have been well, or ill.
pub mod stability;
/// The clone: one pack and one move of `refs/syncer/state` per change.
pub mod store;
/// The clone and the device state as they were at one moment.
pub mod view;
