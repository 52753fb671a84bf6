//! Margo's documents, typed: reading of both dialects, writing of `1.0.0-rc.3`.
//!
//! A reader takes what published examples do in the named ways of `repo-layouts/README.md` (*Two dialects*), per field
//! and not per file, and is strict in all others.

pub mod capabilities;
pub mod component;
pub mod configuration;
pub mod deployment;
mod deployment_yaml;
pub mod description;
pub mod error_code;
mod expression;
mod header;
pub mod helm_values;
pub mod manifest;
pub mod parameter;
mod profile_type;
pub mod requirements;
mod source;
pub mod status;

use std::collections::BTreeMap;

pub use capabilities::DeviceCapabilities;
pub use component::{Component, Source};
pub use deployment::ApplicationDeployment;
pub use description::ApplicationDescription;
pub use error_code::{ErrorCode, ReportedCode};
pub use header::Header;
pub use helm_values::HelmValues;
pub use manifest::StateManifest;
pub use parameter::{Parameter, Target};
pub use profile_type::ProfileType;
pub use requirements::Requirements;
pub use status::{DeploymentStatus, State};

/// Vendors' objects under keys `x-…-extensions`, carried unchanged.
pub type Extensions = BTreeMap<String, serde_json::Value>;
