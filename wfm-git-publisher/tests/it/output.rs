//! What commands print for programs: held against the schemas that come with them, wherever a test runs one.

use jsonschema::Validator;
use serde_json::{Deserializer, Value, json};

use crate::support::Ran;

/// The schemas of what commands print: those of questions, and of all others.
pub(crate) struct Schemas {
    questions: Value,
    others: Value,
}

impl Schemas {
    pub(crate) fn read() -> Self {
        let read = |text| serde_json::from_str::<Value>(text).unwrap();
        let others = read(include_str!("../../output.schema.json"));
        Self { questions: read(include_str!("../../openapi.json")), others }
    }

    /// Of the command that has these words; `None` if it isn't described.
    pub(crate) fn of(&self, words: &[&str]) -> Option<Validator> {
        let (own, id) = (self.others["commands"].get(words.join(" ")), words.join("-"));
        let mut paths = self.questions["paths"].as_object().unwrap().values();
        let question = paths.find(|path| path["get"]["operationId"] == id.as_str());
        let question = question.map(|path| &path["get"]["responses"]["200"]["content"]["application/json"]["schema"]);
        // What goes on prints lines of its own.
        let schemas: Vec<_> = question.into_iter().chain(own).collect();
        if schemas.is_empty() {
            return None;
        }
        let (defs, components) = (&self.others["$defs"], &self.questions["components"]);
        Some(jsonschema::validator_for(&json!({ "anyOf": schemas, "$defs": defs, "components": components })).unwrap())
    }
}

#[test]
fn what_describes_it_is_a_schema_itself() {
    assert!(jsonschema::meta::is_valid(&Schemas::read().others));
}

/// What others write, and so isn't ours to describe.
const OF_OTHERS: [&str; 3] = [
    // What the syncer of a device printed, in its version.
    "$defs.diagnostics",
    // What applications' vendors wrote.
    "$defs.vendors",
    // As in `$defs`.
    "components.schemas.Diagnostics",
];

#[test]
fn everything_that_is_printed_for_programs_is_described_down_to_its_last_part() {
    let Schemas { questions, others } = Schemas::read();
    let components = &questions["components"]["schemas"];
    let parts = [("commands", &others["commands"]), ("$defs", &others["$defs"]), ("components.schemas", components)];
    let mut open = Vec::new();
    for (place, schemas) in parts {
        for (name, schema) in schemas.as_object().unwrap() {
            find_open(&format!("{place}.{name}"), schema, &mut open);
        }
    }
    open.sort_unstable();
    assert_eq!(open, OF_OTHERS);
}

/// Adds the places in a schema where it takes anything, or an object or a list of anything.
fn find_open(place: &str, schema: &Value, open: &mut Vec<String>) {
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect::<Vec<_>>(),
    };
    let says = |keys: &[&str]| keys.iter().any(|key| !schema[key].is_null());
    let elsewhere = ["$ref", "anyOf", "oneOf", "allOf", "enum", "const"];
    let is_closed = match () {
        () if says(&elsewhere) => true,
        () if kinds.contains(&"object") || kinds.is_empty() => says(&["properties", "additionalProperties"]),
        () if kinds.contains(&"array") => says(&["items"]),
        () => true,
    };
    if !is_closed {
        open.push(place.to_owned());
    }
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        find_open(&format!("{place}.{name}"), part, open);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            find_open(&format!("{place}.{key}"), &schema[key], open);
        }
    }
    for part in ["anyOf", "oneOf", "allOf"].iter().flat_map(|key| schema[key].as_array()).flatten() {
        find_open(place, part, open);
    }
}

/// Fails unless what a command printed for programs is as its schema says.
pub(crate) fn is_as_described(args: &[&str], ran: &Ran) {
    let is_for_programs = args.windows(2).any(|two| two == ["--output", "json"]);
    // A bill of materials is what CycloneDX says.
    if !is_for_programs || ran.out.is_empty() || args.contains(&"sbom") {
        return;
    }
    let schemas = Schemas::read();
    let words = (0..args.len()).flat_map(|at| [2, 1].map(|count| args.get(at..at + count).unwrap_or_default()));
    let schema = words.filter(|words| !words.is_empty()).find_map(|words| schemas.of(words));
    let schema = schema.unwrap_or_else(|| panic!("{args:?} has no schema"));
    for document in Deserializer::from_str(&ran.out).into_iter::<Value>() {
        let document = document.unwrap_or_else(|error| panic!("{args:?}: {error}: {}", ran.out));
        let errors = schema.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path()));
        let errors: Vec<_> = errors.collect();
        assert!(errors.is_empty(), "{args:?}: {errors:?}\n{document:#}");
    }
}
