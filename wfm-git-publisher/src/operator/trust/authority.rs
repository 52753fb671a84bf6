//! Another certificate authority of the fleet's own host, without a gap: devices believe both while one replaces the other.

use std::fs;
use std::path::Path;

use repo_git::durable::{self, FileError};
use wfm_git_host::ca::Authority;

use super::LOCK_WAIT;
use super::error::TrustError;
use crate::repos::{Control, Home};

/// The PEM of the authorities that the next roster names: that of the host, and the next one beside it, made for these names,
/// if that is wanted. Making it changes nothing that the host shows.
pub fn authorities(home: &Home, names: &[String], with_next: bool) -> Result<Vec<String>, TrustError> {
    let mut authorities = vec![Authority::ensure(&home.ca(), names)?.pem().to_owned()];
    if with_next {
        authorities.push(Authority::ensure_next(&home.next_ca(), &home.ca(), names)?.pem().to_owned());
    }
    Ok(authorities)
}

/// From now on the host shows certificates of the next authority, which the newest roster has to name. The one of before takes
/// its place, so that the same again goes back. One step: cut off anywhere, it is the one or the other. Returns the version of that
/// roster.
pub fn switch_authority(home: &Home) -> Result<u64, TrustError> {
    home.check()?;
    let _lock = home.lock(LOCK_WAIT)?;
    let (dir, next) = (home.ca(), home.next_ca());
    let path = next.join("ca.pem");
    if !path.exists() || !next.join("ca.key").exists() {
        return Err(TrustError::NoOtherAuthority);
    }
    let newest = Control::read_rosters(home)?.newest.roster;
    let named = newest.host.and_then(|host| host.ca).unwrap_or_default();
    if !named.contains(read(&path)?.trim()) {
        return Err(TrustError::Unnamed { path, version: newest.version });
    }
    durable::exchange(&dir, &next).map_err(FileError::write(&dir))?;
    Ok(newest.version)
}

fn read(path: &Path) -> Result<String, TrustError> {
    Ok(fs::read_to_string(path).map_err(FileError::read(path))?)
}
