//! Edits of a few lines in files that people wrote, comments and order kept.

use repo_model::yaml::{Limits, Node, Span, Value, parse};

/// The text with the top-level list `key` set to `items`: an old list is replaced, a new one goes to the end, and an empty
/// one goes away.
///
/// `None` if the file isn't written in the usual block style; whoever asked checks the result by reading it.
pub(super) fn set_list(text: &str, key: &str, items: &[String]) -> Option<String> {
    let head = (!items.is_empty()).then(|| format!("{key}:"));
    let block: Vec<_> = head.into_iter().chain(items.iter().map(|item| format!("  - {item}"))).collect();
    let mut lines: Vec<&str> = text.lines().collect();
    match top_level(text, key)? {
        Some(line) => {
            let end = line + 1 + lines.get(line + 1..)?.iter().take_while(|line| belongs(line)).count();
            lines.splice(line..end, block.iter().map(String::as_str));
        }
        None => lines.extend(block.iter().map(String::as_str)),
    }
    Some(lines.join("\n") + "\n")
}

/// The text with the top-level `key` set to a word: an old one is replaced where it stands, with its comment kept, and a
/// new one goes to the end. `None` as with [`set_list`].
pub(super) fn set_word(text: &str, key: &str, word: &str) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    match top_level(text, key)? {
        Some(line) => {
            let old = lines.get_mut(line)?;
            let comment = old.find(" #").map(|at| old[at..].to_owned()).unwrap_or_default();
            *old = format!("{key}: {word}{comment}");
        }
        None => lines.push(format!("{key}: {word}")),
    }
    Some(lines.join("\n") + "\n")
}

/// The text with `id: <id>` as its first key, below the comments at its head.
pub(super) fn set_id(text: &str, id: &str) -> Option<String> {
    let node = parse("", text.as_bytes(), &Limits::FLEET).ok()?;
    let Value::Mapping(entries) = &node.value else { return None };
    let first = entries.first()?.0.span.line.checked_sub(1)?;
    let mut lines: Vec<&str> = text.lines().collect();
    let line = format!("id: {id}");
    lines.insert(first.min(lines.len()), &line);
    Some(lines.join("\n") + "\n")
}

/// The text with `key` of the top-level mapping `section` set to `value`, which is one line: an old value is replaced where it
/// stands, with its comment kept, and a new one goes to the end of the section. `key` is as YAML has it. `None` as with
/// [`set_list`].
pub(super) fn set_entry(text: &str, section: &str, key: &str, value: &str) -> Option<String> {
    let node = parse("", text.as_bytes(), &Limits::FLEET).ok()?;
    let Value::Mapping(sections) = &node.value else { return None };
    let (mut lines, end) = ended_lines(text);
    let Some((name, entries)) = sections.iter().find(|(name, _)| name.text() == Some(section)) else {
        lines.push(format!("{section}:{end}  {key}: {value}{end}"));
        return Some(lines.concat());
    };
    let entries = match &entries.value {
        Value::Mapping(entries) if entries.iter().all(|(key, _)| key.span.line > name.span.line) => entries.as_slice(),
        Value::Null => &[],
        _ => return None,
    };
    let indent = " ".repeat(entries.first().map_or(2, |(key, _)| key.span.column.saturating_sub(1)));
    let wanted = parse("", key.as_bytes(), &Limits::FLEET).ok()?;
    match entries.iter().find(|(name, _)| name.text() == wanted.text()) {
        Some((name, old)) => {
            let first = name.span.line.checked_sub(1)?;
            let line = lines.get(first)?;
            let is_one = old.span.line == name.span.line;
            let begin = line.char_indices().nth(old.span.column.checked_sub(1)?).map(|(at, _)| at).filter(|_| is_one);
            let head = begin.map_or_else(|| format!("{indent}{key}: "), |begin| line[..begin].to_owned());
            let last = last_line(&lines, first, indent.len());
            let tail = begin.filter(|_| last == first).map_or("", |begin| comment(line[begin..].trim_end()));
            let new = format!("{head}{value}{tail}{end}");
            lines.splice(first..=last, [new]);
        }
        None => {
            let last = entries.last().map_or(name.span.line, |(key, _)| key.span.line).checked_sub(1)?;
            let last = if entries.is_empty() { last } else { last_line(&lines, last, indent.len()) };
            lines.insert((last + 1).min(lines.len()), format!("{indent}{key}: {value}{end}"));
        }
    }
    Some(lines.concat())
}

