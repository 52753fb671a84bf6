//! From what a person types to the value of a parameter, checked as in a file.

use repo_model::margo::configuration::{DataType, ItemType, Schema};
use repo_model::problem::{Problem, Problems};
use repo_model::value::ParamValue;

use crate::fleet::{Application, Given, ParameterRule, check_value, read_values};

/// What a value is by its parameter's rule, else by its default.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// A list; whether of text.
    List(bool),
    Other,
}

/// Reads an answer as the value of a parameter, and checks it by the package's rule. Text is taken as it is typed, `""` for
/// empty text; anything else is YAML, and a list needs no brackets. `{valueFrom: {deviceFile: NAME}}` and templates are taken for
/// parameters of each type.
///
/// # Errors
/// Says what is wrong with it; `about` is what it is called there.
pub fn given(application: &Application, parameter: &str, answer: &str, about: &str) -> Result<Given, Problems> {
    let yaml = format!("{}: {}\n", quoted(parameter), yaml(kind(application, parameter, answer), answer));
    let wrong = |one: Problem| Problem { file: about.to_owned(), line: None, column: None, key: String::new(), ..one };
    let read = read_values(about, yaml.as_bytes());
    let mut values = read.map_err(|problems| Problems(problems.0.into_iter().map(wrong).collect()))?;
    let value = values.remove(parameter).filter(|_| values.is_empty());
    let value = value.ok_or_else(|| Problem::error(about, "is more than one value"))?;
    match check_value(application, parameter, &value).filter(|problem| Problems::from(problem.clone()).has_errors()) {
        Some(problem) => Err(wrong(problem).into()),
        None => Ok(value),
    }
}

fn kind(application: &Application, parameter: &str, answer: &str) -> Kind {
    let rule = application.rules.get(parameter).map(ParameterRule::schema);
    let default = application.description.parameters.get(parameter).and_then(|one| one.default.as_ref());
    match (rule, default) {
        (Some(Schema { data_type: DataType { item, array }, multiselect, .. }), _) => {
            let are_several = *multiselect == Some(true) && (answer.contains(',') || is_list(answer));
            match item {
                _ if *array || are_several => Kind::List(*item == ItemType::String),
                ItemType::String => Kind::Text,
                _ => Kind::Other,
            }
        }
        (None, Some(ParamValue::String(_))) => Kind::Text,
        (None, Some(ParamValue::Array(items))) => Kind::List(matches!(items.first(), Some(ParamValue::String(_)))),
        (None, _) => Kind::Other,
    }
}

fn yaml(kind: Kind, answer: &str) -> String {
    let trimmed = answer.trim();
    if trimmed.starts_with("{valueFrom:") {
        return trimmed.to_owned();
    }
    match kind {
        Kind::Text if trimmed == "\"\"" => trimmed.to_owned(),
        Kind::Text => quoted(answer),
        Kind::List(_) if is_list(answer) => trimmed.to_owned(),
        _ if trimmed.starts_with("{{") => quoted(trimmed),
        Kind::List(_) if trimmed.is_empty() => "[]".to_owned(),
        Kind::List(true) => {
            let items: Vec<_> = answer.split(',').map(|item| quoted(item.trim())).collect();
            format!("[{}]", items.join(", "))
        }
        Kind::List(false) => format!("[{trimmed}]"),
        Kind::Other => trimmed.to_owned(),
    }
}

fn is_list(answer: &str) -> bool {
    answer.trim_start().starts_with('[')
}

/// JSON's strings are YAML's too, and never mean anything else.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use repo_model::problem::Problem;

    use super::*;
    use crate::fleet::{SourceFile, read_applications};

    const PACKAGE: &str = "apiVersion: v1\nid: app\nmetadata: {name: App, version: 1.0.0, catalog: {organization: [{name: X}]}}\n\
        deploymentProfiles:\n- {type: compose, id: c, components: [{name: a, properties: {repository: \"oci://r.example/a\", \
        revision: 1.0.0}}]}\nparameters:\n  text: {targets: [{pointer: A, components: [a]}]}\n  \
        count: {targets: [{pointer: B, components: [a]}]}\n  ports: {targets: [{pointer: C, components: [a]}]}\n  \
        names: {targets: [{pointer: D, components: [a]}]}\n  modes: {targets: [{pointer: E, components: [a]}]}\n  \
        free: {targets: [{pointer: F, components: [a]}]}\nconfiguration:\n  sections:\n  - name: G\n    settings:\n    \
        - {parameter: text, name: T, schema: t}\n    - {parameter: count, name: C, schema: c}\n    \
        - {parameter: ports, name: P, schema: p}\n    - {parameter: names, name: N, schema: n}\n    \
        - {parameter: modes, name: M, schema: m}\n  schema:\n  - {name: t, dataType: string, maxLength: 12}\n  \
        - {name: c, dataType: integer, minValue: 1}\n  - {name: p, dataType: \"array[integer]\"}\n  \
        - {name: n, dataType: \"array[string]\"}\n  - {name: m, dataType: string, multiselect: true, options: [a, b]}\n";

    fn said(parameter: &str, answer: &str) -> Result<String, String> {
        let (all, problems) = read_applications(&[SourceFile::plain("applications/app/1.0.0/margo.yaml", PACKAGE)]);
        let application = all.first().unwrap_or_else(|| panic!("{problems}"));
        let read = given(application, parameter, answer, "x").map(|given| given.setting.to_yaml());
        read.map_err(|problems| problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn an_answer_is_the_value_that_a_file_would_say_and_follows_its_rule() {
        for (parameter, answer, yaml) in [
            ("text", "servus", "\"servus\""),
            ("text", " yes: # no", "\" yes: # no\""),
            ("text", "5", "\"5\""),
            ("text", "\"\"", "\"\""),
            ("text", "{{ device.id }}", "\"{{ device.id }}\""),
            ("text", "{valueFrom: {deviceFile: secret}}", "{valueFrom: {deviceFile: \"secret\"}}"),
            ("count", " 5 ", "5"),
            ("count", "{{ device.data.count }}", "\"{{ device.data.count }}\""),
            ("ports", "80, 443", "[80,443]"),
            ("ports", "[80]", "[80]"),
            ("ports", "", "[]"),
            ("names", "a, b c", "[\"a\",\"b c\"]"),
            ("names", "[\"a, b\"]", "[\"a, b\"]"),
            ("modes", "a", "\"a\""),
            ("modes", "a, b", "[\"a\",\"b\"]"),
            ("free", "1.5", "1.5"),
            ("free", "some text", "\"some text\""),
        ] {
            assert_eq!(said(parameter, answer).as_deref(), Ok(yaml), "{parameter}: {answer}");
        }
    }

    #[test]
    fn a_wrong_answer_is_refused_by_the_rule_and_says_no_place_of_a_file() {
        for (parameter, answer, why) in [
            ("text", "more than twelve", "x: has 16 characters, and may have at most 12"),
            ("count", "0", "x: is 0, and must be at least 1"),
            ("count", "many", "x: is a string, expected integer"),
            ("count", "5\ntext: x", "x: is more than one value"),
            ("count", "", "x: is nothing, expected"),
            ("ports", "a", "x: is an array, expected array[integer]"),
            ("modes", "c", "x: is `c`, expected `a` or `b`"),
            ("free", "yes", "x: "),
            ("free", "{valueFrom: {deviceFile: ../key}}", "x: `../key` is not the bare name of a file"),
        ] {
            let wrong = said(parameter, answer).expect_err(answer);
            assert!(wrong.contains(why), "{parameter}: {answer}: {wrong}");
        }
    }
}
