//! What components are made of. Compose archives (Margo, *Compose archive*): packing, checking, and moving them to and
//! from OCI registries, or from where a URL says. Helm charts: from OCI registries and chart repositories.
//!
//! An archive lives in memory from its verified bytes to the checked files, so a bad one never touches a disk.

mod archive;
mod chart;
pub mod compose;
mod download;
mod images;
mod mirrors;
mod pack;
mod reference;
mod registry;
mod registry_settings;
mod yaml;

pub use archive::{Archive, ArchiveError, File, Limits, plain_files};
pub use chart::{Chart, ChartError, ChartReference, Entry};
pub use images::{ImageReference, Images, Variables};
pub use mirrors::{Mirror, Mirrors};
pub use pack::{PackError, pack};
pub use reference::{InvalidReference, Reference};
pub use registry::{ImageLayers, PackagePart, PackageReference, PulledPackage, Registry};
pub use registry_settings::{RegistryError, Settings};
pub use repo_model::envelope::Lock;

/// `artifactType` of a compose archive's manifest.
pub const ARTIFACT_TYPE: &str = "application/vnd.org.margo.component.compose+json";
/// Media type of its one layer.
pub const LAYER_TYPE: &str = "application/vnd.org.margo.component.compose.tar+gzip";
/// `artifactType` of an application package's manifest (Margo, *Application Registry*).
pub const PACKAGE_TYPE: &str = "application/vnd.margo.app.v1+json";
/// Media type of its layer with `margo.yaml`.
pub const PACKAGE_DESCRIPTION_TYPE: &str = "application/vnd.margo.app.description.v1+yaml";
/// Media type of the config of a chart's manifest (Helm, *OCI registries*).
pub const CHART_CONFIG_TYPE: &str = "application/vnd.cncf.helm.config.v1+json";
/// Media type of the layer with the chart.
pub const CHART_LAYER_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Media type of the layer with the chart's provenance file, which needn't be there.
pub const CHART_PROVENANCE_TYPE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
