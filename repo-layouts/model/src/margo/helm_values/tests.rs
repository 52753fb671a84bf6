use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn string(text: &str) -> ParamValue {
    ParamValue::String(text.to_owned())
}

fn values(parameters: &[(&str, ParamValue)]) -> Result<HelmValues, HelmValuesError> {
    HelmValues::new(parameters.iter().map(|(pointer, value)| (*pointer, value)))
}

fn json_of(parameters: &[(&str, ParamValue)]) -> Value {
    serde_json::to_value(values(parameters).unwrap()).unwrap()
}

#[test]
fn pointers_make_mappings_and_lists_as_for_set() {
    let made = json_of(&[
        ("image.tag", string("1.10")),
        ("image.pullPolicy", string("Always")),
        ("hosts[1].name", string("b")),
        ("hosts[0].name", string("a")),
        ("matrix[0][2]", ParamValue::Integer(3)),
        (r"nodeSelector.kubernetes\.io/arch", string("arm64")),
        ("args", ParamValue::Array(vec![string("-v"), ParamValue::Integer(2)])),
    ]);
    assert_eq!(
        made,
        json!({
            "image": {"tag": "1.10", "pullPolicy": "Always"},
            "hosts": [{"name": "a"}, {"name": "b"}],
            "matrix": [[null, null, 3]],
            "nodeSelector": {"kubernetes.io/arch": "arm64"},
            "args": ["-v", 2],
        })
    );
    assert_eq!(values(&[]).unwrap().to_yaml(), b"{}\n");
}

#[test]
fn a_value_keeps_its_type_in_what_helm_reads() {
    let strings = ["1.10", "010", "yes", "1e3", "true", "null", "~", "", " a: b #c", "a\nb", "{{ x }}"];
    let mut parameters: Vec<_> = strings.iter().map(|text| string(text)).collect();
    parameters.extend([ParamValue::Integer(30), ParamValue::Double(30.0), ParamValue::Boolean(true)]);
    parameters.push(ParamValue::Integer(u64::MAX.into()));
    let pointers: Vec<_> = (0..parameters.len()).map(|index| format!("v.k{index}")).collect();
    let made = HelmValues::new(pointers.iter().map(String::as_str).zip(&parameters)).unwrap();
    let text = String::from_utf8(made.to_yaml()).unwrap();
    let read = yaml::parse("values.yaml", text.as_bytes(), &yaml::Limits::VENDOR).unwrap().to_json().unwrap();
    for (index, value) in parameters.iter().enumerate() {
        assert_eq!(read["v"][format!("k{index}")], serde_json::to_value(value).unwrap(), "{text}");
    }
    for plain in ["\"010\"", "\"yes\"", ": 30\n", ": 30.0\n", ": true\n", ": 18446744073709551615\n"] {
        assert!(text.contains(plain), "{plain} in {text}");
    }
}

#[test]
fn pointers_that_contradict_each_other_are_both_named() {
    for (first, second) in [
        ("a", "a.b"),
        ("a.b", "a"),
        ("a.b", "a.b"),
        ("a.b", "a[0]"),
        ("a[0]", "a.b"),
        ("a[1]", "a[1].b"),
        ("a[1][0]", "a[1].b"),
        (r"a\.b", r"a\.b.c"),
        ("x.y.z[3].w", "x.y"),
    ] {
        let error = values(&[("other", string("")), (first, string("1")), (second, string("2"))]).unwrap_err();
        assert_eq!(error, HelmValuesError::Conflict(first.to_owned(), second.to_owned()));
        let text = error.to_string();
        assert!(text.contains(&format!("`{first}`")) && text.contains(&format!("`{second}`")), "{text}");
    }
    let list = ParamValue::Array(vec![string("x")]);
    assert!(matches!(values(&[("a", list), ("a[0]", string("y"))]), Err(HelmValuesError::Conflict(..))));
    assert!(matches!(values(&[("a..b", string(""))]), Err(HelmValuesError::Malformed(_))));
}

