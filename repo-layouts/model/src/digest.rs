//! `sha256:<hex>` digests over exact bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written `sha256:` and 64 lower-case hex digits (State Manifest, *digest*).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// The text is not `sha256:` followed by 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: expected `sha256:` and 64 lower-case hex digits")]
pub struct InvalidDigest(pub String);

impl Digest {
    /// The digest of exactly these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest that was taken elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 64 hex digits without the algorithm.
    pub fn hex(&self) -> String {
        let nibbles = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        nibbles.map(|nibble| char::from_digit(nibble.into(), 16).unwrap_or_default()).collect()
    }

    /// The raw 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest(text.chars().take(100).collect());
        let hex = text.strip_prefix("sha256:").ok_or_else(invalid)?.as_bytes();
        if hex.len() != 64 {
            return Err(invalid());
        }
        let nibble = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0]).zip(nibble(pair[1])).map(|(high, low)| high << 4 | low).ok_or_else(invalid)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_form_is_a_digest() {
        let good = Digest::of(b"").to_string();
        assert_eq!(good, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(good.parse(), Ok(Digest::of(b"")));
        for bad in [
            good.to_uppercase(),
            format!("{good} "),
            format!(" {good}"),
            good.replace("sha256", "sha512"),
            good[..70].to_owned(),
            good[7..].to_owned(),
            good.replace('e', "E"),
            String::new(),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
