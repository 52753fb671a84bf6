//! What `device.yaml` says in the right form and can't mean.

use repo_model::problem::Problem;
use repo_model::yaml::Span;

/// A value that can't be, and the key that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidValue {
    /// The keys that lead to it, the outermost first.
    pub(super) key: Vec<String>,
    /// What is wrong with it, and what would do.
    pub(super) problem: String,
}

impl InvalidValue {
    /// At keys with dots between them: `docker.stopTimeout`.
    pub(super) fn at(key: &str, problem: impl Into<String>) -> Self {
        Self { key: key.split('.').map(str::to_owned).collect(), problem: problem.into() }
    }

    /// At a key below those, which may have dots of its own: a host name.
    pub(super) fn below(key: &str, last: &str, problem: impl Into<String>) -> Self {
        let mut invalid = Self::at(key, problem);
        invalid.key.push(last.to_owned());
        invalid
    }

    /// The same with the place of the key, for a person.
    pub(super) fn in_file(&self, file: &str, Span { line, column }: Span) -> Problem {
        Problem::error(file, self.problem.clone()).at(line, column).key(self.key.join("."))
    }
}
