//! One requirement of an eligibility rule: a property or label, an operator, and values.

use std::fmt;

use serde_json::Value;

use super::capabilities::bytes_of;
use crate::yaml::{Field, Reader};

/// What one property or label of a device has to be (Margo, *matchExpressions*).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expression {
    key: String,
    operator: Operator,
    values: Vec<Value>,
    /// What at least one item of a list has to be.
    item: Option<Vec<Expression>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    ContainsAll,
    ContainsAny,
}

const OPERATORS: &[(&str, Operator)] = &[
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
    ("Gt", Operator::Gt),
    ("Lt", Operator::Lt),
    ("ContainsAll", Operator::ContainsAll),
    ("ContainsAny", Operator::ContainsAny),
];

impl Expression {
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// What the key points to in a document of properties.
    pub(super) fn at_pointer<'v>(&self, properties: &'v Value) -> Option<&'v Value> {
        properties.pointer(&self.key)
    }

    /// Whether what is there is as this wants it. What isn't there is in no set, contains nothing, and is neither
    /// greater nor less than anything.
    pub(super) fn holds(&self, found: Option<&Value>) -> bool {
        let is_wanted = |value: &Value| self.values.iter().any(|wanted| same(wanted, value));
        let items = || found.map(|found| found.as_array().map_or(std::slice::from_ref(found), Vec::as_slice));
        let has = |wanted: &Value| items().is_some_and(|items| items.iter().any(|item| same(item, wanted)));
        let compared = || compare(found?, self.values.first()?);
        match self.operator {
            Operator::In => found.is_some_and(is_wanted),
            Operator::NotIn => !found.is_some_and(is_wanted),
            Operator::Exists => self.matching(found),
            Operator::DoesNotExist => !self.matching(found),
            Operator::Gt => compared() == Some(std::cmp::Ordering::Greater),
            Operator::Lt => compared() == Some(std::cmp::Ordering::Less),
            Operator::ContainsAll => self.values.iter().all(has),
            Operator::ContainsAny => self.values.iter().any(has),
        }
    }

    /// Whether it is there at all, and if items are described, one of them is as described.
    fn matching(&self, found: Option<&Value>) -> bool {
        match (&self.item, found) {
            (None, found) => found.is_some(),
            (Some(wanted), Some(Value::Array(items))) => {
                items.iter().any(|item| wanted.iter().all(|one| one.holds(one.at_pointer(item))))
            }
            (Some(_), _) => false,
        }
    }

    /// Reads a requirement of a property: its key is a JSON Pointer (RFC 6901).
    pub(super) fn read_property(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            let key = reader.required("key", |field| {
                let key = field.clone().string()?;
                if is_pointer(&key) {
                    return Some(key);
                }
                field.fail_hint(format!("`{key}` is not a JSON Pointer"), "write it like /memory or /cpus/0/cores")
            });
            let item = reader.optional("itemSelector", |field| {
                let items = |field: Field<'_>| field.list(Self::read_property);
                field.mapping(|reader| reader.required("matchExpressions", items))
            });
            let has_items = reader.has("itemSelector");
            let (operator, values) = operator(reader)?;
            if has_items && !matches!(operator, Operator::Exists | Operator::DoesNotExist) {
                return reader.field().fail("has an `itemSelector`, which goes with `Exists` and `DoesNotExist` only");
            }
            Some(Self { key: key?, operator, values: values?, item })
        })
    }

    /// Reads a requirement of a label: its key is the label's name.
    pub(super) fn read_label(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            let key = reader.required("key", |field| {
                let key = field.clone().string()?;
                if key.is_empty() { field.fail("must not be empty") } else { Some(key) }
            });
            let (operator, values) = operator(reader)?;
            Some(Self { key: key?, operator, values: values?, item: None })
        })
    }
}

fn operator(reader: &mut Reader<'_>) -> Option<(Operator, Option<Vec<Value>>)> {
    let Some(operator) = reader.required("operator", |field| field.choice(OPERATORS)) else {
        reader.ignore("values");
        return None;
    };
    let values = match operator {
        Operator::Exists | Operator::DoesNotExist => {
            reader.refuse("values", "has no place here: this operator asks for the key alone");
            Some(Vec::new())
        }
        Operator::Gt | Operator::Lt => reader.required("values", |field| {
            let values = field.clone().list(scalar)?;
            match values.as_slice() {
                [one] if number(one).is_some() => Some(values),
                [_] => field.fail("must be a number, or a capacity such as 4Gi"),
                _ => field.fail("must list exactly one value"),
            }
        }),
        _ => reader.required("values", |field| {
            let values = field.clone().list(scalar)?;
            if values.is_empty() { field.fail("names no value") } else { Some(values) }
        }),
    };
    Some((operator, values))
}

fn scalar(field: Field<'_>) -> Option<Value> {
    let value = field.clone().json()?;
    let is_scalar = value.is_string() || value.is_number() || value.is_boolean();
    if is_scalar { Some(value) } else { field.fail("must be a string, number or boolean") }
}

/// `""`, or parts that each begin with `/`; `~` only as `~0` and `~1`.
fn is_pointer(text: &str) -> bool {
    let escaped = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && escaped
}

/// Numbers are the same however they are written.
fn same(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && b.is_number() && a.as_f64() == b.as_f64())
}

/// A number, the number in a string (a label's), or a capacity in bytes.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok().filter(|n: &f64| n.is_finite()).or(bytes_of(text).map(|n| n as f64)),
        _ => None,
    }
}

fn compare(found: &Value, limit: &Value) -> Option<std::cmp::Ordering> {
    // Capacities are compared as whole bytes, which a double may not hold.
    if let (Some(found), Some(limit)) = (found.as_str().and_then(bytes_of), limit.as_str().and_then(bytes_of)) {
        return Some(found.cmp(&limit));
    }
    number(found)?.partial_cmp(&number(limit)?)
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = OPERATORS.iter().find(|(_, operator)| *operator == self.operator).map_or("", |(word, _)| word);
        write!(f, "`{}` {word}", self.key)?;
        let values: Vec<_> = self.values.iter().map(ToString::to_string).collect();
        if !values.is_empty() {
            write!(f, " [{}]", values.join(", "))?;
        }
        for (index, item) in self.item.iter().flatten().enumerate() {
            write!(f, "{}{item}", if index == 0 { " with an item whose " } else { " and " })?;
        }
        Ok(())
    }
}
