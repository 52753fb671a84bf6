//! Over SSH: host keys, and the user as whom clients come.

pub mod host_keys;
pub mod user;
