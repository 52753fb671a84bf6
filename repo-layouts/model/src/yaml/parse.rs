//! From bytes to nodes, refusing whatever readers of YAML disagree about.

use std::collections::HashMap;

use granit_parser::{Event, Marker, Parser, ScalarStyle, StrInput, Tag};

use super::{Limits, Node, Plain, Scalar, Span, Style, Value, resolve, words};
use crate::problem::Problem;

/// Reads the one document in `bytes`.
///
/// Refused, with line and column: text that isn't UTF-8, a byte order mark, control characters, more than one document,
/// directives, duplicate keys, keys that aren't scalars, merge keys, tags other than `!!str`, and whatever passes the
/// limits. Reading stops at the first of them.
pub fn parse(file: &str, bytes: &[u8], limits: &Limits) -> Result<Node, Problem> {
    parse_any(file, bytes, limits)?.ok_or_else(|| Problem::error(file, "is empty"))
}

/// Keeps of the one document in `bytes` only what lies at this path of keys, if that is there: for one of which little is asked. The
/// rest is read like it.
pub fn parse_at(file: &str, bytes: &[u8], limits: &Limits, path: &[&str]) -> Result<Option<Node>, Problem> {
    builder(file, bytes, limits)?.document(path)
}

/// The same as [`parse`]; `None` of a text without a document, such as one of comments only.
pub(super) fn parse_any(file: &str, bytes: &[u8], limits: &Limits) -> Result<Option<Node>, Problem> {
    builder(file, bytes, limits)?.document(&[])
}

fn builder<'a>(file: &'a str, bytes: &'a [u8], limits: &'a Limits) -> Result<Builder<'a>, Problem> {
    let text = check_text(file, bytes, limits)?;
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_comments: false,
        flow_nesting_limit: limits.depth,
        block_nesting_limit: limits.depth,
    };
    let events = Parser::new_from_str_with_options(text, options);
    Ok(Builder { file, limits, events, nodes: 0, anchors: HashMap::new() })
}

fn check_text<'a>(file: &str, bytes: &'a [u8], limits: &Limits) -> Result<&'a str, Problem> {
    if bytes.len() > limits.bytes {
        return Err(Problem::error(file, format!("is larger than {} bytes", limits.bytes)));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position(&String::from_utf8_lossy(&bytes[..error.valid_up_to()]));
        Problem::error(file, "is not UTF-8 from here on").at(line, column).hint("save the file as UTF-8")
    })?;
    if text.starts_with('\u{feff}') {
        let problem = Problem::error(file, "starts with a byte order mark").at(1, 1);
        return Err(problem.hint("save the file as UTF-8 without a byte order mark"));
    }
    match text.find(|c: char| c.is_control() && !"\t\r\n\u{85}".contains(c)) {
        None => Ok(text),
        Some(offset) => {
            let (line, column) = position(&text[..offset]);
            let problem = Problem::error(file, "holds a control character here").at(line, column);
            Err(problem.hint("remove it, or write it as an escape such as \"\\u0007\" in double quotes"))
        }
    }
}

/// Line and column of the character after `before`.
fn position(before: &str) -> (usize, usize) {
    let last = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, last.chars().count() + 1)
}

struct Builder<'a> {
    file: &'a str,
    limits: &'a Limits,
    events: Parser<'a, StrInput<'a>>,
    nodes: usize,
    anchors: HashMap<usize, Node>,
}

type Parsed<T> = Result<T, Problem>;

