//! What other hosts send, as `cargo fuzz` makes it up; built with the feature `fuzz` only.

use super::advertisement::{Advertisement, read_ls_refs};
use super::incoming::Incoming;
use super::{FetchError, FetchLimits, Fetched, bundle, receive_pack};
use crate::{CommitId, Repo};

/// Bytes in the place of everything that a host says of its refs and of a push.
pub fn answers(bytes: &[u8]) {
    for service in ["git-upload-pack", "git-receive-pack"] {
        let _ = Advertisement::read(bytes, service);
    }
    let _ = read_ls_refs(bytes);
    receive_pack::fuzz(bytes);
}

/// Bytes in the place of a file with known hosts (its first line is the host that is asked), and of a host's first words.
#[cfg(feature = "ssh")]
pub fn known_hosts(bytes: &[u8]) {
    super::ssh::fuzz(bytes);
}

/// The bytes of a pack with the checksum that they should have, so that what is behind it is reached, too.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    let body = &bytes[..bytes.len().saturating_sub(20)];
    let mut hash = gix::hash::hasher(gix::hash::Kind::Sha1);
    hash.update(body);
    let checksum = hash.try_finalize().map(|id| id.as_slice().to_owned()).unwrap_or_default();
    [body, &checksum].concat()
}

/// Bytes in the place of a pack.
pub fn pack(into: &Repo, bytes: &[u8], limits: &FetchLimits) -> Result<Fetched, FetchError> {
    Incoming::take(into, limits, &mut &*bytes, &[])
}

/// Bytes in the place of a bundle of this ref alone: where that stands, and the bytes in the place of its pack.
pub fn bundled<'a>(bytes: &'a [u8], name: &str) -> Option<(CommitId, &'a [u8])> {
    bundle::fuzz(bytes, name)
}
