//! What runs a profile's components.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::yaml::Field;

/// What runs a profile's components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileType {
    Compose,
    Helm,
    /// Something that vendors agreed on among themselves (rc.3, *Custom Runtimes and Deployments*): such a document is
    /// read, and nothing here runs it.
    Custom,
}

impl ProfileType {
    /// `compose`, `helm` or `custom`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compose => "compose",
            Self::Helm => "helm",
            Self::Custom => "custom",
        }
    }

    /// The pre-draft's name, where it has another one.
    pub(super) fn old_name(self) -> &'static str {
        match self {
            Self::Compose => "docker-compose",
            Self::Helm => "helm.v3",
            Self::Custom => "custom",
        }
    }

    /// Reads all of these names; the second value says whether it is a pre-draft one.
    pub(super) fn read(field: Field<'_>) -> Option<(Self, bool)> {
        field.choice(&[
            ("compose", (Self::Compose, false)),
            ("helm", (Self::Helm, false)),
            ("custom", (Self::Custom, false)),
            ("docker-compose", (Self::Compose, true)),
            ("helm.v3", (Self::Helm, true)),
        ])
    }
}

impl fmt::Display for ProfileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
