//! What is wrong with a document, where, and what to do about it; many problems at once.

use std::fmt;
use std::num::NonZeroU32;

use crate::text;

/// Whether a problem stops the document from being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The document is refused: nothing of it counts.
    Error,
    /// The document is read, but somebody should look at it.
    Warning,
}

/// One thing that is wrong in one place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Whether the document is refused for it.
    pub severity: Severity,
    /// The file as the caller named it.
    pub file: String,
    /// Line from 1; absent where the format keeps no positions.
    pub line: Option<NonZeroU32>,
    /// Column from 1, in characters.
    pub column: Option<NonZeroU32>,
    /// Dotted path such as `targets[0].matchLabels`; empty for the whole document.
    pub key: String,
    pub message: String,
    pub hint: Option<String>,
    /// What to write at its line and column instead, where only one thing can be meant.
    pub mend: Option<Box<Mend>>,
}

/// The one way to put a problem right, at its place in the file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Mend {
    /// Another word in the place of the one that stands there.
    Word { was: String, is: String },
    /// Another key in front of the value that stands there.
    Key { was: String, is: String },
    /// The same text in quotes.
    Quote(String),
    /// The same text without its quotes.
    Unquote(String),
}

impl Problem {
    /// An error in `file` without a position or key.
    pub fn error(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: file.into(),
            line: None,
            column: None,
            key: String::new(),
            message: message.into(),
            hint: None,
            mend: None,
        }
    }

    /// The same problem at this line and column, both from 1; line 0 means unknown.
    pub fn at(mut self, line: usize, column: usize) -> Self {
        // These and the box keep a `Problem` small enough to be returned as it is.
        let shown = |number| u32::try_from(number).ok().and_then(NonZeroU32::new).filter(|_| line > 0);
        (self.line, self.column) = (shown(line), shown(column));
        self
    }

    /// The same problem at this dotted path.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// The same problem with advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same problem with the one way to put it right.
    pub fn mend(mut self, mend: Mend) -> Self {
        self.mend = Some(Box::new(mend));
        self
    }

    /// The same problem as a warning.
    pub fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }
}

impl fmt::Display for Problem {
    /// `file:line:column: key: message`, without the hint. Names and documents are quoted, so all of it is harmless text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::line(&self.file))?;
        if let Some((line, column)) = self.line.zip(self.column) {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", text::line(&self.key))?;
        }
        write!(f, ": {}", text::line(&self.message))
    }
}

impl std::error::Error for Problem {}

/// One problem extends a collection as well as many do.
impl IntoIterator for Problem {
    type Item = Self;
    type IntoIter = std::iter::Once<Self>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Whether there is nothing to say, not even a warning.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them is an error.
    pub fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }

    /// All of them, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter().filter(|problem| problem.severity == Severity::Error)
    }

    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter().filter(|problem| problem.severity == Severity::Warning)
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl Extend<Problem> for Problems {
    fn extend<T: IntoIterator<Item = Problem>>(&mut self, problems: T) {
        self.0.extend(problems);
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Problems {
    /// One line each, without hints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_place_key_and_message() {
        let problem = Problem::error("a.yaml", "is missing");
        assert_eq!(problem.to_string(), "a.yaml: is missing");
        let problem = problem.at(14, 7).key("targets[0].devices").hint("add it");
        assert_eq!(problem.to_string(), "a.yaml:14:7: targets[0].devices: is missing");
        assert_eq!(problem.at(0, 0).to_string(), "a.yaml: targets[0].devices: is missing");
    }

    #[test]
    fn what_a_document_holds_can_not_steer_a_terminal() {
        let problem = Problem::error("a\n", "is `\u{1b}[31m\n`").key("x".repeat(5000));
        let shown = problem.to_string();
        assert!(
            !shown.contains(char::is_control) && shown.matches("\\n").count() == 2 && shown.len() < 1100,
            "{shown}"
        );
    }

    #[test]
    fn warnings_are_no_errors() {
        let mut problems = Problems::from(Problem::error("a", "one").warning());
        assert!(!problems.is_empty() && !problems.has_errors());
        problems.push(Problem::error("a", "two"));
        assert!(problems.has_errors());
        assert_eq!(problems.to_string(), "a: one\na: two");
    }
}