#[test]
fn gaps_are_bounded() {
    assert_eq!(json_of(&[("a[65536]", string("x"))])["a"].as_array().unwrap().len(), 65537);
    let pointers: Vec<_> = (0..16).map(|index| format!("k{index}[65536]")).collect();
    let value = string("");
    let build = |count: usize| HelmValues::new(pointers.iter().take(count).map(|pointer| (pointer.as_str(), &value)));
    assert!(build(15).is_ok());
    assert_eq!(build(16).unwrap_err(), HelmValuesError::TooLong("k15[65536]".to_owned()));
    // What is filled already costs nothing again.
    let again: Vec<_> = (0..100).map(|index| format!("a[{}]", 65536 - index)).collect();
    assert!(HelmValues::new(again.iter().map(|pointer| (pointer.as_str(), &value))).is_ok());
}

#[test]
fn a_chart_declares_what_its_values_name_and_what_lies_below_something_empty() {
    let chart = json!({
        "image": {"tag": "1"}, "resources": {}, "extra": null, "hosts": [{"name": "a"}], "args": [], "a.b": 1,
    });
    let declared = |pointer: &str| declares(&chart, &parse_path(pointer).unwrap());
    for pointer in [
        "image",
        "image.tag",
        "resources.limits.cpu",
        "extra",
        "extra.a[0]",
        "hosts[0].name",
        "hosts[7].any",
        "args[3]",
        r"a\.b",
    ] {
        assert!(declared(pointer), "{pointer}");
    }
    for pointer in ["image.tga", "Image.tag", "image.tag.x", "image[0]", "hosts[0].nam", "hosts.name", "a.b", "other"] {
        assert!(!declared(pointer), "{pointer}");
    }
}

fn pointer() -> impl Strategy<Value = String> {
    let key = prop_oneof!["[ab]", r"a\\\.b", r"a\\\[0\\\]", "k8s-[a-c]", "[äö]"];
    let part = (key, vec(0usize..4, 0..3))
        .prop_map(|(key, indexes)| indexes.iter().fold(key, |text, index| format!("{text}[{index}]")));
    vec(part, 1..4).prop_map(|parts| parts.join("."))
}

fn value() -> impl Strategy<Value = ParamValue> {
    prop_oneof![
        "[ -~]{0,8}".prop_map(ParamValue::String),
        any::<i64>().prop_map(|value| ParamValue::Integer(value.into())),
        any::<bool>().prop_map(ParamValue::Boolean),
        (-1e6..1e6).prop_map(ParamValue::Double),
        vec("[a-z0-9]{0,3}".prop_map(ParamValue::String), 0..3).prop_map(ParamValue::Array),
    ]
}

proptest! {
    /// Whatever is set is found where its pointer leads, and nothing else is.
    #[test]
    fn each_pointer_leads_to_its_value_whatever_the_order(set in btree_map(pointer(), value(), 0..12)) {
        let forward = HelmValues::new(set.iter().map(|(pointer, value)| (pointer.as_str(), value)));
        let backward = HelmValues::new(set.iter().rev().map(|(pointer, value)| (pointer.as_str(), value)));
        prop_assert_eq!(forward.is_ok(), backward.is_ok());
        let Ok(made) = forward else { return Ok(()) };
        prop_assert_eq!(&made.to_yaml(), &backward.unwrap().to_yaml());
        let document = serde_json::to_value(&made).unwrap();
        let mut leaves = 0;
        for (pointer, value) in &set {
            let path = parse_path(pointer).unwrap();
            let found = path.iter().try_fold(&document, |node, part| match part {
                Part::Key(key) => node.get(key),
                Part::Index(index) => node.get(*index),
            });
            prop_assert_eq!(found, Some(&serde_json::to_value(value).unwrap()));
            prop_assert!(declares(&document, &path));
            leaves += count(&serde_json::to_value(value).unwrap());
        }
        prop_assert_eq!(count(&document), leaves);
    }
}

/// Scalars in a document, without the gaps of lists.
fn count(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Object(map) => map.values().map(count).sum(),
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 1,
    }
}
