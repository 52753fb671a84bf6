//! YAML with positions: reading into nodes that know where they stand and how they were quoted, decoding that collects
//! every problem, and writing that every YAML 1.1 or 1.2 reader understands alike.
//!
//! The order of a reading: bytes → [`parse`] (or [`parse_json`]) → [`Node`] → [`Reader`] over each mapping →
//! typed document and [`Problems`](crate::problem::Problems). [`read`] and [`read_json`] do all of it. [`deserialize`] reads
//! settings, up to the first problem.

mod field;
mod json;
mod parse;
mod scalar;
mod typed;
mod words;
mod write;

pub use field::{Context, Field, Reader, nearest, read, read_json};
pub use json::parse_json;
pub use parse::{parse, parse_at};
pub use scalar::{Plain, Strictness, is_ambiguous, resolve};
pub use typed::{deserialize, place_of};
pub use write::to_yaml;

/// Where a node starts: line and column from 1, the column in characters. Line 0 means unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Span {
    pub line: usize,
    pub column: usize,
}

/// A node of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub span: Span,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing at all, or a plain `~`, `null`, `Null` or `NULL`.
    Null,
    /// Text, as it was written.
    Scalar(Scalar),
    Sequence(Vec<Node>),
    /// Keys with their values, in order; keys are scalars, and no two are the same text.
    Mapping(Vec<(Node, Node)>),
}

/// A scalar's text after escapes, and whether it was quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalar {
    pub text: String,
    /// Whether it can be anything but a string.
    pub style: Style,
}

/// How a scalar was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Without quotes: what it is depends on its text.
    Plain,
    /// In quotes, as a block (`|`, `>`), or tagged `!!str`: always a string.
    Quoted,
}

/// What a reading may cost, and whether aliases are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest file, in bytes.
    pub bytes: usize,
    /// The most mappings and sequences within each other.
    pub depth: usize,
    /// The most nodes, those that aliases repeat included.
    pub nodes: usize,
    /// Whether `*alias` may stand for an `&anchor`.
    pub aliases: bool,
}

impl Limits {
    /// For vendors' files: 1 MiB, 64 deep, 100,000 nodes, aliases allowed.
    pub const VENDOR: Self = Self { bytes: 1 << 20, depth: 64, nodes: 100_000, aliases: true };

    /// For the fleet's own files: the same without aliases, so that what is reviewed is what is meant.
    pub const FLEET: Self = Self { aliases: false, ..Self::VENDOR };
}

impl Default for Limits {
    fn default() -> Self {
        Self::VENDOR
    }
}

impl Node {
    /// Its text if it is a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The value of a key if it is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Mapping(entries) = &self.value else { return None };
        entries.iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    /// What lies at this path of keys.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The items of a list; none of anything else.
    pub fn items(&self) -> &[Self] {
        if let Value::Sequence(items) = &self.value { items } else { &[] }
    }

    /// An item of a list, from 0; `None` beyond its end, and of anything else.
    pub fn item(&self, index: usize) -> Option<&Self> {
        self.items().get(index)
    }

    /// What it is, for messages: `a list`.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
            Value::Scalar(Scalar { style: Style::Quoted, .. }) => "a string",
            Value::Scalar(Scalar { text, .. }) => resolve(text).kind(),
        }
    }

    /// The node as JSON, plain scalars read by YAML 1.2's core schema; keys are sorted.
    ///
    /// # Errors
    /// Says what JSON can't hold: an integer beyond 64 bits, an infinity or not-a-number.
    pub fn to_json(&self) -> Result<serde_json::Value, String> {
        json::from_node(self)
    }
}
