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
