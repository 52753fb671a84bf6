//! YAML read into types for which serde derives the reading: settings of a program, where the first mistake is enough.

use std::fmt;
use std::slice::Iter;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, Expected, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::parse::parse_any;
use super::{Limits, Node, Plain, Scalar, Span, Style, Value, resolve};
use crate::problem::Problem;

/// Reads a document into `T`; `None` where there is nothing in it. The problem has the line and the key of the first thing
/// that doesn't fit.
pub fn deserialize<T: DeserializeOwned>(file: &str, bytes: &[u8], limits: &Limits) -> Result<Option<T>, Problem> {
    let Some(node) = parse_any(file, bytes, limits)?.filter(|node| node.value != Value::Null) else { return Ok(None) };
    T::deserialize(Reading(&node)).map(Some).map_err(|Unfit { message, key, span }| {
        let Span { line, column } = span.unwrap_or(node.span);
        Problem::error(file, message).at(line, column).key(key)
    })
}

/// Where the innermost of these keys stands that a document has, the outermost first; nowhere in one that can't be read.
pub fn place_of(bytes: &[u8], limits: &Limits, keys: &[String]) -> Span {
    let Ok(Some(root)) = parse_any("", bytes, limits) else { return Span::default() };
    let (mut span, mut node) = (root.span, &root);
    for key in keys {
        let Value::Mapping(entries) = &node.value else { break };
        let Some((name, value)) = entries.iter().find(|(name, _)| name.text() == Some(key)) else { break };
        (span, node) = (name.span, value);
    }
    span
}

/// What doesn't fit a type, with the innermost key or item that it stands at.
#[derive(Debug)]
struct Unfit {
    message: String,
    /// Dotted, from the outermost key; empty for the whole document.
    key: String,
    /// Absent for the whole document.
    span: Option<Span>,
}

impl Unfit {
    /// The same within the value of a key, or within an item as `[0]`, which stands there.
    fn within(self, part: &str, span: Span) -> Self {
        let dot = if self.key.is_empty() || self.key.starts_with('[') { "" } else { "." };
        Self { key: format!("{part}{dot}{}", self.key), span: self.span.or(Some(span)), ..self }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Unfit {}

impl Error for Unfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), key: String::new(), span: None }
    }
}

/// A node that is being read.
#[derive(Clone, Copy)]
struct Reading<'a>(&'a Node);

impl<'de> Reading<'de> {
    /// What it is, as serde names it.
    fn is(self) -> Result<Unexpected<'de>, Unfit> {
        Ok(match &self.0.value {
            Value::Null => Unexpected::Unit,
            Value::Sequence(_) => Unexpected::Seq,
            Value::Mapping(_) => Unexpected::Map,
            Value::Scalar(Scalar { text, style: Style::Quoted }) => Unexpected::Str(text),
            Value::Scalar(Scalar { text, style: Style::Plain }) => {
                let unfit = || Unfit::custom(format_args!("`{text}` doesn't fit a number of 64 bits"));
                match resolve(text) {
                    Plain::Null => Unexpected::Unit,
                    Plain::Boolean(value) => Unexpected::Bool(value),
                    Plain::Integer(value) => {
                        let unsigned = u64::try_from(value).map(Unexpected::Unsigned);
                        unsigned.or_else(|_| i64::try_from(value).map(Unexpected::Signed)).map_err(|_| unfit())?
                    }
                    Plain::Double(value) if value.is_finite() => Unexpected::Float(value),
                    Plain::Double(_) | Plain::HugeInteger => return Err(unfit()),
                    Plain::String => Unexpected::Str(text),
                }
            }
        })
    }

    fn is_no(self, expected: &dyn Expected) -> Unfit {
        self.is().map_or_else(|unfit| unfit, |is| Error::invalid_type(is, expected))
    }
}

