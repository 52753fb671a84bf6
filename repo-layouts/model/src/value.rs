//! Values of parameters: typed, tagged, and as the one text that every runtime receives.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::yaml::{Field, Plain, Scalar, Style, Value, is_ambiguous, resolve};
use crate::{Digest, json};

pub use crate::yaml::Strictness;

/// The largest integer that every reader of JSON or YAML keeps exactly: 2^53−1.
const MAX_EXACT: u128 = (1 << 53) - 1;

/// A parameter's value: a string, integer, double, boolean or a list of those (Margo, *Parameter*).
///
/// Two values are equal if their type and text are, so `30` and `30.0` differ.
#[derive(Debug, Clone)]
pub enum ParamValue {
    /// Text; it never holds U+0000.
    String(String),
    /// A whole number of up to 128 bits, kept exactly.
    Integer(i128),
    /// A finite IEEE 754 double.
    Double(f64),
    Boolean(bool),
    /// A list; its items are no lists.
    Array(Vec<ParamValue>),
}

impl PartialEq for ParamValue {
    fn eq(&self, other: &Self) -> bool {
        self.type_tag() == other.type_tag() && self.text() == other.text()
    }
}

impl Eq for ParamValue {}

impl ParamValue {
    /// `string`, `integer`, `double`, `boolean` or `array`.
    pub fn type_tag(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::Integer(_) => "integer",
            Self::Double(_) => "double",
            Self::Boolean(_) => "boolean",
            Self::Array(_) => "array",
        }
    }

    /// The text that enters digests and that compose receives (`repo-layouts/README.md`, *Input digest*).
    ///
    /// Integers in decimal. Doubles with the fewest digits that read back as the same double and always a fraction
    /// digit: `0.0001` up to below `1e16` in positions (`1.0`, `0.5`), else as `1.5e-7`, `1.0e+20`. Arrays are compact JSON
    /// with the same numbers in it.
    pub fn text(&self) -> String {
        match self {
            Self::String(text) => text.clone(),
            Self::Integer(value) => value.to_string(),
            Self::Double(value) => double_text(*value),
            Self::Boolean(value) => value.to_string(),
            Self::Array(items) => {
                let items: Vec<_> = items.iter().map(Self::json_text).collect();
                format!("[{}]", items.join(","))
            }
        }
    }

    fn json_text(&self) -> String {
        match self {
            Self::String(text) => serde_json::Value::from(text.as_str()).to_string(),
            other => other.text(),
        }
    }

    /// Reads a value. What is quoted is a string. A plain scalar is what YAML 1.2's core schema says; in the fleet's
    /// own files it must also be written just as its [`text`](Self::text) is, and be the same to every reader of YAML
    /// 1.1 or 1.2, else quotes are asked for; in a vendor's file that is a warning.
    pub fn read(field: Field<'_>) -> Option<Self> {
        match &field.node().value {
            Value::Sequence(_) => field.list(Self::read_item).map(Self::Array),
            _ => Self::read_item(field),
        }
    }

    fn read_item(field: Field<'_>) -> Option<Self> {
        let Value::Scalar(Scalar { text, style }) = &field.node().value else {
            let kind = field.node().kind();
            return field.fail_hint(
                format!("is {kind}, expected a string, number, boolean or a list of them"),
                "write \"\" for empty text",
            );
        };
        if text.contains('\0') {
            return field.fail("holds U+0000, which no runtime can pass on");
        }
        match style {
            Style::Quoted => Some(Self::String(text.clone())),
            Style::Plain => Self::read_plain(&field, text),
        }
    }

    fn read_plain(field: &Field<'_>, text: &str) -> Option<Self> {
        let quote = format!("write \"{text}\" in quotes if it is meant as text");
        let value = match resolve(text) {
            Plain::Boolean(value) => Self::Boolean(value),
            Plain::Integer(value) => Self::Integer(value),
            Plain::HugeInteger => return field.fail_hint("is an integer of more than 128 bits", quote),
            Plain::Double(value) if value.is_finite() => Self::Double(value),
            Plain::Double(_) => return field.fail_hint("is not a finite number", quote),
            Plain::Null | Plain::String => Self::String(text.to_owned()),
        };
        if value.is_doubtful(text) {
            field.ambiguous(text)?;
        }
        Some(value)
    }

    /// Whether a reader of YAML could see something else in the plain `text` that this was read from.
    fn is_doubtful(&self, text: &str) -> bool {
        match self {
            Self::String(_) => is_ambiguous(text),
            Self::Integer(value) if value.unsigned_abs() > MAX_EXACT => true,
            other => other.text() != text,
        }
    }
}

fn double_text(value: f64) -> String {
    // Rust's `{:?}` has the shortest digits and these bounds; what it lacks is `.0` and `+` in exponents, without which
    // YAML 1.1 reads a string.
    let text = format!("{value:?}");
    match text.split_once('e') {
        None => text,
        Some((mantissa, exponent)) => {
            let fraction = if mantissa.contains('.') { "" } else { ".0" };
            let sign = if exponent.starts_with('-') { "" } else { "+" };
            format!("{mantissa}{fraction}e{sign}{exponent}")
        }
    }
}

impl Serialize for ParamValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::String(text) => serializer.serialize_str(text),
            // Every format writes 64 bits alike, and some know nothing wider.
            Self::Integer(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => serializer.serialize_i64(value),
                (_, Ok(value)) => serializer.serialize_u64(value),
                _ => serializer.serialize_i128(*value),
            },
            Self::Double(value) => serializer.serialize_f64(*value),
            Self::Boolean(value) => serializer.serialize_bool(*value),
            Self::Array(items) => serializer.collect_seq(items),
        }
    }
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// One parameter as it enters an input digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Param {
    /// Where it goes: a path into a chart's values, or the bare name of an environment variable.
    pub pointer: String,
    /// The tag of its type; a value that must stay secret has a tag of its own.
    pub tag: String,
    /// Its text, or what stands for it.
    pub text: String,
}

impl Param {
    /// A parameter whose value may be known.
    pub fn new(pointer: impl Into<String>, value: &ParamValue) -> Self {
        Self { pointer: pointer.into(), tag: value.type_tag().to_owned(), text: value.text() }
    }
}

/// What keys the apply of one component (`repo-layouts/README.md`, *Input digest*).
///
/// SHA-256 over the RFC 8785 JSON of `{v: 1, type, name, namespace, content, params: [[pointer, tag, text], …]}`;
/// `namespace` is there for helm only, and `params` are sorted by their UTF-8 bytes.
pub fn input_digest(kind: &str, name: &str, namespace: Option<&str>, content: Digest, params: &[Param]) -> Digest {
    let mut params: Vec<_> = params.iter().map(|p| (&p.pointer, &p.tag, &p.text)).collect();
    params.sort_unstable();
    let mut input = serde_json::json!({ "v": 1, "type": kind, "name": name, "content": content, "params": params });
    if let Some(namespace) = namespace {
        input["namespace"] = namespace.into();
    }
    Digest::of(&json::canonical(&input))
}
