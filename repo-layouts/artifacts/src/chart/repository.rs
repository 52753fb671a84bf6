//! Classic chart repositories: an `index.yaml` that says where each version of each chart is.
//!
//! Such a chart has no manifest; its lock has the archive's own digest in both places.

use repo_http::Url;
use repo_model::envelope::Lock;
use repo_model::problem::Problem;
use repo_model::yaml::{Limits, Node, parse_at};
use repo_model::{Digest, error_chain};

use super::{Chart, Entry};
use crate::download::{download, same};
use crate::reference::Kind;
use crate::{RegistryError, Settings};

/// The largest index, in bytes; those of the largest public repositories have some 20 MB.
const LARGEST_INDEX: usize = 64 << 20;

/// The most values in an index.
const MOST_NODES: usize = 4 << 20;

const INDEX: &str = "chart repository";

/// What the index means now. Only a chart with the digest that the index gives is locked.
pub(crate) fn resolve(settings: &Settings, entry: &Entry) -> Result<Lock, RegistryError> {
    let (url, bytes) = fetch(settings, entry, None)?;
    let invalid = |reason| RegistryError::Invalid { artifact: url.to_string(), kind: Kind::Chart.name(), reason };
    Chart::read(&bytes).map_err(|error| invalid(error_chain(&error)))?;
    let digest = Digest::of(&bytes);
    Ok(Lock { manifest: digest, content: digest })
}

/// The chart's bytes, verified by the lock, else by the index.
pub(crate) fn pull(settings: &Settings, entry: &Entry, lock: Option<&Lock>) -> Result<Vec<u8>, RegistryError> {
    fetch(settings, entry, lock).map(|(_, bytes)| bytes)
}

fn fetch(settings: &Settings, entry: &Entry, lock: Option<&Lock>) -> Result<(Url, Vec<u8>), RegistryError> {
    let index = entry.repository.below("index.yaml");
    let bytes = download(settings, &index, INDEX, LARGEST_INDEX)?;
    let invalid = |reason: String| RegistryError::Invalid { artifact: index.to_string(), kind: INDEX, reason };
    let listed = versions(&bytes, &entry.chart).map_err(|problem| invalid(problem.to_string()))?;
    let mut versions = listed.iter().flat_map(Node::items).map(Version::of);
    let found = versions.find(|one| one.version.strip_prefix('v').unwrap_or(one.version) == entry.version);
    let found = found.ok_or_else(|| RegistryError::NotFound { artifact: entry.to_string() })?;
    let location = found.url.ok_or_else(|| invalid(format!("{entry} has no URL in it")))?;
    let url = locate(&entry.repository, location).ok_or_else(|| {
        invalid(format!("the URL of {entry} isn't one that may be asked: https, without a credential"))
    })?;
    let bytes = download(settings, &url, Kind::Chart.name(), settings.max_layer)?;
    match (lock, found.digest) {
        (None, Some(listed)) if !is_digest(listed, Digest::of(&bytes)) => Err(RegistryError::Invalid {
            artifact: url.to_string(),
            kind: Kind::Chart.name(),
            reason: format!("its digest is {}, the index says {listed}", Digest::of(&bytes)),
        }),
        _ => same(&url, "chart", lock, &bytes).map(|()| (url, bytes)),
    }
}

/// A version of a chart, as the index lists it.
struct Version<'a> {
    version: &'a str,
    /// The first of those that it has.
    url: Option<&'a str>,
    digest: Option<&'a str>,
}

/// The versions of a chart; none of one that isn't listed. Nothing else of an index is kept in memory.
fn versions(bytes: &[u8], chart: &str) -> Result<Option<Node>, Problem> {
    let limits = Limits { bytes: LARGEST_INDEX, nodes: MOST_NODES, ..Limits::FLEET };
    parse_at("index.yaml", bytes, &limits, &["entries", chart])
}

impl<'a> Version<'a> {
    fn of(node: &'a Node) -> Self {
        let text = |key| node.get(key).and_then(Node::text);
        let url = node.get("urls").and_then(|urls| urls.item(0)?.text());
        Self { version: text("version").unwrap_or_default(), url, digest: text("digest") }
    }
}

/// SHA-256 in hex, with or without its name before it.
fn is_digest(listed: &str, found: Digest) -> bool {
    let hex = listed.strip_prefix("sha256:").unwrap_or(listed);
    found.to_string() == format!("sha256:{}", hex.to_ascii_lowercase())
}

/// A URL, a path at the host, or a path below the repository.
fn locate(repository: &Url, location: &str) -> Option<Url> {
    let text = match location {
        absolute if absolute.contains("://") => absolute.to_owned(),
        protocol if protocol.starts_with("//") => return None,
        path if path.starts_with('/') => repository.at_host(path.trim_start_matches('/')).as_str().to_owned(),
        path => repository.below(path.trim_start_matches("./")).as_str().to_owned(),
    };
    Url::parse(&text).ok()
}
