//! What a person asks of helm: its version, whether the API server answers, and whether a registry lets the device in.

use repo_artifacts::ChartReference;

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

    /// Whether the registry has a component's chart for this device; `None` where that isn't in a registry.
    pub fn ask_for_chart(&self, component: &Component) -> Option<(String, Result<(), String>)> {
        let reference = chart::reference(component).ok()?;
        let ChartReference::Oci(place) = &reference else { return None };
        let host = place.host().to_owned();
        Some((host, self.registry.resolve_chart(&reference).map(drop).map_err(|error| repo_model::error_chain(&error))))
    }
}
