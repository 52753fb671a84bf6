//! Archives and settings for the unit tests of this module.

use std::path::Path;

use repo_artifacts::{Archive, Limits};
use repo_model::FleetId;
use uuid::Uuid;

use super::settings::ComposeSettings;
use crate::config::SitePolicy;
use crate::runtimes::client::QUERY;
use crate::runtimes::sandbox::SandboxSettings;

/// Those of a device that says nothing of docker, with its files in this directory.
pub(super) fn settings(dir: &Path) -> ComposeSettings {
    ComposeSettings {
        docker: "docker".into(),
        compose: None,
        path: std::env::var("PATH").unwrap(),
        home: dir.join("home"),
        environment: Default::default(),
        projects_dir: dir.join("projects"),
        cache_dir: dir.join("cache"),
        fleet: FleetId::from(Uuid::nil()),
        device: "press".parse().unwrap(),
        boot_id: "boot 1".to_owned(),
        policy: SitePolicy::default(),
        registry: repo_artifacts::Settings::default(),
        sandbox: SandboxSettings { program: repo_testkit::program("device-syncer"), user: 60917 },
        stop_timeout: QUERY,
        pull_timeout: QUERY,
    }
}

/// An archive with these files.
pub(super) fn archive(files: &[(&str, &str)]) -> Archive {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in
        files.iter().chain([("compose.yaml", "{}")].iter().filter(|_| !files.iter().any(|f| f.0 == "compose.yaml")))
    {
        let path = dir.path().join(path);
        repo_git::durable::create_dir_all(path.parent().unwrap(), 0o755).unwrap();
        repo_git::durable::replace_file(&path, text.as_bytes(), 0o644).unwrap();
    }
    Archive::read(&repo_artifacts::pack(dir.path(), "app").unwrap(), &Limits::default()).unwrap()
}
