//! `sha256:<hex>` digests over exact bytes.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written `sha256:` and 64 lower-case hex digits (State Manifest, *digest*).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// What stands before the digits.
const ALGORITHM: &str = "sha256:";

/// The length of the text.
const LENGTH: usize = ALGORITHM.len() + 64;

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
        self.with_text(|text| text[ALGORITHM.len()..].to_owned())
    }

    /// Makes something of its text, which takes no memory of its own: a fleet has a million of them.
    fn with_text<T>(&self, then: impl FnOnce(&str) -> T) -> T {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; LENGTH];
        let (algorithm, hex) = text.split_at_mut(ALGORITHM.len());
        algorithm.copy_from_slice(ALGORITHM.as_bytes());
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[byte >> 4, byte & 15].map(|nibble| DIGITS[usize::from(nibble)]));
        }
        then(std::str::from_utf8(&text).expect("digits are ASCII"))
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
        let hex = text.strip_prefix(ALGORITHM).ok_or_else(invalid)?.as_bytes();
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

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_text(|text| serializer.serialize_str(text))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Digest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Digest, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
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
