//! From errors to what a person reads: one message, its causes, a hint, and an exit code.

use std::error::Error;

use repo_git::KeyError;
use repo_model::problem::{Problem, Problems};
use repo_model::text;
use wfm_git_host::ca::CaError;
use wfm_git_host::ssh::{SocketError, SshdError};

use crate::config::ConfigError;
use crate::operator::app::AppError;
use crate::operator::deploy::DeployError;
use crate::operator::trust::TrustError;
use crate::operator::{
    AddError, AllowError, ApproveDeviceError, ApproveError, AskError, ClonesError, DeviceFileError, EnrollError,
    FleetHostError, InitError, JoinError, LabelError, RetireError, RolloutWordError, SecretError, SignersError,
    TokenError,
};
use crate::publish::{self, PublishError};
use crate::repos::HomeError;

/// A person or a setting has to change.
pub const USER: u8 = 1;

/// The command line can't be understood.
pub const USAGE: u8 = 2;

pub const DIFFERENCES: u8 = 3;

/// Something is wrong with this program or this machine.
pub const INTERNAL: u8 = 70;

/// An error ready to be printed. Whatever strangers wrote in it can't be taken for a line of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub exit: u8,
    /// Whether what was asked for by its name isn't there.
    pub is_missing: bool,
    /// Whether the publisher's home isn't there.
    pub needs_home: bool,
    message: String,
    causes: Vec<(String, Option<String>)>,
    hint: Option<String>,
}

impl Failure {
    /// A failure without an error behind it.
    pub fn new(message: impl Into<String>) -> Self {
        let message = message.into();
        Self { exit: USER, is_missing: false, needs_home: false, message, causes: Vec::new(), hint: None }
    }

    /// The failure to find what was asked for by its name.
    pub fn missing(message: impl Into<String>) -> Self {
        Self { is_missing: true, ..Self::new(message) }
    }

    /// The same, with what to do about it.
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

    /// What is wrong and why, in one line.
    pub fn in_line(&self) -> String {
        let causes = self.causes.iter().map(|(cause, _)| cause);
        let all: Vec<_> = std::iter::once(&self.message).chain(causes).map(|one| text::line(one)).collect();
        all.join(": ")
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
            failure.needs_home |= matches!(error.downcast_ref(), Some(HomeError::Missing { .. }));
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
    if let Some(error) = error.downcast_ref::<AppError>() {
        return error.problems();
    }
    if let Some(AskError::File(DeviceFileError::Device { problems, .. })) = error.downcast_ref() {
        return Some(problems);
    }
    if let Some(LabelError::Labels(problems) | LabelError::File(DeviceFileError::Device { problems, .. })) =
        error.downcast_ref()
    {
        return Some(problems);
    }
    match (error.downcast_ref(), error.downcast_ref(), error.downcast_ref(), error.downcast_ref()) {
        (Some(PublishError::Fleet(problems)), ..) => Some(problems),
        (_, Some(AddError::Device { problems, .. } | AddError::List(problems)), ..) => Some(problems),
        (_, _, Some(EnrollError::File(DeviceFileError::Device { problems, .. })), _) => Some(problems),
        (.., Some(ConfigError::Problems(problems))) => Some(problems),
        _ => match error.downcast_ref() {
            Some(ApproveDeviceError::Device { problems, .. }) => Some(problems),
            _ => match (error.downcast_ref(), error.downcast_ref()) {
                (Some(TokenError::Problems(problems)), _)
                | (_, Some(RetireError::File(DeviceFileError::Device { problems, .. }))) => Some(problems),
                _ => match (error.downcast_ref(), error.downcast_ref()) {
                    (Some(RolloutWordError::Unreadable { problems, .. }), _)
                    | (_, Some(SecretError::Fleet(problems))) => Some(problems),
                    _ => None,
                },
            },
        },
    }
}

/// What to do about an error.
fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(InitError::Exists { .. }) = error.downcast_ref() {
        return Some("choose a new directory".to_owned());
    }
    if let (Some(ApproveError::Tag { .. }), _) | (_, Some(SignersError::NoKey)) =
        (error.downcast_ref(), error.downcast_ref())
    {
        let text = "name it with --key FILE, or once for all: git config user.signingKey ~/.ssh/id_ed25519.pub";
        return Some(text.to_owned());
    }
    if let Some(ApproveError::Signature { .. }) = error.downcast_ref() {
        return Some("sign with an ssh-ed25519 key: ssh-keygen -t ed25519".to_owned());
    }
    if let Some(ApproveError::Push { .. }) = error.downcast_ref() {
        return Some("say it again when that works; what is signed stays".to_owned());
    }
    if let Some(error) = error.downcast_ref::<TrustError>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<AppError>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<ClonesError>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<DeployError>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<SecretError>() {
        return error.hint();
    }
    let others = || {
        add_hint(error)
            .or_else(|| join_hint(error))
            .or_else(|| enroll_hint(error))
            .or_else(|| retire_hint(error))
            .or_else(|| label_hint(error))
            .or_else(|| ask_hint(error))
            .or_else(|| allow_hint(error))
            .or_else(|| rollout_hint(error))
            .or_else(|| approve_device_hint(error))
            .or_else(|| token_hint(error))
            .or_else(|| fleet_host_hint(error))
    };
    publish::hint(error).or_else(others).or_else(|| host_hint(error))
}

