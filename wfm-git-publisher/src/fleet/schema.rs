//! Whether a value that an operator gives follows the package's rules for it (Margo, *Schema*).

use std::collections::HashSet;
use std::sync::OnceLock;

use regex::{Error, Regex, RegexBuilder};
use repo_model::margo::configuration::{DataType, Schema};
use repo_model::problem::Problem;
use repo_model::value::ParamValue;

use super::place::Place;

/// The most options of a rule.
const MAX_OPTIONS: usize = 10_000;

/// The longest pattern that is applied, in bytes.
const MAX_PATTERN: usize = 4096;

/// The most bytes that a pattern takes once it is compiled. A name of 128 letters takes more than half of it: `^\w[\w.-]{0,127}$`.
const MAX_COMPILED: usize = 8 << 20;

/// In so many bytes options are named where a value is none of them.
const NAMED: usize = 1000;

/// Why a value doesn't follow its rule; `Doubt` where the rule itself can't be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Breach {
    Wrong(String),
    /// The rule can't be checked here.
    Doubt(String),
}

/// A package's rule, with what checking values by it needs: that is made once, however many values and devices there are.
#[derive(Debug)]
pub(super) struct ValueRule {
    pub(super) schema: Schema,
    pub(super) place: Place,
    pattern: OnceLock<Option<Result<Regex, String>>>,
    options: OnceLock<HashSet<Same>>,
}

/// What makes two values the same.
type Same = (&'static str, String);

impl PartialEq for ValueRule {
    fn eq(&self, other: &Self) -> bool {
        (&self.schema, &self.place) == (&other.schema, &other.place)
    }
}

impl ValueRule {
    pub(super) fn new(schema: Schema, place: Place) -> Self {
        Self { schema, place, pattern: OnceLock::new(), options: OnceLock::new() }
    }

    /// Why no package may have it.
    pub(super) fn problem(&self) -> Option<Problem> {
        let options = self.schema.options.as_ref().map_or(0, Vec::len);
        let text = || format!("has {options} options, and may have {MAX_OPTIONS}");
        (options > MAX_OPTIONS).then(|| self.place_of("options").problem(text()))
    }

    /// Why its pattern isn't applied.
    pub(super) fn doubt(&self) -> Option<Problem> {
        let text = self.pattern()?.as_ref().err()?;
        Some(self.place_of("regexMatch").problem(text).warning())
    }

    fn place_of(&self, key: &str) -> Place {
        Place { key: format!("{}.{key}", self.place.key), ..self.place.clone() }
    }

    /// Its pattern, compiled; `None` where it has none.
    fn pattern(&self) -> Option<&Result<Regex, String>> {
        self.pattern.get_or_init(|| self.schema.regex_match.as_deref().map(compile)).as_ref()
    }

    /// Checks a value. A list follows a rule if each of its items does.
    pub(super) fn check(&self, value: &ParamValue) -> Result<(), Breach> {
        let schema = &self.schema;
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
                items.iter().try_for_each(|item| self.check_item(item))
            }
            item => self.check_item(item),
        }
    }

    fn check_item(&self, item: &ParamValue) -> Result<(), Breach> {
        let schema = &self.schema;
        let wrong = |message: String| Err(Breach::Wrong(message));
        if let Some(options) = &schema.options {
            let known = self.options.get_or_init(|| options.iter().map(same).collect());
            if !known.contains(&same(item)) {
                return wrong(format!("is `{item}`, expected {}", named(options)));
            }
        }
        if let ParamValue::String(text) = item {
            return self.check_text(text);
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

    fn check_text(&self, text: &str) -> Result<(), Breach> {
        let (schema, length) = (&self.schema, text.chars().count() as u64);
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
        if length == 0 {
            return Ok(());
        }
        match self.pattern() {
            Some(Ok(regex)) if !regex.is_match(text) => Err(Breach::Wrong(format!("doesn't match `{regex}`"))),
            Some(Err(why)) => Err(Breach::Doubt(why.clone())),
            _ => Ok(()),
        }
    }
}

/// This engine takes linear time, whatever the pattern, by its size; what it doesn't know can't be checked.
fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > MAX_PATTERN {
        let bytes = pattern.len();
        return Err(format!("can't be checked: the pattern has {bytes} bytes, and {MAX_PATTERN} at most are applied"));
    }
    RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build().map_err(|error| match error {
        Error::CompiledTooBig(_) => format!("can't be checked: `{pattern}` takes more than {} MiB", MAX_COMPILED >> 20),
        _ => format!("can't be checked: `{pattern}` has a form that isn't supported here"),
    })
}

