//! The bundle: a deterministic `.tar.gz` of exactly the files of `deployments/`.

use std::io::Write;

use flate2::{Compression, GzBuilder};

use crate::FileTree;

/// The path of the archive in the tree of `bundle`.
pub const BUNDLE: &str = "bundle.tar.gz";

/// The archive of `files` (bare names → bytes): ustar in path order, times and ids 0, mode 0644.
///
/// # Panics
/// If a name has more than 100 bytes; deployment files are named by UUID.
pub fn archive(files: &FileTree) -> Vec<u8> {
    let gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::new(6));
    let mut gzip = gzip;
    gzip.write_all(&tar(files)).expect("writing to memory");
    gzip.finish().expect("writing to memory")
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
