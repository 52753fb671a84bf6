//! `matchExpressions`: what a label has to be, by the rules of Kubernetes' selectors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use repo_model::yaml::{Field, Reader};

use super::labels::{is_label_key, is_label_value};

/// One requirement for one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    key: String,
    test: Test,
}

/// What the label has to be. As in Kubernetes, a label that isn't there is in no set, and greater or less than nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
}

#[derive(Clone, Copy)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

const OPERATORS: &[(&str, Operator)] = &[
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
    ("Gt", Operator::Gt),
    ("Lt", Operator::Lt),
];

impl Expression {
    /// Whether labels are as this wants them.
    pub(super) fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Gt(limit) => number().is_some_and(|number| number > *limit),
            Test::Lt(limit) => number().is_some_and(|number| number < *limit),
        }
    }

    pub(super) fn read_list(field: Field<'_>) -> Option<Vec<Self>> {
        field.list(|field| field.mapping(expression))
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(", ");
        match &self.test {
            Test::In(values) => write!(f, "`{}` In [{}]", self.key, listed(values)),
            Test::NotIn(values) => write!(f, "`{}` NotIn [{}]", self.key, listed(values)),
            Test::Exists => write!(f, "`{}` Exists", self.key),
            Test::DoesNotExist => write!(f, "`{}` DoesNotExist", self.key),
            Test::Gt(limit) => write!(f, "`{}` Gt {limit}", self.key),
            Test::Lt(limit) => write!(f, "`{}` Lt {limit}", self.key),
        }
    }
}

fn expression(reader: &mut Reader<'_>) -> Option<Expression> {
    let key = reader.required("key", |field| {
        let key = field.clone().string()?;
        if is_label_key(&key) { Some(key) } else { field.fail(format!("`{key}` is not a label's name")) }
    });
    let Some(operator) = reader.required("operator", |field| field.choice(OPERATORS)) else {
        reader.ignore("values");
        return None;
    };
    let test = match operator {
        Operator::In => reader.required("values", values).map(Test::In),
        Operator::NotIn => reader.required("values", values).map(Test::NotIn),
        Operator::Exists => without_values(reader, Test::Exists),
        Operator::DoesNotExist => without_values(reader, Test::DoesNotExist),
        Operator::Gt => reader.required("values", limit).map(Test::Gt),
        Operator::Lt => reader.required("values", limit).map(Test::Lt),
    };
    Some(Expression { key: key?, test: test? })
}

fn values(field: Field<'_>) -> Option<BTreeSet<String>> {
    let values = field.clone().list(|field| {
        let value = field.clone().string()?;
        if is_label_value(&value) { Some(value) } else { field.fail("is no value that a label can have") }
    })?;
    if values.is_empty() { field.fail("names no value") } else { Some(values.into_iter().collect()) }
}

fn without_values(reader: &mut Reader<'_>, test: Test) -> Option<Test> {
    reader.refuse("values", "has no place here: `Exists` and `DoesNotExist` ask for the label alone");
    (!reader.has("values")).then_some(test)
}

/// Labels are text, so the limit is text too, as in Kubernetes.
fn limit(field: Field<'_>) -> Option<i64> {
    let values = field.clone().list(Field::string)?;
    match values.as_slice() {
        [one] => match one.parse() {
            Ok(number) => Some(number),
            Err(_) => field.fail(format!("`{one}` is not an integer")),
        },
        _ => field.fail("must list exactly one value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use repo_model::yaml::{Strictness, read};

    fn parse(text: &str) -> Result<Vec<Expression>, String> {
        let read = read("f", text.as_bytes(), Strictness::Fleet, Expression::read_list);
        read.map(|(list, _)| list).map_err(|problems| problems.to_string())
    }

    #[test]
    fn every_operator_follows_kubernetes_on_both_sides_of_its_edge() {
        let labels = |text: &str| -> BTreeMap<String, String> {
            text.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
        };
        for (expression, good, bad) in [
            ("operator: In, values: [\"1\", \"2\"]", vec!["line=2"], vec!["line=3", ""]),
            ("operator: NotIn, values: [\"1\"]", vec!["line=2", "", "other=1"], vec!["line=1"]),
            ("operator: Exists", vec!["line=1", "line="], vec!["", "other=1"]),
            ("operator: DoesNotExist", vec!["", "other=1"], vec!["line=1", "line="]),
            ("operator: Gt, values: [\"5\"]", vec!["line=6", "line=10"], vec!["line=5", "line=x", ""]),
            ("operator: Lt, values: [\"5\"]", vec!["line=4", "line=-1"], vec!["line=5", "line=x", ""]),
        ] {
            let parsed = parse(&format!("[{{key: line, {expression}}}]")).unwrap();
            good.iter().for_each(|text| assert!(parsed[0].holds(&labels(text)), "{expression}: {text}"));
            bad.iter().for_each(|text| assert!(!parsed[0].holds(&labels(text)), "{expression}: {text}"));
        }
    }

    #[test]
    fn a_requirement_that_makes_no_sense_is_refused() {
        for (text, expected) in [
            ("[{key: line, operator: in, values: [a]}]", "is `in`, expected `In`"),
            ("[{key: line, operator: In}]", "values: is missing"),
            ("[{key: line, operator: In, values: []}]", "names no value"),
            ("[{key: line, operator: Exists, values: [a]}]", "has no place here"),
            ("[{key: line, operator: Gt, values: [\"1\", \"2\"]}]", "exactly one"),
            ("[{key: line, operator: Gt, values: [x]}]", "`x` is not an integer"),
            ("[{key: line, operator: In, values: [1]}]", "expected a string"),
            ("[{key: -line, operator: Exists}]", "is not a label's name"),
            ("[{operator: Exists}]", "key: is missing"),
        ] {
            let problems = parse(text).unwrap_err();
            assert!(problems.contains(expected), "{text}: {problems}");
        }
    }
}
