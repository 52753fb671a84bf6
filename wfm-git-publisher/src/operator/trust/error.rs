//! Why the roster can't be changed.

use std::path::PathBuf;

use repo_git::durable::FileError;
use repo_git::{KeyError, SignatureError};
use repo_model::roster::RosterError;

use wfm_git_host::accounts::AccountError;
use wfm_git_host::ca::CaError;

use crate::repos::{ControlError, HomeError, UnknownError};

/// The roster can't be proposed, signed or published, or its root key can't be moved.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot use the publisher's home")]
    Home(#[from] HomeError),
    #[error("cannot use the publisher's ledger")]
    Control(#[from] ControlError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot use a key")]
    Key(#[from] KeyError),
    /// What a person named is neither a key nor a file with one.
    #[error("`{name}` is no key that can be used")]
    NotAKey {
        name: String,
        #[source]
        source: KeyError,
    },
    /// Only a key that is listed can be named by its fingerprint.
    #[error("`{0}` is a fingerprint, and it takes the key itself")]
    Fingerprint(String),
    /// There is no such key to drop.
    #[error("roster {version} has no {role} {key}")]
    NotListed { role: &'static str, key: String, version: u64 },
    #[error("{key} is a {role} of roster {version} already")]
    Listed { role: &'static str, key: String, version: u64 },
    /// What would be proposed contradicts itself.
    #[error("that is no roster")]
    Roster(#[source] RosterError),
    /// Devices couldn't use what they would be told of the host.
    #[error("that is no {what} of a host: {problem}")]
    Host { what: &'static str, problem: String },
    /// The fleet's own host has no authority of ours.
    #[error("this home's host shows a certificate of its own files, and no authority of this fleet")]
    NoAuthority,
    /// The fleet's own authority can't be used.
    #[error("the host's authority can't be used")]
    Authority(#[from] CaError),
    /// There is nothing to switch to.
    #[error("there is no other authority to switch to")]
    NoOtherAuthority,
    /// Devices would be cut off.
    #[error("roster {version} doesn't name the authority in `{}`, so that devices wouldn't believe the host", path.display())]
    Unnamed { path: PathBuf, version: u64 },
    #[error("nobody would be left whom devices believe")]
    NoPublisher,
    #[error("the end {0} is in the past, or more than ten years away")]
    End(String),
    /// What would be proposed is what there is.
    #[error("that changes nothing of roster {version}")]
    NothingChanges { version: u64 },
    /// A proposal that somebody signed is given up only if a person says so.
    #[error("`{}` is proposed already, and {count} signatures of it would be lost", path.display())]
    Signed { path: PathBuf, count: usize },
    /// The next key is in the roster, and isn't this home's key yet.
    #[error("roster {version} is published only in part: `{}` isn't this home's key yet", path.display())]
    Unfinished { path: PathBuf, version: u64 },
    #[error("no roster is proposed after version {version}")]
    NoProposal { version: u64 },
    #[error("the proposed roster can't be used")]
    Proposal(#[source] RosterError),
    #[error("`{}` is no signature of the proposed roster", path.display())]
    Signature {
        path: PathBuf,
        #[source]
        source: SignatureError,
    },
    /// Who signed has nothing to say.
    #[error("{key} is a root key neither of roster {before} nor of roster {proposed}")]
    NotARoot { key: String, before: u64, proposed: u64 },
    /// Too few signed, of the roots of the version before or of its own.
    #[error("the proposed roster can't be published")]
    Unproven(#[source] RosterError),
    /// `control.git` is signed by publishers.
    #[error("no key of this home is a publisher's, and only a publisher's signs `control.git`")]
    NoSigner,
    /// An emergency ends with another key of this home.
    #[error("roster {version} lists no new key of this home, with which it could go on")]
    NoNextKey { version: u64 },
    /// What was stolen or lost would go on counting.
    #[error("roster {version} drops no publisher's key: {} would go on counting", keys.join(", "))]
    NobodyDropped { version: u64, keys: Vec<String> },
    #[error("cannot end the accounts' secrets")]
    Accounts(#[from] AccountError),
    #[error("the roster is published, and what the keys of before signed can't be looked through")]
    Unknown(#[from] UnknownError),
    #[error("there is no root key at `{}`", path.display())]
    NoRootKey { path: PathBuf },
    #[error("`{}` has another key already", path.display())]
    OtherKey { path: PathBuf },
    #[error("`{}` is in the publisher's home, where a thief of one key has the other", path.display())]
    Inside { path: PathBuf },
    #[error("`{}` is no directory", path.display())]
    NoDirectory { path: PathBuf },
    /// What was written isn't what signs.
    #[error("`{}` can't be used as it was written", path.display())]
    Copy {
        path: PathBuf,
        #[source]
        source: KeyError,
    },
}

impl TrustError {
    /// What to do about it, by itself without its causes.
    pub(crate) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NotAKey { .. } => "name a line like `ssh-ed25519 AAAA…`, or a file that `ssh-keygen -t ed25519` made",
            Self::Fingerprint(_) => "give the line of its `.pub` file, or the name of that file",
            Self::NotListed { .. } => "`trust show` lists the keys with their fingerprints",
            Self::Host { what: "address", .. } => "for example https://wfm.example:8443/devices/{device}.git",
            Self::Host { .. } => "name files with one certificate or more each, in PEM",
            Self::NoAuthority => "name its authorities by --host-ca",
            Self::Authority(_) => "see what is said of it above, and try again",
            Self::NoOtherAuthority => "make one and tell devices of it: trust propose --new-authority",
            Self::Unnamed { .. } => {
                "publish a roster that names it first, and wait until devices have it: trust propose --new-authority"
            }
            Self::NoPublisher => "with --new-publisher this home gets another key",
            Self::End(_) => "give days, like 400, or a time, like 2027-12-31T00:00:00Z",
            Self::NothingChanges { .. } => {
                "say what is to change: --new-publisher, --add-root, --threshold and the like"
            }
            Self::Signed { .. } => "publish it first, or give it up with --anew",
            Self::Unfinished { .. } => "complete it: trust publish",
            Self::NoProposal { .. } => "propose one: trust propose",
            Self::Signature { .. } => "sign exactly this file: ssh-keygen -Y sign -n wfm-roster -f KEY FILE",
            Self::NotARoot { .. } => "`trust show` lists whose signatures are missing",
            Self::Unproven(RosterError::Own { .. }) => {
                "have the other keys of its own roots sign, with trust sign: a root key that can't sign now could never \
                 sign the version after"
            }
            Self::Unproven(_) => "have the other root keys sign, with trust sign; `trust show` lists whose are missing",
            Self::NoSigner => {
                "restore keys/publisher from a backup, or propose a new one: trust propose --new-publisher"
            }
            Self::NoNextKey { .. } | Self::NobodyDropped { .. } => {
                "propose it anew: trust propose --new-publisher --drop-publisher KEY; without an emergency it is `trust publish` \
                 alone"
            }
            Self::NoRootKey { .. } => "it was moved before: nothing is left to do here",
            Self::OtherKey { .. } => "name another directory for this fleet's key",
            Self::Inside { .. } => "name a directory of a medium that you take away",
            Self::NoDirectory { .. } => "mount the medium, and name a directory on it",
            Self::Copy { .. } => {
                "the root key is still in the home; a file system without owners (FAT) keeps no key secret: take ext4"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
