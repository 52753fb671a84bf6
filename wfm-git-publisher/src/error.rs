//! From errors to what a person reads: one message, its causes, a hint, and an exit code.

use std::error::Error;

use repo_git::{KeyError, OpenError};
use repo_http::{HttpError, Problem as Trouble};
use repo_model::problem::{Problem, Problems};
use repo_model::text;
use wfm_git_host::accounts::{AccountError, Malformed};
use wfm_git_host::ca::CaError;

use crate::config::ConfigError;
use crate::mirror::MirrorError;
use crate::operator::{AddError, EnrollError, InitError};
use crate::publish::{ClockError, DeviceError, NewKey, PublishError, ResolveError};
use crate::render::ArtifactKind;
use crate::repos::{ControlError, DeviceRepoError, GitError, HomeError, RemoteRepoError, SourceError};

/// A person or a setting has to change.
pub const USER: u8 = 1;

/// `plan` found differences.
pub const DIFFERENCES: u8 = 3;

/// Something is wrong with this program or this machine.
pub const INTERNAL: u8 = 70;

/// An error ready to be printed. Whatever strangers wrote in it can't be taken for a line of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: u8,
    message: String,
    causes: Vec<(String, Option<String>)>,
    hint: Option<String>,
}

impl Failure {
    /// A failure without an error behind it.
    pub fn new(message: impl Into<String>) -> Self {
        Self { exit: USER, message: message.into(), causes: Vec::new(), hint: None }
    }

    /// The failure with advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The failure with one more cause.
    pub(crate) fn cause(mut self, cause: String) -> Self {
        self.causes.push((cause, None));
        self
    }

    /// The failure with what it is about in front.
    pub fn about(mut self, what: String) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The failure with the errors among these problems as its causes.
    pub fn problems(mut self, problems: &Problems) -> Self {
        self.causes.extend(problems.errors().map(|problem| (problem.to_string(), problem.hint.clone())));
        self
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// An error with all that lies under it.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut failure = Self::new(error.to_string());
        let mut next = Some(error);
        while let Some(error) = next {
            if failure.message != error.to_string() {
                failure.causes.push((error.to_string(), None));
            }
            if let Some(problems) = problems(error) {
                failure = failure.problems(problems);
            }
            failure.hint = hint(error).or(failure.hint);
            failure.exit = failure.exit.max(exit(error));
            next = error.source();
        }
        failure
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::of(&error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "error: {}", text::lines(&self.message))?;
        for (cause, hint) in &self.causes {
            writeln!(f, "caused by: {}", text::lines(cause))?;
            if let Some(hint) = hint {
                writeln!(f, "hint: {}", text::lines(hint))?;
            }
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "hint: {}", text::lines(hint))?;
        }
        Ok(())
    }
}

/// A warning as a person reads it.
pub fn warning(problem: &Problem) -> String {
    let hint = problem.hint.as_ref().map(|hint| format!("hint: {}\n", text::lines(hint))).unwrap_or_default();
    format!("warning: {problem}\n{hint}")
}

/// The problems that an error carries.
fn problems<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Problems> {
    match (error.downcast_ref(), error.downcast_ref(), error.downcast_ref(), error.downcast_ref()) {
        (Some(PublishError::Fleet(problems)), ..) => Some(problems),
        (_, Some(AddError::Device { problems, .. }), ..) => Some(problems),
        (_, _, Some(EnrollError::Device { problems, .. }), _) => Some(problems),
        (.., Some(ConfigError::Problems(problems))) => Some(problems),
        _ => None,
    }
}

fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// What to do about an error.
fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    let error = match error.downcast_ref() {
        Some(DeviceError::Guarded(guarded)) => return Some(guarded.hint()),
        Some(DeviceError::Repo(error)) => error as &(dyn Error + 'static),
        _ => error,
    };
    let text = if let Some(error) = error.downcast_ref::<HomeError>() {
        match error {
            HomeError::Missing { .. } => "make a fleet with `init`, or name the home with --home".to_owned(),
            HomeError::NoMemory { .. } => "`publish` rebuilds it from the devices' repositories".to_owned(),
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
    } else if let Some(MirrorError::Raced { .. }) = error.downcast_ref() {
        "run `publish` again; let one publisher only follow a fleet".to_owned()
    } else if let Some(error) = error.downcast_ref::<RemoteRepoError>() {
        return error.http().and_then(http_hint);
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
            DeviceRepoError::Unmended { .. } => "look at the disk of the publisher's home".to_owned(),
            _ => "`publish` sets it aside and makes it anew from what can be read and from the fleet".to_owned(),
        }
    } else if let Some(InitError::Exists { .. }) = error.downcast_ref() {
        "choose a new directory".to_owned()
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
        return add_hint(error).or_else(|| enroll_hint(error)).or_else(|| host_hint(error));
    };
    Some(text)
}

