//! What a person asks of docker: versions, whether a registry lets the device and its engine in, and what containers print.

use std::ffi::OsString;

use repo_artifacts::{ImageReference, Reference};
use repo_model::Digest;

use super::{ComposeRuntime, docker};
use crate::decision::component::Component;
use crate::runtimes::lines::{self, Command};
use crate::runtimes::{Lines, RuntimeError};

impl ComposeRuntime {
    pub fn engine_version(&self) -> Result<String, RuntimeError> {
        self.engine.version()
    }

    pub fn compose_version(&self) -> Result<String, RuntimeError> {
        self.compose().ask_text(&["version", "--short"]).map(|version| version.trim().to_owned())
    }

    /// Where a component's archive is asked for: mirrors, and its registry; nowhere where it isn't in one.
    pub fn places_of(&self, component: &Component) -> Vec<Reference> {
        let reference = Reference::parse(&component.repository, &component.revision).ok();
        let reference = reference.filter(|reference| reference.url().is_none());
        reference.map(|reference| self.registry.places(&reference)).unwrap_or_default()
    }

    /// Whether this place has a component's archive for this device.
    pub fn ask_at(&self, place: &Reference, component: &Component) -> Result<(), String> {
        let found = self.registry.resolve_at(place, component.lock.as_ref());
        found.map(drop).map_err(|error| repo_model::error_chain(&error))
    }

    /// The names under which an image with this digest is pulled: at mirrors, and its own.
    pub fn names_of(&self, image: &str, lock: Digest) -> Vec<String> {
        let names = ImageReference::parse(image).map(|image| self.registry.names_of(&image)).unwrap_or_default();
        names.into_iter().map(|name| format!("{name}@{lock}")).collect()
    }

    /// Whether the engine may pull an image, by its own authorities and its own proxy, in the name of the account that
    /// `device.yaml` has for its registry; `None` where it can't be asked over its API. Accounts of docker's configuration
    /// aren't tried.
    pub fn ask_for_image(&self, image: &str) -> Option<Result<(), String>> {
        let host = ImageReference::parse(image).map(|image| image.host().to_owned()).unwrap_or_default();
        match self.registry.account(&host) {
            Ok(account) => self.engine.distribution(image, &host, &account),
            Err(error) => Some(Err(repo_model::error_chain(&error))),
        }
    }

    /// Whether the engine itself asks registries by a proxy; `None` where that can't be told.
    pub fn engine_has_proxy(&self) -> Option<bool> {
        self.engine.has_proxy()
    }

    /// Gives each line that the containers of a project print, as docker keeps it, with service and time.
    pub fn logs(&self, project: &str, lines: &Lines, each: &mut dyn FnMut(&str) -> bool) -> Result<(), RuntimeError> {
        let compose = self.compose();
        let mut args = compose.first.clone();
        args.extend(docker::options(project, None));
        args.extend(["logs", "--no-color", "--timestamps", "--tail"].map(OsString::from));
        args.push(lines.tail.to_string().into());
        args.extend(lines.follow.then(|| "--follow".into()));
        let command = Command { program: &compose.program, args, env: &compose.env };
        lines::each(command, each).map_err(|reason| docker::DOCKER.unavailable(reason, None))
    }
}
