//! Parameters: a value and the places in components that it goes to.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Component, ProfileType};
use crate::ComponentName;
use crate::value::ParamValue;
use crate::yaml::Field;

/// The most parts of a helm pointer, and the highest index in one (helm's own limits).
const MAX_PARTS: usize = 30;
const MAX_INDEX: usize = 65536;

/// A parameter of an ApplicationDeployment (Margo, *Parameter*).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// Its value, which keeps its type.
    pub value: ParamValue,
    /// Where the value goes.
    pub targets: Vec<Target>,
}

/// Where a value goes (Margo, *Target*).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// As written: a path into a chart's values, or the name of an environment variable with or without `ENV.`.
    pub pointer: String,
    /// The components that get it.
    pub components: Vec<ComponentName>,
}

/// One part of a helm pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A key of a mapping, unescaped.
    Key(String),
    /// An index into a list.
    Index(usize),
}

impl Target {
    /// The name of the environment variable that a compose pointer means.
    pub fn variable(&self) -> &str {
        self.pointer.strip_prefix("ENV.").unwrap_or(&self.pointer)
    }

    /// The path into a chart's values that a helm pointer means, in the syntax of `helm --set`: `a.b[0].c\.d`.
    /// `None` if it is malformed.
    pub fn path(&self) -> Option<Vec<Part>> {
        parse_path(&self.pointer)
    }

    /// What the pointer means to a runtime of this type, in one spelling.
    pub fn place(&self, kind: ProfileType) -> &str {
        if kind == ProfileType::Compose { self.variable() } else { &self.pointer }
    }

    /// Whether the pointer is well-formed for this type.
    pub fn is_valid(&self, kind: ProfileType) -> bool {
        match kind {
            ProfileType::Compose => is_variable(self.variable()),
            ProfileType::Helm => self.path().is_some(),
            // What it means is between the vendors.
            ProfileType::Custom => !self.pointer.is_empty() && !self.pointer.contains(char::is_control),
        }
    }

    /// Reads a target; `profiles` are the components that it may name, with the type of their profile.
    pub(super) fn read(field: Field<'_>, profiles: &[(ProfileType, &Component)]) -> Option<Self> {
        field.mapping(|reader| {
            let components: Option<Vec<ComponentName>> = reader.required("components", |field| {
                let read = |field: Field<'_>| read_component(field, profiles);
                let components = field.clone().list(read)?;
                if components.is_empty() { field.fail("names no component") } else { Some(components) }
            });
            let pointer = reader.required("pointer", |field| Some((field.clone().string()?, field)));
            let (components, (pointer, field)) = components.zip(pointer)?;
            let target = Self { pointer, components };
            // A component may stand in profiles of both types: the pointer is for the one that it fits.
            let named: Vec<_> = profiles.iter().filter(|(_, c)| target.components.contains(&c.name)).collect();
            let is_valid = named.iter().any(|(kind, _)| target.is_valid(*kind));
            match named.first().filter(|_| !is_valid) {
                None => Some(target),
                Some((ProfileType::Helm, _)) => {
                    field.fail_hint("is no path into a chart's values", "write it as for helm --set")
                }
                Some((ProfileType::Compose, _)) => {
                    field.fail_hint("is no name of an environment variable", "write letters, digits and `_`")
                }
                Some((ProfileType::Custom, _)) => field.fail("must not be empty or hold control characters"),
            }
        })
    }

    /// Reads the targets of a parameter: at least one.
    pub(super) fn read_list(field: Field<'_>, profiles: &[(ProfileType, &Component)]) -> Option<Vec<Self>> {
        let targets = field.clone().list(|field| Self::read(field, profiles))?;
        if targets.is_empty() { field.fail("lists no target") } else { Some(targets) }
    }
}

