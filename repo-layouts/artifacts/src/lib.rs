//! Compose archives (Margo, *Compose archive*): packing, checking, and moving them to and from OCI registries, or from
//! where a URL says.
//!
//! An archive lives in memory from its verified bytes to the checked files, so a bad one never touches a disk.
//! Blocking: the little asynchronous part has its own runtime inside.

mod archive;
mod download;
mod pack;
mod reference;
mod registry;

pub use archive::{Archive, ArchiveError, File, Limits};
pub use pack::{PackError, pack};
pub use reference::{InvalidReference, Reference};
pub use registry::{Registry, RegistryError, Settings};
pub use repo_model::envelope::Lock;

/// `artifactType` of the manifest.
pub const ARTIFACT_TYPE: &str = "application/vnd.org.margo.component.compose+json";
/// Media type of its one layer.
pub const LAYER_TYPE: &str = "application/vnd.org.margo.component.compose.tar+gzip";
