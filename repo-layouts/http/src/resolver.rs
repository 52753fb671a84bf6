//! Names to addresses, remembered for a while: a kept connection needs no look-up at each poll.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// How long the addresses of a name count before it is looked up again.
const LIFE: Duration = Duration::from_secs(300);

/// The last answer and when it came.
type Known = (String, Vec<std::net::SocketAddr>, Instant);

/// Remembers the last name's addresses until they are old or a request failed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Remembering(Arc<Mutex<Option<Known>>>);

impl Remembering {
    /// The next request looks the name up again.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Resolver for Remembering {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let name = format!("{}://{}", uri.scheme_str().unwrap_or_default(), uri.authority().map_or("", |a| a.as_str()));
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, addresses, _)) = known.filter(|(known, _, since)| *known == name && since.elapsed() < LIFE) {
            let mut found = self.empty();
            addresses.into_iter().for_each(|address| found.push(address));
            return Ok(found);
        }
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, found.to_vec(), Instant::now()));
        Ok(found)
    }
}
