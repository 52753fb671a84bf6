//! Reads, writes, syncs, signs, verifies and moves the repositories of the contract.
//!
//! The only crate that names gix. Its parts, from the disk upwards: [`durable`] is every synced operation on files, each
//! a named [`SyncPoint`](durable::SyncPoint); [`repo`] is one bare repository whose commits come in packs and whose refs
//! move by synced compare-and-swap; [`sign`] makes and checks the SSH signatures of commits and rosters, and [`age`]
//! encrypts to such keys; [`remote`] fetches within limits and pushes with an exact lease. Beside them, [`watch`] follows files
//! for whoever waits for a change.
//!
//! Where something new goes: a write that has to outlive a power cut is a point of [`durable`]; a way to reach a host is a
//! variant of the enum in [`remote`], with a module beside `https`, `ssh` and `ssh_program`; what every repository has to hold or
//! refuse is in [`repo`].
//!
//! Nothing here reads a clock, the environment (but for the crash tests' own feature, and what `git` and `ssh` as child
//! processes need of it) or the user's Git configuration.

pub mod age;
pub mod durable;
mod epoch;
mod id;
mod pack;
pub mod remote;
pub mod repo;
pub mod sign;
pub mod watch;

pub use epoch::epoch_commits;
pub use id::{BlobId, CommitId, InvalidId, TreeId};
#[cfg(feature = "ssh")]
pub use remote::ssh;
pub use remote::{
    BundleError, FetchError, FetchLimits, Fetched, PushError, PushResult, PushUpdate, Remote, RemoteError, Waited,
};
pub use repo::{
    Ancestry, Batch, BatchError, Commit, CommitSpec, ConsolidateError, DamagedRef, Entry, EntryKind, Expected,
    LockError, OpenError, Person, ReadError, RecoverError, Recovery, RefError, RefMove, Repo, RepoLock, TreeError,
    TreeLimits, TreeSource, WriteError,
};
pub use sign::{KeyError, PublicKey, SignatureError, SigningKey};

/// What lies under an error of the engine: its own chain of causes.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;
