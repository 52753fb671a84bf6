//! Where a ref stands by its own file, read without gix.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::CommitId;

/// More than the file of a ref has that names a commit.
const LONGEST: usize = 64;

/// Where a ref stands whose file says it, or which has neither a file nor a place in `packed-refs`; `None` where only
/// Git can tell, because it is packed, symbolic or damaged.
pub(super) fn plain(root: &Path, name: &str) -> Option<Option<CommitId>> {
    match read(&root.join(name)) {
        Ok(Some(id)) => Some(Some(id)),
        Err(error) if error.kind() == ErrorKind::NotFound && !root.join("packed-refs").exists() => Some(None),
        _ => None,
    }
}

/// The commit in a ref's file, read at once: this is done for thousands of them to find that nothing changed.
fn read(file: &Path) -> std::io::Result<Option<CommitId>> {
    let mut bytes = [0; LONGEST];
    let length = File::open(file)?.read(&mut bytes)?;
    Ok(std::str::from_utf8(&bytes[..length]).ok().and_then(|text| text.trim_end().parse().ok()))
}
