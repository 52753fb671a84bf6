//! Reads a compose archive and checks it, in memory: what breaks a rule is never written anywhere.
//!
//! Links inside are replaced by copies of what they point at, so that no link ever reaches a device's disk, where
//! a container could redirect it.

mod links;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use tar::EntryType;

/// Bounds on what an archive may hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most files and directories.
    pub entries: usize,
    /// Bytes of the unpacked tar stream, and of all files once links are copies.
    pub bytes: usize,
    /// How many times larger than the gzip stream it may unpack to (the first MiB is free).
    pub ratio: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 4096, bytes: 64 << 20, ratio: 200 }
    }
}

/// A checked archive: paths are relative to its one directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archive {
    files: BTreeMap<String, File>,
    dirs: BTreeSet<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Permission bits, without setuid, setgid and sticky.
    pub mode: u32,
    pub bytes: Arc<[u8]>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes {:o}", self.bytes.len(), self.mode)
    }
}

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Not gzip, or not tar.
    #[error("can't read the tar+gzip stream")]
    Read(#[from] std::io::Error),
    #[error("more than {limit} {what}")]
    TooBig {
        /// What there is too much of.
        what: &'static str,
        limit: usize,
    },
    /// An entry that breaks a rule.
    #[error("`{path}`: {rule}")]
    Entry {
        /// The entry's name as written.
        path: String,
        rule: &'static str,
    },
    /// Not exactly one top-level directory.
    #[error("expected exactly one top-level directory, found {0:?}")]
    TopLevel(Vec<String>),
    /// The directory has no `compose.yaml`.
    #[error("there is no file `compose.yaml` in the top-level directory")]
    NoCompose,
}

impl Archive {
    /// The file that each archive must have.
    pub const COMPOSE: &str = "compose.yaml";

    /// Unpacks and checks the exact bytes of a layer.
    pub fn read(gzip: &[u8], limits: &Limits) -> Result<Self, ArchiveError> {
        let nodes = nodes(&inflate(gzip, limits)?, limits)?;
        let archive = links::expand(&nodes, limits)?;
        if !archive.files.contains_key(Self::COMPOSE) {
            return Err(ArchiveError::NoCompose);
        }
        Ok(archive)
    }

    /// Every file by its path.
    pub fn files(&self) -> &BTreeMap<String, File> {
        &self.files
    }

    /// Every directory below the top one, parents before children.
    pub fn dirs(&self) -> &BTreeSet<String> {
        &self.dirs
    }
}

/// An entry of the tar stream; link targets are as written.
enum Node {
    Dir,
    File(File),
    Symlink(String),
    /// The target is a path from the archive's root.
    Hardlink(String),
}

type Nodes = BTreeMap<String, Node>;

/// Every file of a tar+gzip stream by its whole path, for a stream in which there may be nothing but files and directories.
///
/// # Errors
/// Those of [`Archive::read`] that aren't about compose; and each link.
pub fn plain_files(gzip: &[u8], limits: &Limits) -> Result<BTreeMap<String, File>, ArchiveError> {
    let nodes = nodes(&inflate(gzip, limits)?, limits)?;
    let plain = |(path, node)| match node {
        Node::Dir => None,
        Node::File(file) => Some(Ok((path, file))),
        Node::Symlink(_) | Node::Hardlink(_) => {
            Some(Err(ArchiveError::Entry { path, rule: "only files and directories are allowed" }))
        }
    };
    nodes.into_iter().filter_map(plain).collect()
}

/// The tar stream, as far as the limits allow.
pub(crate) fn inflate(gzip: &[u8], limits: &Limits) -> Result<Vec<u8>, ArchiveError> {
    let by_ratio = gzip.len().saturating_mul(limits.ratio).max(1 << 20);
    let limit = limits.bytes.min(by_ratio);
    let mut tar = Vec::new();
    MultiGzDecoder::new(gzip).take(limit as u64 + 1).read_to_end(&mut tar)?;
    if tar.len() > limit {
        return Err(ArchiveError::TooBig { what: "unpacked bytes", limit });
    }
    Ok(tar)
}

fn nodes(tar: &[u8], limits: &Limits) -> Result<Nodes, ArchiveError> {
    let mut nodes = Nodes::new();
    for entry in tar::Archive::new(tar).entries()? {
        let mut entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(node) = node(&name, &mut entry)? else { continue };
        let Some(path) = checked_path(&name)? else { continue };
        let again = nodes.get(&path).is_some_and(|old| !matches!((old, &node), (Node::Dir, Node::Dir)));
        if again {
            return Err(ArchiveError::Entry { path: name, rule: "is in the archive twice" });
        }
        nodes.insert(path, node);
        if nodes.len() > limits.entries {
            return Err(ArchiveError::TooBig { what: "entries", limit: limits.entries });
        }
    }
    add_parents(&mut nodes)?;
    Ok(nodes)
}

fn node(name: &str, entry: &mut tar::Entry<'_, &[u8]>) -> Result<Option<Node>, ArchiveError> {
    let refused = |rule| ArchiveError::Entry { path: name.to_owned(), rule };
    let target = || {
        let target = entry.link_name_bytes().map(|bytes| String::from_utf8(bytes.into_owned()));
        target.and_then(Result::ok).ok_or_else(|| refused("the link's target is missing or not UTF-8"))
    };
    Ok(Some(match entry.header().entry_type() {
        EntryType::XGlobalHeader => return Ok(None),
        EntryType::Directory => Node::Dir,
        EntryType::Symlink => Node::Symlink(target()?),
        EntryType::Link => Node::Hardlink(target()?),
        EntryType::Regular | EntryType::Continuous => {
            let mode = entry.header().mode()? & 0o777;
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            Node::File(File { mode, bytes: bytes.into() })
        }
        _ => return Err(refused("only files, directories and links are allowed")),
    }))
}

/// The path without `./` and a final `/`; none for the archive's root itself.
pub(crate) fn checked_path(name: &str) -> Result<Option<String>, ArchiveError> {
    let refused = |rule| Err(ArchiveError::Entry { path: name.to_owned(), rule });
    if name.starts_with('/') {
        return refused("the path is absolute");
    }
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return refused("the path contains `..`");
    }
    if name.len() > 1024 || parts.len() > 32 || parts.iter().any(|part| part.len() > 255) {
        return refused("the path is too long");
    }
    if name.chars().any(|c| c.is_control() || c == char::REPLACEMENT_CHARACTER) {
        return refused("the path has control characters or is not UTF-8");
    }
    Ok((!parts.is_empty()).then(|| parts.join("/")))
}

/// Directories that have no entry of their own; a file or link may not have anything below it.
fn add_parents(nodes: &mut Nodes) -> Result<(), ArchiveError> {
    let paths: Vec<String> = nodes.keys().cloned().collect();
    for path in paths {
        for (end, _) in path.match_indices('/') {
            match nodes.entry(path[..end].to_owned()).or_insert(Node::Dir) {
                Node::Dir => {}
                _ => return Err(ArchiveError::Entry { path, rule: "is below something that is not a directory" }),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