impl<'de> Deserializer<'de> for Reading<'de> {
    type Error = Unfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match self.is()? {
            Unexpected::Bool(value) => visitor.visit_bool(value),
            Unexpected::Unsigned(value) => visitor.visit_u64(value),
            Unexpected::Signed(value) => visitor.visit_i64(value),
            Unexpected::Float(value) => visitor.visit_f64(value),
            Unexpected::Str(text) => visitor.visit_borrowed_str(text),
            Unexpected::Seq => self.deserialize_seq(visitor),
            Unexpected::Map => self.deserialize_map(visitor),
            _ => visitor.visit_unit(),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct identifier
        ignored_any tuple tuple_struct
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        if self.0.value == Value::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        let Value::Sequence(items) = &self.0.value else { return Err(self.is_no(&"a list")) };
        let mut left = Items { items: items.iter(), index: 0 };
        let value = visitor.visit_seq(&mut left)?;
        if left.items.len() == 0 { Ok(value) } else { Err(Error::invalid_length(items.len(), &"fewer items")) }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        let Value::Mapping(entries) = &self.0.value else { return Err(self.is_no(&"a mapping")) };
        visitor.visit_map(Entries { entries: entries.iter(), entry: None })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        match &self.0.value {
            Value::Mapping(entries) if entries.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries { entries: entries.iter(), entry: None }))
            }
            Value::Scalar(scalar) => visitor.visit_enum(StrDeserializer::new(&scalar.text)),
            _ => Err(self.is_no(&visitor)),
        }
    }
}

/// The items of a list that are left.
struct Items<'a> {
    items: Iter<'a, Node>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Unfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Unfit> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let index = self.index;
        self.index += 1;
        seed.deserialize(Reading(item)).map(Some).map_err(|unfit| unfit.within(&format!("[{index}]"), item.span))
    }
}

/// The entries of a mapping that are left, and the one whose key was read last.
struct Entries<'a> {
    entries: Iter<'a, (Node, Node)>,
    entry: Option<&'a (Node, Node)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Unfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Unfit> {
        self.entry = self.entries.next();
        let Some((name, _)) = self.entry else { return Ok(None) };
        // Whatever else it could be: a key is text.
        let key = name.text().unwrap_or_default();
        seed.deserialize(StrDeserializer::new(key)).map(Some).map_err(|unfit: Unfit| unfit.within(key, name.span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unfit> {
        let Some((name, value)) = self.entry else { return Err(Error::custom("a value was asked for without a key")) };
        let key = name.text().unwrap_or_default();
        seed.deserialize(Reading(value)).map_err(|unfit| unfit.within(key, name.span))
    }
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
        range: Option<(u8, u8)>,
        until: Option<Until>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Until {
        Never,
        Hour(i8),
    }

    fn read(text: &str) -> Result<Option<Settings>, String> {
        deserialize("s.yaml", text.as_bytes(), &Limits::FLEET).map_err(|problem| problem.to_string())
    }

    #[test]
    fn what_fits_is_read_and_nothing_at_all_is_nothing() {
        let rooms = vec![[("a".to_owned(), true)].into()];
        let settings = Settings { jobs: Some(2), rooms, range: Some((1, 2)), until: Some(Until::Hour(-1)) };
        assert_eq!(read("jobs: 2\nrooms:\n- {a: true}\nrange: [1, 2]\nuntil: {hour: -1}\n"), Ok(Some(settings)));
        let settings = Settings { jobs: None, rooms: Vec::new(), range: None, until: Some(Until::Never) };
        assert_eq!(read("jobs: ~\nrange:\nuntil: never\n"), Ok(Some(settings)));
        assert_eq!(read("# nothing\n"), Ok(None));
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_line_and_key() {
        for (text, start) in [
            ("jobs: 300\n", "s.yaml:1:1: jobs: invalid value: integer `300`"),
            ("jobs: 2\nrooms:\n- a: true\n  b: maybe\n", "s.yaml:4:3: rooms[0].b: invalid type: string \"maybe\""),
            (
                "jobs: 2\n\njob: 1\n",
                "s.yaml:3:1: job: unknown field `job`, expected one of `jobs`, `rooms`, `range`, `until`",
            ),
            ("rooms: [1]\n", "s.yaml:1:9: rooms[0]: invalid type: integer `1`"),
            ("- 1\n- 2\n", "s.yaml:1:1: invalid type: sequence, expected a mapping"),
            ("range: [1, 2, 3]\n", "s.yaml:1:1: range: invalid length 3, expected fewer items"),
            ("range: [1]\n", "s.yaml:1:1: range: invalid length 1"),
            ("until: {hour: 1, never: ~}\n", "s.yaml:1:1: until: invalid type: map, expected enum Until"),
            ("until: {hour: 7000}\n", "s.yaml:1:9: until.hour: invalid value: integer `7000`"),
            ("until: later\n", "s.yaml:1:1: until: unknown variant `later`, expected `never` or `hour`"),
            ("jobs: 1\njobs: 2\n", "s.yaml:2:1: "),
            ("jobs: 99999999999999999999\n", "s.yaml:1:1: jobs: `99999999999999999999` doesn't fit"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.starts_with(start), "{problem}");
        }
    }
}
