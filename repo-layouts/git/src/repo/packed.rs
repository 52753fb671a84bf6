//! The file `packed-refs`, as stock Git writes it: several refs, which move together when it is replaced.

use std::collections::BTreeMap;

use crate::CommitId;

/// Its first line: that the refs are sorted, and that each tag has a line that says what it points at.
const HEADER: &[u8] = b"# pack-refs with: peeled fully-peeled sorted \n";

/// How many digits an id has.
const ID: usize = 40;

/// The lines of each ref, by its name; `None` if the file isn't as stock Git writes it today.
fn refs(text: &[u8]) -> Option<BTreeMap<&[u8], &[u8]>> {
    let mut refs = BTreeMap::new();
    let mut rest = text.strip_prefix(HEADER)?;
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
    Some(refs)
}

/// Where a ref stands by this file, if it is in there; `None` if only Git can tell.
pub(super) fn find(text: &[u8], name: &str) -> Option<Option<CommitId>> {
    match refs(text)?.get(name.as_bytes()) {
        Some(lines) => Some(Some(std::str::from_utf8(&lines[..ID]).ok()?.parse().ok()?)),
        None => Some(None),
    }
}

/// The file with these branches at these commits; `None` if it isn't as stock Git writes it today. An empty one stands for none.
pub(super) fn with<'a>(text: &[u8], moved: impl IntoIterator<Item = (&'a str, CommitId)>) -> Option<Vec<u8>> {
    let mut refs = if text.is_empty() { BTreeMap::new() } else { refs(text)? };
    let moved: Vec<_> = moved.into_iter().map(|(name, id)| (name, format!("{id} {name}\n"))).collect();
    refs.extend(moved.iter().map(|(name, line)| (name.as_bytes(), line.as_bytes())));
    Some(refs.into_values().fold(HEADER.to_vec(), |text, lines| [&text, lines].concat()))
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

    #[test]
    fn branches_move_and_all_others_stay_as_they_are() {
        let [one, two, three] = ["1", "2", "3"].map(id);
        let tag = format!("{one} refs/tags/v1\n^{two}\n");
        let text = with(b"", [("refs/heads/b", one)]).unwrap();
        let text = [text, tag.clone().into_bytes()].concat();
        let text = with(&text, [("refs/heads/b", two), ("refs/heads/a", three)]).unwrap();
        let lines = format!("{three} refs/heads/a\n{two} refs/heads/b\n{tag}");
        assert_eq!(text, [HEADER, lines.as_bytes()].concat());
        let found = ["refs/heads/a", "refs/heads/b", "refs/tags/v1", "refs/heads"].map(|name| find(&text, name));
        assert_eq!(found, [Some(Some(three)), Some(Some(two)), Some(Some(one)), Some(None)]);
        let rest = without(&without(&text, "refs/tags/v1").unwrap(), "refs/heads/a").unwrap();
        assert_eq!(Some(rest), with(b"", [("refs/heads/b", two)]));
        assert_eq!(without(&text, "refs/heads/c"), None);
    }

    #[test]
    fn what_stock_git_would_not_write_is_left_to_it() {
        let one = id("1");
        let bad = ["nonsense\n", "1111 refs/heads/a\n", "^1\n", &format!("{one}\n"), &format!("{one} refs/heads/a")];
        for lines in bad {
            let text = [HEADER, lines.as_bytes()].concat();
            assert_eq!((find(&text, "refs/heads/a"), with(&text, [])), (None, None), "{lines}");
        }
        let old = format!("{one} refs/heads/a\n");
        assert_eq!((find(old.as_bytes(), "refs/heads/a"), with(old.as_bytes(), [])), (None, None));
    }
}
