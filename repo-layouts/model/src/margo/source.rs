//! Where a component's package comes from.

use serde::ser::SerializeMap;

use super::ProfileType;
use crate::yaml::{Field, Reader};

/// Where a component's package comes from (Margo, *ComponentProperties*).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An OCI registry: the only one of `1.0.0-rc.3`.
    Oci {
        /// `oci://host/path`.
        repository: String,
        /// The tag: SemVer without `v`, `_` for `+`.
        revision: String,
    },
    /// A compose archive by URL (pre-draft).
    Https {
        /// `https://…` of the archive.
        package_location: String,
        /// URL of the public key for its detached signature.
        key_location: Option<String>,
    },
    /// A classic chart repository (pre-draft); the chart is named by the component.
    HelmRepo {
        /// `https://…`.
        repository: String,
        revision: String,
    },
}

impl Source {
    /// Reads the keys of a component's properties that say where its package is.
    pub(super) fn read(reader: &mut Reader<'_>, kind: Option<ProfileType>) -> Option<Self> {
        if reader.has("packageLocation") { package(reader, kind) } else { repository(reader, kind) }
    }

    /// Writes the same keys.
    pub(super) fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match self {
            Source::Oci { repository, revision } | Source::HelmRepo { repository, revision } => {
                map.serialize_entry("repository", repository)?;
                map.serialize_entry("revision", revision)?;
            }
            Source::Https { package_location, key_location } => {
                map.serialize_entry("packageLocation", package_location)?;
                if let Some(key_location) = key_location {
                    map.serialize_entry("keyLocation", key_location)?;
                }
            }
        }
        Ok(())
    }
}

fn package(reader: &mut Reader<'_>, kind: Option<ProfileType>) -> Option<Source> {
    let package_location = reader.required("packageLocation", url);
    let has_key = reader.has("keyLocation");
    let key_location = reader.optional("keyLocation", url);
    reader.refuse("repository", "stands beside `packageLocation`: a component has one source");
    if let Some(kind @ (ProfileType::Helm | ProfileType::Custom)) = kind {
        let text = format!("a {kind} component has `repository` and `revision`, not `packageLocation`");
        return reader.field().fail(text);
    }
    let package_location = package_location?;
    (!has_key || key_location.is_some()).then_some(Source::Https { package_location, key_location })
}

fn repository(reader: &mut Reader<'_>, kind: Option<ProfileType>) -> Option<Source> {
    let repository = reader.required("repository", |field| {
        let text = field.clone().string()?;
        match text.strip_prefix("oci://") {
            Some(reference) if is_oci_name(reference) => Some((text, true)),
            None if kind == Some(ProfileType::Helm) => url(field).map(|url| (url, false)),
            _ => field
                .fail_hint(format!("`{text}` is no OCI repository"), "write oci://host/path, without tag or digest"),
        }
    });
    let revision = reader.required("revision", |field| {
        let text = field.clone().string()?;
        if is_revision(&text) { Some(text) } else { field.fail_hint(format!("`{text}` is no revision"), REVISION_HINT) }
    });
    let ((repository, oci), revision) = repository.zip(revision)?;
    Some(if oci { Source::Oci { repository, revision } } else { Source::HelmRepo { repository, revision } })
}

const REVISION_HINT: &str =
    "write a SemVer version such as 1.2.3 or 1.2.3-rc.1_build, without `v` and with `_` for `+`";

/// An `https` URL without credentials.
fn url(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    let rest = text.strip_prefix("https://").unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        return field.fail("holds credentials: they belong into the configuration of whoever fetches it");
    }
    if host.is_empty() || !rest.bytes().all(|c| c.is_ascii_graphic()) {
        return field.fail_hint(format!("`{text}` is no URL to fetch from"), "write https://host/path");
    }
    Some(text)
}

/// `host[:port]/path`, the path by the OCI distribution specification.
fn is_oci_name(reference: &str) -> bool {
    let Some((host, path)) = reference.split_once('/') else { return false };
    let (host, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_host = |c: u8| c.is_ascii_alphanumeric() || c == b'.' || c == b'-';
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-".contains(&c);
    let is_edge = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().all(|c| is_inner(*c))
    };
    !host.is_empty() && host.bytes().all(is_host) && port.parse::<u16>().is_ok() && path.split('/').all(is_part)
}

/// SemVer 2.0 without leading `v`, `_` for `+` (rc.3, *revision*), and at most the 128 characters of an OCI tag.
fn is_revision(text: &str) -> bool {
    let (version, build) = text.split_once('_').map_or((text, None), |(version, build)| (version, Some(build)));
    let (core, pre) = version.split_once('-').map_or((version, None), |(core, pre)| (core, Some(pre)));
    let identifier = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    let digits = |part: &str| part.bytes().all(|c| c.is_ascii_digit());
    let number = |part: &str| !part.is_empty() && digits(part) && (part == "0" || !part.starts_with('0'));
    text.len() <= 128
        && core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| identifier(part) && (!digits(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(identifier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_semver_in_a_tag() {
        for text in ["0.0.0", "1.0.9", "1.2.3-rc.1", "1.2.3-0-a", "1.2.3_build.01", "10.20.30-x_y"] {
            assert!(is_revision(text), "{text}");
        }
        for text in ["", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.2.3+b", "1.2.3-", "1.2.3-01", "1.2.3_", "latest"]
        {
            assert!(!is_revision(text), "{text}");
        }
        assert!(!is_revision(&format!("1.2.3-{}", "a".repeat(130))));
    }

    #[test]
    fn an_oci_name_has_a_host_and_a_path() {
        for text in ["quay.io/charts/a", "localhost:5000/a", "127.0.0.1:5000/a/b-c_d.e", "h/0"] {
            assert!(is_oci_name(text), "{text}");
        }
        for text in [
            "",
            "a",
            "/a",
            "h/",
            "h//a",
            "h/A",
            "h/a:1",
            "h/a@sha256",
            "h:x/a",
            "h:/a",
            "h/../a",
            "h/-a",
            "h h/a",
            "u@h/a",
        ] {
            assert!(!is_oci_name(text), "{text}");
        }
    }
}
