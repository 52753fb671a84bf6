//! How many bytes the other side may still say.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that may be read from one conversation. Copies share it.
#[derive(Debug, Clone)]
pub(super) struct Allowance(Arc<AtomicU64>);

impl Allowance {
    pub(super) fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// So many from now on, whatever was left.
    pub(super) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::SeqCst);
    }

    /// Whether so many more were allowed.
    pub(super) fn spend(&self, bytes: usize) -> bool {
        let left = |left: u64| left.checked_sub(bytes as u64);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok()
    }
}

/// Ends with an error where the allowance does.
pub(super) struct Allowed<R> {
    pub(super) inner: R,
    pub(super) left: Allowance,
}

impl<R: Read> Read for Allowed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if self.left.spend(count) { Ok(count) } else { Err(io::Error::other("it says more than it may")) }
    }
}
