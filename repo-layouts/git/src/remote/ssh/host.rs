//! One repository of a host that is reached by SSH, and what is known of it.

use std::time::Duration;

use super::{Client, Problem, SshError, Url};
use crate::remote::RemoteError;
use crate::remote::advertisement::Refs;

/// A repository, and the client for its host.
#[derive(Debug)]
pub(in crate::remote) struct Host {
    pub(in crate::remote) url: Url,
    client: Client,
}

impl Host {
    pub(in crate::remote) fn new(url: Url, client: Client) -> Self {
        Self { url, client }
    }

    pub(in crate::remote) fn refs(&self, _prefixes: &[&str], _limit: Duration) -> Result<Refs, RemoteError> {
        Err(self.not_yet())
    }

    pub(in crate::remote) fn not_yet(&self) -> RemoteError {
        SshError::new(&self.url, Problem::Protocol, Some("SSH isn't built yet".into())).into()
    }

    pub(in crate::remote) fn interrupt(&self) {
        self.client.interrupt();
    }
}
