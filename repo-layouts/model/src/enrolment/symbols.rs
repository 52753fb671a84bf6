//! Digests as people read, compare and type them.

use std::fmt;
use std::str::FromStr;

use crate::Digest;

/// What the device shows: 40 bits.
pub type Code = Symbols<8>;

/// What the operator is told: 20 bits.
pub type Confirm = Symbols<4>;

/// What stands behind a host's URL: 100 bits of its roster's digest.
pub type Pin = Symbols<20>;

impl Pin {
    /// The pin of a roster.
    pub fn of(roster: Digest) -> Self {
        Self::of_digest(&roster)
    }
}

/// So many characters for people, in Crockford's base 32, with a dash after every fourth or fifth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbols<const N: usize>([u8; N]);

/// The characters, in the order of their values: without I, L, O and U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The text isn't so many of these characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {0} letters and digits, with or without dashes, none of them U: read them again")]
pub struct InvalidSymbols(pub usize);

impl<const N: usize> Symbols<N> {
    /// Of a digest's first 5·N bits.
    pub fn of_digest(digest: &Digest) -> Self {
        Self::first_of(digest.as_bytes())
    }

    /// The first 5·N bits.
    pub(super) fn first_of(bytes: &[u8; 32]) -> Self {
        let bit = |index: usize| bytes[index / 8] >> (7 - index % 8) & 1;
        Self(std::array::from_fn(|at| (0..5).fold(0, |value, index| value << 1 | bit(at * 5 + index))))
    }
}

impl<const N: usize> FromStr for Symbols<N> {
    type Err = InvalidSymbols;

    /// Reads what a person typed: case and dashes don't count, O is 0, I and L are 1.
    fn from_str(text: &str) -> Result<Self, InvalidSymbols> {
        let value = |c: u8| {
            let c = match c.to_ascii_uppercase() {
                b'O' => b'0',
                b'I' | b'L' => b'1',
                other => other,
            };
            ALPHABET.iter().position(|one| *one == c).and_then(|value| u8::try_from(value).ok())
        };
        let values: Option<Vec<u8>> = text.bytes().filter(|c| *c != b'-').map(value).collect();
        values.and_then(|values| values.try_into().ok()).map(Self).ok_or(InvalidSymbols(N))
    }
}

impl<const N: usize> fmt::Display for Symbols<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if N.is_multiple_of(5) { 5 } else { 4 };
        for (at, value) in self.0.iter().enumerate() {
            if at > 0 && at.is_multiple_of(group) {
                f.write_str("-")?;
            }
            write!(f, "{}", char::from(ALPHABET[usize::from(*value)]))?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for Symbols<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
