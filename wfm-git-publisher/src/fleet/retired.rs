//! `retired` of a device's file: that it is taken out of service, and how.

use std::fmt;

use repo_model::yaml::Field;
use serde::{Deserialize, Serialize};

/// How a device is taken out of service, as its file says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retired {
    /// What runs on it is removed; once it verifiably says that nothing is left, it is cut off.
    WhenEmpty,
    /// It is cut off, and what runs on it runs on.
    KeepWorkloads,
    /// It is cut off at once. Nothing shall run on it, whether it still hears that or not.
    Now,
}

impl Retired {
    pub const ALL: [Self; 3] = [Self::WhenEmpty, Self::KeepWorkloads, Self::Now];

    /// Whether it is cut off without its word that nothing is left.
    pub fn is_unheard(self) -> bool {
        self != Self::WhenEmpty
    }

    /// As files and commits write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WhenEmpty => "when-empty",
            Self::KeepWorkloads => "keep-workloads",
            Self::Now => "now",
        }
    }
}

impl fmt::Display for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads `retired` of a device's file.
pub(super) fn read(field: Field<'_>) -> Option<Retired> {
    let word = field.clone().string()?;
    let found = Retired::ALL.into_iter().find(|retired| retired.as_str() == word);
    found.or_else(|| field.fail("must be `when-empty`, `keep-workloads` or `now`"))
}
