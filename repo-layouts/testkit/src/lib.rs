//! What the crash and end-to-end tests of both programs share, and those tests.

pub mod fake_docker;
pub mod fault_proxy;
pub mod foreign_host;
pub mod git;
pub mod invariants;
pub mod pki;
pub mod power;
mod programs;
pub mod scripted_host;

pub use programs::{program, terminate};
