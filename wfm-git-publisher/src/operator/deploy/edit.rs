//! Other answers in a deployment's file that is there: the lines that they stand in change, and nothing else does.

use std::collections::BTreeMap;

use repo_model::yaml::{Limits, parse};
use serde_json::Value;

use super::super::edit::{set_entry, set_list};
use super::target::{Target, word};
use crate::fleet::Setting;

/// What changes in a deployment's file.
#[derive(Debug, Default)]
pub struct DeploymentEdit {
    /// Values that are new or others, by the parameters' names.
    pub parameters: BTreeMap<String, Setting>,
    /// The devices that are meant from now on; absent where they stay.
    pub targets: Option<Vec<Target>>,
}

/// The text with the edit. `None` if it isn't written in the usual block style, so that it would mean something else besides.
pub fn edited(text: &str, edit: &DeploymentEdit) -> Option<String> {
    let mut wanted = meaning(text)?;
    let mut edited = text.to_owned();
    for (name, setting) in &edit.parameters {
        let value = setting.to_yaml();
        edited = set_entry(&edited, "parameters", &word(name), &value)?;
        let parameters =
            wanted.as_object_mut()?.entry("parameters").or_insert_with(|| Value::Object(Default::default()));
        if parameters.is_null() {
            *parameters = Value::Object(Default::default());
        }
        parameters.as_object_mut()?.insert(name.clone(), meaning(&value)?);
    }
    if let Some(targets) = edit.targets.as_ref() {
        let items: Vec<_> = targets.iter().map(Target::to_yaml).collect();
        edited = set_list(&edited, "targets", &items)?;
        // Line ends of another kind would all be replaced.
        if text.contains('\r') {
            return None;
        }
        let all = items.iter().map(|item| meaning(&format!("    {item}"))).collect::<Option<Vec<_>>>()?;
        wanted.as_object_mut()?.insert("targets".to_owned(), Value::Array(all));
    }
    (meaning(&edited)? == wanted).then_some(edited)
}

/// What the text means, as JSON.
pub(super) fn meaning(yaml: &str) -> Option<Value> {
    parse("", yaml.as_bytes(), &Limits::FLEET).ok()?.to_json().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::read_values;

    fn edit(text: &str, values: &str, targets: &[&str]) -> Option<String> {
        let values = read_values("x", values.as_bytes()).unwrap();
        let targets: Vec<Target> = targets.iter().map(|text| text.parse().unwrap()).collect();
        let parameters = values.into_iter().map(|(name, given)| (name, given.setting)).collect();
        edited(text, &DeploymentEdit { parameters, targets: (!targets.is_empty()).then_some(targets) })
    }

    const FILE: &str = "# head\nid: a # who\ntargets:\n  - devices: [x]\n\n# for all\nparameters:\n  # what it says\n  \
        greeting: \"hello # you\"   # as Anna wants it\n  # interval: 5\n  ports:\n    - 1\n    # and\n    - 2\n\n  # the end\n\n\
        # Others.\noverrides: [] # none\n";

    #[test]
    fn only_the_lines_change_in_which_an_answer_stands() {
        let kept = |from: &str, to: &str| Some(FILE.replace(from, to));
        assert_eq!(edit(FILE, "greeting: servus", &[]), kept("\"hello # you\"", "\"servus\""));
        assert_eq!(edit(FILE, "ports: [3]", &[]), kept("ports:\n    - 1\n    # and\n    - 2\n", "ports: [3]\n"));
        let added = kept("    - 2\n", "    - 2\n  interval: 7\n");
        assert_eq!(edit(FILE, "interval: 7", &[]), added);
        let windows = FILE.replace('\n', "\r\n");
        assert_eq!(edit(&windows, "interval: 7", &[]), added.map(|text| text.replace('\n', "\r\n")));
        assert_eq!(edit(FILE, "{}", &["site=graz"]), kept("- devices: [x]", "- matchLabels: {site: graz}"));
        assert_eq!(edit("id: a", "x: 1", &[]).as_deref(), Some("id: a\nparameters:\n  x: 1\n"));
        assert_eq!(edit("parameters:\nid: a\n", "x: 1", &[]).as_deref(), Some("parameters:\n  x: 1\nid: a\n"));
        assert_eq!(edit("parameters:\n    a: 1", "b: 1", &[]).as_deref(), Some("parameters:\n    a: 1\n    b: 1\n"));
        assert_eq!(edit("parameters:\n  a: 'it''s' # x\n", "a: 2", &[]).as_deref(), Some("parameters:\n  a: 2 # x\n"));
        assert_eq!(edit("parameters:\n  a: it's # x\n", "a: 2", &[]).as_deref(), Some("parameters:\n  a: 2 # x\n"));
        assert_eq!(edit("parameters:\n  \"no\": 1\n", "\"no\": 2", &[]).as_deref(), Some("parameters:\n  \"no\": 2\n"));
        assert_eq!(
            edit("parameters:\n  a: |\n    x\n    y\n  b: 1\n", "a: 2", &[]).as_deref(),
            Some("parameters:\n  a: 2\n  b: 1\n")
        );
    }

    #[test]
    fn a_file_that_would_mean_something_else_besides_is_left_alone() {
        for text in [
            "parameters: {a: 1}\n",
            "parameters: {\n  a: 1,\n  b: 2}\n",
            "{id: a}\n",
            "[1]\n",
            "a: &x 1\nb: *x\n",
            "parameters: 1\n",
        ] {
            assert_eq!(edit(text, "a: 5", &[]), None, "{text}");
        }
        assert_eq!(
            edit("targets: [{devices: [x]},\n  {devices: [y]}]\n", "{}", &["a=b"]).map(|text| text.contains('y')),
            Some(false)
        );
        // Line breaks that YAML knows and a file has no lines by.
        let old = "id: a\rparameters:\r  a: 1\rtargets:\r  - devices: [x]\r";
        assert_eq!((edit(old, "a: 5", &[]), edit(old, "b: 5", &[]), edit(old, "{}", &["a=b"])), (None, None, None));
        assert_eq!(edit("targets:\n  - devices: [x]\n# why\n  - devices: [y]\n", "{}", &["a=b"]), None);
    }
}