fn read_component(field: Field<'_>, profiles: &[(ProfileType, &Component)]) -> Option<ComponentName> {
    let name: ComponentName = field.clone().parse()?;
    if profiles.iter().any(|(_, component)| component.name == name) {
        Some(name)
    } else {
        field.fail(format!("there is no component `{name}` in the deployment profile"))
    }
}

/// Reports the first place of a component that two targets set.
pub(super) fn check_unique<'a>(
    field: &Field<'_>,
    kind: ProfileType,
    targets: impl Iterator<Item = (&'a str, &'a Target)>,
) -> Option<()> {
    let mut seen = BTreeSet::new();
    for (parameter, target) in targets {
        for component in &target.components {
            if !seen.insert((component.as_str(), target.place(kind))) {
                let place = target.place(kind);
                return field.fail(format!("`{parameter}` sets `{place}` of `{component}`, which is already set"));
            }
        }
    }
    Some(())
}

fn is_variable(name: &str) -> bool {
    name.len() <= 200
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// Reads a path into a chart's values in the syntax of `helm --set`.
pub fn parse_path(pointer: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = pointer;
    loop {
        let (key, after) = parse_key(rest)?;
        parts.push(Part::Key(key));
        rest = after;
        while let Some(after) = rest.strip_prefix('[') {
            let (index, after) = after.split_once(']')?;
            let digits = !index.is_empty() && index.bytes().all(|c| c.is_ascii_digit());
            parts.push(Part::Index(index.parse().ok().filter(|index| digits && *index <= MAX_INDEX)?));
            rest = after;
        }
        if rest.is_empty() {
            return (parts.len() <= MAX_PARTS).then_some(parts);
        }
        rest = rest.strip_prefix('.')?;
    }
}

/// The key up to the first unescaped `.` or `[`, and what follows.
fn parse_key(text: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut chars = text.char_indices();
    while let Some((offset, c)) = chars.next() {
        match c {
            '\\' => key.push(chars.next()?.1),
            '.' | '[' => return (!key.is_empty()).then_some((key, &text[offset..])),
            ']' | '{' | '}' | ',' | '=' => return None,
            c if c.is_control() => return None,
            c => key.push(c),
        }
    }
    (!key.is_empty()).then_some((key, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(pointer: &str) -> Target {
        Target { pointer: pointer.to_owned(), components: Vec::new() }
    }

    #[test]
    fn a_compose_pointer_is_a_variable_with_or_without_env() {
        assert_eq!(target("ENV.SITE_ID").variable(), "SITE_ID");
        assert_eq!(target("SITE_ID").variable(), "SITE_ID");
        for good in ["A", "_a1", "ENV.x", &"a".repeat(200)] {
            assert!(target(good).is_valid(ProfileType::Compose), "{good}");
        }
        for bad in ["", "ENV.", "1a", "a-b", "a.b", "a b", "A=B", "ä", "ENV.ENV.A", &"a".repeat(201)] {
            assert!(!target(bad).is_valid(ProfileType::Compose), "{bad}");
        }
    }

    #[test]
    fn a_helm_pointer_is_a_path_as_for_set() {
        let key = |text: &str| Part::Key(text.to_owned());
        assert_eq!(target("a.b").path(), Some(vec![key("a"), key("b")]));
        assert_eq!(target("a[0][12].b").path(), Some(vec![key("a"), Part::Index(0), Part::Index(12), key("b")]));
        assert_eq!(target(r"a\.b.c\[d").path(), Some(vec![key("a.b"), key("c[d")]));
        assert_eq!(target("a[65536]").path().map(|path| path.len()), Some(2));
        assert!(target(&vec!["a"; 30].join(".")).path().is_some());
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a[",
            "a[]",
            "a[x]",
            "a[-1]",
            "a[+1]",
            "a[65537]",
            "[0]",
            "a]",
            "a[0]b",
            "a,b",
            "a=b",
            "{a}",
            "a\\",
            "a\nb",
            &vec!["a"; 31].join("."),
        ] {
            assert_eq!(target(bad).path(), None, "{bad}");
        }
    }
}
