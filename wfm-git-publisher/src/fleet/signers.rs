//! `signers.yaml`: who has to agree to which changes of the fleet repository.
//!
//! Whether they did is decided by [`coverage`](crate::coverage); the file counts as it stands in the commit that was last
//! covered, so that nobody makes themself one of them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_git::PublicKey;
use repo_model::problem::Problems;
use repo_model::yaml::{Field, Reader, Value};

use super::SIGNERS;
use super::file::{Decoded, SourceFile, decode};
use super::path_pattern::PathPattern;
use super::place::Place;

/// The most people, and the most rules.
const MAX_LISTED: usize = 1000;

/// Who has to agree to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signers {
    keys: BTreeMap<PublicKey, Key>,
    /// All that match a path count.
    pub rules: Vec<SigningRule>,
}

/// Whose key it is, and when it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    person: String,
    /// Before this moment it doesn't count.
    from: Option<Timestamp>,
    /// From this moment on it doesn't count.
    until: Option<Timestamp>,
}

/// So many of these people have to agree to a change of a path that a pattern fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningRule {
    pub paths: Vec<PathPattern>,
    /// From 1 to how many `of` there are.
    pub need: usize,
    pub of: BTreeSet<String>,
    pub place: Place,
}

/// Why somebody's key doesn't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCounting {
    /// Nobody has it.
    Unknown,
    /// Its time is over, or hasn't come yet.
    OutOfTime,
}

impl Signers {
    /// Reads the file; every problem has its place.
    pub fn read(file: &SourceFile) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        match decode::<String, _>(file, &mut problems, document) {
            Decoded::Good(signers) => Ok(signers),
            _ => Err(problems),
        }
    }

    /// Whose key this is at a moment.
    pub fn person(&self, key: &PublicKey, now: Timestamp) -> Result<&str, NotCounting> {
        let key = self.keys.get(key).ok_or(NotCounting::Unknown)?;
        let counts = key.from.is_none_or(|from| from <= now) && key.until.is_none_or(|until| now < until);
        if counts { Ok(&key.person) } else { Err(NotCounting::OutOfTime) }
    }

    /// Every key that is listed, whenever it counts.
    pub fn keys(&self) -> impl Iterator<Item = PublicKey> {
        self.keys.keys().copied()
    }
}

fn document(reader: &mut Reader<'_>) -> Option<Signers> {
    let people = reader.required("people", people);
    let rules = reader.required("rules", |field| {
        let rules = not_empty(field.clone(), field.clone().list(rule)?)?;
        match rules.iter().any(|rule| rule.fits(SIGNERS)) {
            true => Some(rules),
            false => field.fail_hint(
                format!("has no rule for `{SIGNERS}` itself, so anybody could change all of them"),
                format!("add one with `paths: [{SIGNERS}]`"),
            ),
        }
    });
    let (people, rules) = (people?, rules?);
    let known: BTreeSet<_> = people.values().map(|key| &key.person).collect();
    for rule in &rules {
        if let Some(stranger) = rule.of.iter().find(|name| !known.contains(name)) {
            let problem = rule.place.problem(format!("`{stranger}` is none of the people"));
            reader.field().report(problem.hint("add them under `people`, or correct the name"));
            return None;
        }
    }
    Some(Signers { keys: people, rules })
}

/// Reads `people`; the keys of all of them, since no two have the same.
fn people(field: Field<'_>) -> Option<BTreeMap<PublicKey, Key>> {
    let mut all: BTreeMap<PublicKey, Key> = BTreeMap::new();
    let people = field.clone().entries(|person, field| {
        if person.is_empty() || person.len() > 100 || person.chars().any(char::is_control) {
            return field.fail("must be the name of somebody, of 1 to 100 bytes without control characters");
        }
        let keys = field.clone().list(|field| {
            let (public, from, until) = key(field.clone())?;
            if let Some(other) = all.get(&public) {
                let whose = &other.person;
                return field.fail_hint(
                    format!("is a key of `{whose}` already"),
                    "each key belongs to one person, and stands there once",
                );
            }
            all.insert(public, Key { person: person.to_owned(), from, until });
            Some(())
        })?;
        not_empty(field, keys)
    })?;
    not_empty(field, people.into_keys().collect())?;
    Some(all)
}

/// A key's line, or a mapping of it with the time in which it counts.
fn key(field: Field<'_>) -> Option<(PublicKey, Option<Timestamp>, Option<Timestamp>)> {
    if !matches!(field.node().value, Value::Mapping(_)) {
        return Some((public(field)?, None, None));
    }
    field.clone().mapping(|reader| {
        let key = reader.required("key", public);
        let [from, until] = ["from", "until"].map(|name| reader.optional(name, Field::parse::<Timestamp>));
        if from.zip(until).is_some_and(|(from, until)| until <= from) {
            return field.fail("has an `until` that isn't after its `from`");
        }
        Some((key?, from, until))
    })
}

fn public(field: Field<'_>) -> Option<PublicKey> {
    let text = field.clone().string()?;
    let hint = "write the line of the `.pub` file: `ssh-ed25519 AAAA…`";
    text.parse().map_or_else(|error: repo_git::KeyError| field.fail_hint(error.to_string(), hint), Some)
}

