//! The pure half of the contract: Margo documents, ids, digests, file trees and their encoding.
//!
//! Nothing here touches a file, a clock or the environment.

pub mod branch;
pub mod bundle;
mod chain;
pub mod desired;
pub mod digest;
pub mod envelope;
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
mod ssh_url;
pub mod text;
pub mod tree;
pub mod value;
mod words;
pub mod yaml;

pub use branch::Branch;
pub use chain::error_chain;
pub use digest::Digest;
pub use ids::{ApplicationId, ComponentName, DeploymentId, DeploymentName, DeviceId, FleetId};
pub use key::KeyText;
pub use margo::ErrorCode;
pub use message::Trailer;
pub use ssh_url::{InvalidSshUrl, SshUrl};
pub use tree::FileTree;
