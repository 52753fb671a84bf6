//! Secrets and how a request shows one: `Basic` or `Bearer`.

use std::fmt;

use base64ct::{Base64, Base64UrlUnpadded, Encoding};
use repo_model::Digest;
use zeroize::Zeroizing;

/// 256 random bits: nobody guesses one, so a plain SHA-256 keeps it.
const BYTES: usize = 32;

/// An `Authorization` header longer than this is not looked at.
const MAX_HEADER: usize = 1024;

/// The text of a secret: base64url without padding. Wiped when dropped; never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// A new one, from the system's randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; BYTES]);
        getrandom::fill(bytes.as_mut())?;
        Ok(Self(Zeroizing::new(Base64UrlUnpadded::encode_string(bytes.as_ref()))))
    }

    /// SHA-256, which is all that is kept of it.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    /// The text itself, for whoever must have it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a request shows: the digest of a secret and, with `Basic`, whose it is said to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    /// The account's name with `Basic`.
    pub(super) user: Option<String>,
    pub(super) secret: Digest,
}

/// Reads the value of an `Authorization` header; `None` if it can't be one of ours.
pub(super) fn shown(header: &str) -> Option<Shown> {
    let (scheme, rest) = header.split_once(' ').filter(|_| header.len() <= MAX_HEADER)?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Shown { user: None, secret: Digest::of(rest.as_bytes()) });
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(Base64::decode_vec(rest).ok()?);
    let (user, secret) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(Shown { user: Some(user.to_owned()), secret: Digest::of(secret.as_bytes()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_256_bits_and_is_never_the_same_nor_printed() {
        let (one, two) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_eq!(Base64UrlUnpadded::decode_vec(one.reveal()).unwrap().len(), BYTES);
        assert_ne!(one, two);
        assert_eq!(format!("{one:?}"), "Secret(…)");
    }

    #[test]
    fn basic_and_bearer_show_the_same_secret() {
        let basic = Base64::encode_string(b"press-01:s:3");
        let secret = Digest::of(b"s:3");
        assert_eq!(shown(&format!("Basic {basic}")), Some(Shown { user: Some("press-01".to_owned()), secret }));
        assert_eq!(shown("bEaReR  s:3 "), Some(Shown { user: None, secret }));
        for odd in ["", "Basic", "Basic !", "Digest abc", "Basic cHJlc3M=", &format!("Bearer {}", "a".repeat(2000))] {
            assert_eq!(shown(odd), None, "{odd}");
        }
    }
}