fn rule(field: Field<'_>) -> Option<SigningRule> {
    let place = Place::of(&field);
    field.mapping(|reader| {
        let paths = reader.required("paths", |field| not_empty(field.clone(), field.list(Field::parse)?));
        let of = reader.required("of", |field| not_empty(field.clone(), field.list(Field::string)?));
        let of: Option<BTreeSet<_>> = of.map(|names| names.into_iter().collect());
        let need = reader.required("need", |field| {
            let need: usize = field.clone().integer()?;
            let most = of.as_ref().map_or(MAX_LISTED, BTreeSet::len);
            match (1..=most).contains(&need) {
                true => Some(need),
                false => field.fail(format!("is {need}, and must be 1 to {most}: so many are named by `of`")),
            }
        });
        Some(SigningRule { paths: paths?, need: need?, of: of?, place })
    })
}

impl SigningRule {
    /// Whether a path is one of those that it is about.
    pub fn fits(&self, path: &str) -> bool {
        self.paths.iter().any(|pattern| pattern.fits(path))
    }
}

fn not_empty<T>(field: Field<'_>, list: Vec<T>) -> Option<Vec<T>> {
    match list.len() {
        0 => field.fail("is empty"),
        1..=MAX_LISTED => Some(list),
        _ => field.fail(format!("has more than {MAX_LISTED} entries")),
    }
}

#[cfg(test)]
mod tests {
    use repo_git::SigningKey;

    use super::*;

    fn public(seed: u8) -> PublicKey {
        SigningKey::from_seed(&[seed; 32]).public()
    }

    fn read(text: &str) -> Result<Signers, String> {
        Signers::read(&SourceFile::plain(SIGNERS, text))
            .map_err(|problems| problems.0.iter().map(|one| format!("{one}\n")).collect::<String>())
    }

    fn text(people: &str, rules: &str) -> String {
        format!("people:\n{people}\nrules:\n{rules}\n")
    }

    #[test]
    fn people_have_keys_for_a_time_and_rules_count_them() {
        let (anna, ben) = (public(1), public(2));
        let people = format!(
            "  anna: [\"{anna} a comment\"]\n  ben:\n    - key: {ben}\n      from: \"2026-01-01T00:00:00Z\"\n      until: \"2027-01-01T00:00:00Z\""
        );
        let rules =
            "  - {paths: [\"**\"], need: 1, of: [anna, ben]}\n  - {paths: [signers.yaml], need: 2, of: [ben, anna]}";
        let signers = read(&text(&people, rules)).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-06-01T00:00:00Z");
        assert_eq!((signers.person(&anna, now), signers.person(&ben, now)), (Ok("anna"), Ok("ben")));
        for over in ["2025-12-31T23:59:59Z", "2027-01-01T00:00:00Z"] {
            assert_eq!(signers.person(&ben, at(over)), Err(NotCounting::OutOfTime), "{over}");
        }
        assert_eq!(signers.person(&public(3), now), Err(NotCounting::Unknown));
        assert_eq!((signers.rules[1].need, signers.rules[1].place.line), (2, 9));
        assert_eq!(signers.keys().count(), 2);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_key() {
        let anna = format!("  anna: [{}]", public(1));
        let all = "  - {paths: [\"**\"], need: 1, of: [anna]}";
        let rsa = "  anna: [\"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7\"]";
        let twice = format!("{anna}\n  ben: [{}]", public(1));
        let times = format!(
            "  anna: [{{key: {}, from: \"2027-01-01T00:00:00Z\", until: \"2026-01-01T00:00:00Z\"}}]",
            public(1)
        );
        let cases: [(&str, &str, &str, &str); 13] = [
            (&twice, all, "signers.yaml:3:", "is a key of `anna` already"),
            (rsa, all, "people.anna[0]", "public key"),
            (&times, all, "people.anna[0]", "isn't after its `from`"),
            ("  anna: []", all, "people.anna", "is empty"),
            ("  {}", all, "people", "is empty"),
            (&anna, "  []", "rules", "is empty"),
            (&anna, "  - {paths: [\"**\"], need: 0, of: [anna]}", "rules[0].need", "must be 1 to 1"),
            (&anna, "  - {paths: [\"**\"], need: 2, of: [anna, anna]}", "rules[0].need", "must be 1 to 1"),
            (&anna, "  - {paths: [\"**\"], need: 1, of: [carol]}", "rules[0]", "`carol` is none of the people"),
            (&anna, "  - {paths: [\"devices/**\"], need: 1, of: [anna]}", "rules", "no rule for `signers.yaml` itself"),
            (&anna, "  - {paths: [devices/], need: 1, of: [anna]}", "rules[0].paths[0]", "`devices/`"),
            (&anna, "  - {paths: [\"**\"], need: 1, of: [anna], unless: x}", "rules[0].unless", ""),
            (&anna, "  - {paths: [\"**\"], of: [anna]}", "rules[0]", "need"),
        ];
        for (people, rules, place, words) in cases {
            let error = read(&text(people, rules)).expect_err(rules);
            assert!(error.contains(place) && error.contains(words) && error.contains("signers.yaml:"), "{error}");
        }
        assert!(Signers::read(&SourceFile::refused(SIGNERS, "is a symbolic link", None)).is_err());
        assert!(read("").is_err() && read("people: [").is_err());
    }
}
