//! The directory of one project, the same after every update.
//!
//! `files/` holds the archive's files and whatever the application writes beside them; `compose.resolved.yaml` is what
//! runs; `marker.json` says whether the last apply completed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use repo_artifacts::Archive;
use repo_git::durable::{self, Stamp};
use repo_model::{ComponentName, DeploymentId, Digest, IntoSet, sort_few};
use serde::{Deserialize, Serialize};

use super::files;
use super::resolved::Resolved;
use crate::decision::component::Component;
use crate::runtimes::{RuntimeError, files_failed as failed};

/// The directory of one project.
#[derive(Debug)]
pub(super) struct Project {
    dir: PathBuf,
}

/// The projects as they were read last, again only where a stamp says that anything of them may be another.
#[derive(Debug, Default)]
pub(super) struct KnownProjects {
    /// What lies in their directory.
    names: Vec<String>,
    /// Of that directory, and of each marker that is or would be there; empty where a change may have the same ones.
    stamps: Vec<Option<Stamp>>,
    /// Without inventories, which may be long.
    all: Vec<(String, Marker)>,
}

impl KnownProjects {
    /// The same as [`Project::list`], without inventories.
    pub(super) fn list(&mut self, projects_dir: &Path) -> Result<&[(String, Marker)], RuntimeError> {
        let now = SystemTime::now();
        if self.stamps != self.stamps(projects_dir) {
            self.stamps.clear();
            self.names = names(projects_dir)?;
            self.all = Project::list(projects_dir)?;
            self.all.iter_mut().for_each(|(_, marker)| marker.inventory.clear());
            // What changes from here on has another stamp, and so has what changed since it was read.
            let is_settled = |stamp: &Stamp| stamp.is_of_another_moment(now);
            let stamps = self.stamps(projects_dir);
            if stamps.iter().flatten().all(is_settled) {
                self.stamps = stamps;
            }
        }
        Ok(&self.all)
    }

    fn stamps(&self, projects_dir: &Path) -> Vec<Option<Stamp>> {
        let marker = |name: &String| Stamp::of(&Project::new(projects_dir, name).marker_file());
        [Stamp::of(projects_dir)].into_iter().chain(self.names.iter().map(marker)).collect()
    }
}

/// What lies in the directory of the projects; nothing while it is missing.
fn names(projects_dir: &Path) -> Result<Vec<String>, RuntimeError> {
    let failed = || failed("list", projects_dir);
    let entries = match fs::read_dir(projects_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed())?,
    };
    let name =
        |entry: io::Result<fs::DirEntry>| Ok(entry.map_err(failed())?.file_name().to_string_lossy().into_owned());
    entries.map(name).collect()
}

/// What is known about a project besides what docker knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Marker {
    pub(super) layout: u32,
    pub(super) stage: Stage,
    /// Of what is half made: `up` has returned, and only health is waited for. A syncer before 0.3 takes no notice of it, and
    /// applies anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) started: bool,
    pub(super) input_digest: Digest,
    pub(super) content_digest: Digest,
    pub(super) deployment: DeploymentId,
    pub(super) component: ComponentName,
    pub(super) services: BTreeSet<String>,
    /// The names under which the images of services run; empty if a syncer before 0.3 wrote it.
    #[serde(default)]
    pub(super) images: BTreeMap<String, String>,
    /// Services that had run to their end when all was applied, or have while health is waited for; empty if a syncer before
    /// 0.3 wrote it. What ends later may have been stopped by somebody.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) finished: BTreeSet<String>,
    /// Services that have come to their end since, as far as their containers are there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) ended: BTreeSet<String>,
    /// The boot of which that is known; absent if a syncer before 0.3 wrote it. What is in neither of them, and is at its end at a
    /// later boot, ran when the device went down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) boot: Option<String>,
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

impl Marker {
    /// Whether everything is as the input says.
    fn is_applied(&self) -> bool {
        self.stage == Stage::Applied
    }

    /// Whether a service that is at its end ran when the device went down.
    pub(super) fn went_down(&self, service: &str, boot: &str) -> bool {
        let is_later = self.boot.as_deref().is_some_and(|seen| seen != boot);
        is_later && !self.finished.contains(service) && !self.ended.contains(service)
    }

    /// Whether everything was started, and only health is waited for.
    fn is_started(&self) -> bool {
        self.stage == Stage::Applying && self.started
    }
}

impl Project {
    pub(super) fn new(projects_dir: &Path, project: &str) -> Self {
        Self { dir: projects_dir.join(project) }
    }

