//! Every fsync, rename, ref move and synced write in place, each under its own name.
//!
//! A step that must reach the disk before the next one begins is a [`SyncPoint`]; the crash tests read the list and cut
//! the power before and after each of them. Temporary files lie beside their target, or where a
//! [`Dir`] is told to make them, and begin with [`TEMP_PREFIX`].
#![allow(clippy::disallowed_methods, reason = "this module is where the disallowed methods are called")]

mod dir;
mod file_error;
mod files;
mod group;
mod points;
mod stamp;
pub(crate) mod store;

pub use dir::Dir;
pub use file_error::FileError;
pub(crate) use files::{Temp, replace_file_with};
pub use files::{
    create_dir_all, create_tree, exchange, remove_dir_all, remove_file, rename, replace_file, sync_file, sync_tree,
    write_slot,
};
pub use group::Group;
pub use points::SyncPoint;
pub use stamp::{Stamp, TICK};

/// What the name of every temporary file and directory begins with; a leftover one may be deleted under the lock.
pub const TEMP_PREFIX: &str = ".tmp-";
