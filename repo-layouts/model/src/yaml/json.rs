//! JSON read into the same nodes, so that one decoder serves both, and nodes turned into JSON values.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number};

use super::{Limits, Node, Plain, Scalar, Span, Style, Value, resolve};
use crate::problem::Problem;

/// Reads one JSON text. Duplicate keys are refused.
pub fn parse_json(file: &str, bytes: &[u8], limits: &Limits) -> Result<Node, Problem> {
    if bytes.len() > limits.bytes {
        return Err(Problem::error(file, format!("is larger than {} bytes", limits.bytes)));
    }
    // serde_json itself stops at a depth of 128.
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let node = Seed.deserialize(&mut deserializer).and_then(|node| deserializer.end().map(|()| node));
    let mut node = node.map_err(|error| {
        let text = error.to_string();
        let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned();
        Problem::error(file, message).at(error.line(), error.column())
    })?;
    Places { rest: bytes, span: Span { line: 1, column: 1 } }.note(&mut node);
    Ok(node)
}

/// What is left of a text that is JSON for certain, walked through beside the nodes that were read from it: serde_json
/// doesn't tell where a value stands.
struct Places<'a> {
    rest: &'a [u8],
    span: Span,
}

impl Places<'_> {
    fn note(&mut self, node: &mut Node) {
        self.space();
        node.span = self.span;
        match &mut node.value {
            Value::Mapping(entries) => {
                self.step();
                for (key, value) in entries.iter_mut() {
                    self.note(key);
                    self.mark();
                    self.note(value);
                    self.mark();
                }
                if entries.is_empty() {
                    self.mark();
                }
            }
            Value::Sequence(items) => {
                self.step();
                for item in items.iter_mut() {
                    self.note(item);
                    self.mark();
                }
                if items.is_empty() {
                    self.mark();
                }
            }
            Value::Scalar(Scalar { style: Style::Quoted, .. }) => self.quoted(),
            Value::Scalar(_) | Value::Null => {
                while self.rest.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)) {
                    self.step();
                }
            }
        }
    }

    /// One of `:`, `,`, `]` and `}`.
    fn mark(&mut self) {
        self.space();
        self.step();
    }

    fn quoted(&mut self) {
        self.step();
        while let Some(byte) = self.step().filter(|byte| *byte != b'"') {
            if byte == b'\\' {
                self.step();
            }
        }
    }

    fn space(&mut self) {
        while self.rest.first().is_some_and(u8::is_ascii_whitespace) {
            self.step();
        }
    }

    fn step(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        match byte {
            b'\n' => self.span = Span { line: self.span.line + 1, column: 1 },
            // What goes on with a character that has begun.
            0x80..=0xbf => {}
            _ => self.span.column += 1,
        }
        Some(*byte)
    }
}

/// The JSON value of a node; see [`Node::to_json`].
pub(super) fn from_node(node: &Node) -> Result<serde_json::Value, String> {
    Ok(match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Scalar(Scalar { text, style: Style::Quoted }) => text.clone().into(),
        Value::Scalar(Scalar { text, style: Style::Plain }) => plain(text)?,
        Value::Sequence(items) => items.iter().map(from_node).collect::<Result<Vec<_>, _>>()?.into(),
        Value::Mapping(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                map.insert(key.text().unwrap_or_default().to_owned(), from_node(value)?);
            }
            map.into()
        }
    })
}

fn plain(text: &str) -> Result<serde_json::Value, String> {
    let unfit = || format!("`{text}` doesn't fit a JSON number");
    Ok(match resolve(text) {
        Plain::Null => serde_json::Value::Null,
        Plain::Boolean(value) => value.into(),
        Plain::Integer(value) => Number::from_i128(value).ok_or_else(unfit)?.into(),
        Plain::Double(value) => Number::from_f64(value).ok_or_else(unfit)?.into(),
        Plain::HugeInteger => return Err(unfit()),
        Plain::String => text.into(),
    })
}

struct Seed;

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn node(value: Value) -> Node {
    Node { span: Span::default(), value }
}

fn scalar<E>(text: impl Into<String>, style: Style) -> Result<Node, E> {
    Ok(node(Value::Scalar(Scalar { text: text.into(), style })))
}

impl<'de> Visitor<'de> for Seed {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(node(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        scalar(value.to_string(), Style::Plain)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        scalar(value.to_string(), Style::Plain)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        scalar(value.to_string(), Style::Plain)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        // With a fraction or exponent, so that it stays a double.
        scalar(format!("{value:?}"), Style::Plain)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        scalar(text, Style::Quoted)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(item) = items.next_element_seed(Seed)? {
            nodes.push(item);
        }
        Ok(node(Value::Sequence(nodes)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let (mut nodes, mut seen) = (Vec::new(), HashSet::new());
        while let Some(key) = entries.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("duplicate key `{key}`")));
            }
            nodes.push((scalar(key, Style::Quoted)?, entries.next_value_seed(Seed)?));
        }
        Ok(node(Value::Mapping(nodes)))
    }
}
