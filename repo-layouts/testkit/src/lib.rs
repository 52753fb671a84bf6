//! What the crash and end-to-end tests of both programs share, and those tests.

pub mod chart;
pub mod cluster;
pub mod connect_proxy;
pub mod damage;
pub mod deltas;
pub mod fake_docker;
pub mod fault_proxy;
pub mod foreign_host;
pub mod git;
pub mod invariants;
pub mod pki;
pub mod ports;
pub mod power;
mod programs;
pub mod scripted_host;

pub use programs::{program, terminate};

/// So many bytes that don't compress, the same ones every time; another series gives others.
pub fn noise(bytes: usize, series: u32) -> Vec<u8> {
    let word = |n: u32| (n ^ series << 24).wrapping_mul(2_654_435_761).to_le_bytes();
    (0..).flat_map(word).take(bytes).collect()
}
