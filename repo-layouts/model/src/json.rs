//! The one JSON form that is written, RFC 8785 key order and a final newline; and how our own documents are read.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The largest integer that every JSON reader keeps: 2^53−1 (RFC 8259, section 6).
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// The bytes of `value` in RFC 8785 order, with a final newline.
///
/// # Panics
/// Never for the types of this crate: they hold neither NaN nor maps with keys that are not strings.
pub fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = canonical(value);
    bytes.push(b'\n');
    bytes
}

/// The object of these entries; of two with the same key the later one stays. It is to `collect` what
/// [`IntoMap`](crate::IntoMap) is for maps.
pub fn object(entries: impl IntoIterator<Item = (String, Value)>) -> Map<String, Value> {
    let mut object = Map::new();
    object.extend(entries);
    object
}

/// The RFC 8785 bytes themselves, as digests of values use them.
pub fn canonical(value: &impl Serialize) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).expect("plain data serialises")
}

/// Reads one of our own documents. Unknown keys are ignored; one key twice is an error at any depth, also below a key that
/// nobody knows: readers differ in which of the two counts.
///
/// # Errors
/// What serde_json says, with line and column.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    let Distinct = serde_json::from_slice(bytes)?;
    serde_json::from_slice(bytes)
}

/// Any JSON in which no object has a key twice.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Distinct;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_str<E>(self, _: &str) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Distinct, A::Error> {
        while let Some(Distinct) = items.next_element()? {}
        Ok(Distinct)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Distinct, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            let Distinct = entries.next_value()?;
            if let Some(twice) = seen.replace(key) {
                return Err(A::Error::custom(format!("duplicate key `{twice}`")));
            }
        }
        Ok(Distinct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_key_that_stands_twice_is_an_error_at_any_depth_and_an_unknown_one_is_none() {
        #[derive(Debug, Deserialize)]
        struct Document {
            files: BTreeMap<String, u8>,
        }
        let read = |text: &str| read::<Document>(text.as_bytes());
        assert_eq!(
            read(r#"{"files": {"a": 1}, "future": [{"a": 1}, {"a": 1.5, "b": null, "c": true}, -1, "x"]}"#)
                .unwrap()
                .files["a"],
            1
        );
        for (text, key) in [
            (r#"{"files": {}, "files": {}}"#, "files"),
            (r#"{"files": {"a": 1, "a": 1}}"#, "a"),
            (r#"{"files": {}, "future": [{"deep": {"b": 1, "b": 2}}]}"#, "b"),
            (r#"{"files": {}, "future": {"a": 1, "\u0061": 2}}"#, "a"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(&format!("duplicate key `{key}`")), "{text}: {error}");
        }
        assert!(read(r#"{"files": {}} {}"#).is_err());
    }
}
