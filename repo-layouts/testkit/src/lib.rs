//! What the tests of all crates share, each once: a [`fleet`] with its publisher, a [`device`], the host of either kind, a
//! repository made by [`hand`], [`faults`], stand-ins and real runtimes, and the [`invariants`] as checks.
#![allow(clippy::disallowed_methods, reason = "tests write their own files as they like")]

pub mod application;
pub mod chart;
pub mod cluster;
pub mod deltas;
pub mod device;
pub mod engine;
pub mod fake_docker;
pub mod faults;
pub mod fleet;
pub mod foreign_host;
pub mod git;
pub mod gitolite;
pub mod hand;
pub mod host;
pub mod invariants;
pub mod pki;
pub mod ports;
pub mod private_engine;
mod programs;
pub mod service_manager;
pub mod ssh_client;
pub mod ssh_key;
pub mod sshd;
mod waiting;

pub use programs::{
    cargo, copy, in_namespaces, program, publisher, registry, root, syncer, terminate, text, use_program,
};
pub use waiting::comes_within;

/// So many bytes that don't compress, the same ones every time; another series gives others.
pub fn noise(bytes: usize, series: u32) -> Vec<u8> {
    let word = |n: u32| (n ^ series << 24).wrapping_mul(2_654_435_761).to_le_bytes();
    (0..).flat_map(word).take(bytes).collect()
}
