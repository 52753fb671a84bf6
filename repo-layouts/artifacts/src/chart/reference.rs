//! Where a chart is: in a registry, or in a chart repository.

use std::fmt;

use repo_http::Url;

use crate::reference::{Kind, invalid};
use crate::{InvalidReference, Reference};

/// A chart in an OCI registry or a classic chart repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChartReference {
    /// A repository in a registry and a tag in it.
    Oci(Reference),
    /// A version in a chart repository's index.
    Repository(Entry),
}

/// A chart's version in a chart repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub(super) repository: Url,
    pub(super) chart: String,
    /// SemVer, with `+`.
    pub(super) version: String,
}

impl ChartReference {
    /// Reads a component's `repository` (`oci://host/path`) and `revision` (a tag, SemVer with `_` for `+`).
    pub fn oci(repository: &str, revision: &str) -> Result<Self, InvalidReference> {
        Reference::oci(repository, revision, Kind::Chart).map(Self::Oci)
    }

    /// Reads a component's `repository` (`https://…`), its name, which is the chart's, and `revision`.
    pub fn repository(url: &str, chart: &str, revision: &str) -> Result<Self, InvalidReference> {
        // Not repeated: it may hold a credential.
        let repository = Url::parse(url)
            .map_err(|_| invalid("https://…", "an address is `https://host/path`, without a credential"))?;
        if repository.as_str().contains('?') {
            return Err(invalid("https://…?…", "a chart repository's address has no query"));
        }
        if chart.is_empty() || revision.is_empty() {
            return Err(invalid(url, "a chart has a name and a version"));
        }
        let version = revision.replace('_', "+");
        Ok(Self::Repository(Entry { repository, chart: chart.to_owned(), version }))
    }
}

impl fmt::Display for ChartReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oci(reference) => reference.fmt(f),
            Self::Repository(entry) => entry.fmt(f),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.chart, self.version, self.repository)
    }
}
