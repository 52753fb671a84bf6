//! The loop: pass after pass makes actual equal desired.

pub mod agent;
pub mod apply;
pub mod lost;
pub mod pass;
pub mod restores;
pub mod retries;
pub mod schedule;
pub mod tell;
pub mod update;
pub mod watcher;