impl<'a> Builder<'a> {
    /// What lies at this path in the one document.
    fn document(mut self, path: &[&str]) -> Parsed<Option<Node>> {
        let (mut document, mut is_over) = (None, false);
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if is_over => {
                    return self.fail(
                        span,
                        "a second document starts here",
                        "put each document into a file of its own",
                    );
                }
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => (document, is_over) = (self.at(path, event, span, 0)?, true),
            }
        }
        Ok(document)
    }

    fn next(&mut self) -> Parsed<(Event<'a>, Span)> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, from_marker(&span.start))),
            Some(Err(error)) => {
                let (what, hint) = words::of(error.kind());
                self.fail(from_marker(error.marker()), what, hint)
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// What lies at this path in what begins here.
    fn at(&mut self, path: &[&str], event: Event<'a>, span: Span, depth: usize) -> Parsed<Option<Node>> {
        let Some((first, rest)) = path.split_first() else { return self.node(event, span, depth).map(Some) };
        let Event::MappingStart(_, _, tag) = event else {
            let node = self.node(event, span, depth)?;
            return match node.value {
                Value::Null => Ok(None),
                _ => self.fail(span, format!("a mapping was expected here, and not {}", node.kind()), ""),
            };
        };
        self.count(span, 1)?;
        self.refuse_tag(span, tag.as_deref())?;
        let (mut found, mut seen) = (None, HashMap::new());
        while let Some(key) = self.key(depth, &mut seen)? {
            let (event, span) = self.next()?;
            if key.text() == Some(first) {
                found = self.at(rest, event, span, depth + 1)?;
            } else {
                self.node(event, span, depth + 1)?;
            }
        }
        Ok(found)
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Parsed<Node> {
        self.count(span, 1)?;
        self.check_depth(span, depth)?;
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let style = self.style(span, style, tag.as_deref())?;
                (anchor, scalar(text.into_owned(), style))
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(span, tag.as_deref())?;
                (anchor, Value::Sequence(self.sequence(depth)?))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(span, tag.as_deref())?;
                (anchor, Value::Mapping(self.mapping(depth)?))
            }
            Event::Alias(anchor) => return self.alias(anchor, span, depth),
            _ => return self.fail(span, "a value was expected here", ""),
        };
        let node = Node { span, value };
        if anchor != 0 && self.limits.aliases {
            // The copy is paid for like an alias, so that nested anchors can't multiply either.
            self.count(span, measure(&node).0)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn sequence(&mut self, depth: usize) -> Parsed<Vec<Node>> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Parsed<Vec<(Node, Node)>> {
        let (mut entries, mut seen) = (Vec::new(), HashMap::new());
        while let Some(key) = self.key(depth, &mut seen)? {
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            entries.push((key, value));
        }
        Ok(entries)
    }

    /// The next key of a mapping, which has those that were seen; `None` at its end.
    fn key(&mut self, depth: usize, seen: &mut HashMap<String, Span>) -> Parsed<Option<Node>> {
        let key = match self.next()? {
            (Event::MappingEnd, _) => return Ok(None),
            (event, span) => self.node(event, span, depth + 1)?,
        };
        let text = self.key_text(&key)?;
        if let Some(first) = seen.insert(text.to_owned(), key.span) {
            let message = format!("duplicate key `{text}`, first at {}:{}", first.line, first.column);
            return self.fail(key.span, message, "remove one of the two");
        }
        Ok(Some(key))
    }

    fn key_text<'k>(&self, key: &'k Node) -> Parsed<&'k str> {
        match &key.value {
            Value::Scalar(Scalar { text, style: Style::Plain }) if text == "<<" => {
                let hint = "write the keys out where they are meant, or quote it if it is text";
                self.fail(key.span, "merge keys (`<<`) are not supported", hint)
            }
            Value::Scalar(scalar) => Ok(&scalar.text),
            _ => self.fail(key.span, format!("{} can't be a key", key.kind()), "write the key as a string"),
        }
    }

    /// A copy of what the anchor stands for, paid for node by node, which bounds alias bombs.
    fn alias(&mut self, anchor: usize, span: Span, depth: usize) -> Parsed<Node> {
        if !self.limits.aliases {
            return self.fail(span, "aliases are not supported here", "write the value out");
        }
        let Some((nodes, height)) = self.anchors.get(&anchor).map(measure) else {
            return self.fail(span, "this alias stands inside the value that it repeats", "write the value out");
        };
        self.count(span, nodes)?;
        self.check_depth(span, depth + height)?;
        Ok(self.anchors[&anchor].clone())
    }

    fn check_depth(&self, span: Span, depth: usize) -> Parsed<()> {
        if depth <= self.limits.depth {
            return Ok(());
        }
        self.fail(span, format!("is nested deeper than {}", self.limits.depth), "flatten the document")
    }

    fn count(&mut self, span: Span, nodes: usize) -> Parsed<()> {
        self.nodes += nodes;
        if self.nodes <= self.limits.nodes {
            return Ok(());
        }
        self.fail(span, format!("the document has more than {} values", self.limits.nodes), "split it")
    }

    fn style(&self, span: Span, style: ScalarStyle, tag: Option<&Tag>) -> Parsed<Style> {
        if tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str")) {
            return Ok(Style::Quoted);
        }
        self.refuse_tag(span, tag)?;
        Ok(if style == ScalarStyle::Plain { Style::Plain } else { Style::Quoted })
    }

    fn refuse_tag(&self, span: Span, tag: Option<&Tag>) -> Parsed<()> {
        let Some(tag) = tag else { return Ok(()) };
        let name = format!("{}{}", tag.original_handle(), tag.suffix());
        self.fail(span, format!("tags such as `{name}` are not supported"), "remove it; write a string in quotes")
    }

    fn fail<T>(&self, span: Span, message: impl Into<String>, hint: &str) -> Parsed<T> {
        let mut problem = Problem::error(self.file, message).at(span.line, span.column);
        problem.hint = (!hint.is_empty()).then(|| hint.to_owned());
        Err(problem)
    }
}

fn scalar(text: String, style: Style) -> Value {
    match style {
        Style::Plain if resolve(&text) == Plain::Null => Value::Null,
        style => Value::Scalar(Scalar { text, style }),
    }
}

fn from_marker(marker: &Marker) -> Span {
    Span { line: marker.line(), column: marker.col() + 1 }
}

/// How many nodes this one is with all below it, and how many levels lie below it.
fn measure(node: &Node) -> (usize, usize) {
    let (mut nodes, mut height) = (1, 0);
    let mut add = |child: &Node| {
        let below = measure(child);
        nodes += below.0;
        height = height.max(below.1 + 1);
    };
    match &node.value {
        Value::Sequence(items) => items.iter().for_each(&mut add),
        Value::Mapping(entries) => entries.iter().flat_map(|(key, value)| [key, value]).for_each(&mut add),
        Value::Null | Value::Scalar(_) => {}
    }
    (nodes, height)
}
