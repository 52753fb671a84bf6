//! One requirement of an eligibility rule: a property or label, an operator, and values.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::capabilities::bytes_of;
use crate::yaml::{Field, Reader};

/// What one property or label of a device has to be (Margo, *ApplicationDescription*, *MatchExpression Attributes*).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expression {
    key: String,
    operator: Operator,
    values: Vec<Value>,
    /// What one object in a list has to be; for `ContainsAll` and `ContainsAny` only, and empty where they list values.
    item: Vec<Expression>,
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

    /// What the key points to in a document of properties, also where it is written for the pre-draft's document.
    pub(super) fn at_pointer<'v>(&self, properties: &'v Value) -> Option<&'v Value> {
        properties.pointer(&self.key).or_else(|| properties.pointer(self.key.strip_prefix("/resources")?))
    }

    /// Whether what is there is as this wants it. A list is in a set if one of its items is. Of what isn't there only
    /// `DoesNotExist` holds, and not `NotIn`; of objects and lists of objects only `ContainsAll` and `ContainsAny`.
    pub(super) fn holds(&self, found: Option<&Value>) -> bool {
        let Some(found) = found else { return self.operator == Operator::DoesNotExist };
        let items = found.as_array().map_or(std::slice::from_ref(found), Vec::as_slice);
        if !self.item.is_empty() {
            return found.is_array() && items.iter().any(|item| item.is_object() && self.fits(item));
        }
        let has = |wanted: &Value| items.iter().any(|item| same(item, wanted));
        let compared = || compare(found, self.values.first()?);
        items.iter().all(is_scalar)
            && match self.operator {
                Operator::In | Operator::ContainsAny => self.values.iter().any(has),
                Operator::NotIn => !self.values.iter().any(has),
                Operator::Exists => true,
                Operator::DoesNotExist => false,
                Operator::Gt => compared() == Some(Ordering::Greater),
                Operator::Lt => compared() == Some(Ordering::Less),
                Operator::ContainsAll => self.values.iter().all(has),
            }
    }

    /// Whether one object is as described, in everything or in anything.
    fn fits(&self, item: &Value) -> bool {
        let holds = |one: &Self| one.holds(one.at_pointer(item));
        match self.operator {
            Operator::ContainsAny => self.item.iter().any(holds),
            _ => self.item.iter().all(holds),
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
            let (operator, values, item) = operator(reader)?;
            Some(Self { key: key?, operator, values: values?, item: item? })
        })
    }

    /// Reads a requirement of a label: its key is the label's name.
    pub(super) fn read_label(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            let key = reader.required("key", |field| {
                let key = field.clone().string()?;
                if key.is_empty() { field.fail("must not be empty") } else { Some(key) }
            });
            let (operator, values, item) = operator(reader)?;
            Some(Self { key: key?, operator, values: values?, item: item? })
        })
    }
}

type Operands = (Operator, Option<Vec<Value>>, Option<Vec<Expression>>);

/// The operator with what goes with it. Margo has no `values` for `ContainsAll` and `ContainsAny`; on a list of texts or
/// numbers they can mean one thing only, so they are taken.
fn operator(reader: &mut Reader<'_>) -> Option<Operands> {
    let Some(operator) = reader.required("operator", |field| field.choice(OPERATORS)) else {
        reader.ignore("values");
        reader.ignore("itemSelector");
        return None;
    };
    let contains = matches!(operator, Operator::ContainsAll | Operator::ContainsAny);
    if !contains {
        reader.refuse("itemSelector", "has no place here: it goes with `ContainsAll` and `ContainsAny`");
    } else if reader.has("itemSelector") {
        reader.refuse("values", "has no place here: `itemSelector` says what one item has to be");
        let item = reader
            .required("itemSelector", |field| field.mapping(|reader| expressions(reader, Expression::read_property)));
        return Some((operator, Some(Vec::new()), item));
    } else if !reader.has("values") {
        reader.ignore("values");
        return reader.field().fail("needs an `itemSelector`");
    }
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
            match values.as_slice() {
                [] => field.fail("names no value"),
                [_] => Some(values),
                all if all.iter().all(Value::is_string) || all.iter().all(Value::is_number) => Some(values),
                _ => field.fail("must be only strings, only numbers, or one boolean"),
            }
        }),
    };
    Some((operator, values, Some(Vec::new())))
}

/// The `matchExpressions` of a selector.
pub(super) fn expressions(
    reader: &mut Reader<'_>,
    read: fn(Field<'_>) -> Option<Expression>,
) -> Option<Vec<Expression>> {
    reader.required("matchExpressions", |field| {
        let all = field.clone().list(read)?;
        if all.is_empty() { field.fail("requires nothing") } else { Some(all) }
    })
}

fn scalar(field: Field<'_>) -> Option<Value> {
    let value = field.clone().json()?;
    if is_scalar(&value) { Some(value) } else { field.fail("must be a string, number or boolean") }
}

fn is_scalar(value: &Value) -> bool {
    value.is_string() || value.is_number() || value.is_boolean()
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

fn compare(found: &Value, limit: &Value) -> Option<Ordering> {
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
        let or = if self.operator == Operator::ContainsAny { " or " } else { " and " };
        for (index, item) in self.item.iter().enumerate() {
            write!(f, "{}{item}", if index == 0 { " an item with " } else { or })?;
        }
        Ok(())
    }
}