fn add_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        AddError::Exists { file, .. } => Some(format!("change the labels in {file}, and leave --label out here")),
        AddError::Taken { file, .. } => Some(format!("move {file} away, its name means nothing")),
        AddError::NoDevice(device) => Some(format!("add it first: device add {device}")),
        _ => None,
    }
}

fn join_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref::<Box<JoinError>>().map(Box::as_ref)? {
        JoinError::NoSsh => Some("write `ssh: {listen: 0.0.0.0:2222}` below `serve:` in publisher.yaml".to_owned()),
        JoinError::NoHostKeys => Some(
            "for another host write `hostKeys:` below `remote:` in publisher.yaml; for an sshd in front of this one put its \
             keys as `.pub` files into the home's `ssh` folder"
                .to_owned(),
        ),
        _ => None,
    }
}

fn host_hint(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(ConfigError::NoHost) = error.downcast_ref() {
        return Some("write `serve:` with `names:` into publisher.yaml in the publisher's home".to_owned());
    }
    if let Some(error) = error.downcast_ref() {
        return ssh_hint(error);
    }
    if let Some(SocketError::Closed { .. }) = error.downcast_ref() {
        let place = "outside the publisher's home, such as /run/wfm-git-publisher/host.sock";
        return Some(format!("set `serve: ssh: socket:` in publisher.yaml to a place {place}"));
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

fn fleet_host_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        FleetHostError::NoOrigin => Some("name the host: login https://name[:port]".to_owned()),
        FleetHostError::OtherHost { .. } => Some("work in a clone of the fleet that is hosted there".to_owned()),
        FleetHostError::NoCredential { .. } => {
            Some("log in with --user NAME --secret-file FILE, or where git can ask you".to_owned())
        }
        FleetHostError::Unauthorized { .. } => {
            Some("log in again, with the account's newest secret: login --user NAME --secret-file FILE".to_owned())
        }
        FleetHostError::NoInterface { .. } => {
            Some("it has to be wfm-git-publisher 0.3 or newer; else ask on its own machine".to_owned())
        }
        FleetHostError::Refused { retry_after: Some(seconds), .. } => Some(format!("ask again in {seconds} s")),
        _ => None,
    }
}

fn ssh_hint(error: &SshdError) -> Option<String> {
    match error {
        SshdError::None => Some("install it (Debian: openssh-server); its service needn't run".to_owned()),
        SshdError::Program { .. } => Some(
            "install this program where only root can write, such as /usr/local/bin, and start it from there"
                .to_owned(),
        ),
        SshdError::Path(_) => Some("move it, or set `serve: ssh: socket:` in publisher.yaml".to_owned()),
        SshdError::Shell { user, .. } => Some(format!("usermod --shell /bin/sh {user}")),
        SshdError::Io { .. } | SshdError::Refused { .. } => None,
    }
}

fn enroll_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        EnrollError::Key(_) => Some("it looks like `ssh-ed25519 AAAA… press-01`".to_owned()),
        EnrollError::SshKey(_) => Some("it looks like `ssh-ed25519 AAAA… press-01 ssh`".to_owned()),
        EnrollError::Certificate(_) => Some("it looks like `sha256:… press-01 tls`".to_owned()),
        EnrollError::NoHost => Some(
            "write `serve:` with `names:` into publisher.yaml in the publisher's home, or give the first line alone"
                .to_owned(),
        ),
        EnrollError::OtherCertificate { device, .. } => Some(format!(
            "if the device made a new key: `device enroll {device} - --replace`; the old one then counts no more"
        )),
        EnrollError::OneKey => Some("`device-syncer init` makes two: copy both lines".to_owned()),
        EnrollError::File(DeviceFileError::NoDevice(device)) => Some(format!("add it first: device add {device}")),
        EnrollError::OtherKey { device } => Some(format!(
            "if its disk or hardware is new: `device replace {device} CODE`, or `device enroll {device} LINE --replace`; the old keys \
             then count no more"
        )),
        EnrollError::Taken { .. } => Some(
            "copy the line that `device-syncer init` printed on this device; a cloned disk has to join anew".to_owned(),
        ),
        EnrollError::File(DeviceFileError::Dirty { .. }) => Some("commit or undo them first".to_owned()),
        EnrollError::Retired(_) => {
            Some("to take it into service again, take `retired` out of its file, commit that and publish".to_owned())
        }
        EnrollError::File(DeviceFileError::Edit { .. }) => {
            Some("write `statusKeys:` with the key yourself, and commit".to_owned())
        }
        _ => None,
    }
}

