//! From a component to a checked document: fetch, check as written, resolve, check as resolved, complete.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use repo_artifacts::{Archive, Limits, Lock, Reference, RegistryError, compose};
use repo_model::error_chain;

use super::project::Project;
use super::resolved::Resolved;
use super::{ComposeRuntime, Prepared, bounds, docker, labels, mounts, parameters, privileges};
use crate::decision::component::{Component, Kind};
use crate::runtimes::client::{Call, QUERY, REASON};
use crate::runtimes::command::{Output, last_lines};
use crate::runtimes::sandbox::{self, Confinement};
use crate::runtimes::{Redactor, RuntimeError, Source, files_failed};

impl ComposeRuntime {
    /// Everything before the first effect, but for the images.
    pub(super) fn prepare(
        &self,
        component: &Component,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Prepared, RuntimeError> {
        let invalid = |reason: String| RuntimeError::ArtifactInvalid { what: what(component), reason };
        let Kind::Compose { parameters, .. } = &component.kind else {
            return Err(invalid("it isn't a compose component's".to_owned()));
        };
        parameters::check(parameters)?;
        let (lock, bytes) = self.fetch(component, from)?;
        let archive = Archive::read(&bytes, &Limits::default()).map_err(|error| invalid(error_chain(&error)))?;
        compose::check(&archive).map_err(invalid)?;
        let redactor = Redactor::of(component);
        let staging = Staging::new(&self.settings.cache_dir, &component.project, &archive)?;
        let mut resolved = self.resolve(component, parameters, &staging, &redactor, cancel)?;
        let files = Project::new(&self.settings.projects_dir, &component.project).files();
        resolved.rebase(Path::new(sandbox::DIRECTORY), &files);
        let content = lock.content;
        let (component, first_use) = (component.clone(), BTreeMap::new());
        let mut prepared = Prepared { component, content, archive, resolved, redactor, first_use };
        self.check_resolved(&prepared, &files)?;
        self.label(&mut prepared, &files);
        Ok(prepared)
    }

    /// The archive's bytes, from the cache or from the registry; with a lock and a full cache nothing is asked.
    fn fetch(&self, component: &Component, from: Source) -> Result<(Lock, Vec<u8>), RuntimeError> {
        let what = what(component);
        let reference = Reference::parse(&component.repository, &component.revision)
            .map_err(|error| RuntimeError::ArtifactInvalid { what: what.clone(), reason: error.to_string() })?;
        let failed = |error| registry_error(what.clone(), error);
        let not_here = || RuntimeError::NotHere { what: what.clone() };
        if component.lock.is_none() && from == Source::Here {
            return Err(not_here());
        }
        let lock = component.lock.map_or_else(|| self.registry.resolve(&reference), Ok).map_err(failed)?;
        let cache_error = files_failed("use the cache", &self.settings.cache_dir);
        if let Some(bytes) = self.cache.get(&lock.content).map_err(&cache_error)? {
            return Ok((lock, bytes));
        }
        if from == Source::Here {
            return Err(not_here());
        }
        let bytes = self.registry.pull(&reference, Some(&lock)).map_err(failed)?;
        self.cache.put(&bytes).map_err(cache_error)?;
        Ok((lock, bytes))
    }

    fn resolve(
        &self,
        component: &Component,
        parameters: &BTreeMap<String, String>,
        staging: &Staging,
        redactor: &Redactor,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Resolved, RuntimeError> {
        let confinement = self.sandbox.confinement()?;
        let (program, first) = docker::resolving(&self.settings, &self.compose());
        let directory = Path::new(sandbox::DIRECTORY);
        let env_file = if staging.0.join(".env").exists() { directory.join(".env") } else { "/dev/null".into() };
        let mut args = self.sandbox.arguments(confinement, Some(&staging.0), &program);
        args.extend(first);
        args.extend(docker::options(
            &component.project,
            Some((&directory.join(Archive::COMPOSE), directory, &env_file)),
        ));
        args.extend(["config", "--format", "json"].map(OsString::from));
        let parameters: Vec<_> = parameters.iter().map(|(name, value)| (&**name, &**value)).collect();
        let call = Call { args, timeout: QUERY, redactor, parameters: &parameters, cancel };
        let resolver = docker::resolver(&self.settings, self.sandbox.program());
        let invalid = |reason| RuntimeError::ArtifactInvalid { what: what(component), reason };
        let output = resolver.try_run(call).map_err(|error| bounds::too_large(sandbox::not_started(error), invalid))?;
        if !output.status.success() {
            return Err(unusable(&output).unwrap_or_else(|| invalid(refusal(&output, confinement))));
        }
        let resolved = Resolved::parse(&output.stdout)
            .map_err(|error| invalid(format!("what compose resolved isn't JSON: {error}")))?;
        bounds::check(resolved.document(), output.stdout.len()).map_err(invalid)?;
        Ok(resolved)
    }

    fn check_resolved(&self, prepared: &Prepared, files: &Path) -> Result<(), RuntimeError> {
        let (component, resolved) = (&prepared.component, &prepared.resolved);
        let missing = resolved.missing_files(&prepared.archive, files).into_iter().next();
        let problem = match missing {
            _ if resolved.services().is_empty() => Some("it has no service".to_owned()),
            missing => missing.map(|file| format!("neither the archive nor the device has the file `{file}`")),
        };
        if let Some(reason) = problem {
            return Err(RuntimeError::ArtifactInvalid { what: what(component), reason });
        }
        let mut reasons = compose::violations(resolved.document());
        reasons.extend(privileges::denied(resolved, &self.policy(), &component.project, files));
        reasons.extend(mounts::denied(resolved, files));
        // An image's name becomes an argument of `docker pull`.
        let has_secret = |image: &&&str| prepared.redactor.finds(image);
        reasons.extend(resolved.images().iter().filter(has_secret).map(|_| "an image's name has a secret".to_owned()));
        let reasons: Vec<_> = reasons.iter().map(|reason| prepared.redactor.clean(reason)).collect();
        let project = component.project.clone();
        if reasons.is_empty() { Ok(()) } else { Err(RuntimeError::PolicyDenied { project, reasons }) }
    }

    fn label(&self, prepared: &mut Prepared, files: &Path) {
        let Prepared { component, archive, resolved, .. } = prepared;
        for service in resolved.services() {
            let digest = resolved.files_digest(&service, archive, files);
            let files_label = digest.map(|digest| (labels::FILES.to_owned(), labels::digest_value(&digest)));
            let ours = self.owner.labels(component.deployment, &component.component);
            resolved.label(&service, ours.into_iter().chain(files_label));
        }
    }
}

/// The archive's files where compose can read them; removed when dropped.
struct Staging(PathBuf);

#[allow(clippy::disallowed_methods, reason = "made anew each time, so nothing here needs to survive a power cut")]
impl Staging {
    fn new(cache_dir: &Path, project: &str, archive: &Archive) -> Result<Self, RuntimeError> {
        let staging = Self(cache_dir.join("staging").join(project));
        staging.fill(archive).map_err(files_failed("write the staging directory", &staging.0))?;
        Ok(staging)
    }

    fn fill(&self, archive: &Archive) -> io::Result<()> {
        self.remove();
        fs::create_dir_all(&self.0)?;
        // Open to the sandbox's user, which gets no further than here; above is what nobody else may enter.
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        open(&self.0, 0o755)?;
        for dir in archive.dirs() {
            fs::create_dir_all(self.0.join(dir))?;
            open(&self.0.join(dir), 0o755)?;
        }
        for (path, file) in archive.files() {
            fs::write(self.0.join(path), &file.bytes)?;
            open(&self.0.join(path), 0o644)?;
        }
        Ok(())
    }

    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The sandbox or Compose isn't there, so nothing was said of the files: docker knows no flag of a missing plugin.
fn unusable(output: &Output) -> Option<RuntimeError> {
    let is_missing = [sandbox::FAILED, sandbox::UNSUPPORTED].map(i32::from).contains(&output.status.code()?);
    is_missing.then(|| docker::DOCKER.unavailable(last_lines(&output.stderr, REASON), None))
}

/// Why Compose refuses the files, in its own words only where they can't be those of another file.
fn refusal(output: &Output, confinement: Confinement) -> String {
    let unquoted = match sandbox::quotable(&output.stderr) {
        Some(quotable) if confinement.is_closed() => {
            return format!("compose can't resolve it: {}", last_lines(&quotable, REASON));
        }
        Some(_) => "there is no sandbox on this device",
        None => "it names files that aren't the archive's",
    };
    format!(
        "compose can't resolve it, and what it says isn't told here, because {unquoted}; `docker compose config` \
        beside the archive's compose.yaml says it"
    )
}

/// The archive, for messages.
fn what(component: &Component) -> String {
    match component.revision.as_str() {
        // An archive by URL; its query may be a secret.
        "" => component.repository.split('?').next().unwrap_or_default().to_owned(),
        revision => format!("{}:{revision}", component.repository),
    }
}

fn registry_error(what: String, error: RegistryError) -> RuntimeError {
    match error {
        RegistryError::Invalid { reason, .. } => RuntimeError::ArtifactInvalid { what, reason },
        RegistryError::Changed { .. } => RuntimeError::ArtifactDigestChanged { what, reason: error.to_string() },
        error => RuntimeError::ArtifactUnavailable { what, reason: error.to_string(), source: Some(Box::new(error)) },
    }
}

#[cfg(test)]
mod docker_tests;
