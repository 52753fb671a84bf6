//! Packs a directory into an archive: the same files always make the same bytes.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use repo_model::gzip;

/// A file that can't be packed.
#[derive(Debug, thiserror::Error)]
#[error("can't pack `{}`", path.display())]
pub struct PackError {
    pub path: PathBuf,
    #[source]
    pub source: std::io::Error,
}

/// A gzipped tar with the files of `dir` below one directory `name`: sorted, without times, owners and links.
pub fn pack(dir: &Path, name: &str) -> Result<Vec<u8>, PackError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PackError { path, source }
    };
    let mut tar = tar::Builder::new(Vec::new());
    append(&mut tar, dir, name)?;
    Ok(gzip::compress(&tar.into_inner().map_err(failed(dir))?, gzip::BEST))
}

fn append(tar: &mut tar::Builder<impl Write>, path: &Path, name: &str) -> Result<(), PackError> {
    let failed = |source| PackError { path: path.to_owned(), source };
    let meta = std::fs::metadata(path).map_err(failed)?;
    if meta.is_file() {
        let bytes = std::fs::read(path).map_err(failed)?;
        let mode = if meta.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
        return entry(tar, name, tar::EntryType::Regular, mode, &bytes).map_err(failed);
    }
    entry(tar, &format!("{name}/"), tar::EntryType::Directory, 0o755, &[]).map_err(failed)?;
    let entries: Result<Vec<_>, _> = std::fs::read_dir(path).map_err(failed)?.collect();
    let mut names: Vec<_> = entries.map_err(failed)?.into_iter().map(|entry| entry.file_name()).collect();
    names.sort();
    names.iter().try_for_each(|child| append(tar, &path.join(child), &format!("{name}/{}", child.to_string_lossy())))
}

fn entry(
    tar: &mut tar::Builder<impl Write>,
    name: &str,
    kind: tar::EntryType,
    mode: u32,
    bytes: &[u8],
) -> std::io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, name, bytes)
}
