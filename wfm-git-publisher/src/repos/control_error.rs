//! What can be wrong with `control.git`.

use repo_git::repo::RenewError;
use repo_git::{
    BatchError, CommitId, ConsolidateError, LockError, OpenError, ReadError, RecoverError, RefError, TreeError,
};
use repo_model::roster::RosterError;

use super::home::HomeError;

/// The ledger can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The home isn't there or can't be used.
    #[error("cannot use the publisher's home")]
    Home(#[from] HomeError),
    #[error("cannot open `control.git`")]
    Open(#[from] OpenError),
    /// It is being written by someone else.
    #[error("cannot lock `control.git`")]
    Lock(#[from] LockError),
    /// What a crash left behind can't be cleared.
    #[error("cannot clean `control.git` up")]
    Recover(#[from] RecoverError),
    #[error("cannot read the tip of `control.git`")]
    Read(#[from] ReadError),
    #[error("cannot read the files of `control.git`")]
    Tree(#[from] TreeError),
    /// A file in it isn't what it should be.
    #[error("`{path}` in `control.git` can't be read")]
    File {
        path: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the roster in `control.git` can't be believed")]
    Roster(#[from] RosterError),
    #[error("`control.git` holds no roster `{0}`")]
    NoRoster(String),
    /// It is lost, and nothing tells what it held.
    #[error("`control.git` is lost, and no device's repository has a tip that this publisher signed")]
    NothingToRebuild,
    /// Its tip isn't signed by this publisher.
    #[error("the tip {tip} of `control.git` is not signed by a publisher of this fleet")]
    Foreign { tip: CommitId },
    #[error("cannot store a commit in `control.git`")]
    Store(#[from] BatchError),
    #[error("cannot move the branch of `control.git`")]
    Move(#[from] RefError),
    /// Its packs can't be put together.
    #[error("cannot consolidate `control.git`")]
    Consolidate(#[from] ConsolidateError),
    /// A damaged one can't be replaced.
    #[error("cannot make `control.git` anew")]
    Renew(#[from] RenewError),
}

impl ControlError {
    /// Whether what it held can't be read any more, so that it is made anew: not what somebody else wrote, and not what
    /// the disk refuses to take.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Home(HomeError::NoLedger { .. }) | Self::NoRoster(_) => true,
            Self::Open(error) => matches!(error, OpenError::NotARepository { .. }),
            Self::Read(error) | Self::Consolidate(ConsolidateError::Read(error)) => error.is_damage(),
            Self::Tree(error) => error.is_damage(),
            _ => false,
        }
    }
}
