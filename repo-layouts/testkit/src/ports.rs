//! Ports of this machine that a server which stops finds free again.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Outside the range that the kernel gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A listener on a port that the kernel gives to nobody, also not after it is closed; each call begins to look elsewhere.
///
/// # Panics
/// If there is none.
pub fn free_listener() -> TcpListener {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let width = u32::from(PORTS.end - PORTS.start);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let begin = std::process::id().wrapping_mul(7919).wrapping_add(call.wrapping_mul(997));
    let mut ports = (0..width).map(|n| PORTS.start + (begin.wrapping_add(n) % width) as u16);
    ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).expect("a free port")
}

/// A port for a program that begins to listen later.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    free_listener().local_addr().expect("an address").port()
}

/// Starts a server on a free port; on another one, up to five times, if it can't, for somebody else may be quicker.
///
/// # Panics
/// If it doesn't start, with what it said last.
pub(crate) fn start_on_free_port(server: &str, mut start: impl FnMut(u16) -> Result<(), String>) {
    for attempt in 1.. {
        match start(free_port()) {
            Ok(()) => return,
            Err(said) => assert!(attempt < 5, "{server} does not start: {said}"),
        }
    }
}
