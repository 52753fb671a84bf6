//! What a person asks of docker: versions, whether a registry lets the device and its engine in, and what containers print.

use std::ffi::OsString;

use repo_artifacts::Reference;

use super::{ComposeRuntime, docker};
use crate::decision::component::Component;
use crate::runtimes::lines::{self, Command};
use crate::runtimes::{Lines, RuntimeError};

impl ComposeRuntime {
    pub fn engine_version(&self) -> Result<String, RuntimeError> {
        self.engine.version()
    }

    pub fn compose_version(&self) -> Result<String, RuntimeError> {
        self.docker.ask_text(&["compose", "version", "--short"]).map(|version| version.trim().to_owned())
    }

    /// Whether the registry has a component's archive for this device; `None` where that isn't in a registry.
    pub fn ask_for_archive(&self, component: &Component) -> Option<(String, Result<(), String>)> {
        let reference = Reference::parse(&component.repository, &component.revision).ok()?;
        if reference.url().is_some() {
            return None;
        }
        let found = self.registry.resolve(&reference).map(drop).map_err(|error| repo_model::error_chain(&error));
        Some((reference.host().to_owned(), found))
    }

    /// Whether the engine may pull an image, by its own authorities and its own proxy; `None` where it can't be asked over
    /// its API. Accounts of docker's configuration aren't tried.
    pub fn ask_for_image(&self, image: &str) -> Option<Result<(), String>> {
        self.engine.distribution(image)
    }

    /// Gives each line that the containers of a project print, as docker keeps it, with service and time.
    pub fn logs(&self, project: &str, lines: &Lines, each: &mut dyn FnMut(&str) -> bool) -> Result<(), RuntimeError> {
        let mut args = docker::compose(project, None);
        args.extend(["logs", "--no-color", "--timestamps", "--tail"].map(OsString::from));
        args.push(lines.tail.to_string().into());
        args.extend(lines.follow.then(|| "--follow".into()));
        let command = Command { program: &self.docker.program, args, env: &self.docker.env };
        lines::each(command, each).map_err(|reason| docker::DOCKER.unavailable(reason, None))
    }
}
