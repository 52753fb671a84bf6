//! A mapping with known keys: what isn't asked for is an unknown key.

use std::collections::BTreeMap;

use super::{Field, Node, Value};

/// A mapping with known keys.
#[derive(Debug)]
pub struct Reader<'a> {
    field: Field<'a>,
    entries: &'a [(Node, Node)],
    known: Vec<&'static str>,
    extensions: bool,
    open: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(field: Field<'a>, entries: &'a [(Node, Node)]) -> Self {
        Self { field, entries, known: Vec::new(), extensions: false, open: false }
    }

    /// The mapping as a whole, for problems that no single key has.
    pub fn field(&self) -> &Field<'a> {
        &self.field
    }

    /// Whether the key is there.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    fn find(&self, key: &str) -> Option<&'a (Node, Node)> {
        self.entries.iter().find(|(name, _)| name.text() == Some(key))
    }

    /// Reads a key that may be absent. A value that can't be read is `None` too: its problem is recorded.
    pub fn optional<T>(&mut self, key: &'static str, read: impl FnOnce(Field<'a>) -> Option<T>) -> Option<T> {
        self.known.push(key);
        let (_, value) = self.find(key)?;
        read(self.field.child(key, value))
    }

    /// Reads a key that must be there.
    pub fn required<T>(&mut self, key: &'static str, read: impl FnOnce(Field<'a>) -> Option<T>) -> Option<T> {
        if !self.has(key) {
            self.field.child(key, self.field.node()).fail::<()>("is missing");
        }
        self.optional(key, read)
    }

    /// Refuses a key by name, with the reason, such as that it isn't built yet.
    pub fn refuse(&mut self, key: &'static str, reason: &str) {
        if let Some((name, _)) = self.find(key) {
            self.known.push(key);
            self.field.child(key, name).fail::<()>(reason);
        }
    }

    /// Accepts and skips a key.
    pub fn ignore(&mut self, key: &'static str) {
        self.known.push(key);
    }

    /// Lets unknown keys pass.
    pub fn open(&mut self) {
        self.open = true;
    }

    /// The keys that match `^x-[a-z][a-z0-9-]*-extensions$`, as JSON. Without this call they are unknown keys.
    pub fn extensions(&mut self) -> BTreeMap<String, serde_json::Value> {
        let mut extensions = BTreeMap::new();
        for (key, value) in self.entries {
            let Some(name) = key.text().filter(|name| is_extension(name)) else { continue };
            let field = self.field.child(name, value);
            let Value::Mapping(_) = value.value else {
                field.expected::<()>("a mapping");
                continue;
            };
            extensions.extend(field.json().map(|value| (name.to_owned(), value)));
        }
        self.extensions = true;
        extensions
    }

    pub(super) fn finish(&self) {
        for (key, _) in self.entries.iter().filter(|_| !self.open) {
            let name = key.text().unwrap_or_default();
            let known = self.known.contains(&name) || (self.extensions && is_extension(name));
            if !known {
                let field = self.field.child(name, key);
                field.report(field.problem("unknown key").hint(self.advice(name)));
            }
        }
    }

    fn advice(&self, name: &str) -> String {
        let near = self.known.iter().map(|key| (distance(&key.to_lowercase(), &name.to_lowercase()), key)).min();
        match near {
            Some((far, key)) if far <= 2.min(name.len() / 2) => format!("did you mean `{key}`?"),
            _ => format!(
                "known here: {}",
                self.known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
            ),
        }
    }
}

/// Whether the name matches `^x-[a-z][a-z0-9-]*-extensions$` (Margo, *Extensions*).
fn is_extension(name: &str) -> bool {
    let inner = name.strip_prefix("x-").and_then(|rest| rest.strip_suffix("-extensions")).unwrap_or_default();
    inner.starts_with(|c: char| c.is_ascii_lowercase())
        && inner.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
