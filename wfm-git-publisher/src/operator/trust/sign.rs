//! `trust sign`: a root's signature of the proposal, made here or elsewhere.

use std::path::Path;

use repo_git::durable::{self, FileError};
use repo_git::{SigningKey, sign as signatures};
use repo_model::KeyText;
use repo_model::roster::{ROSTER_NAMESPACE, own_signature_path, roster_path, signature_path};

use super::LOCK_WAIT;
use super::error::TrustError;
use super::proposal::{self, Proposal};
use crate::repos::{Control, Home, Rosters, key_text};

/// Where a signature comes from.
#[derive(Debug, Clone, Copy)]
pub enum Signing<'a> {
    /// It is made with the private key in this file.
    Key(&'a Path),
    /// `ssh-keygen -Y sign -n wfm-roster` made it, into this file.
    Made(&'a Path),
}

/// Puts a signature beside the proposal: as that of a root of the version before, of its own, or both. Whose it was, and the
/// proposal with it.
pub fn sign(home: &Home, by: Signing<'_>) -> Result<(KeyText, Proposal, Rosters), TrustError> {
    home.check()?;
    let _lock = home.lock(LOCK_WAIT)?;
    let rosters = Control::known_rosters(home)?;
    let before = &rosters.newest.roster;
    let none = || TrustError::NoProposal { version: before.version };
    let proposed = Proposal::read(home, &rosters)?.ok_or_else(none)?;
    let after = &proposed.trust.roster;
    let bytes = &proposed.files[&roster_path(after.version)];
    let (armored, path) = match by {
        Signing::Key(path) => (SigningKey::load(path)?.sign(ROSTER_NAMESPACE, bytes)?, path),
        Signing::Made(path) => (std::fs::read_to_string(path).map_err(FileError::read(path))?, path),
    };
    let wrong = |source| TrustError::Signature { path: path.to_owned(), source };
    let public = signatures::verify(ROSTER_NAMESPACE, bytes, &armored).map_err(wrong)?;
    let not_a_root =
        || TrustError::NotARoot { key: public.fingerprint(), before: before.version, proposed: after.version };
    let key = key_text(public).ok_or_else(not_a_root)?;
    let place = |roots: &[KeyText]| roots.iter().position(|root| *root == key);
    let names = [
        place(&before.roots).map(|index| signature_path(after.version, index)),
        place(&after.roots).map(|index| own_signature_path(after.version, index)),
    ];
    if names.iter().all(Option::is_none) {
        return Err(not_a_root());
    }
    for name in names.into_iter().flatten() {
        let file = proposal::file(home, &name);
        durable::replace_file(&file, armored.as_bytes(), 0o644).map_err(FileError::write(&file))?;
    }
    let signed = Proposal::read(home, &rosters)?.ok_or_else(none)?;
    Ok((key, signed, rosters))
}
