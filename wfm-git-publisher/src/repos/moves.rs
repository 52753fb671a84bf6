//! Who hears, within this process, that a device's branches moved.

use std::fmt;
use std::sync::{Arc, OnceLock};

use repo_model::DeviceId;

type Listener = Box<dyn Fn(&DeviceId) + Send + Sync>;

/// Shared by all clones of a home.
#[derive(Clone, Default)]
pub(super) struct Moves(Arc<OnceLock<Listener>>);

impl Moves {
    /// Sets the listener; a second one is ignored.
    pub(super) fn listen(&self, listener: Listener) {
        let _ = self.0.set(listener);
    }

    /// Says that branches of this device moved.
    pub(super) fn notify(&self, device: &DeviceId) {
        if let Some(listener) = self.0.get() {
            listener(device);
        }
    }
}

impl fmt::Debug for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moves").field(&self.0.get().is_some()).finish()
    }
}
