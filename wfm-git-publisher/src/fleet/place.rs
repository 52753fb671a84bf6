//! Where something stands in a fleet's files.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use repo_model::problem::Problem;
use repo_model::yaml::Field;
use serde::Serialize;

/// A place in a file, for problems that are only found later and for whoever asks where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The file's path from the fleet's root.
    pub file: String,
    /// Line from 1.
    pub line: u32,
    /// Column from 1, in characters.
    pub column: u32,
    /// Dotted path such as `targets[0].matchLabels`.
    pub key: String,
}

impl Place {
    pub(super) fn of(field: &Field<'_>) -> Self {
        let Problem { file, line, column, key, .. } = field.problem("");
        let number = |known: Option<NonZeroU32>| known.map_or(1, NonZeroU32::get);
        Self { file, line: number(line), column: number(column), key }
    }

    /// A file as a whole.
    pub(super) fn of_file(file: &str) -> Self {
        Self { file: file.to_owned(), line: 1, column: 1, key: String::new() }
    }

    pub(crate) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::error(&self.file, message).at(self.line as usize, self.column as usize).key(&self.key)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A name with its place, for problems that are only found when it is looked up.
pub(super) fn placed<T: FromStr<Err: fmt::Display>>(field: Field<'_>) -> Option<(T, Place)> {
    let place = Place::of(&field);
    Some((field.parse()?, place))
}
