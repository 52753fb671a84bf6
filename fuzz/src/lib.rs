//! The host's own readers, taken from the publisher by their paths: the whole publisher with its TLS and its libgit2 would
//! take minutes to build, and none of that is fuzzed here.

#[path = "../../wfm-git-publisher/host/src/accounts/secret.rs"]
mod secret;
#[path = "../../wfm-git-publisher/host/src/wire/mod.rs"]
pub mod wire;

/// Whether a header can be read, and whose it is said to be.
pub fn authorization(header: &str) -> Option<Option<String>> {
    secret::shown(header).map(|shown| shown.user)
}
