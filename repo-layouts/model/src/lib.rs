//! The pure half of the contract: Margo documents, ids, digests, file trees and their encoding.
//!
//! Nothing here touches a file, a clock or the environment.
//!
//! Which module is which document:
//!
//! | | |
//! |---|---|
//! | `desired` | [`desired`] the tree, and whether it is believed · [`envelope`] `envelope.json` · [`margo::manifest`] Margo's manifest · [`margo::deployment`] its ApplicationDeployments · [`roster`] `trust/<n>.json` |
//! | `bundle` | [`bundle`] |
//! | `freshness` | [`freshness`] `freshness.json` |
//! | `status` | [`margo::status`] Margo's DeploymentStatus · [`report`] `syncer.json` · [`margo::capabilities`] DeviceCapabilities |
//! | `heartbeat` | [`report`] `current-state.json` · [`ask`] `answers/<number>.json` |
//! | `site` | [`site`] `site.json` |
//! | commits | [`message`] subjects and trailers · [`branch`] branches and who writes them |
//! | beside them | [`join`] the join file · [`enrolment`] how a device gets one from a host · [`margo::description`] an application's `margo.yaml` |
//!
//! What a reader must not ignore is a feature of [`envelope::FEATURES`], named in the envelope's `requires`: a reader that
//! doesn't know it refuses the state. A new key of that kind goes there; one that may be ignored is a key alone. How all of them
//! are read is in [`yaml`] (with positions) and [`json`].

pub mod answer;
pub mod ask;
pub mod branch;
pub mod bundle;
mod chain;
pub mod clock;
pub mod desired;
pub mod digest;
pub mod enrolment;
pub mod envelope;
mod few;
pub mod freshness;
pub mod gzip;
pub mod header;
pub mod ids;
pub mod join;
pub mod json;
pub mod key;
pub mod margo;
pub mod message;
pub mod problem;
pub mod report;
pub mod roster;
pub mod site;
mod ssh_url;
pub mod text;
pub mod tree;
pub mod value;
pub mod windows;
mod words;
pub mod yaml;

pub use branch::Branch;
pub use chain::error_chain;
pub use digest::Digest;
pub use few::{IntoMap, IntoSet, sort_few};
pub use ids::{ApplicationId, ComponentName, DeploymentId, DeploymentName, DeviceId, FleetId};
pub use key::KeyText;
pub use margo::ErrorCode;
pub use message::Trailer;
pub use ssh_url::{InvalidSshUrl, SshUrl};
pub use tree::FileTree;
