//! The values that a helm component gets: what its parameters' pointers say, as one typed document for `--values`.
//!
//! A pointer means what it means to `helm --set`, and a value keeps its type: the string `"010"` stays that string, and
//! `30` stays a number.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Serialize, Serializer};

use super::parameter::{Part, parse_path};
use crate::value::ParamValue;
use crate::yaml;

/// The most items in all lists together; a pointer fills a list up to its index.
const MOST_ITEMS: usize = 1 << 20;

/// A chart's values as parameters set them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct HelmValues(BTreeMap<String, Node>);

/// Why parameters make no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelmValuesError {
    /// A pointer that can't be read.
    #[error("`{0}` is no path into a chart's values")]
    Malformed(String),
    /// Two pointers that can't both be.
    #[error("`{0}` and `{1}` contradict each other: one place has one value, and is a mapping, a list or neither")]
    Conflict(String, String),
    /// Lists that would hold next to nothing but gaps.
    #[error("`{0}` makes lists with more than {MOST_ITEMS} items in all")]
    TooLong(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Value {
        pointer: String,
        value: ParamValue,
    },
    Map(BTreeMap<String, Node>),
    /// By index; gaps are written as null.
    List(BTreeMap<usize, Node>),
}

impl HelmValues {
    /// The values that these pointers set, in whatever order.
    ///
    /// # Errors
    /// The first pointer that is malformed or contradicts another one.
    pub fn new<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a ParamValue)>) -> Result<Self, HelmValuesError> {
        let (mut root, mut items) = (Node::Map(BTreeMap::new()), 0);
        for (pointer, value) in parameters {
            let path = parse_path(pointer).ok_or_else(|| HelmValuesError::Malformed(pointer.to_owned()))?;
            root.set(&path, pointer, value, &mut items)?;
        }
        let Node::Map(values) = root else { unreachable!("the root stays a mapping") };
        Ok(Self(values))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The document that helm reads. The bytes depend on nothing but the values.
    pub fn to_yaml(&self) -> Vec<u8> {
        yaml::to_yaml(self)
    }
}

impl Node {
    fn set(
        &mut self,
        path: &[Part],
        pointer: &str,
        value: &ParamValue,
        items: &mut usize,
    ) -> Result<(), HelmValuesError> {
        let leaf = || Self::Value { pointer: pointer.to_owned(), value: value.clone() };
        let Some((part, rest)) = path.split_first() else { return Err(self.conflict(pointer)) };
        let empty = || match rest.first() {
            Some(Part::Key(_)) => Self::Map(BTreeMap::new()),
            Some(Part::Index(_)) => Self::List(BTreeMap::new()),
            None => leaf(),
        };
        let (new, child) = match (self, part) {
            (Self::Map(map), Part::Key(key)) => entry(map.entry(key.clone()), empty),
            (Self::List(list), Part::Index(index)) => {
                let length = |list: &BTreeMap<usize, Self>| list.last_key_value().map_or(0, |(last, _)| last + 1);
                *items += (index + 1).saturating_sub(length(list));
                if *items > MOST_ITEMS {
                    return Err(HelmValuesError::TooLong(pointer.to_owned()));
                }
                entry(list.entry(*index), empty)
            }
            (other, _) => return Err(other.conflict(pointer)),
        };
        if new && rest.is_empty() { Ok(()) } else { child.set(rest, pointer, value, items) }
    }

    fn conflict(&self, pointer: &str) -> HelmValuesError {
        HelmValuesError::Conflict(self.first_pointer().to_owned(), pointer.to_owned())
    }

    fn first_pointer(&self) -> &str {
        match self {
            Self::Value { pointer, .. } => pointer,
            Self::Map(map) => map.values().next().map_or("", Self::first_pointer),
            Self::List(list) => list.values().next().map_or("", Self::first_pointer),
        }
    }
}

/// What is there, or what is put there; the first value says whether it is new.
fn entry<K: Ord>(entry: Entry<'_, K, Node>, empty: impl FnOnce() -> Node) -> (bool, &mut Node) {
    let is_new = matches!(entry, Entry::Vacant(_));
    (is_new, entry.or_insert_with(empty))
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value { value, .. } => value.serialize(serializer),
            Self::Map(map) => map.serialize(serializer),
            Self::List(list) => {
                let length = list.last_key_value().map_or(0, |(last, _)| last + 1);
                serializer.collect_seq((0..length).map(|index| list.get(&index)))
            }
        }
    }
}

/// Whether a chart's own values know this path. Below something empty (`{}`, `[]` or nothing) they know every path, and
/// beyond the end of a list every item.
pub fn declares(values: &serde_json::Value, path: &[Part]) -> bool {
    use serde_json::Value;
    let Some((part, rest)) = path.split_first() else { return true };
    match (values, part) {
        (Value::Null, _) => true,
        (Value::Object(map), _) if map.is_empty() => true,
        (Value::Array(items), _) if items.is_empty() => true,
        (Value::Object(map), Part::Key(key)) => map.get(key).is_some_and(|value| declares(value, rest)),
        (Value::Array(items), Part::Index(index)) => items.get(*index).is_none_or(|item| declares(item, rest)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
