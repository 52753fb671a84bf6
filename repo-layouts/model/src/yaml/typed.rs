//! YAML read into types for which serde derives the reading: settings of a program, where the first mistake is enough.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::parse::parse_any;
use super::{Limits, Node, Span, Value};
use crate::problem::Problem;

/// Reads a document into `T`; `None` where there is nothing in it. The problem has the line and the key of the first thing
/// that doesn't fit.
pub fn deserialize<T: DeserializeOwned>(file: &str, bytes: &[u8], limits: &Limits) -> Result<Option<T>, Problem> {
    let Some(node) = parse_any(file, bytes, limits)?.filter(|node| node.value != Value::Null) else { return Ok(None) };
    let value = node.to_json().map_err(|problem| Problem::error(file, problem))?;
    serde_path_to_error::deserialize(value).map(Some).map_err(|error| {
        let Span { line, column } = place(&node, error.path());
        let key = if error.path().iter().len() == 0 { String::new() } else { error.path().to_string() };
        Problem::error(file, error.inner().to_string()).at(line, column).key(key)
    })
}

/// Where the innermost of these keys stands that a document has, the outermost first; nowhere in one that can't be read.
pub fn place_of(bytes: &[u8], limits: &Limits, keys: &[String]) -> Span {
    let Ok(Some(root)) = parse_any("", bytes, limits) else { return Span::default() };
    let path: Vec<_> = keys.iter().map(|key| Segment::Map { key: key.clone() }).collect();
    place(&root, &path)
}

/// Where the key of the innermost value on this path stands, or the item of a list.
fn place<'p>(root: &Node, path: impl IntoIterator<Item = &'p Segment>) -> Span {
    let mut span = root.span;
    let mut node = root;
    for segment in path {
        let next = match (segment, &node.value) {
            (Segment::Map { key }, Value::Mapping(entries)) => {
                entries.iter().find(|(name, _)| name.text() == Some(key)).map(|(name, value)| (name.span, value))
            }
            (Segment::Seq { index }, _) => node.item(*index).map(|item| (item.span, item)),
            _ => None,
        };
        let Some((at, inner)) = next else { break };
        (span, node) = (at, inner);
    }
    span
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        jobs: Option<u8>,
        #[serde(default)]
        rooms: Vec<BTreeMap<String, bool>>,
    }

    fn read(text: &str) -> Result<Option<Settings>, String> {
        deserialize("s.yaml", text.as_bytes(), &Limits::FLEET).map_err(|problem| problem.to_string())
    }

    #[test]
    fn what_fits_is_read_and_nothing_at_all_is_nothing() {
        let settings = Settings { jobs: Some(2), rooms: vec![[("a".to_owned(), true)].into()] };
        assert_eq!(read("jobs: 2\nrooms:\n- {a: true}\n"), Ok(Some(settings)));
        assert_eq!(read("# nothing\n"), Ok(None));
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_line_and_key() {
        for (text, start) in [
            ("jobs: 300\n", "s.yaml:1:1: jobs: invalid value: integer `300`"),
            ("jobs: 2\nrooms:\n- a: true\n  b: maybe\n", "s.yaml:4:3: rooms[0].b: invalid type: string \"maybe\""),
            ("jobs: 2\n\njob: 1\n", "s.yaml:3:1: job: unknown field `job`, expected `jobs` or `rooms`"),
            ("rooms: [1]\n", "s.yaml:1:9: rooms[0]: invalid type: integer `1`"),
            ("- 1\n- 2\n", "s.yaml:2:3: [1]: invalid type: integer `2`"),
            ("jobs: 1\njobs: 2\n", "s.yaml:2:1: "),
            ("jobs: 99999999999999999999\n", "s.yaml: `99999999999999999999` doesn't fit"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.starts_with(start), "{problem}");
        }
    }
}
