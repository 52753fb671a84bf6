//! Takes secret values out of texts that came from elsewhere.

use crate::decision::component::{Component, Kind};

/// Knows the secret values of one component.
#[derive(Clone, Default)]
pub struct Redactor {
    needles: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} needles)", self.needles.len())
    }
}

impl Redactor {
    /// Looks for each value, for its quoted form and for each of its lines.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut needles: Vec<String> = values.into_iter().flat_map(forms).filter(|form| !form.is_empty()).collect();
        // The longest first, so that no part of one is left over.
        needles.sort_unstable_by_key(|needle| std::cmp::Reverse(needle.len()));
        needles.dedup();
        Self { needles }
    }

    /// Knows the values of a component that must never be seen.
    pub fn of(component: &Component) -> Self {
        match &component.kind {
            Kind::Compose { parameters, secrets } => {
                Self::new(secrets.iter().filter_map(|name| parameters.get(name)).map(String::as_str))
            }
            Kind::Helm { secrets, .. } => Self::new(secrets.iter().map(String::as_str)),
        }
    }

    /// Whether the text has a secret that is too long to be there by chance.
    pub fn finds(&self, text: &str) -> bool {
        self.needles.iter().any(|needle| needle.len() >= 6 && text.contains(needle))
    }

    /// The text with `***` in place of every secret.
    pub fn clean(&self, text: &str) -> String {
        self.needles.iter().fold(text.to_owned(), |text, needle| text.replace(needle, "***"))
    }
}

/// How a tool may print a value.
fn forms(value: &str) -> Vec<String> {
    let quoted = serde_json::Value::from(value).to_string();
    let quoted = quoted[1..quoted.len() - 1].to_owned();
    let doubled = value.replace('$', "$$");
    let lines = value.lines().filter(|line| line.len() >= 4).map(str::to_owned);
    [value.to_owned(), quoted, doubled].into_iter().chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_secret_is_left() {
        let redactor = Redactor::new(["pa$s", "line one\nline two", "", "a\"b"]);
        let text = "pa$s pa$$s line one\\nline two / line two / a\\\"b / kept";
        assert_eq!(redactor.clean(text), "*** *** *** / *** / *** / kept");
    }
}
