//! Replaces links by copies of what they point at, and takes the top-level directory off.

use super::{Archive, ArchiveError, Limits, Node, Nodes};

/// As deep as Linux follows.
const MAX_FOLLOWED: usize = 40;

/// The archive below its one top-level directory, free of links.
pub(super) fn expand(nodes: &Nodes, limits: &Limits) -> Result<Archive, ArchiveError> {
    let tops: Vec<&String> = nodes.keys().filter(|path| !path.contains('/')).collect();
    let top = match tops[..] {
        [top] if matches!(nodes[top], Node::Dir) => top,
        _ => return Err(ArchiveError::TopLevel(tops.into_iter().take(10).cloned().collect())),
    };
    let mut copy = Copy { nodes, top, limits, bytes: 0, archive: Archive::default() };
    copy.dir(top, "", 0)?;
    Ok(copy.archive)
}

struct Copy<'a> {
    nodes: &'a Nodes,
    top: &'a str,
    limits: &'a Limits,
    bytes: usize,
    archive: Archive,
}

impl Copy<'_> {
    /// Everything in directory `from`, to below `to`; `followed` links led here.
    fn dir(&mut self, from: &str, to: &str, followed: usize) -> Result<(), ArchiveError> {
        let prefix = format!("{from}/");
        let below = self.nodes.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let names: Vec<&str> =
            below.map(|(path, _)| &path[prefix.len()..]).filter(|name| !name.contains('/')).collect();
        for name in names {
            let to = if to.is_empty() { name.to_owned() } else { format!("{to}/{name}") };
            self.node(&format!("{prefix}{name}"), to, followed)?;
        }
        Ok(())
    }

    fn node(&mut self, from: &str, to: String, followed: usize) -> Result<(), ArchiveError> {
        match &self.nodes[from] {
            Node::Dir => {
                self.archive.dirs.insert(to.clone());
                self.check_size()?;
                self.dir(from, &to, followed)
            }
            Node::File(file) => {
                self.bytes += file.bytes.len();
                self.archive.files.insert(to, file.clone());
                self.check_size()
            }
            Node::Symlink(_) | Node::Hardlink(_) => {
                let target = self.target(from, followed + 1)?;
                self.node(&target, to, followed + 1)
            }
        }
    }

    fn check_size(&self) -> Result<(), ArchiveError> {
        if self.archive.files.len() + self.archive.dirs.len() > self.limits.entries {
            return Err(ArchiveError::TooBig { what: "entries", limit: self.limits.entries });
        }
        if self.bytes > self.limits.bytes {
            return Err(ArchiveError::TooBig { what: "bytes", limit: self.limits.bytes });
        }
        Ok(())
    }

    /// Where the link `from` leads, as a kernel would resolve it: links on the way are followed too.
    fn target(&self, from: &str, followed: usize) -> Result<String, ArchiveError> {
        let refused = |rule| ArchiveError::Entry { path: from.to_owned(), rule };
        if followed > MAX_FOLLOWED {
            return Err(refused("links lead in a circle"));
        }
        let (base, target) = match &self.nodes[from] {
            Node::Symlink(target) => (from.rsplit_once('/').map_or("", |(dir, _)| dir), target),
            Node::Hardlink(target) => ("", target),
            _ => return Ok(from.to_owned()),
        };
        if target.starts_with('/') {
            return Err(refused("the link's target is absolute"));
        }
        let mut at = base.to_owned();
        for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
            let next = self.step(&at, part, followed)?;
            at = next.ok_or_else(|| refused("the link leaves the directory or leads nowhere"))?;
        }
        Ok(at)
    }

    /// One part of a link's target, from the directory `at`; `None` if that leaves the top directory or leads nowhere.
    fn step(&self, at: &str, part: &str, followed: usize) -> Result<Option<String>, ArchiveError> {
        if !at.is_empty() && !matches!(self.nodes.get(at), Some(Node::Dir)) {
            return Ok(None);
        }
        let next = match (part, at.rsplit_once('/')) {
            ("..", Some((parent, _))) => parent.to_owned(),
            ("..", None) => return Ok(None),
            (part, _) if at.is_empty() => part.to_owned(),
            (part, _) => format!("{at}/{part}"),
        };
        let inside = next == self.top || next.starts_with(&format!("{}/", self.top));
        match self.nodes.get(&next) {
            Some(Node::Symlink(_) | Node::Hardlink(_)) if inside => self.target(&next, followed + 1).map(Some),
            Some(_) if inside => Ok(Some(next)),
            _ => Ok(None),
        }
    }
}
