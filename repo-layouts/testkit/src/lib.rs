//! What the crash and end-to-end tests of both programs share, and those tests.

pub mod fake_docker;
pub mod git;
pub mod invariants;
pub mod power;
mod programs;

pub use programs::{program, terminate};
