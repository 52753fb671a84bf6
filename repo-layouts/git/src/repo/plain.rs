//! Where refs stand by their own files or `packed-refs`, read without gix.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::packed::{PackedRefs, read_packed};
use crate::CommitId;

/// More than the file of a ref has that names a commit.
const LONGEST: usize = 64;

/// Where these refs stand; `None` where only Git can tell, because one is symbolic or damaged, or `packed-refs` isn't what it writes
/// today.
pub(super) fn plain<const N: usize>(root: &Path, names: [&str; N]) -> [Option<Option<CommitId>>; N] {
    let mut found = names.map(|name| match read(&root.join(name)) {
        Ok(id) => id.map(Some),
        Err(error) => (error.kind() == ErrorKind::NotFound).then_some(None),
    });
    if found.contains(&Some(None)) {
        // Read after their own files: one that had none any more had a place here by then.
        let text = read_packed(root).ok();
        let packed = text.as_deref().and_then(PackedRefs::read);
        for (found, name) in found.iter_mut().zip(names).filter(|(found, _)| **found == Some(None)) {
            *found = packed.as_ref().map(|packed| packed.find(name));
        }
    }
    found
}

/// The commit in a ref's file, read at once: this is done for thousands of them to find that nothing changed.
fn read(file: &Path) -> std::io::Result<Option<CommitId>> {
    let mut bytes = [0; LONGEST];
    let length = File::open(file)?.read(&mut bytes)?;
    Ok(std::str::from_utf8(&bytes[..length]).ok().and_then(|text| text.trim_end().parse().ok()))
}