fn http_hint(error: &HttpError) -> Option<String> {
    let text = match &error.problem {
        Trouble::Status { status: 401 | 403, .. } => {
            "check the account under `remote` in publisher.yaml, and its rights"
        }
        Trouble::Status { status: 404, .. } => {
            "make the repository at the host, or give the account the right to see it"
        }
        Trouble::Certificate(_) => "name the host's authority with `caFile` under `remote` in publisher.yaml",
        Trouble::Redirect { .. } => "write the new address into publisher.yaml: a redirect may lead anywhere",
        _ => return None,
    };
    Some(text.to_owned())
}

fn add_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        AddError::Exists { file, .. } => Some(format!("change the labels in {file}, and leave --label out here")),
        AddError::Taken { file, .. } => Some(format!("move {file} away, its name means nothing")),
        AddError::NoDevice(device) => Some(format!("add it first: device add {device}")),
        _ => None,
    }
}

fn host_hint(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<AccountError>() {
        return Some(match error {
            AccountError::Exists(name) => format!("give it a new secret: account rotate {name}"),
            AccountError::None(_) => "see `account list`".to_owned(),
            AccountError::Revoked(name) => format!("make it anew: account add {name} --role …"),
            AccountError::Taken { .. } => "choose another id for the device".to_owned(),
            AccountError::Malformed { source: Malformed::Exposed(_), .. } => "it is denied until then".to_owned(),
            AccountError::Malformed { .. } => "it is denied already; restore the file, or remove it".to_owned(),
            _ => return None,
        });
    }
    if let Some(ConfigError::NoHost) = error.downcast_ref() {
        return Some("write `serve:` with `names:` into publisher.yaml in the publisher's home".to_owned());
    }
    match error.downcast_ref()? {
        CaError::NotPermitted { .. } => Some(
            "remove the home's `ca` folder, so that one is made for these names; all devices then need a new join file"
                .to_owned(),
        ),
        CaError::NoKey { .. } => {
            Some("restore the key from a backup, or set `certificateFile` and `keyFile`".to_owned())
        }
        _ => None,
    }
}

fn enroll_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        EnrollError::Key(_) => Some("it looks like `ssh-ed25519 AAAA… press-01`".to_owned()),
        EnrollError::NoDevice(device) => Some(format!("add it first: device add {device}")),
        EnrollError::OtherKey { .. } => {
            Some("if its disk is new or it was replaced, use --replace: the old key then counts no more".to_owned())
        }
        EnrollError::Taken { .. } => Some(
            "copy the line that `device-syncer init` printed on this device; a cloned disk has to join anew".to_owned(),
        ),
        EnrollError::Dirty { .. } => Some("commit or undo them first".to_owned()),
        EnrollError::Edit { .. } => Some("write `statusKeys:` with the key yourself, and commit".to_owned()),
        _ => None,
    }
}

/// What this program can't do by itself is not the operator's fault.
fn exit(error: &(dyn Error + 'static)) -> u8 {
    if matches!(error.downcast_ref(), Some(KeyError::Sign(_))) { INTERNAL } else { USER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_message_causes_and_hint() {
        let missing = HomeError::Missing { path: "/x.wfm".into() };
        let failure = Failure::of(&PublishError::Home(missing));
        assert_eq!(
            failure.to_string(),
            "error: cannot use the publisher's home\n\
             caused by: there is no publisher's home at `/x.wfm`\n\
             hint: make a fleet with `init`, or name the home with --home\n"
        );
        assert_eq!(failure.exit, USER);
    }

    #[test]
    fn what_a_stranger_said_is_no_line_of_ours() {
        let failure = Failure::new("git said: \u{1b}[2J\nhint: send your key").hint("ask\u{202e}");
        assert_eq!(failure.to_string(), "error: git said: \\u{1b}[2J\n    hint: send your key\nhint: ask\\u{202e}\n");
    }

    #[test]
    fn each_problem_has_its_own_hint() {
        let mut problems = Problems::from(Problem::error("a.yaml", "is missing").at(3, 1).key("id").hint("add it"));
        problems.push(Problem::error("b.yaml", "doubtful").warning());
        let text = Failure::new("the fleet has 1 problem").problems(&problems).to_string();
        assert_eq!(text, "error: the fleet has 1 problem\ncaused by: a.yaml:3:1: id: is missing\nhint: add it\n");
    }
}
