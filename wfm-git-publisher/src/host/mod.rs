//! Everything outside the process: the fleet repository, the publisher's home, the devices' repositories.

mod charts;
mod control;
mod device;
mod exchange;
mod git;
mod heed;
mod home;
mod libgit2;
mod moves;
mod rebuild;
mod registry;
mod remote;
mod report;
mod rosters;
mod said;
mod source;
mod trailers;

pub use charts::Charts;
pub use control::{Control, ControlError, Entry, EntryState, Ledger, Published};
pub use device::{DeviceRepo, DeviceRepoError, DeviceWriter, Tip};
pub use git::{GitError, StockGit};
pub use heed::{BY_CAPABILITIES, Claim, MAX_LED};
pub(crate) use home::lock_dir;
pub use home::{Home, HomeError, HomeLock};
pub use libgit2::TransferError;
pub use registry::{ArtifactError, Registries, pack};
pub use remote::{RemoteRepo, RemoteRepoError, Remotes, RemotesError};
pub use report::{Checked, Heartbeat, Reports, Status};
pub use rosters::Rosters;
pub(crate) use rosters::key_text;
pub use said::Said;
pub(crate) use source::operator;
pub use source::{FleetRepo, SourceError, work_tree};
pub use trailers::{CONTROL, DESIRED, PUBLISHER, publisher};
