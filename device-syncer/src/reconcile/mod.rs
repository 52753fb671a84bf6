//! The loop: pass after pass makes actual equal desired.

/// Puts in force what is believed.
mod accept;
/// Pass after pass until a signal.
pub mod agent;
/// Applies a plan step by step.
pub mod apply;
/// Values that stay on the device.
mod device_files;
/// What is done while the accepted state can't be read.
mod lost;
/// What a pass came to, and what happens next.
pub mod outcome;
/// One pass, in order.
pub mod pass;
/// What the next pass would do.
pub mod preview;
/// Observes, plans and applies.
pub mod reconciler;
/// How often what was applied had to be restored.
mod restores;
/// When failed steps may be tried again.
pub mod retries;
/// When the next pass is due, and whether it asks the host.
pub mod schedule;
/// Follows files at the device for changes.
pub mod watcher;
