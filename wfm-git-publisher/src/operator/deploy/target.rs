//! Which devices are meant, as `kubectl --selector` has it: `site=graz,line in (1,2),!spare`.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use repo_model::DeviceId;
use repo_model::problem::{Problem, Problems};
use repo_model::yaml::{Plain, is_ambiguous, resolve};

use crate::fleet::{Selector, read_selectors};

/// One item of a deployment's `targets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By labels, in the words of Kubernetes' selectors; none of them means every device.
    Labels {
        /// As it was typed.
        text: String,
        requirements: Vec<Requirement>,
    },
    Devices(Vec<DeviceId>),
}

/// What one label has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    /// As in `matchExpressions`; absent for one that goes into `matchLabels`.
    operator: Option<&'static str>,
    values: Vec<String>,
}

/// A text that isn't a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write labels like site=graz,line in (1,2),role!=spare, or '*' for every device")]
pub struct InvalidTarget(String);

impl FromStr for Target {
    type Err = InvalidTarget;

    /// Reads the form that `kubectl --selector` has. Every device is `*`, and not nothing at all, which a script says by mistake.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.is_empty() {
            return Err(InvalidTarget("it names no label".to_owned()));
        }
        let mut requirements: Vec<Requirement> = Vec::new();
        for part in parts(text).into_iter().filter(|_| text != "*") {
            let mut one = requirement(part.trim())?;
            // A mapping has each key once.
            if one.operator.is_none()
                && requirements.iter().any(|other| other.operator.is_none() && other.key == one.key)
            {
                one.operator = Some("In");
            }
            requirements.push(one);
        }
        Ok(Self::Labels { text: text.to_owned(), requirements })
    }
}

/// What stands between commas, but for those in brackets.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let parts = text.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth <= 0
    });
    parts.collect()
}

fn requirement(text: &str) -> Result<Requirement, InvalidTarget> {
    let one = |key: &str, operator, values: Vec<&str>| {
        let values = values.into_iter().map(|value| value.trim().to_owned()).collect();
        Requirement { key: key.trim().to_owned(), operator, values }
    };
    let found = if let Some(key) = text.strip_prefix('!') {
        one(key, Some("DoesNotExist"), vec![])
    } else if let Some((head, list)) = text.split_once('(') {
        let mut words = head.split_whitespace();
        let list = list.strip_suffix(')').map(|list| list.split(',').collect());
        match (words.next(), words.next(), words.next(), list) {
            (Some(key), Some("in"), None, Some(list)) => one(key, Some("In"), list),
            (Some(key), Some("notin"), None, Some(list)) => one(key, Some("NotIn"), list),
            _ => return Err(InvalidTarget(format!("`{text}` is not like `LABEL in (A,B)` or `LABEL notin (A,B)`"))),
        }
    } else if let Some((key, value)) = text.split_once("!=") {
        one(key, Some("NotIn"), vec![value])
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        one(key, None, vec![value])
    } else if let Some((key, value)) = text.split_once('>') {
        one(key, Some("Gt"), vec![value])
    } else if let Some((key, value)) = text.split_once('<') {
        one(key, Some("Lt"), vec![value])
    } else {
        one(text, Some("Exists"), vec![])
    };
    match found.key.is_empty() || found.key.contains(char::is_whitespace) {
        true => Err(InvalidTarget(format!("`{text}` doesn't begin with the name of a label"))),
        false => Ok(found),
    }
}

impl Target {
    /// Whether it means every device, also those to come.
    pub fn is_every(&self) -> bool {
        matches!(self, Self::Labels { requirements, .. } if requirements.is_empty())
    }

    /// As an item of `targets` in block style, without its dash; a second line is indented for `  - ` in front of the first.
    pub fn to_yaml(&self) -> String {
        let requirements = match self {
            Self::Labels { requirements, .. } => requirements,
            Self::Devices(devices) => return format!("devices: [{}]", list(devices.iter().map(DeviceId::as_str))),
        };
        let (expressions, labels): (Vec<_>, Vec<_>) = requirements.iter().partition(|one| one.operator.is_some());
        let label = |one: &&Requirement| format!("{}: {}", word(&one.key), list(one.values.iter().map(String::as_str)));
        let labels: Vec<_> = labels.iter().map(label).collect();
        let expressions: Vec<_> = expressions.into_iter().map(Requirement::to_yaml).collect();
        let mut yaml = String::new();
        if !labels.is_empty() || expressions.is_empty() {
            let _ = write!(yaml, "matchLabels: {{{}}}", labels.join(", "));
        }
        if !expressions.is_empty() {
            let between = if yaml.is_empty() { "" } else { "\n    " };
            let _ = write!(yaml, "{between}matchExpressions: [{}]", expressions.join(", "));
        }
        yaml
    }
}

