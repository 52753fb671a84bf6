//! What registries accept from whom, remembered while it lasts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use repo_http::Credential;

use crate::Reference;

/// A token that ends within this isn't shown any more.
const MARGIN: Duration = Duration::from_secs(10);

/// What a registry is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    Pull,
    Push,
}

impl Purpose {
    /// What a token is asked for: nothing but this repository.
    pub(super) fn scope(self, reference: &Reference) -> String {
        let actions = if self == Self::Push { "pull,push" } else { "pull" };
        format!("repository:{}:{actions}", reference.path())
    }
}

/// By registry, repository and purpose: what is shown there.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<BTreeMap<(String, String, Purpose), Token>>);

#[derive(Debug)]
struct Token {
    /// For whom it was given: another account gets another.
    account: Credential,
    shown: Credential,
    until: Instant,
}

impl Tokens {
    /// What was accepted from this account, unless it ends.
    pub(super) fn get(&self, reference: &Reference, purpose: Purpose, account: &Credential) -> Option<Credential> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let token = known.get(&key(reference, purpose))?;
        (token.account == *account && Instant::now() < token.until).then(|| token.shown.clone())
    }

    /// Remembers what to show. What has ended is forgotten.
    pub(super) fn put(
        &self,
        reference: &Reference,
        purpose: Purpose,
        account: Credential,
        (shown, life): (Credential, Duration),
    ) {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, token| now < token.until);
        known.insert(key(reference, purpose), Token { account, shown, until: now + life.saturating_sub(MARGIN) });
    }

    /// The registry doesn't accept it any more.
    pub(super) fn forget(&self, reference: &Reference, purpose: Purpose) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(reference, purpose));
    }
}

fn key(reference: &Reference, purpose: Purpose) -> (String, String, Purpose) {
    (reference.host().to_owned(), reference.path().to_owned(), purpose)
}
