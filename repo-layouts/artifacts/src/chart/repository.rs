//! Classic chart repositories: an `index.yaml` that says where each version of each chart is.
//!
//! Such a chart has no manifest; its lock has the archive's own digest in both places.

use std::collections::BTreeMap;

use repo_http::Url;
use repo_model::envelope::Lock;
use repo_model::{Digest, error_chain};
use serde::Deserialize;

use super::{Chart, Entry};
use crate::download::{download, same};
use crate::reference::Kind;
use crate::{RegistryError, Settings, yaml};

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
    let listed = read(&bytes).map_err(invalid)?;
    let versions = listed.entries.get(&entry.chart).and_then(Option::as_deref).unwrap_or_default();
    let found = versions.iter().find(|one| one.version.strip_prefix('v').unwrap_or(&one.version) == entry.version);
    let found = found.ok_or_else(|| RegistryError::NotFound { artifact: entry.to_string() })?;
    let location = found.urls.first().ok_or_else(|| invalid(format!("{entry} has no URL in it")))?;
    let url = locate(&entry.repository, location).ok_or_else(|| {
        invalid(format!("the URL of {entry} isn't one that may be asked: https, without a credential"))
    })?;
    let bytes = download(settings, &url, Kind::Chart.name(), settings.max_layer)?;
    match (lock, found.digest.as_deref()) {
        (None, Some(listed)) if !is_digest(listed, Digest::of(&bytes)) => Err(RegistryError::Invalid {
            artifact: url.to_string(),
            kind: Kind::Chart.name(),
            reason: format!("its digest is {}, the index says {listed}", Digest::of(&bytes)),
        }),
        _ => same(&url, "chart", lock, &bytes).map(|()| (url, bytes)),
    }
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    entries: BTreeMap<String, Option<Vec<Version>>>,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: String,
    #[serde(default)]
    urls: Vec<String>,
    digest: Option<String>,
}

fn read(bytes: &[u8]) -> Result<Index, String> {
    let options = serde_yaml::options! {
        budget: serde_yaml::budget! { max_nodes: MOST_NODES, max_events: 2 * MOST_NODES },
        with_snippet: false,
    };
    serde_yaml::from_slice_with_options(bytes, options).map_err(|error| yaml::problem("index.yaml", &error))
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
