//! `trust publish --emergency`: a publisher's key is stolen or lost, and the machine with it. The roots say who publishes from now
//! on, on a home that a backup or audited clones made.

use jiff::Timestamp;
use repo_git::SigningKey;
use repo_git::sign::openssh::fingerprint;
use wfm_git_host::accounts::{AccountName, Store};

use super::LOCK_WAIT;
use super::error::TrustError;
use super::proposal::Proposal;
use super::publish::{PublishedRoster, agree, commit, finished, proven};
use crate::repos::{Control, ControlError, Home, HomeError, Rosters, Unknown, key_text, unknown};

/// What came of it.
#[derive(Debug)]
pub struct Emergency {
    pub published: PublishedRoster,
    /// Whose secrets, and people's SSH keys, ended with it; nobody if it was published before.
    pub ended: Vec<AccountName>,
    /// What a key that counts no more signed and no ledger knows, or what devices adopted that isn't here.
    pub unknown: Vec<Unknown>,
}

/// Publishes the proposed roster, which has to drop a publisher's key and list this home's next one. That one signs the
/// ledger, which is made of the devices' repositories where there is none. Before that all secrets of accounts end. Cut off
/// anywhere, the same again completes it, and says again what is unknown of `since`.
pub fn publish_in_emergency(home: &Home, since: Timestamp, now: Timestamp) -> Result<Emergency, TrustError> {
    home.check()?;
    let _lock = home.lock(LOCK_WAIT)?;
    let before = Control::known_rosters(home)?;
    let proposed = Proposal::read(home, &before)?;
    let is_new = proposed.is_some();
    let (mut ended, mut rosters) = (Vec::new(), before);
    if let Some(proposed) = proposed {
        let key = next_key(home, &proposed)?;
        check_drops(&rosters, &proposed)?;
        let (files, after) = proven(&proposed, &rosters)?;
        ended = Store::new(home.accounts()).end_all()?;
        match Control::open(home) {
            Ok((control, _)) => commit(control, &after, &files, &key, now)?,
            Err(ControlError::Home(HomeError::NoLedger { .. })) => Control::make_anew(home, &key, now, &after)?,
            Err(error) => return Err(error.into()),
        }
        rosters = after;
    }
    let new_key = agree(home, &rosters)?;
    let unknown = unknown(home, &rosters, since)?;
    Ok(Emergency { published: finished(home, rosters, (is_new, new_key), now), ended, unknown })
}

/// The key that takes over, which no machine but this one has.
fn next_key(home: &Home, proposed: &Proposal) -> Result<SigningKey, TrustError> {
    let (path, roster) = (home.next_publisher_key(), &proposed.trust.roster);
    let key = if path.exists() { Some(SigningKey::load(&path)?) } else { None };
    let is_listed =
        |key: &SigningKey| key_text(key.public()).is_some_and(|key| roster.publishers.iter().any(|one| one.key == key));
    key.filter(is_listed).ok_or(TrustError::NoNextKey { version: roster.version })
}

/// Whose loss is the emergency doesn't count any more.
fn check_drops(before: &Rosters, proposed: &Proposal) -> Result<(), TrustError> {
    let (before, after) = (&before.newest.roster, &proposed.trust.roster);
    let is_kept = |key| after.publishers.iter().any(|one| one.key == key);
    match before.publishers.iter().all(|one| is_kept(one.key.clone())) {
        true => {
            let keys = before.publishers.iter().map(|one| fingerprint(&one.key)).collect();
            Err(TrustError::NobodyDropped { version: after.version, keys })
        }
        false => Ok(()),
    }
}
