//! The loop: pass after pass makes actual equal desired.

mod accept;
pub mod agent;
pub mod apply;
mod device_files;
mod lost;
pub mod outcome;
pub mod pass;
pub mod preview;
pub mod reconciler;
mod restores;
pub mod retries;
pub mod schedule;
pub mod watcher;
