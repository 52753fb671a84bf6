//! From a component to a verified chart in the cache.

use repo_artifacts::{Chart, ChartReference, RegistryError};
use repo_model::error_chain;

use super::{HelmRuntime, Prepared};
use crate::decision::component::Component;
use crate::runtimes::{Redactor, RuntimeError, Source, files_failed};

impl HelmRuntime {
    /// Everything before the first effect; with a lock and a full cache nobody is asked.
    pub(super) fn prepare(&self, component: &Component, from: Source) -> Result<Prepared, RuntimeError> {
        let reference = reference(component)?;
        let what = reference.to_string();
        let failed = |error| failure(what.clone(), error);
        let not_here = || RuntimeError::NotHere { what: what.clone() };
        if component.lock.is_none() && from == Source::Here {
            return Err(not_here());
        }
        let lock = component.lock.map_or_else(|| self.registry.resolve_chart(&reference), Ok).map_err(failed)?;
        let cache_error = files_failed("use the cache", &self.settings.cache_dir);
        let bytes = match self.cache.get(&lock.content).map_err(&cache_error)? {
            Some(bytes) => bytes,
            None if from == Source::Here => return Err(not_here()),
            None => {
                let bytes = self.registry.pull_chart(&reference, Some(&lock)).map_err(failed)?;
                self.cache.put(&bytes).map_err(cache_error)?;
                bytes
            }
        };
        let invalid = |reason: String| RuntimeError::ArtifactInvalid { what: what.clone(), reason };
        Chart::read(&bytes).map_err(|error| invalid(error_chain(&error)))?;
        Ok(Prepared {
            component: component.clone(),
            content: lock.content,
            redactor: Redactor::of(component),
            is_admitted: false,
        })
    }
}

/// A chart in a chart repository has the component's name.
pub(super) fn reference(component: &Component) -> Result<ChartReference, RuntimeError> {
    let Component { repository, revision, component: name, .. } = component;
    let reference = match repository.starts_with("oci://") {
        true => ChartReference::oci(repository, revision),
        false => ChartReference::repository(repository, name.as_str(), revision),
    };
    let what = || format!("{repository}:{revision}");
    reference.map_err(|error| RuntimeError::ArtifactInvalid { what: what(), reason: error.to_string() })
}

fn failure(what: String, error: RegistryError) -> RuntimeError {
    match error {
        RegistryError::Invalid { reason, .. } => RuntimeError::ArtifactInvalid { what, reason },
        RegistryError::Changed { .. } => RuntimeError::ArtifactDigestChanged { what, reason: error.to_string() },
        error => RuntimeError::ArtifactUnavailable { what, reason: error.to_string(), source: Some(Box::new(error)) },
    }
}
