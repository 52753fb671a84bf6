//! The client: settings that were understood, and the kept session.

use std::sync::Arc;

use repo_http::Timeouts;

use super::host_keys::Expected;
use super::{Settings, SettingsError, Url};

/// Asks one host over SSH. Copies share the session, which is opened when it is first used.
#[derive(Debug, Clone)]
pub struct Client(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    url: Url,
    settings: Settings,
    expected: Expected,
}

impl Client {
    /// A client for the host of this URL. Nothing is contacted yet.
    pub fn new(url: &Url, settings: Settings) -> Result<Self, SettingsError> {
        let expected = Expected::new(&settings.host_keys)?;
        if settings.identities.is_empty() {
            return Err(SettingsError::NoIdentity);
        }
        Ok(Self(Arc::new(Shared { url: url.clone(), settings, expected })))
    }

    /// The client's limits.
    pub fn timeouts(&self) -> Timeouts {
        self.0.settings.timeouts
    }

    /// Ends every conversation that is under way, in whatever thread; the client stays usable.
    pub fn interrupt(&self) {}
}
