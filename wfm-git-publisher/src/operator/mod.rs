//! What changes the operators' own repository: a new fleet, a new device, a device's key, one that waits, missing ids,
//! application packages, deployments. And the roster, which is the roots' word; old epochs that leave the host; and asking the
//! fleet's host from a clone.
//!
//! Text that people wrote keeps its comments: an edit touches a few lines and is checked by reading the result. Commits
//! are made with stock `git`, so that hooks, signing and identity are the operator's own.

mod add;
mod add_many;
mod allow;
mod allowed_signers;
pub mod app;
mod approve;
mod approve_alone;
mod approve_batch;
mod approve_device;
mod approve_rekey;
mod archive;
mod ask;
mod batch;
mod clones;
pub mod deploy;
mod device_file;
mod edit;
mod enroll;
mod fix;
mod fleet_host;
mod init;
mod join;
mod label;
mod offer;
mod reminders;
mod retire;
mod rollout;
mod secrets;
mod signers;
mod tokens;
pub mod trust;

pub use add::{AddError, Added, add, rejoin};
pub use add_many::{AddedOne, add_many};
pub use allow::{AllowError, AllowanceSaid, allow};
pub use approve::{ApproveError, Approved, Approving, approve};
pub use approve_alone::{Alone, approve_alone};
pub use approve_batch::{BatchApproval, BatchWord, TakenIn, approve_batch};
pub use approve_device::{ApproveDeviceError, DeviceApproval, Word, approve_device, conflict};
pub use approve_rekey::{RekeyWord, approve_rekey, rekey_note};
pub use archive::{ArchiveError, Archiving, DeviceArchived, archive};
pub use ask::{AskError, AskedDevice, ask};
pub use batch::{Batch, Candidate, counts, waiting_with};
pub use clones::{ClonesError, restore_clones};
pub use device_file::DeviceFileError;
pub use enroll::{EnrollError, Enrolled, Lines, enroll};
pub use fix::{Fix, FixError, fix};
pub use fleet_host::{API, API_VERSION, Answer, FleetHost, FleetHostError, LoggedIn, OPENAPI_PATH};
pub use init::{InitError, InitOptions, Made, SKELETON, init};
pub use join::{JoinError, Over, Reach, write_join};
pub use label::{LabelChanges, LabelError, Labelled, label};
pub use offer::{OfferError, offer};
pub use reminders::{key_ends, moving, reminders};
pub use retire::{RetireError, RetiredDevice, retire};
pub use rollout::{RolloutSaid, RolloutWord, RolloutWordError, say};
pub use secrets::{GivenSecret, SecretError, SecretGiven, set_secret};
pub use signers::{FirstSigner, SignersError, init_signers};
pub use tokens::{NewToken, TokenError, TokenMade, create_token, revoke_token};
