//! Addresses that may be asked: `https`, and never with a credential inside.

use std::fmt;

/// An `https://host[:port]/path` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    text: String,
    /// Where the path begins.
    path: usize,
}

/// The text is no address that may be asked. It isn't repeated, because it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// Another scheme, or none.
    #[error("expected `https://host/path`")]
    NotHttps,
    /// A user or password.
    #[error("the URL holds a credential: put it into a file that only its owner can read")]
    Credential,
    /// White space, control characters or anything else that is not ASCII.
    #[error("a URL is printable ASCII without spaces, quotes or backslashes")]
    Characters,
}

impl Url {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        const SCHEME: &str = "https://";
        let is_https = text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        let rest = if is_https { &text[SCHEME.len()..] } else { return Err(InvalidUrl::NotHttps) };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if rest[..end].contains('@') {
            return Err(InvalidUrl::Credential);
        }
        if !rest.bytes().all(|c| c.is_ascii_graphic() && !b"\"\\<>^`{|}#".contains(&c)) {
            return Err(InvalidUrl::Characters);
        }
        if end == 0 || rest.starts_with(':') {
            return Err(InvalidUrl::NotHttps);
        }
        Ok(Self { text: format!("{SCHEME}{rest}"), path: SCHEME.len() + end })
    }

    /// All of it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `https://host[:port]`.
    pub fn origin(&self) -> &str {
        &self.text[..self.path]
    }

    /// The URL of something below this one.
    pub fn below(&self, path: &str) -> Self {
        let text = format!("{}/{path}", self.text.trim_end_matches('/'));
        Self { text, path: self.path }
    }

    /// The URL of another path at the same host.
    pub fn at_host(&self, path: &str) -> Self {
        Self { text: format!("{}/{path}", self.origin()), path: self.path }
    }

    /// Without its query, for messages.
    pub(crate) fn shown(&self) -> &str {
        self.text.split('?').next().unwrap_or_default()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_without_a_credential_is_asked() {
        let url = Url::parse("HTTPS://host.example:8443/devices/a.git").unwrap();
        assert_eq!(url.origin(), "https://host.example:8443");
        assert_eq!(url.below("info/refs").as_str(), "https://host.example:8443/devices/a.git/info/refs");
        assert_eq!(url.at_host("account").as_str(), "https://host.example:8443/account");
        for text in ["http://host/a", "host/a", "https://", "https:///a", "https://:80/", "file:///a"] {
            assert_eq!(Url::parse(text), Err(InvalidUrl::NotHttps), "{text}");
        }
        for text in ["https://user:secret@host/a", "https://token@host"] {
            assert_eq!(Url::parse(text), Err(InvalidUrl::Credential), "{text}");
        }
        for text in ["https://host/a b", "https://host/a\nb", "https://host/ü", "https://host/#a"] {
            assert_eq!(Url::parse(text), Err(InvalidUrl::Characters), "{text}");
        }
    }

    #[test]
    fn a_query_is_not_shown() {
        assert_eq!(Url::parse("https://host/a?secret=1").unwrap().to_string(), "https://host/a");
    }
}
