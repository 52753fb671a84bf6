//! Archives for the unit tests of this module.

use crate::{Archive, Limits};

/// An archive with these files.
pub(super) fn archive(files: &[(&str, &str)]) -> Archive {
    let mut tar = tar::Builder::new(Vec::new());
    let compose = [("compose.yaml", "{}")];
    let missing = compose.iter().filter(|_| !files.iter().any(|file| file.0 == "compose.yaml"));
    for (path, text) in files.iter().chain(missing) {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, format!("app/{path}"), text.as_bytes()).unwrap();
    }
    let bytes = repo_model::gzip::compress(&tar.into_inner().unwrap(), repo_model::gzip::BEST);
    Archive::read(&bytes, &Limits::default()).unwrap()
}