fn allow_hint(error: &(dyn Error + 'static)) -> Option<String> {
    let AllowError::Edited { file } = error.downcast_ref()? else { return None };
    Some(format!("take {file} away, or commit it under another name"))
}

fn rollout_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        RolloutWordError::Dirty { .. } => Some("commit or undo them first".to_owned()),
        RolloutWordError::Edit { key, .. } => Some(format!("write `{key}:` yourself, and commit")),
        _ => None,
    }
}

fn retire_hint(error: &(dyn Error + 'static)) -> Option<String> {
    let RetireError::File(error) = error.downcast_ref()? else { return None };
    device_file_hint(error)
}

fn ask_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        AskError::File(error) => device_file_hint(error),
        AskError::NoDeployment(_) => Some("a deployment's id stands in its file in deployments/".to_owned()),
    }
}

fn label_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        LabelError::Present { .. } => Some("to change it: --overwrite".to_owned()),
        LabelError::File(error) => device_file_hint(error),
        LabelError::Labels(_) | LabelError::Git(_) => None,
    }
}

fn device_file_hint(error: &DeviceFileError) -> Option<String> {
    match error {
        DeviceFileError::NoDevice(_) => Some("`device list` shows those that are committed".to_owned()),
        DeviceFileError::Dirty { .. } => Some("commit or undo them first".to_owned()),
        DeviceFileError::Edit { key, .. } => Some(format!("write `{key}:` yourself, and commit")),
        _ => None,
    }
}

fn approve_device_hint(error: &(dyn Error + 'static)) -> Option<String> {
    let anew = "on the device run `device-syncer enroll` (or `rekey`) again: it asks anew";
    match error.downcast_ref()? {
        ApproveDeviceError::NoCode(_) => Some(
            "read it from the device once more; a code lasts for an hour, then the device shows another one. If the device \
             shows this one now, it is another host that it talks to"
                .to_owned(),
        ),
        ApproveDeviceError::NoToken(_) => Some("`token list` shows those that are committed".to_owned()),
        ApproveDeviceError::Unexpected { .. } => Some(
            "`device pending` shows them; `device reject` turns away who isn't meant, and nobody was taken in".to_owned(),
        ),
        ApproveDeviceError::NoPlaces { .. } => Some(
            "`device pending` shows them; `device reject` turns away who isn't meant. If you don't know all of them, \
             somebody else has the token: `token revoke` ends it"
                .to_owned(),
        ),
        ApproveDeviceError::Rejected => Some(anew.to_owned()),
        ApproveDeviceError::NoNumber(_) => {
            Some("`device pending` shows the numbers; a device that shows a code is approved by that".to_owned())
        }
        ApproveDeviceError::OtherDevice { .. } => Some("`device pending` shows what waits now".to_owned()),
        ApproveDeviceError::Several { .. } => Some(
            "`device-syncer rekey` on the device shows which key is its own; `device reject NUMBER` turns away the others, and \
             whoever made them has the device's key: look for how"
                .to_owned(),
        ),
        ApproveDeviceError::OldKey { .. } => {
            Some("`device reject` turns it away; then `device-syncer rekey` on the device asks anew".to_owned())
        }
        ApproveDeviceError::OldRoster => Some(format!("open enrolments anew with `enroll open`; then {anew}")),
        ApproveDeviceError::Answered(device) => Some(format!("give --id {device}, which completes what was cut off")),
        ApproveDeviceError::Exists { file, .. } => Some(format!("change the labels in {file}, and leave --label out here")),
        ApproveDeviceError::Taken { file, .. } => Some(format!("move {file} away, its name means nothing")),
        _ => None,
    }
}

fn token_hint(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        TokenError::Exists { name, .. } => Some(format!("take another name; or end it first: token revoke {name}")),
        TokenError::Used { .. } => {
            Some("take another name: what those devices prove, they prove by its key".to_owned())
        }
        TokenError::OutExists { .. } => Some("take another name for the file, or move it away".to_owned()),
        TokenError::Dirty { .. } => Some("commit or undo them first".to_owned()),
        TokenError::NotHosted => Some("leave out --auto; a fleet is hosted here from `init --hosted` on".to_owned()),
        TokenError::NoToken(_) => Some("`token list` shows those that are committed".to_owned()),
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
             hint: make a fleet with `init`, or name the home with --home; a clone of a hosted fleet asks its host after `login`\n"
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
