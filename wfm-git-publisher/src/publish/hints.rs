//! What to do about what keeps something from being published.

use std::error::Error;

use repo_git::remote::SshProblem;
use repo_git::{OpenError, RemoteError};
use repo_http::{HttpError, Problem};
use repo_model::roster::RosterError;
use wfm_git_host::accounts::{AccountError, Malformed};

use super::error::{ClockError, DeviceError, PublishError};
use super::locks::{NewKey, ResolveError};
use crate::mirror::MirrorError;
use crate::render::ArtifactKind;
use crate::repos::{
    ControlError, CoverageError, DeviceRepoError, GitError, HomeError, ProvisionError, RemoteRepoError, SourceError,
};

/// The hint for the innermost cause of an error that has one.
pub(super) fn innermost_hint(error: &(dyn Error + 'static)) -> Option<String> {
    error.source().and_then(innermost_hint).or_else(|| hint(error))
}

fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// What to do about an error of a pass, by itself without its causes; `None` where nothing can be said.
pub(crate) fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    let error = match error.downcast_ref() {
        Some(DeviceError::Guarded(guarded)) => return Some(guarded.hint()),
        Some(DeviceError::Repo(error)) => error as &(dyn Error + 'static),
        _ => error,
    };
    let text = if let Some(PublishError::KeyNotAllowed { .. }) = error.downcast_ref() {
        "`trust show` lists the keys that are; if this home was given a new one, complete that: trust publish"
            .to_owned()
    } else if let Some(ControlError::Roster(RosterError::Own { .. })) = error.downcast_ref() {
        "take the commit that brought it off `control.git` again, and have its own roots sign, too: trust propose, trust sign"
            .to_owned()
    } else if let Some(error) = error.downcast_ref::<HomeError>() {
        match error {
            HomeError::Missing { .. } => {
                "make a fleet with `init`, or name the home with --home; a clone of a hosted fleet asks its host after `login`"
                    .to_owned()
            }
            HomeError::NoLedger { .. } => "`publish` rebuilds it from the devices' repositories".to_owned(),
            HomeError::Busy { .. } => "wait for it, or stop it".to_owned(),
            HomeError::Operator { .. } => "write one `ssh-ed25519 AAAA…` a line".to_owned(),
            _ => return None,
        }
    } else if let Some(error) = error.downcast_ref::<SourceError>() {
        match error {
            SourceError::Open(OpenError::NotARepository { path, .. }) if path.ends_with("fleet.git") => {
                format!("make it: git clone --bare <the fleet's directory> {}", path.display())
            }
            SourceError::Open(_) => "go to the fleet's directory, or name it with -C".to_owned(),
            SourceError::NoSuchRevision { rev } if rev == "HEAD" => "commit the fleet first".to_owned(),
            _ => return None,
        }
    } else if let Some(DeviceRepoError::Foreign { .. } | DeviceRepoError::Unverified { .. }) = error.downcast_ref() {
        "find out who wrote it (`git log --show-signature desired` in the device's repository); then \
         `publish --reclaim DEVICE` puts it right"
            .to_owned()
    } else if error.is::<ProvisionError>() {
        "run it by hand with what `provision` in publisher.yaml says; it runs again with the next `publish`".to_owned()
    } else if let Some(MirrorError::Raced { .. }) = error.downcast_ref() {
        "run `publish` again; let one publisher only follow a fleet".to_owned()
    } else if let Some(error) = error.downcast_ref::<RemoteRepoError>() {
        return match error.remote() {
            Some(RemoteError::SshProgram(error)) => ssh_hint(&error.problem),
            _ => error.http().and_then(http_hint),
        };
    } else if let Some(PublishError::OtherFleet { .. }) = error.downcast_ref() {
        "put the old id back, or name the right home with --home".to_owned()
    } else if let Some(error) = error.downcast_ref::<ControlError>() {
        match error {
            ControlError::Foreign { .. } | ControlError::NothingToRebuild | ControlError::File { .. } => {
                "restore `control.git` from a backup".to_owned()
            }
            error if error.is_lost() => {
                "`publish` rebuilds it from what of it can be read and from the devices' repositories".to_owned()
            }
            _ => return None,
        }
    } else if let Some(error) = error.downcast_ref::<DeviceRepoError>().filter(|error| error.is_damage()) {
        match error {
            DeviceRepoError::Unrepaired { .. } => "look at the disk of the publisher's home".to_owned(),
            _ => "`publish` sets it aside and makes it anew from what can be read and from the fleet".to_owned(),
        }
    } else if let Some(error) = error.downcast_ref::<Box<CoverageError>>() {
        match error.as_ref() {
            CoverageError::NotCovered(error) => error.hint(),
            CoverageError::NoBase { .. } => {
                "bring it back: push it, or a branch that goes on from it, from a clone that has it".to_owned()
            }
            CoverageError::Source(_) => return None,
        }
    } else if let Some(GitError::Spawn(_)) = error.downcast_ref() {
        "install git".to_owned()
    } else if error.downcast_ref::<std::io::Error>().is_some_and(is_disk_full) {
        "disk-full: make room on the disk of the publisher's home, and do it again; what was published stays".to_owned()
    } else if error.is::<ClockError>() {
        "put it right (`timedatectl`); if it is right, say so: `publish --clock-is-right`".to_owned()
    } else if error.is::<NewKey>() {
        "ask the vendor by another way whether it is theirs; then `publish --allow-new-key`".to_owned()
    } else if let Some(ResolveError { artifact, .. }) = error.downcast_ref() {
        let text = match artifact.kind {
            ArtifactKind::Archive if artifact.revision.is_empty() => "correct `packageLocation` in its margo.yaml",
            ArtifactKind::Archive => {
                "push it with `app push`, or correct `repository` and `revision` in its margo.yaml"
            }
            ArtifactKind::SignedArchive(_) => {
                "correct `packageLocation` and `keyLocation` in its margo.yaml, or ask its vendor"
            }
            ArtifactKind::Contents { .. } => {
                "its registry has to answer once, because a compose archive names the images that are locked with it"
            }
            ArtifactKind::Image(_) => {
                "push it, or correct its name in the compose file; if this publisher can't reach its registry, say \
                 `images: {lockedByDevices: […]}` in fleet.yaml: devices lock it when they first use it then"
            }
            ArtifactKind::Chart => "push it with `helm push`, or correct `repository` and `revision` in its margo.yaml",
            ArtifactKind::NamedChart(_) => {
                "correct `repository`, `revision` and the component's name in its margo.yaml"
            }
        };
        text.to_owned()
    } else {
        return account_hint(error);
    };
    Some(text)
}

fn http_hint(error: &HttpError) -> Option<String> {
    let text = match &error.problem {
        Problem::Status { status: 401 | 403, .. } => {
            "check the account under `remote` in publisher.yaml, and its rights"
        }
        Problem::Status { status: 404, .. } => {
            "make the repository at the host, or give the account the right to see it"
        }
        Problem::Certificate(_) => "name the host's authority with `caFile` under `remote` in publisher.yaml",
        Problem::Redirect { .. } => "write the new address into publisher.yaml: a redirect may lead anywhere",
        _ => return None,
    };
    Some(text.to_owned())
}

fn ssh_hint(problem: &SshProblem) -> Option<String> {
    let text = match problem {
        SshProblem::NoProgram { .. } | SshProblem::NotStarted { .. } => {
            "install OpenSSH's client (openssh-client), or name another program with `sshCommand` under `remote` in publisher.yaml"
        }
        SshProblem::HostKeyUnknown { .. } => {
            "compare the host's key with what its operator tells (`ssh-keyscan HOST | ssh-keygen -lf -`), and add it to known_hosts"
        }
        SshProblem::HostKeyChanged { .. } => {
            "ask the host's operator whether the key is new; only then `ssh-keygen -R HOST`, and add the new one to known_hosts"
        }
        SshProblem::KeyRefused { .. } => {
            "give the host the publisher's public key; which one is offered, says `ssh -v` or `identityFile` under `remote` in publisher.yaml"
        }
        SshProblem::Answer { .. } => {
            "make the repository at the host, or give the account the right to it; `provision` under `remote` in publisher.yaml can do both"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn account_hint(error: &(dyn Error + 'static)) -> Option<String> {
    Some(match error.downcast_ref::<AccountError>()? {
        AccountError::Exists(name) => format!("give it a new secret: account rotate {name}"),
        AccountError::None(_) => "see `account list`".to_owned(),
        AccountError::Revoked(name) => format!("make it anew: account add {name} --role …"),
        AccountError::Taken { .. } => "choose another id for the device".to_owned(),
        AccountError::Malformed { source: Malformed::Exposed(_), .. } => "it is denied until then".to_owned(),
        AccountError::Malformed { .. } => "it is denied already; restore the file, or remove it".to_owned(),
        _ => return None,
    })
}
