//! Decoding of nodes into typed documents, which goes on after a mistake and collects them all.
//!
//! A reading function takes a [`Field`] and gives `None` once it has recorded what is wrong; [`read`] turns that into a
//! result. Warnings don't stop a reading.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use super::{Limits, Node, Plain, Scalar, Span, Strictness, Style, Value, is_ambiguous, parse, parse_json, resolve};
use crate::IntoMap;
use crate::problem::{Mend, Problem, Problems};

/// Reads a YAML document: the typed value with its warnings, or every problem.
pub fn read<T>(
    file: &str,
    bytes: &[u8],
    strictness: Strictness,
    read: impl FnOnce(Field<'_>) -> Option<T>,
) -> Result<(T, Problems), Problems> {
    let limits = if strictness == Strictness::Fleet { Limits::FLEET } else { Limits::VENDOR };
    decode(file, &parse(file, bytes, &limits)?, strictness, read)
}

/// Reads a JSON document in the same way; what isn't in quotes is never a string there.
pub fn read_json<T>(
    file: &str,
    bytes: &[u8],
    read: impl FnOnce(Field<'_>) -> Option<T>,
) -> Result<(T, Problems), Problems> {
    decode(file, &parse_json(file, bytes, &Limits::VENDOR)?, Strictness::Fleet, read)
}

fn decode<T>(
    file: &str,
    node: &Node,
    strictness: Strictness,
    read: impl FnOnce(Field<'_>) -> Option<T>,
) -> Result<(T, Problems), Problems> {
    let context = Context::new(file, strictness);
    let value = read(context.field(node));
    let problems = context.into_problems();
    match value {
        Some(value) if !problems.has_errors() => Ok((value, problems)),
        _ if problems.has_errors() => Err(problems),
        _ => Err(Problem::error(file, "can't be read").into()),
    }
}

/// One reading of one file: its name, whose it is, and what was found wrong so far.
#[derive(Debug)]
pub struct Context {
    file: String,
    strictness: Strictness,
    problems: RefCell<Problems>,
}

impl Context {
    pub fn new(file: impl Into<String>, strictness: Strictness) -> Self {
        Self { file: file.into(), strictness, problems: RefCell::default() }
    }

    pub fn field<'a>(&'a self, node: &'a Node) -> Field<'a> {
        Field { context: self, node, path: String::new() }
    }

    pub fn into_problems(self) -> Problems {
        self.problems.into_inner()
    }

    fn add(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }
}

/// A value on its way to a type, with its path.
#[derive(Debug, Clone)]
pub struct Field<'a> {
    context: &'a Context,
    node: &'a Node,
    path: String,
}

impl<'a> Field<'a> {
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Whose file it stands in, which decides how strictly it is read.
    pub fn strictness(&self) -> Strictness {
        self.context.strictness
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// The field at `key` below this one.
    pub(super) fn child(&self, key: &str, node: &'a Node) -> Field<'a> {
        Field { context: self.context, node, path: join(&self.path, key) }
    }

    /// A problem at this place, to be given to [`report`](Self::report).
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        let Span { line, column } = self.node.span;
        Problem::error(&self.context.file, message).at(line, column).key(&self.path)
    }

    pub fn report(&self, problem: Problem) {
        self.context.add(problem);
    }

    /// Records an error here; the `None` is for the caller to return.
    pub fn fail<T>(&self, message: impl Into<String>) -> Option<T> {
        self.report(self.problem(message));
        None
    }

    /// Records an error with what to do about it; always `None`.
    pub fn fail_hint<T>(&self, message: impl Into<String>, hint: impl Into<String>) -> Option<T> {
        self.report(self.problem(message).hint(hint));
        None
    }

    pub(super) fn expected<T>(&self, what: &str) -> Option<T> {
        let found = self.node.kind();
        match self.node.value {
            Value::Null => {
                self.fail_hint(format!("has no value, expected {what}"), "write a value, or leave out the key")
            }
            _ => self.fail(format!("is {found}, expected {what}")),
        }
    }

    fn scalar(&self, what: &str) -> Option<&'a Scalar> {
        match &self.node.value {
            Value::Scalar(scalar) => Some(scalar),
            _ => self.expected(what),
        }
    }

    /// A string. Plain text that isn't one to every reader needs quotes in the fleet's own files and warns in a
    /// vendor's.
    pub fn string(self) -> Option<String> {
        let scalar = self.scalar("a string")?;
        if scalar.style == Style::Plain {
            let kind = resolve(&scalar.text);
            if kind != Plain::String {
                self.doubtful(format!("is {}, expected a string", kind.kind()))?;
            } else if is_ambiguous(&scalar.text) {
                self.ambiguous(&scalar.text)?;
            }
        }
        Some(scalar.text.clone())
    }

    /// Reports plain text that readers of YAML take for different things.
    pub(crate) fn ambiguous(&self, text: &str) -> Option<()> {
        self.doubtful(format!("`{text}` without quotes means different things to different readers of YAML"))
    }

    /// An error in the fleet's own files, a warning in a vendor's; the advice is to use quotes.
    fn doubtful(&self, message: String) -> Option<()> {
        let text = self.node.text().unwrap_or_default();
        let problem = self.problem(message).hint(format!("write \"{text}\" in quotes if it is meant as text"));
        let problem = problem.mend(Mend::Quote(text.to_owned()));
        match self.context.strictness {
            Strictness::Fleet => {
                self.report(problem);
                None
            }
            Strictness::Vendor => {
                self.report(problem.warning());
                Some(())
            }
        }
    }

    /// A string that a type accepts.
    pub fn parse<T: FromStr>(self) -> Option<T>
    where
        T::Err: Display,
    {
        let text = self.clone().string()?;
        text.parse().map_or_else(|error: T::Err| self.fail(error.to_string()), Some)
    }

    /// The value of the word that stands here; another word is recorded as an error.
    pub fn choice<T: Clone>(self, words: &[(&str, T)]) -> Option<T> {
        let text = self.clone().string()?;
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Some(value.clone()),
            None => {
                let words: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
                self.fail(format!("is `{text}`, expected {}", words.join(" or ")))
            }
        }
    }

    /// One of a few words, as it is written.
    pub fn word(self, words: &[&str]) -> Option<String> {
        let pairs: Vec<_> = words.iter().map(|word| (*word, (*word).to_owned())).collect();
        self.choice(&pairs)
    }

    /// `true` or `false`.
    pub fn bool(self) -> Option<bool> {
        let Scalar { text, style } = self.scalar("`true` or `false`")?;
        match resolve(text) {
            Plain::Boolean(value) if *style == Style::Plain => Some(value),
            meant => {
                let problem = self.problem(format!("is `{text}`, expected `true` or `false` without quotes"));
                self.unquotable(problem, matches!(meant, Plain::Boolean(_)))
            }
        }
    }

    /// An integer in decimal that fits `T`.
    pub fn integer<T: TryFrom<i128>>(self) -> Option<T> {
        let Scalar { text, style } = self.scalar("an integer")?;
        match resolve(text) {
            Plain::Integer(value) if *style == Style::Plain && value.to_string() == *text => {
                T::try_from(value).map_or_else(|_| self.fail(format!("{text} is out of range")), Some)
            }
            meant => {
                let problem = self.problem(format!("is `{text}`, expected an integer in decimal, without quotes"));
                self.unquotable(problem, matches!(meant, Plain::Integer(_)))
            }
        }
    }

    /// Records a problem of a scalar, which its text without quotes puts right if that is what is expected.
    fn unquotable<T>(&self, problem: Problem, is_meant: bool) -> Option<T> {
        self.report(match &self.node.value {
            Value::Scalar(Scalar { text, style: Style::Quoted }) if is_meant => {
                problem.mend(Mend::Unquote(text.clone()))
            }
            _ => problem,
        });
        None
    }

    /// The items of a list, if each can be read.
    pub fn list<T>(self, mut read: impl FnMut(Field<'a>) -> Option<T>) -> Option<Vec<T>> {
        let Value::Sequence(items) = &self.node.value else {
            return self.expected("a list");
        };
        let item = |(index, node)| read(Field { context: self.context, node, path: format!("{}[{index}]", self.path) });
        let items: Vec<_> = items.iter().enumerate().map(item).collect();
        items.into_iter().collect()
    }

    /// The values of a mapping with free keys, if each can be read; in a fleet's file keys that readers take for
    /// different things need quotes.
    pub fn entries<T>(self, mut read: impl FnMut(&'a str, Field<'a>) -> Option<T>) -> Option<BTreeMap<String, T>> {
        let Value::Mapping(entries) = &self.node.value else {
            return self.expected("a mapping");
        };
        let entry = |(key, node): &'a (Node, Node)| {
            let text = key.text()?;
            let name = self.child(text, key).string();
            name.zip(read(text, self.child(text, node)))
        };
        // All are read, so that all that is wrong is told.
        let entries: Vec<_> = entries.iter().map(entry).collect();
        Some(entries.into_iter().collect::<Option<Vec<_>>>()?.into_map())
    }

    /// A mapping with known keys; every key that `read` didn't ask for is an error.
    pub fn mapping<T>(self, read: impl FnOnce(&mut Reader<'a>) -> Option<T>) -> Option<T> {
        let Value::Mapping(entries) = &self.node.value else {
            return self.expected("a mapping");
        };
        let mut reader = Reader::new(self.clone(), entries);
        let value = read(&mut reader);
        reader.finish();
        value
    }

    /// The value as JSON.
    pub fn json(self) -> Option<serde_json::Value> {
        self.node.to_json().map_or_else(|error| self.fail_hint(error, "write it in quotes"), Some)
    }
}

/// Reads a mapping key by key; keys that nothing asked for are problems in the end.
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

    /// Lets a key pass whatever its value is, which isn't read.
    pub fn ignore(&mut self, key: &'static str) {
        self.known.push(key);
    }

    /// Lets keys pass that nothing asks for, which are problems otherwise.
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
                field.report(self.advise(field.problem("unknown key"), name));
            }
        }
    }

    /// The problem with the key that is most like this one, or all that there are.
    fn advise(&self, problem: Problem, name: &str) -> Problem {
        let Some((key, is_only)) = nearest(name, self.known.iter().copied()) else {
            let known: Vec<_> = self.known.iter().map(|key| format!("`{key}`")).collect();
            return problem.hint(format!("known here: {}", known.join(", ")));
        };
        let problem = problem.hint(format!("did you mean `{key}`?"));
        match is_only && !self.has(key) {
            true => problem.mend(Mend::Word { was: name.to_owned(), is: key.to_owned() }),
            false => problem,
        }
    }
}

/// The name that is most like another one, if any is much like it, and whether no other one is as much.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<(&'a str, bool)> {
    let mut near: Vec<_> = known.map(|key| (distance(&key.to_lowercase(), &name.to_lowercase()), key)).collect();
    near.sort_unstable();
    near.dedup();
    let (far, key) = *near.first().filter(|(far, _)| *far <= 2.min(name.len() / 2))?;
    Some((key, near.get(1).is_none_or(|(next, _)| *next > far)))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Whether the name matches `^x-[a-z][a-z0-9-]*-extensions$` (Margo, *Extensions*).
fn is_extension(name: &str) -> bool {
    let inner = name.strip_prefix("x-").and_then(|rest| rest.strip_suffix("-extensions")).unwrap_or_default();
    inner.starts_with(|c: char| c.is_ascii_lowercase())
        && inner.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}

/// Levenshtein's distance in characters, for the key that an unknown one is most like.
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
