//! Git's object names, one type per kind of object.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The text is not 40 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a full object name: expected 40 hex digits")]
pub struct InvalidId(pub String);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub(crate) gix::ObjectId);

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                match gix::ObjectId::from_hex(text.as_bytes()) {
                    Ok(id) if text.len() == 40 => Ok(Self(id)),
                    _ => Err(InvalidId(text.chars().take(100).collect())),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.to_hex())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// A commit's SHA-1.
    CommitId
);
id!(
    /// A tree's SHA-1.
    TreeId
);
id!(
    /// A blob's SHA-1.
    BlobId
);
