//! Where secrets come from; what `device.yaml` says of it.

use std::path::{Path, PathBuf};

use repo_http::Source;
use serde::Deserialize;

/// Where a secret comes from; never the secret itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Secret {
    /// A file that is its owner's alone.
    File(PathBuf),
    Env(String),
    /// The name of a credential that systemd loads (`LoadCredential=`).
    Systemd(String),
}

impl Secret {
    /// What it is read from; a file's path is added to `files`.
    pub(super) fn source(self, root: &Path, files: &mut Vec<PathBuf>) -> Source {
        match self {
            Self::File(path) => {
                let path = root.join(path);
                files.push(path.clone());
                Source::File(path)
            }
            Self::Env(name) => Source::Environment(name),
            Self::Systemd(name) => Source::Systemd(name),
        }
    }
}
