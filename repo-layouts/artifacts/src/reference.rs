//! Where an artefact is: `oci://host[:port]/path` and a tag, or an `https` URL.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use repo_http::Url;

/// A repository in a registry and a tag in it, or the URL of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    host: String,
    path: String,
    tag: String,
    url: Option<Url>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Compose,
    Chart,
    Image,
    /// An application package.
    Package,
}

impl Kind {
    /// What it is called in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Compose => "compose archive",
            Self::Chart => "chart",
            Self::Image => "image",
            Self::Package => "Margo application package",
        }
    }

    /// What the manifest says it is: `artifactType`, or where there is none the config's media type. An image may be
    /// anything that the engine takes.
    pub(crate) fn artifact_type(self) -> &'static str {
        match self {
            Self::Compose => crate::ARTIFACT_TYPE,
            Self::Chart => crate::CHART_CONFIG_TYPE,
            Self::Image => "",
            Self::Package => crate::PACKAGE_TYPE,
        }
    }

    /// Media type of the layer with the archive; an image has many.
    pub(crate) fn layer_type(self) -> &'static str {
        match self {
            Self::Compose => crate::LAYER_TYPE,
            Self::Chart => crate::CHART_LAYER_TYPE,
            Self::Image => "",
            Self::Package => crate::PACKAGE_DESCRIPTION_TYPE,
        }
    }
}

/// The text doesn't name an artefact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` doesn't name an artefact: {rule}")]
pub struct InvalidReference {
    pub text: String,
    pub rule: &'static str,
}

impl Reference {
    /// Reads a component's `repository` and `revision`, or its `packageLocation` with an empty revision.
    pub fn parse(repository: &str, revision: &str) -> Result<Self, InvalidReference> {
        if revision.is_empty() && repository.starts_with("https://") {
            // Not repeated: it may hold a credential.
            let url = Url::parse(repository)
                .map_err(|_| invalid("https://…", "an address is `https://host/path`, without a credential"))?;
            let empty = String::new;
            return Ok(Self { host: empty(), path: empty(), tag: empty(), url: Some(url), kind: Kind::Compose });
        }
        Self::oci(repository, revision, Kind::Compose)
    }

    pub(crate) fn oci(repository: &str, revision: &str, kind: Kind) -> Result<Self, InvalidReference> {
        let rest =
            repository.strip_prefix("oci://").ok_or_else(|| invalid(repository, "expected `oci://host/path`"))?;
        let (host, path) = rest.split_once('/').ok_or_else(|| invalid(repository, "expected `oci://host/path`"))?;
        if host.is_empty() || !host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-:[]".contains(&c)) {
            return Err(invalid(repository, "the host is a name or an address, with an optional port"));
        }
        if !path.split('/').all(is_path_part) || path.len() > 255 {
            return Err(invalid(repository, "a path is lower-case letters, digits and inner `. _ -`, in parts"));
        }
        if !is_tag(revision) {
            return Err(invalid(revision, "a tag is 1 to 128 letters, digits and `. _ -`"));
        }
        Ok(Self { host: host.to_owned(), path: path.to_owned(), tag: revision.to_owned(), url: None, kind })
    }

    /// The same tag at another place.
    pub(crate) fn at(&self, host: &str, path: String) -> Self {
        Self { host: host.to_owned(), path, ..self.clone() }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The URL of an archive that isn't in a registry.
    pub fn url(&self) -> Option<&Url> {
        self.url.as_ref()
    }

    /// Host and port of the registry.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the registry is on this machine, where TLS protects nothing.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }

    /// The repository within the registry.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.url {
            Some(url) => write!(f, "{url}"),
            None => write!(f, "oci://{}/{}:{}", self.host, self.path, self.tag),
        }
    }
}

/// Whether a host (`host[:port]`) is this machine.
pub(crate) fn is_loopback(authority: &str) -> bool {
    let name = host_name(authority);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a host (`host[:port]`) is this machine, or on the link and in no network: where nobody leads to who means well.
pub(crate) fn is_local(authority: &str) -> bool {
    let name = host_name(authority).trim_end_matches('.').to_ascii_lowercase();
    let is_name = name == "localhost" || name.ends_with(".localhost");
    is_name
        || name.parse::<IpAddr>().is_ok_and(|address| match address.to_canonical() {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.octets()[0] == 0,
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6 == Ipv6Addr::UNSPECIFIED,
        })
}

/// The name or address in `host[:port]`, without brackets.
fn host_name(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

pub(crate) fn invalid(text: &str, rule: &'static str) -> InvalidReference {
    InvalidReference { text: text.chars().take(200).collect(), rule }
}

fn is_path_part(part: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(part.bytes().next())
        && edge(part.bytes().last())
        && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-".contains(&c))
}

fn is_tag(tag: &str) -> bool {
    (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_repository_and_a_tag_name_an_artefact() {
        let good = Reference::parse("oci://registry.example:5000/apps/hello-world", "1.0.0_build.2").unwrap();
        assert_eq!(good.to_string(), "oci://registry.example:5000/apps/hello-world:1.0.0_build.2");
        for (repository, revision) in [
            ("https://registry.example/a", "1"),
            ("oci://registry.example", "1"),
            ("oci:///a", "1"),
            ("oci://user@registry.example/a", "1"),
            ("oci://registry.example/A", "1"),
            ("oci://registry.example/a/../b", "1"),
            ("oci://registry.example/a", ""),
            ("oci://registry.example/a", "1+2"),
            ("oci://registry.example/a", "a/b"),
            ("oci://registry.example/a:1", "1"),
        ] {
            assert!(Reference::parse(repository, revision).is_err(), "{repository} {revision}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let is_loopback = |host: &str| Reference::parse(&format!("oci://{host}/a"), "1").unwrap().is_loopback();
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["registry.example:5000", "localhost.example", "10.0.0.1", "[fe80::1]", "128.0.0.1:1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn nobody_leads_to_this_machine_or_link_who_means_well() {
        for host in [
            "localhost",
            "LOCALHOST.:443",
            "a.localhost",
            "127.0.0.1:8443",
            "169.254.169.254",
            "0.0.0.0",
            "[::1]:1",
            "[::]",
            "[fe80::1]",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in ["registry.example", "10.0.0.1:5000", "192.168.1.1", "localhost.example", "[2001:db8::1]"] {
            assert!(!is_local(host), "{host}");
        }
    }
}
