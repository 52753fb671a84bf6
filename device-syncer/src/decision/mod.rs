//! The decision: pure functions over what is desired, what is kept and what was observed.
//!
//! Nothing in here knows I/O, a clock or the environment, and nothing imports another room of this crate.

/// How long to wait after failures.
pub mod backoff;
/// What the device says of itself.
pub mod capabilities;
/// A component as a runtime gets it.
pub mod component;
/// The conditions of `syncer.json`.
pub mod conditions;
/// A deployment as it shall be on this device.
pub mod deployment;
/// From the accepted documents to deployments.
pub mod desired;
/// What the device keeps from pass to pass.
pub mod device_state;
/// Why something isn't done, in words that may be signed and shown.
pub mod failure;
/// How what runs is.
pub mod health;
/// What the heartbeat says, and when.
pub mod heartbeat;
/// What a `status` commit says.
pub mod message;
/// What was seen of the runtimes in one go.
pub mod observation;
/// Desired against actual, as data.
pub mod plan;
/// Margo's DeploymentStatus documents, and the transitions between two of them.
pub mod status;
