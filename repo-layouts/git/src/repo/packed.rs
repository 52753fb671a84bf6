//! The file `packed-refs`, as stock Git writes it: several refs, which move together when it is replaced.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::CommitId;

/// The file of the refs that have none of their own.
pub const PACKED_REFS: &str = "packed-refs";

/// Its first line: that the refs are sorted, and that each tag has a line that says what it points at.
const HEADER: &[u8] = b"# pack-refs with: peeled fully-peeled sorted \n";

/// How many digits an id has.
const ID: usize = 40;

/// What the file in this Git directory holds; nothing where there is none.
pub(super) fn read_packed(git_dir: &Path) -> io::Result<Vec<u8>> {
    match std::fs::read(git_dir.join(PACKED_REFS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// What the file says: the lines of each ref, by its name.
#[derive(Default)]
pub(super) struct PackedRefs<'a>(BTreeMap<&'a [u8], &'a [u8]>);

impl<'a> PackedRefs<'a> {
    /// Reads the file; `None` if it isn't as stock Git writes it today. An empty one has no refs, as none has.
    pub(super) fn read(text: &'a [u8]) -> Option<Self> {
        let mut refs = BTreeMap::new();
        let mut rest = if text.is_empty() { text } else { text.strip_prefix(HEADER)? };
        while !rest.is_empty() {
            let end_of = |text: &[u8]| text.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
            let mut end = end_of(rest)?;
            let (id, name) = rest[..end - 1].split_at_checked(ID)?;
            let name = name.strip_prefix(b" ").filter(|name| !name.is_empty())?;
            id.iter().all(u8::is_ascii_hexdigit).then_some(())?;
            if rest[end..].starts_with(b"^") {
                end += end_of(&rest[end..])?;
            }
            refs.insert(name, &rest[..end]);
            rest = &rest[end..];
        }
        Some(Self(refs))
    }

    /// Where a ref stands; `None` if it isn't in there.
    pub(super) fn find(&self, name: &str) -> Option<CommitId> {
        let id = self.0.get(name.as_bytes()).and_then(|lines| lines.get(..ID))?;
        std::str::from_utf8(id).ok()?.parse().ok()
    }

    /// The file with these branches at these commits.
    pub(super) fn with<'n>(&self, moved: impl IntoIterator<Item = (&'n str, CommitId)>) -> Vec<u8> {
        let moved: Vec<_> = moved.into_iter().map(|(name, id)| (name, format!("{id} {name}\n"))).collect();
        let mut refs: BTreeMap<&[u8], &[u8]> = self.0.clone();
        refs.extend(moved.iter().map(|(name, line)| (name.as_bytes(), line.as_bytes())));
        [HEADER].into_iter().chain(refs.into_values()).collect::<Vec<_>>().concat()
    }
}

/// The file without this ref and the line that says what its tag points at; `None` if it isn't there.
pub(super) fn without(text: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut rest = Vec::with_capacity(text.len());
    let mut dropping = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !line.starts_with(b"^") {
            dropping = line.trim_ascii_end().get(ID + 1..) == Some(name.as_bytes());
        }
        if !dropping {
            rest.extend(line);
        }
    }
    (rest.len() < text.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: &str) -> CommitId {
        digit.repeat(ID).parse().unwrap()
    }

    fn read(text: &[u8]) -> PackedRefs<'_> {
        PackedRefs::read(text).unwrap()
    }

    #[test]
    fn branches_move_and_all_others_stay_as_they_are() {
        let [one, two, three] = ["1", "2", "3"].map(id);
        let tag = format!("{one} refs/tags/v1\n^{two}\n");
        let text = [read(b"").with([("refs/heads/b", one)]), tag.clone().into_bytes()].concat();
        let text = read(&text).with([("refs/heads/b", two), ("refs/heads/a", three)]);
        let lines = format!("{three} refs/heads/a\n{two} refs/heads/b\n{tag}");
        assert_eq!(text, [HEADER, lines.as_bytes()].concat());
        let found = ["refs/heads/a", "refs/heads/b", "refs/tags/v1", "refs/heads"].map(|name| read(&text).find(name));
        assert_eq!(found, [Some(three), Some(two), Some(one), None]);
        let rest = without(&without(&text, "refs/tags/v1").unwrap(), "refs/heads/a").unwrap();
        assert_eq!(rest, read(b"").with([("refs/heads/b", two)]));
        assert_eq!(without(&text, "refs/heads/c"), None);
    }

    #[test]
    fn what_stock_git_would_not_write_is_left_to_it() {
        let one = id("1");
        let bad = ["nonsense\n", "1111 refs/heads/a\n", "^1\n", &format!("{one}\n"), &format!("{one} refs/heads/a")];
        for lines in bad {
            assert!(PackedRefs::read(&[HEADER, lines.as_bytes()].concat()).is_none(), "{lines}");
        }
        assert!(PackedRefs::read(format!("{one} refs/heads/a\n").as_bytes()).is_none(), "as an old Git wrote it");
    }
}
