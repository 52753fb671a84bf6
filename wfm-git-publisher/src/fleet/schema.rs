//! Whether a value that an operator gives follows the package's rules for it (Margo, *Schema*).

use regex::Regex;
use repo_model::margo::configuration::{DataType, Schema};
use repo_model::value::ParamValue;

/// Why a value doesn't follow its rule; `Doubt` where the rule itself can't be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Breach {
    Wrong(String),
    /// The rule can't be checked here.
    Doubt(String),
}

/// Checks a value against its rule. A list follows a rule if each of its items does.
pub(crate) fn check(schema: &Schema, value: &ParamValue) -> Result<(), Breach> {
    let wrong = |message: String| Err(Breach::Wrong(message));
    if !schema.data_type.fits(value) && !is_selection(schema, value) {
        let wanted = serde_json::to_value(schema.data_type).unwrap_or_default();
        return wrong(format!(
            "is {} {}, expected {}",
            article(value),
            value.type_tag(),
            wanted.as_str().unwrap_or("?")
        ));
    }
    if schema.allow_empty == Some(false) && is_empty(value) {
        return wrong("must not be empty".to_owned());
    }
    match value {
        ParamValue::Array(items) => {
            check_selection(schema, items)?;
            items.iter().try_for_each(|item| check_item(schema, item))
        }
        item => check_item(schema, item),
    }
}

/// Whether the value lists options of a rule that lets several be chosen, whatever its type is called.
fn is_selection(schema: &Schema, value: &ParamValue) -> bool {
    let list = DataType { array: true, ..schema.data_type };
    schema.multiselect == Some(true) && schema.options.is_some() && list.fits(value)
}

/// Checks how many options are chosen, and that none is twice.
fn check_selection(schema: &Schema, chosen: &[ParamValue]) -> Result<(), Breach> {
    if schema.options.is_none() {
        return Ok(());
    }
    if schema.multiselect == Some(false) && chosen.len() > 1 {
        return Err(Breach::Wrong(format!("chooses {} options, and may choose one", chosen.len())));
    }
    match chosen.iter().enumerate().find(|(index, item)| chosen[..*index].contains(item)) {
        Some((_, twice)) => Err(Breach::Wrong(format!("chooses `{twice}` twice"))),
        None => Ok(()),
    }
}

fn article(value: &ParamValue) -> &'static str {
    if matches!(value, ParamValue::Integer(_) | ParamValue::Array(_)) { "an" } else { "a" }
}

fn is_empty(value: &ParamValue) -> bool {
    match value {
        ParamValue::String(text) => text.is_empty(),
        ParamValue::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn check_item(schema: &Schema, item: &ParamValue) -> Result<(), Breach> {
    let wrong = |message: String| Err(Breach::Wrong(message));
    if let Some(options) = schema.options.as_ref().filter(|options| !options.contains(item)) {
        let options: Vec<_> = options.iter().map(|option| format!("`{option}`")).collect();
        return wrong(format!("is `{item}`, expected {}", options.join(" or ")));
    }
    if let ParamValue::String(text) = item {
        return check_text(schema, text);
    }
    if let Some(least) = beyond(item, &schema.min_value, |item, least| item < least) {
        return wrong(format!("is {item}, and must be at least {least}"));
    }
    if let Some(most) = beyond(item, &schema.max_value, |item, most| item > most) {
        return wrong(format!("is {item}, and must be at most {most}"));
    }
    let digits = fraction_digits(item);
    match (schema.min_precision, schema.max_precision) {
        (Some(least), _) if digits < least => wrong(format!("needs at least {least} digits after the point")),
        (_, Some(most)) if digits > most => wrong(format!("may have at most {most} digits after the point")),
        _ => Ok(()),
    }
}

/// The limit, if the number is on the wrong side of it.
fn beyond<'a>(item: &ParamValue, limit: &'a Option<ParamValue>, test: fn(f64, f64) -> bool) -> Option<&'a ParamValue> {
    let limit = limit.as_ref()?;
    number(item).zip(number(limit)).filter(|(item, limit)| test(*item, *limit)).map(|_| limit)
}

fn check_text(schema: &Schema, text: &str) -> Result<(), Breach> {
    let length = text.chars().count() as u64;
    match (schema.min_length, schema.max_length) {
        // An empty text that is allowed needs no length.
        (Some(least), _) if length < least && length > 0 => {
            return Err(Breach::Wrong(format!("has {length} characters, and needs at least {least}")));
        }
        (_, Some(most)) if length > most => {
            return Err(Breach::Wrong(format!("has {length} characters, and may have at most {most}")));
        }
        _ => {}
    }
    let Some(pattern) = schema.regex_match.as_ref().filter(|_| length > 0) else { return Ok(()) };
    // This engine takes linear time, whatever the pattern; what it doesn't know can't be checked.
    match Regex::new(pattern) {
        Ok(regex) if regex.is_match(text) => Ok(()),
        Ok(_) => Err(Breach::Wrong(format!("doesn't match `{pattern}`"))),
        Err(_) => Err(Breach::Doubt(format!("can't be checked: `{pattern}` has a form that isn't supported here"))),
    }
}