impl Requirement {
    fn to_yaml(&self) -> String {
        let operator = self.operator.unwrap_or("In");
        let values = match self.values.as_slice() {
            [] => String::new(),
            values => {
                let texts: Vec<_> =
                    values.iter().map(|value| serde_json::Value::from(value.as_str()).to_string()).collect();
                format!(", values: [{}]", texts.join(", "))
            }
        };
        format!("{{key: {}, operator: {operator}{values}}}", word(&self.key))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Labels { text, .. } => f.write_str(text),
            Self::Devices(devices) => {
                f.write_str(&devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// What targets mean, as the fleet's reader has it.
///
/// # Errors
/// Says what is wrong with which of them, by what was typed.
pub fn selectors(targets: &[Target]) -> Result<Vec<Selector>, Problems> {
    let mut all = Vec::new();
    for target in targets {
        let about = target.to_string();
        let read = read_selectors(&about, format!("  - {}\n", target.to_yaml()).as_bytes());
        let wrong = |one: Problem| Problem { line: None, column: None, key: String::new(), ..one };
        all.extend(read.map_err(|problems| Problems(problems.0.into_iter().map(wrong).collect()))?);
    }
    Ok(all)
}

fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.map(word).collect::<Vec<_>>().join(", ")
}

/// A text that no reader takes for anything else, with quotes only where it needs them.
pub(in crate::operator) fn word(text: &str) -> String {
    let is_simple = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_simple)
        && resolve(text) == Plain::String
        && !is_ambiguous(text);
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(text: &str) -> String {
        let target: Target = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(selectors(std::slice::from_ref(&target)).map(|all| all.len()), Ok(1), "{text}");
        target.to_yaml()
    }

    #[test]
    fn labels_are_selected_in_kubectls_words() {
        for (text, expected) in [
            ("site=graz", "matchLabels: {site: graz}"),
            ("site == graz, line=7", "matchLabels: {site: graz, line: \"7\"}"),
            (
                "site=graz,line in (a, 7)",
                "matchLabels: {site: graz}\n    matchExpressions: [{key: line, operator: In, values: [\"a\", \"7\"]}]",
            ),
            ("line notin (7)", "matchExpressions: [{key: line, operator: NotIn, values: [\"7\"]}]"),
            ("role!=spare", "matchExpressions: [{key: role, operator: NotIn, values: [\"spare\"]}]"),
            ("spare", "matchExpressions: [{key: spare, operator: Exists}]"),
            ("!spare", "matchExpressions: [{key: spare, operator: DoesNotExist}]"),
            ("line>5", "matchExpressions: [{key: line, operator: Gt, values: [\"5\"]}]"),
            ("line < 5", "matchExpressions: [{key: line, operator: Lt, values: [\"5\"]}]"),
            ("a=1,a=2", "matchLabels: {a: \"1\"}\n    matchExpressions: [{key: a, operator: In, values: [\"2\"]}]"),
            ("no=yes", "matchLabels: {\"no\": \"yes\"}"),
            ("*", "matchLabels: {}"),
        ] {
            assert_eq!(yaml(text), expected, "{text}");
        }
        let named = Target::Devices(["press-01".parse().unwrap(), "1e3".parse().unwrap()].to_vec());
        assert_eq!(named.to_yaml(), "devices: [press-01, \"1e3\"]");
        assert!(selectors(&[named]).is_ok());
    }

    #[test]
    fn nothing_means_no_device_and_what_is_no_selector_is_refused() {
        for text in
            ["", "  ", "site=graz,", "=graz", "line in graz", "line in (1", "line within (1)", "two words", "()"]
        {
            let error = text.parse::<Target>().map(|target| target.to_yaml()).expect_err(text).to_string();
            assert!(error.contains("write labels like"), "{text}: {error}");
        }
        // What only the fleet's reader knows.
        for (text, why) in
            [("-a=b", "is not a label's name"), ("a=b c", "at most 63 letters"), ("a>b", "not an integer")]
        {
            let problems = selectors(&[text.parse().unwrap()]).expect_err(text).to_string();
            assert!(problems.contains(why) && problems.starts_with(text), "{text}: {problems}");
        }
        let injected: Target = "site=a}\n  - matchLabels: {".parse().unwrap();
        assert!(selectors(&[injected]).is_err());
    }
}