    /// Projects with a marker, in the order of their names; none while the directory is missing.
    pub(super) fn list(projects_dir: &Path) -> Result<Vec<(String, Marker)>, RuntimeError> {
        let mut found = Vec::new();
        for name in names(projects_dir)? {
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

    /// Marker and document of what was applied of a component.
    pub(super) fn applied(&self, component: &Component) -> Result<(Marker, Resolved), RuntimeError> {
        self.at(component.input_digest, Marker::is_applied)?.ok_or_else(|| {
            let (project, reason) = (component.project.clone(), "what was applied isn't known any more".to_owned());
            RuntimeError::ComposeFailed { project, reason }
        })
    }

    /// The same of what was started, and of whose health nobody knows yet.
    pub(super) fn started(&self, component: &Component) -> Result<Option<(Marker, Resolved)>, RuntimeError> {
        self.at(component.input_digest, Marker::is_started)
    }

    /// Marker and document of this input, if its last operation came to this and no further.
    fn at(&self, input: Digest, is_there: fn(&Marker) -> bool) -> Result<Option<(Marker, Resolved)>, RuntimeError> {
        let marker = self.marker()?.filter(|marker| marker.input_digest == input && is_there(marker));
        Ok(marker.and_then(|marker| Some((marker, self.document()?))))
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

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use repo_git::durable::TICK;

    use super::*;

    fn marker(stage: Stage) -> Marker {
        let deployment = "00000000-0000-0000-0000-000000000000".parse().unwrap();
        let component = "web".parse().unwrap();
        let (input_digest, content_digest) = (Digest::of(b"input"), Digest::of(b"content"));
        let services = ["web".to_owned()].into();
        let (images, finished, inventory) = (BTreeMap::new(), BTreeSet::new(), ["compose.yaml".to_owned()].into());
        let (layout, started, boot) = (1, false, Some("boot 1".to_owned()));
        Marker {
            layout,
            stage,
            started,
            input_digest,
            content_digest,
            deployment,
            component,
            services,
            images,
            finished,
            ended: BTreeSet::new(),
            boot,
            inventory,
        }
    }

    /// It reads what it knows: a project that is half made, with every path of ours.
    #[test]
    fn what_was_started_is_half_made_for_a_syncer_of_before() {
        let started = Marker { started: true, ..marker(Stage::Applying) };
        let mut written = serde_json::to_value(&started).unwrap();
        assert_eq!(serde_json::from_value::<Marker>(written.clone()).unwrap(), started);
        assert_eq!(written.as_object_mut().unwrap().remove("started"), Some(true.into()));
        let of_before = marker(Stage::Applying);
        assert_eq!(written, serde_json::to_value(&of_before).unwrap());
        let read: Marker = serde_json::from_value(written).unwrap();
        assert!(started.is_started() && read == of_before && !read.is_started());
        let others = [Stage::Applied, Stage::Removing].map(|stage| Marker { stage, ..started.clone() });
        assert!(others.iter().all(|other| !other.is_started()));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test's own files")]
    fn whatever_becomes_of_a_project_is_known_at_once_however_soon_it_comes() {
        let (dir, mut known) = (tempfile::tempdir().unwrap(), KnownProjects::default());
        let dir = &dir.path().join("projects");
        let project = |name: &str| Project::new(dir, name);
        // What is known is used in half of all cases: a stamp that is young isn't kept.
        for pause in [Duration::ZERO, TICK * 2] {
            let mut are = |expected: &[(&str, Stage)]| {
                let found: Vec<_> =
                    known.list(dir).unwrap().iter().map(|(name, one)| (name.clone(), one.stage)).collect();
                assert_eq!(
                    found,
                    expected.iter().map(|(name, stage)| ((*name).to_owned(), *stage)).collect::<Vec<_>>()
                );
                thread::sleep(pause);
            };
            are(&[]);
            project("b").mark(&marker(Stage::Applied)).unwrap();
            are(&[("b", Stage::Applied)]);
            fs::create_dir_all(dir.join("a")).unwrap();
            are(&[("b", Stage::Applied)]);
            project("a").mark(&marker(Stage::Removing)).unwrap();
            are(&[("a", Stage::Removing), ("b", Stage::Applied)]);
            // As long as before, and in the same file.
            let file = project("a").marker_file();
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, text.replace("removing", "applying")).unwrap();
            are(&[("a", Stage::Applying), ("b", Stage::Applied)]);
            fs::write(&file, "no marker").unwrap();
            are(&[("b", Stage::Applied)]);
            project("b").mark(&marker(Stage::Applying)).unwrap();
            are(&[("b", Stage::Applying)]);
            fs::remove_dir_all(dir.join("b")).unwrap();
            are(&[]);
            fs::remove_dir_all(dir).unwrap();
            are(&[]);
        }
    }
}
