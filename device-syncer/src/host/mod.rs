//! The Git host that this device talks to, from the connection to what is pushed.

/// The device's secret at the host, renewed without a gap.
pub mod account;
pub mod certificate;
/// Checks the way to the host, step by step, for `doctor`.
pub mod check;
/// What one device asks and pushes, and what the host answered last.
pub mod client;
/// URL, TLS and credentials, made anew when their files change.
pub mod connection;
/// How talking with the host goes, for `status`.
pub mod connectivity;
/// Enrols this device at a host that offers it.
pub mod enrolment;
/// Bounded fetches, and what verification makes of them.
pub mod fetch;
/// Pushes the branch `heartbeat`, one parentless commit that is replaced.
pub mod heartbeat;
/// How much one push brings.
mod push_size;
/// Where the host's branches stand.
pub mod refs;
/// The host over SSH: keys, and the line that enrols them.
pub mod ssh;
/// The branch `status`, as two histories that have to become one.
pub mod status;
/// Pushes `status` beside a pass.
pub mod status_push;
/// Whether a fetched commit is believed.
pub mod verify;
/// Waits at a host that offers it until a branch moves.
pub mod wait;
