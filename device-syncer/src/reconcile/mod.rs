//! The loop: pass after pass makes actual equal desired.

/// Puts in force what is believed.
pub mod accept;
/// Pass after pass until a signal.
pub mod agent;
/// Reports a plan before anything of it begins.
mod announce;
/// Answers what the fleet asks for.
pub mod answers;
/// Whether a pass or turn need only look.
mod at_rest;
/// What of sets that failed runs only once and has begun.
mod begun;
/// Which work of a plan may begin now.
mod choose;
/// Values that stay on the device.
pub mod device_files;
/// Values that are encrypted to the device's key.
pub mod encrypted;
pub mod engine_events;
/// Asks the site's hook before a change, and tells it the end.
pub mod hooks;
/// Asks the host, and tells it what this device says.
pub mod host_side;
/// Work on one deployment, step by step.
mod job;
/// The jobs at work, each in a thread of its own.
pub mod jobs;
/// Whether something keeps the clock.
pub mod kernel_clock;
/// What the two sides of a running syncer leave for each other.
mod link;
/// What is done while the accepted state can't be read.
mod lost;
/// Asks the runtimes, none of which a pass waits for while something else waits.
pub mod observer;
/// What a pass came to, and what happens next.
pub mod outcome;
/// One pass, in order.
pub mod pass;
/// Why a pass couldn't be made.
pub mod pass_error;
/// What the next pass would do.
pub mod preview;
/// Observes, plans and applies.
pub mod reconciler;
/// Reads `device.yaml` again between two passes.
pub mod reload;
/// Rosters that a person brings.
pub mod rosters;
/// When the next pass is due, and whether it asks the host.
pub mod schedule;
/// Which sets ran well for long enough, and which failed.
mod sets;
/// When the host is talked to.
mod talk;
/// Follows files at the device for changes.
pub mod watcher;
