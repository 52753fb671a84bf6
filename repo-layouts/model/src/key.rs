//! SSH public keys as text, so that documents can be compared without any cryptography.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An SSH public key as `<algorithm> <base64>`, without a comment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyText(String);

/// The text is not an SSH public key line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an SSH public key: expected `ssh-ed25519 AAAA…`")]
pub struct InvalidKey(pub String);

impl KeyText {
    /// `<algorithm> <base64>`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyText {
    type Err = InvalidKey;

    /// Reads a line of an `.pub` file; the comment is dropped.
    fn from_str(line: &str) -> Result<Self, InvalidKey> {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some(algorithm), Some(blob))
                if line.len() < 16_384
                    && algorithm.bytes().all(|c| c.is_ascii_alphanumeric() || b"-@.".contains(&c))
                    && blob.starts_with("AAAA")
                    && blob.bytes().all(|c| c.is_ascii_alphanumeric() || b"+/=".contains(&c)) =>
            {
                Ok(Self(format!("{algorithm} {blob}")))
            }
            _ => Err(InvalidKey(line.chars().take(100).collect())),
        }
    }
}

impl TryFrom<String> for KeyText {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        text.parse()
    }
}

impl From<KeyText> for String {
    fn from(key: KeyText) -> Self {
        key.0
    }
}

impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
