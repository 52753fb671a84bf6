//! The decision: pure functions over what is desired, what is kept and what was observed.
//!
//! Nothing in here knows I/O, a clock or the environment, and nothing imports another room of this crate.

/// Where a site lets packages come from.
pub mod admission;
/// A person's word for what a change comes to.
pub mod approval;
/// What the fleet asks this device for.
pub mod ask;
/// How long to wait after failures.
pub mod backoff;
/// What the device says of itself.
pub mod capabilities;
/// The gates that are closed, as they are reported.
pub mod closed;
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
pub mod drift;
pub mod failure;
/// What is known of what changes need.
pub mod fetched;
/// What lets a change wait.
pub mod gates;
/// Health and drift of a component, in the words of the heartbeat.
pub mod health;
/// What the heartbeat says, and when.
pub mod heartbeat;
/// A site's own word that nothing is changed.
pub mod hold;
/// What a site's hook is asked, and what it said.
pub mod hook;
/// What stays of what was fetched.
pub mod kept;
/// Objects of Kubernetes, against the site's policy.
pub mod kubernetes;
/// What a `status` commit says.
pub mod message;
/// What was seen of the runtimes in one go.
pub mod observation;
/// Patterns with `*` and `**`, as a site writes them.
pub mod pattern;
/// Desired against actual, as data.
pub mod plan;
/// Removals that count for 24 hours.
pub mod removed;
pub mod restart;
pub mod restarting;
/// What stands in the plan where a set failed.
pub mod rollback;
/// What is kept of sets that ran well, and of those that failed.
pub mod sets;
/// What persons of the site said from elsewhere.
pub mod site;
/// Margo's DeploymentStatus documents, and the transitions between two of them.
pub mod status;
/// Transitions as commits of `status` name them.
pub mod transitions;
/// Windows of site and fleet: what is open at a moment, and what opens next.
pub mod windows;