/// Two values are the same if their type and text are.
fn same(value: &ParamValue) -> Same {
    (value.type_tag(), value.text())
}

fn named(options: &[ParamValue]) -> String {
    let mut room = NAMED;
    let names = options.iter().map(|option| format!("`{option}`")).take_while(|name| {
        let fits = name.len() <= room;
        room = room.saturating_sub(name.len());
        fits
    });
    let mut names: Vec<_> = names.collect();
    let more = options.len() - names.len();
    names.extend((more > 0).then(|| format!("one of {more} that aren't named here")));
    names.join(" or ")
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
    let mut seen = HashSet::with_capacity(chosen.len());
    match chosen.iter().find(|item| !seen.insert(same(item))) {
        Some(twice) => Err(Breach::Wrong(format!("chooses `{twice}` twice"))),
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

/// The limit, if the number is on the wrong side of it.
fn beyond<'a>(item: &ParamValue, limit: &'a Option<ParamValue>, test: fn(f64, f64) -> bool) -> Option<&'a ParamValue> {
    let limit = limit.as_ref()?;
    number(item).zip(number(limit)).filter(|(item, limit)| test(*item, *limit)).map(|_| limit)
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

    fn rule(schema: &Schema) -> ValueRule {
        let key = "configuration.schema[0]".to_owned();
        ValueRule::new(schema.clone(), Place { key, ..Place::of_file("margo.yaml") })
    }

    fn check(schema: &Schema, value: &ParamValue) -> Result<(), Breach> {
        rule(schema).check(value)
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

    #[test]
    fn a_pattern_is_compiled_once_for_all_values_and_what_takes_too_much_is_a_doubt() {
        let of = |pattern: String| Schema { regex_match: Some(pattern), ..schema(ItemType::String, false) };
        // About the largest that is taken.
        let largest = rule(&of(r"^\w[\w.-]{0,127}$".to_owned()));
        let compiled: HashSet<_> = (0..1000)
            .map(|n| {
                assert_eq!(largest.check(&text(&format!("device-{n}"))), Ok(()));
                std::ptr::from_ref(largest.pattern().and_then(|pattern| pattern.as_ref().ok()).expect("a pattern"))
            })
            .collect();
        assert_eq!(compiled.len(), 1);
        for (pattern, why) in [
            (r"^\w{1,400}.*$".to_owned(), "takes more than 8 MiB"),
            ("a".repeat(MAX_PATTERN + 1), "the pattern has 4097 bytes, and 4096 at most are applied"),
        ] {
            let rule = rule(&of(pattern));
            let doubts: HashSet<_> = (0..1000)
                .map(|n| match rule.check(&text(&format!("device-{n}"))) {
                    Err(Breach::Doubt(doubt)) => doubt,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert!(doubts.len() == 1 && doubts.iter().all(|doubt| doubt.ends_with(why)), "{doubts:?}");
        }
        assert_eq!(check(&of("a".repeat(MAX_PATTERN)), &text(&"a".repeat(MAX_PATTERN))), Ok(()));
    }

    #[test]
    fn all_of_many_options_are_chosen_at_once_and_few_of_them_are_named() {
        let options = |count: usize| {
            let options = (0..count).map(|n| text(&format!("option-{n}"))).collect();
            Schema { options: Some(options), multiselect: Some(true), ..schema(ItemType::String, false) }
        };
        let most = options(MAX_OPTIONS);
        let all = ParamValue::Array(most.options.clone().unwrap_or_default());
        assert_eq!((rule(&most).problem(), check(&most, &all)), (None, Ok(())));
        let Err(Breach::Wrong(wrong)) = check(&most, &text("other")) else { panic!("it is none of them") };
        assert!(wrong.len() < 2 * NAMED && wrong.ends_with("that aren't named here"), "{wrong}");
        assert!(rule(&options(MAX_OPTIONS + 1)).problem().is_some());
    }
}
