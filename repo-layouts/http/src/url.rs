//! Addresses that may be asked: `https`, of registries that are named `http`, and never with a credential inside.

use std::collections::BTreeSet;
use std::fmt;

const HTTPS: &str = "https://";
const HTTP: &str = "http://";

/// An `https://host[:port]/path` URL; `http` only by [`Url::of_registry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    text: String,
    /// Where in `text` the path begins, in bytes.
    path: usize,
}

/// The text is no address that may be asked. It isn't repeated, because it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    #[error("expected `https://host/path`")]
    NotHttps,
    /// A user or password in it: it would stand in logs.
    #[error("the URL holds a credential: put it into a file that only its owner can read")]
    Credential,
    /// White space, control characters or anything else that is not ASCII.
    #[error("a URL is printable ASCII without spaces, quotes or backslashes")]
    Characters,
}

impl Url {
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        Self::with_scheme(text, HTTPS)
    }

    /// Reads the URL of something in a registry, of its token service or of its storage: `https`, or `http` at one of
    /// the hosts (`host[:port]`) that are asked without TLS.
    pub fn of_registry(text: &str, plain_http: &BTreeSet<String>) -> Result<Self, InvalidUrl> {
        let Ok(url) = Self::with_scheme(text, HTTP) else { return Self::parse(text) };
        if url.is_one_of(plain_http) { Ok(url) } else { Err(InvalidUrl::NotHttps) }
    }

    /// Who is asked on a socket: HTTP wants a name, and this one leads nowhere else.
    pub(crate) const SOCKET: &str = "localhost";

    /// The URL of a path, with its query, of what listens on a socket.
    pub fn on_socket(path: &str) -> Result<Self, InvalidUrl> {
        Self::with_scheme(&format!("{HTTP}{}{path}", Self::SOCKET), HTTP)
    }

    fn with_scheme(text: &str, expected: &'static str) -> Result<Self, InvalidUrl> {
        let is_expected = text.get(..expected.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(expected));
        let rest = if is_expected { &text[expected.len()..] } else { return Err(InvalidUrl::NotHttps) };
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
        Ok(Self { text: format!("{expected}{rest}"), path: expected.len() + end })
    }

    /// Where a `Location` of this URL's answer leads, read as [`Url::of_registry`] does; `None` where nobody may be asked.
    pub fn leads_to(&self, location: &str, plain_http: &BTreeSet<String>) -> Option<Self> {
        let is_path = location.starts_with('/') && !location.starts_with("//");
        let absolute = if is_path { format!("{}{location}", self.origin()) } else { location.to_owned() };
        Self::of_registry(&absolute, plain_http).ok()
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `https://host[:port]`.
    pub fn origin(&self) -> &str {
        &self.text[..self.path]
    }

    /// `host[:port]`.
    pub fn authority(&self) -> &str {
        &self.text[self.scheme().len()..self.path]
    }

    /// Whether both are at the same host, by the same scheme and at the same port.
    pub fn has_origin_of(&self, other: &Self) -> bool {
        (self.scheme(), self.host_and_port()) == (other.scheme(), other.host_and_port())
    }

    /// Whether it is asked without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        self.scheme() == HTTP
    }

    /// Whether its host is among these (`host[:port]`).
    pub(crate) fn is_one_of(&self, hosts: &BTreeSet<String>) -> bool {
        hosts.iter().any(|host| with_port(host, self.scheme()) == self.host_and_port())
    }

    fn scheme(&self) -> &'static str {
        if self.text.starts_with(HTTPS) { HTTPS } else { HTTP }
    }

    fn host_and_port(&self) -> String {
        with_port(self.authority(), self.scheme())
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

/// A host in lower case with its port, also where that is the scheme's own.
fn with_port(authority: &str, scheme: &str) -> String {
    let after_address = authority.rsplit(']').next().unwrap_or_default();
    let port = match (after_address.contains(':'), scheme) {
        (true, _) => "",
        (false, HTTPS) => ":443",
        (false, _) => ":80",
    };
    format!("{}{port}", authority.to_ascii_lowercase())
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

    #[test]
    fn plain_http_is_only_for_registries_that_are_named() {
        let named = BTreeSet::from(["Registry.plant.local:5000".to_owned(), "mirror".to_owned(), "[::1]".to_owned()]);
        for text in ["http://registry.plant.local:5000/v2/", "HTTP://mirror:80/v2/", "http://[::1]/", "https://other/"]
        {
            assert!(Url::of_registry(text, &named).is_ok(), "{text}");
        }
        for text in ["http://registry.plant.local/", "http://mirror.example/", "http://mirror:443/", "ftp://mirror/"] {
            assert_eq!(Url::of_registry(text, &named), Err(InvalidUrl::NotHttps), "{text}");
        }
        assert_eq!(Url::of_registry("http://user@mirror/", &named), Err(InvalidUrl::NotHttps));
        assert_eq!(Url::parse("http://mirror/"), Err(InvalidUrl::NotHttps));
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let named = BTreeSet::from(["a".to_owned()]);
        let same = |one: &str, other: &str| {
            let read = |text| Url::of_registry(text, &named).unwrap();
            read(one).has_origin_of(&read(other))
        };
        assert!(same("https://a/x", "https://A:443/y") && same("http://a/x", "http://a:80/y"));
        for other in ["https://a:8443/", "https://b/", "https://a.b/", "http://a/"] {
            assert!(!same("https://a/", other), "{other}");
        }
    }

    #[test]
    fn a_location_leads_to_a_path_or_to_whom_may_be_asked() {
        let from = Url::parse("https://a.example/v2/x").unwrap();
        let to = |location: &str| from.leads_to(location, &BTreeSet::new()).map(|url| url.as_str().to_owned());
        assert_eq!(to("/y?z").unwrap(), "https://a.example/y?z");
        assert_eq!(to("https://b.example/y").unwrap(), "https://b.example/y");
        for nowhere in ["//b.example/y", "y", "http://a.example/y", "https://u:p@a.example/", "file:///y", ""] {
            assert_eq!(to(nowhere), None, "{nowhere}");
        }
    }
}