/// The text without `key` in the top-level mapping `section`, which keeps its other entries. `None` as with [`set_list`].
pub(super) fn remove_entry(text: &str, section: &str, key: &str) -> Option<String> {
    let node = parse("", text.as_bytes(), &Limits::FLEET).ok()?;
    let Value::Mapping(sections) = &node.value else { return None };
    let (name, entries) = sections.iter().find(|(name, _)| name.text() == Some(section))?;
    let Value::Mapping(entries) = &entries.value else { return None };
    let (found, _) = entries.iter().find(|(name, _)| name.text() == Some(key))?;
    if found.span.line <= name.span.line {
        return None;
    }
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let first = found.span.line.checked_sub(1)?;
    let last = last_line(&lines, first, found.span.column.saturating_sub(1));
    lines.drain(first..=last);
    Some(lines.concat())
}

/// The text with one more item in the top-level list `section`: the lines of `item`, the first of them without its dash, at the end of a list
/// in block style, and `flow` at the beginning of one in flow style. `None` as with [`set_list`].
pub(super) fn add_item(text: &str, section: &str, item: &[String], flow: &str) -> Option<String> {
    let node = parse("", text.as_bytes(), &Limits::FLEET).ok()?;
    let Value::Mapping(sections) = &node.value else { return None };
    let (mut lines, end) = ended_lines(text);
    let block = |indent: &str| {
        let heads = std::iter::once("- ").chain(std::iter::repeat("  "));
        heads.zip(item).map(|(head, line)| format!("{indent}{head}{line}{end}")).collect::<String>()
    };
    let Some((name, list)) = sections.iter().find(|(name, _)| name.text() == Some(section)) else {
        lines.push(format!("{section}:{end}{}", block("  ")));
        return Some(lines.concat());
    };
    let first = name.span.line.checked_sub(1)?;
    let indent = match &list.value {
        Value::Null => "  ".to_owned(),
        Value::Sequence(items) => {
            let begin = position(text, list.span)?;
            if let Some(rest) = text[begin..].strip_prefix('[') {
                let comma = if items.is_empty() { "" } else { ", " };
                return Some(format!("{}[{flow}{comma}{rest}", &text[..begin]));
            }
            let dash = lines.get(name.span.line..)?.iter().find(|line| line.trim_start().starts_with('-'))?;
            dash.chars().take_while(|c| *c == ' ').collect()
        }
        _ => return None,
    };
    let last = last_line(&lines, first, 0);
    lines.insert((last + 1).min(lines.len()), block(&indent));
    Some(lines.concat())
}

/// The text with another word in the place of the plain one at a place of it. `None` as with [`set_list`].
pub(super) fn replace_plain(text: &str, at: Span, word: &str) -> Option<String> {
    let begin = position(text, at)?;
    let is_end = |c: char| c.is_whitespace() || [',', ']', '}'].contains(&c);
    let rest = text[begin..].find(is_end).map_or("", |end| &text[begin + end..]);
    Some(format!("{}{word}{rest}", &text[..begin]))
}

/// The lines of the text, each with its end, and how lines end in it.
fn ended_lines(text: &str) -> (Vec<String>, &'static str) {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
        last.push_str(end);
    }
    (lines, end)
}

/// Where a place of the text is, in bytes.
fn position(text: &str, Span { line, column }: Span) -> Option<usize> {
    let mut lines = text.split_inclusive('\n');
    let before: usize = lines.by_ref().take(line.checked_sub(1)?).map(str::len).sum();
    let (at, _) = lines.next()?.char_indices().nth(column.checked_sub(1)?)?;
    Some(before + at)
}

