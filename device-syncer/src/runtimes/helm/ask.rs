//! What a person asks of helm: its version, whether the API server answers, and whether a registry lets the device in.

use repo_artifacts::{ChartReference, Reference};

use super::HelmRuntime;
use crate::decision::component::Component;
use crate::runtimes::RuntimeError;
use crate::runtimes::helm::chart;

impl HelmRuntime {
    /// The version, once the API server answers.
    pub fn answers(&self) -> Result<String, RuntimeError> {
        let version = self.helm_version()?.to_owned();
        self.helm.ask(&["list", "--max", "1", "--short"])?;
        Ok(version)
    }

    /// Where a component's chart is asked for: mirrors, and its registry; nowhere where it isn't in one.
    pub fn places_of(&self, component: &Component) -> Vec<Reference> {
        match chart::reference(component) {
            Ok(ChartReference::Oci(reference)) => self.registry.places(&reference),
            _ => Vec::new(),
        }
    }

    /// Whether this place has a component's chart for this device.
    pub fn ask_at(&self, place: &Reference, component: &Component) -> Result<(), String> {
        let found = self.registry.resolve_at(place, component.lock.as_ref());
        found.map(drop).map_err(|error| repo_model::error_chain(&error))
    }
}
