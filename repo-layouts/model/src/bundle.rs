//! The bundle: a deterministic `.tar.gz` of exactly the files of `deployments/`.

use crate::{FileTree, gzip};

/// How hard it is compressed.
const LEVEL: u8 = 6;

/// The path of the archive in the tree of `bundle`.
pub const BUNDLE: &str = "bundle.tar.gz";

/// The archive of `files` (bare names → bytes): ustar in path order, times and ids 0, mode 0644.
///
/// # Panics
/// If a name has more than 100 bytes; deployment files are named by UUID.
pub fn archive(files: &FileTree) -> Vec<u8> {
    gzip::compress(&tar(files), LEVEL)
}

/// The tar inside, whose bytes the vectors fix.
pub fn tar(files: &FileTree) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_path(name).expect("a short relative name");
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        builder.append(&header, bytes.as_slice()).expect("writing to memory");
    }
    builder.into_inner().expect("writing to memory")
}