/// The last line of an entry that begins at a line, both from 0: what is indented deeper than it, or is an item at its own
/// indentation, but for comments and empty lines at the end.
fn last_line(lines: &[String], first: usize, indent: usize) -> usize {
    let depth = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let is_content = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let is_inside = |line: &String| {
        !is_content(line) || depth(line) > indent || (depth(line) == indent && line.trim_start().starts_with("- "))
    };
    // Where the parser knows other line breaks there may be fewer lines.
    let inside = lines.get(first + 1..).unwrap_or_default().iter().take_while(|line| is_inside(line));
    let content = inside.enumerate().filter(|(_, line)| is_content(line)).last();
    content.map_or(first, |(offset, _)| first + 1 + offset)
}

/// The comment behind a value on its line, with the space in front of it; empty if there is none.
fn comment(text: &str) -> &str {
    let quotes = text.starts_with(['"', '\'', '[', '{']);
    let (mut quote, mut before, mut is_escaped) = (None, ' ', false);
    for (at, c) in text.char_indices() {
        match quote {
            Some('"') if c == '\\' && !is_escaped => {
                is_escaped = true;
                continue;
            }
            Some(open) if c == open && !is_escaped => quote = None,
            None if quotes && (c == '"' || c == '\'') => quote = Some(c),
            None if c == '#' && before.is_whitespace() => {
                let value = text[..at].trim_end().len();
                return &text[value..];
            }
            _ => {}
        }
        (before, is_escaped) = (c, false);
    }
    ""
}

/// Whether a line below `key:` is part of its list: indented, an item, or empty. A comment at the edge is the next
/// key's.
fn belongs(line: &str) -> bool {
    line.starts_with([' ', '\t']) || line.starts_with('-')
}

/// The line (from 0) of a top-level key, if it is there; the outer `None` says that the file can't be edited.
fn top_level(text: &str, key: &str) -> Option<Option<usize>> {
    let node: Node = parse("", text.as_bytes(), &Limits::FLEET).ok()?;
    let Value::Mapping(entries) = &node.value else { return None };
    let found = entries.iter().find(|(name, _)| name.text() == Some(key));
    Some(found.map(|(name, _)| name.span.line.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> String {
        set_list(text, "statusKeys", &["ssh-ed25519 B".to_owned()]).unwrap()
    }

    #[test]
    fn a_list_is_added_or_replaced_and_the_rest_stays() {
        let list = "statusKeys:\n  - ssh-ed25519 B\n";
        assert_eq!(set("# head\nid: a # who\n"), format!("# head\nid: a # who\n{list}"));
        assert_eq!(set("id: a"), format!("id: a\n{list}"));
        assert_eq!(set("id: a\nstatusKeys: []\n# tail\nx: 1\n"), format!("id: a\n{list}# tail\nx: 1\n"));
        assert_eq!(set("statusKeys:\n  - ssh-ed25519 A\n  # old\nid: a\n"), format!("{list}id: a\n"));
        assert_eq!(set("statusKeys:\n- ssh-ed25519 A\nid: a\n"), format!("{list}id: a\n"));
        let without = |text: &str| set_list(text, "statusKeys", &[]).unwrap();
        assert_eq!(without("id: a\nstatusKeys:\n  - ssh-ed25519 A\nx: 1\n"), "id: a\nx: 1\n");
        assert_eq!(without("id: a\n"), "id: a\n");
        assert_eq!(
            set("id: a\n# statusKeys:\n#   - ssh-ed25519 …\n"),
            format!("id: a\n# statusKeys:\n#   - ssh-ed25519 …\n{list}")
        );
    }

    #[test]
    fn a_word_is_added_or_replaced_and_its_comment_stays() {
        let set = |text: &str| set_word(text, "retired", "now").unwrap();
        assert_eq!(set("# head\nid: a # who\n"), "# head\nid: a # who\nretired: now\n");
        assert_eq!(set("retired: when-empty # sold\nid: a\n"), "retired: now # sold\nid: a\n");
        assert_eq!(set_word("[1]", "retired", "now"), None);
    }

    #[test]
    fn an_id_goes_below_the_comments_at_the_head() {
        assert_eq!(set_id("# one\n\nlabels: {a: b}\n", "x").unwrap(), "# one\n\nid: x\nlabels: {a: b}\n");
        assert_eq!(set_id("[1]", "x"), None);
    }
}