fn number(value: &ParamValue) -> Option<f64> {
    match value {
        ParamValue::Integer(value) => Some(*value as f64),
        ParamValue::Double(value) => Some(*value),
        _ => None,
    }
}

/// How many digits stand after the point; `30.0` has none, because its fraction says nothing.
fn fraction_digits(value: &ParamValue) -> u64 {
    let ParamValue::Double(value) = value else { return 0 };
    let text = format!("{value}");
    text.split_once('.').map_or(0, |(_, digits)| digits.len() as u64)
}

#[cfg(test)]
mod tests {
    use repo_model::margo::configuration::ItemType;

    use super::*;

    fn schema(item: ItemType, array: bool) -> Schema {
        Schema {
            name: "rule".to_owned(),
            data_type: DataType { item, array },
            allow_empty: None,
            min_length: None,
            max_length: None,
            regex_match: None,
            min_value: None,
            max_value: None,
            min_precision: None,
            max_precision: None,
            multiselect: None,
            options: None,
        }
    }

    fn text(text: &str) -> ParamValue {
        ParamValue::String(text.to_owned())
    }

    #[test]
    fn every_rule_holds_on_both_sides_of_its_edge() {
        use ParamValue::{Array, Boolean, Double, Integer};
        let string = || schema(ItemType::String, false);
        let integer = || schema(ItemType::Integer, false);
        let double = || schema(ItemType::Double, false);
        let list = || schema(ItemType::Integer, true);
        let at_least = |limit| Some(Integer(limit));
        for (schema, good, bad) in [
            (string(), text(""), Integer(1)),
            (integer(), Integer(1), text("1")),
            (double(), Integer(1), Boolean(true)),
            (list(), Array(vec![]), Array(vec![text("1")])),
            (Schema { allow_empty: Some(false), ..string() }, text("a"), text("")),
            (Schema { allow_empty: Some(false), ..list() }, Array(vec![Integer(1)]), Array(vec![])),
            (Schema { min_length: Some(2), ..string() }, text("äö"), text("a")),
            (Schema { max_length: Some(2), ..string() }, text("äö"), text("abc")),
            (Schema { regex_match: Some("b+".into()), ..string() }, text("abc"), text("ac")),
            (Schema { regex_match: Some("^b+$".into()), ..string() }, text("bb"), text("abc")),
            (Schema { min_value: at_least(30), ..integer() }, Integer(30), Integer(29)),
            (Schema { max_value: at_least(30), ..double() }, Double(30.0), Double(30.5)),
            (Schema { min_value: at_least(1), ..list() }, Array(vec![Integer(1)]), Array(vec![Integer(1), Integer(0)])),
            (Schema { max_precision: Some(1), ..double() }, Double(0.5), Double(0.25)),
            (Schema { min_precision: Some(1), ..double() }, Double(0.5), Double(1.0)),
            (Schema { options: Some(vec![text("a"), text("b")]), ..string() }, text("b"), text("c")),
        ] {
            assert_eq!(check(&schema, &good), Ok(()), "{schema:?} {good:?}");
            assert!(matches!(check(&schema, &bad), Err(Breach::Wrong(_))), "{schema:?} {bad:?}");
        }
    }

    #[test]
    fn several_options_are_chosen_only_where_the_rule_lets_them() {
        let several = |items: &[&str]| ParamValue::Array(items.iter().map(|item| text(item)).collect());
        let rule = |array, multiselect| Schema {
            options: Some(vec![text("a"), text("b")]),
            multiselect,
            ..schema(ItemType::String, array)
        };
        for (rule, good, bad) in [
            (rule(false, None), text("a"), several(&["a"])),
            (rule(false, Some(false)), text("a"), several(&["a"])),
            (rule(false, Some(true)), several(&["a", "b"]), several(&["a", "c"])),
            (rule(false, Some(true)), text("b"), several(&["a", "a"])),
            (rule(false, Some(true)), several(&[]), ParamValue::Array(vec![ParamValue::Integer(1)])),
            (rule(true, None), several(&["a", "b"]), text("a")),
            (rule(true, Some(true)), several(&["b", "a"]), several(&["b", "a", "b"])),
            (rule(true, Some(false)), several(&["b"]), several(&["b", "a"])),
            (Schema { allow_empty: Some(false), ..rule(false, Some(true)) }, several(&["a"]), several(&[])),
            (Schema { options: None, ..rule(false, Some(true)) }, text("c"), several(&["a"])),
        ] {
            assert_eq!(check(&rule, &good), Ok(()), "{rule:?} {good:?}");
            assert!(matches!(check(&rule, &bad), Err(Breach::Wrong(_))), "{rule:?} {bad:?}");
        }
    }

    #[test]
    fn a_pattern_that_is_not_supported_is_a_doubt() {
        let schema = Schema { regex_match: Some("(?=a)a".into()), ..schema(ItemType::String, false) };
        assert!(matches!(check(&schema, &text("a")), Err(Breach::Doubt(_))));
    }
}
