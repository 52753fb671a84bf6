//! `trust publish`: the proposal becomes the newest roster in `control.git`, and the next key this home's.

use jiff::Timestamp;
use repo_git::SigningKey;
use repo_git::durable::{self, FileError};
use repo_git::sign::openssh::fingerprint;
use repo_model::FileTree;
use repo_model::roster::{ROSTER_NAMESPACE, Trust};

use super::LOCK_WAIT;
use super::error::TrustError;
use super::proposal::{self, Proposal};
use crate::operator::allowed_signers::allow;
use crate::repos::{Control, ControlError, Home, Rosters, key_text};

/// What `trust publish` came to.
#[derive(Debug)]
pub struct PublishedRoster {
    /// The newest roster.
    pub trust: Trust,
    /// Whether it is in `control.git` only now.
    pub is_new: bool,
    /// The fingerprint of the key that is this home's from now on.
    pub new_key: Option<String>,
    /// Whether devices that have the roster believe this home's key.
    pub is_allowed: bool,
}

/// Commits the proposal, which the roots of the version before and its own have to have signed, and then makes everything
/// else agree with the newest roster. Cut off anywhere, the same again completes it; with nothing left to do it does nothing.
pub fn publish_roster(home: &Home, now: Timestamp) -> Result<PublishedRoster, TrustError> {
    home.check()?;
    let _lock = home.lock(LOCK_WAIT)?;
    let (control, before) = Control::open(home)?;
    let proposed = Proposal::read(home, &before)?;
    let is_new = proposed.is_some();
    let rosters = match proposed {
        None => before,
        Some(proposed) => {
            let (files, rosters) = proven(&proposed, &before)?;
            let key = signing_key(home, &rosters)?;
            commit(control, &rosters, &files, &key, now)?;
            rosters
        }
    };
    let new_key = agree(home, &rosters)?;
    Ok(finished(home, rosters, (is_new, new_key), now))
}

/// What of a proposal is proven, and the rosters with it: the roots of the version before and its own signed it.
pub(super) fn proven(proposed: &Proposal, before: &Rosters) -> Result<(FileTree, Rosters), TrustError> {
    let files = proposed.proven(&before.newest.roster);
    let rosters = before.with(&files).map_err(unproven)?;
    Ok((files, rosters))
}

/// Commits the files of the newest roster to the ledger.
pub(super) fn commit(
    mut control: Control,
    rosters: &Rosters,
    files: &FileTree,
    key: &SigningKey,
    now: Timestamp,
) -> Result<(), TrustError> {
    control.put_trust(files);
    let subject = format!("roster version {}", rosters.newest.roster.version);
    control.commit(Control::message(subject, rosters.fleet()), key, now)?;
    Ok(())
}

/// What it came to, once everything agrees with the newest roster.
pub(super) fn finished(
    home: &Home,
    rosters: Rosters,
    (is_new, new_key): (bool, Option<String>),
    now: Timestamp,
) -> PublishedRoster {
    let own = SigningKey::load(&home.publisher_key()).ok().and_then(|key| key_text(key.public()));
    let is_allowed = own.is_some_and(|key| rosters.newest.allows(&key, now));
    PublishedRoster { trust: rosters.newest, is_new, new_key, is_allowed }
}

fn unproven(error: ControlError) -> TrustError {
    match error {
        ControlError::Roster(error) => TrustError::Unproven(error),
        error => error.into(),
    }
}

/// A key of this home that ever was a publisher's: the present one, or where that is lost, the next.
fn signing_key(home: &Home, rosters: &Rosters) -> Result<SigningKey, TrustError> {
    let keys = [home.publisher_key(), home.next_publisher_key()];
    let mut keys = keys.iter().filter_map(|path| SigningKey::load(path).ok());
    let is_publisher = |key: &SigningKey| key_text(key.public()).is_some_and(|key| rosters.publishers.contains(&key));
    keys.find(is_publisher).ok_or(TrustError::NoSigner)
}

/// Makes `allowed_signers`, this home's key and the proposals agree with the newest roster; the new key, if there is one.
pub(super) fn agree(home: &Home, rosters: &Rosters) -> Result<Option<String>, TrustError> {
    allow_signers(home, rosters)?;
    let next = home.next_publisher_key();
    let key = if next.exists() { key_text(SigningKey::load(&next)?.public()) } else { None };
    let roster = &rosters.newest.roster;
    let key = key.filter(|key| roster.publishers.iter().any(|publisher| publisher.key == *key));
    if key.is_some() {
        let path = home.publisher_key();
        durable::rename(&next, &path).map_err(FileError::write(&path))?;
        // The public half of the old key, which somebody made.
        let public = path.with_extension("pub");
        durable::remove_file(&public).map_err(FileError::write(&public))?;
    }
    proposal::clear(home, roster.version, |_| false)?;
    Ok(key.as_ref().map(fingerprint))
}

/// Adds the lines for the roster's keys, and for publishers of before, who signed what is there.
fn allow_signers(home: &Home, rosters: &Rosters) -> Result<(), TrustError> {
    let roster = &rosters.newest.roster;
    let publishers = rosters.publishers.iter().map(|key| format!("publisher namespaces=\"git\" {key}"));
    let roots = roster.roots.iter().map(|root| format!("root namespaces=\"{ROSTER_NAMESPACE}\" {root}"));
    Ok(allow(home, publishers.chain(roots))?)
}
