//! The directory of one project, the same after every update.
//!
//! `files/` holds the archive's files and whatever the application writes beside them; `compose.resolved.yaml` is what
//! runs; `marker.json` says whether the last apply completed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use repo_artifacts::Archive;
use repo_git::durable;
use repo_model::{ComponentName, DeploymentId, Digest, IntoSet, sort_few};
use serde::{Deserialize, Serialize};

use super::files;
use super::resolved::Resolved;
use crate::runtimes::{RuntimeError, files_failed as failed};

/// The directory of one project.
#[derive(Debug)]
pub(super) struct Project {
    dir: PathBuf,
}

/// What is known about a project besides what docker knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Marker {
    pub(super) layout: u32,
    pub(super) stage: Stage,
    pub(super) input_digest: Digest,
    pub(super) content_digest: Digest,
    pub(super) deployment: DeploymentId,
    pub(super) component: ComponentName,
    pub(super) services: BTreeSet<String>,
    /// The names under which the images of services run; empty if a syncer before 0.3 wrote it.
    #[serde(default)]
    pub(super) images: BTreeMap<String, String>,
    /// Services that had run to their end when all was applied; empty if a syncer before 0.3 wrote it. What ends later may
    /// have been stopped by somebody.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) finished: BTreeSet<String>,
    /// Every path of ours that may be in `files/`; directories end in `/`.
    pub(super) inventory: BTreeSet<String>,
}

/// How far the last operation came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Stage {
    /// Begun, and not completed: the project is half made.
    Applying,
    /// Everything is as the input says.
    Applied,
    /// A removal began, and is completed before anything else.
    Removing,
}

impl Project {
    pub(super) fn new(projects_dir: &Path, project: &str) -> Self {
        Self { dir: projects_dir.join(project) }
    }

    /// Projects with a marker, in the order of their names; none while the directory is missing.
    pub(super) fn list(projects_dir: &Path) -> Result<Vec<(String, Marker)>, RuntimeError> {
        let entries = match fs::read_dir(projects_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("list", projects_dir))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed("list", projects_dir))?.file_name().to_string_lossy().into_owned();
            let marker = Self::new(projects_dir, &name).marker()?;
            found.extend(marker.map(|marker| (name, marker)));
        }
        sort_few(&mut found, |(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }

    /// The archive's files, as the containers see them.
    pub(super) fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    /// The resolved document that the running containers were made of.
    pub(super) fn resolved(&self) -> PathBuf {
        self.dir.join("compose.resolved.yaml")
    }

    /// The [resolved](Self::resolved) document; `None` if it is missing or can't be read.
    pub(super) fn document(&self) -> Option<Resolved> {
        Resolved::parse(&fs::read(self.resolved()).ok()?).ok()
    }

    /// The names under which the images of services run for this input.
    pub(super) fn images(&self, input: Digest) -> Result<BTreeMap<String, String>, RuntimeError> {
        let Some(marker) = self.marker()?.filter(|marker| marker.input_digest == input) else {
            return Ok(BTreeMap::new());
        };
        // Before the marker said it, only the document of a complete apply is known to be that of its input.
        if !marker.images.is_empty() || marker.stage != Stage::Applied {
            return Ok(marker.images);
        }
        Ok(self.document().map(|document| document.images_by_service()).unwrap_or_default())
    }

    /// The services of this input that run to their end, if any of it was begun.
    pub(super) fn run_to_their_end(&self, input: Digest) -> Result<BTreeSet<String>, RuntimeError> {
        let is_begun = self.marker()?.is_some_and(|marker| marker.input_digest == input);
        let document = self.document().filter(|_| is_begun);
        Ok(document.iter().flat_map(Resolved::run_to_their_end).map(str::to_owned).into_set())
    }

    fn marker_file(&self) -> PathBuf {
        self.dir.join("marker.json")
    }

    /// The marker; one that can't be understood counts as none, and the project as half made.
    pub(super) fn marker(&self) -> Result<Option<Marker>, RuntimeError> {
        match fs::read(self.marker_file()) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(failed("read", &self.marker_file())(error)),
        }
    }

    pub(super) fn mark(&self, marker: &Marker) -> Result<(), RuntimeError> {
        let text = serde_json::to_vec_pretty(marker).map_err(io::Error::from);
        let write = |text: Vec<u8>| {
            durable::create_dir_all(&self.dir, 0o700)?;
            durable::replace_file(&self.marker_file(), &text, 0o600)
        };
        text.and_then(write).map_err(failed("write", &self.marker_file()))
    }

    /// Files of the archive, then what runs; `gone` is what an earlier archive brought and this one doesn't.
    pub(super) fn fill(&self, archive: &Archive, gone: &BTreeSet<String>, resolved: &[u8]) -> Result<(), RuntimeError> {
        files::sweep(&self.dir);
        files::remove(&self.files(), gone).map_err(failed("remove old files in", &self.files()))?;
        files::write(&self.files(), &self.dir, archive).map_err(failed("write files in", &self.files()))?;
        if fs::read(self.resolved()).is_ok_and(|present| present == resolved) {
            return Ok(());
        }
        durable::replace_file(&self.resolved(), resolved, 0o600).map_err(failed("write", &self.resolved()))
    }

    /// Removes what is ours; the application's own files stay, and with them their directories.
    pub(super) fn clear(&self, marker: Option<&Marker>) -> Result<(), RuntimeError> {
        files::sweep(&self.dir);
        let inventory = marker.map(|marker| marker.inventory.clone()).unwrap_or_default();
        files::remove(&self.files(), &inventory).map_err(failed("remove files in", &self.files()))?;
        for file in [self.resolved(), self.marker_file()] {
            durable::remove_file(&file).map_err(failed("remove", &file))?;
        }
        // Both fail where something of the application's is left.
        let _ = fs::remove_dir(self.files());
        let _ = fs::remove_dir(&self.dir);
        Ok(())
    }
}
