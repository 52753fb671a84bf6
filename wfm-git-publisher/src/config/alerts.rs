//! The section `alerts` of the publisher's settings: who is told what needs somebody.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use repo_http::{Source, Url};
use repo_model::yaml::{Field, Reader};

use super::remote;
use crate::duration;
use crate::words::words;

/// How often it is looked where nothing else is said.
const POLL: Duration = Duration::from_secs(60);

/// For how long something has to be so where nothing else is said: a deployment that is being replaced may fail for a moment.
const AFTER: Duration = Duration::from_secs(120);

/// How long a command may take where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest name of a receiver, which is a file's name, too.
const LONGEST: usize = 32;

/// Who is told, and how often it is looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    /// How often it is looked what fires.
    pub poll: Duration,
    pub receivers: BTreeMap<String, Receiver>,
}

/// Whom alerts are sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    pub to: To,
    /// The kinds of alerts that it is told of; empty: all.
    pub only: BTreeSet<AlertKind>,
    /// For how long something has to be so before it is told.
    pub after: Duration,
}

/// How alerts get to a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    Webhook(Webhook),
    Command(Command),
}

/// A URL that alerts are posted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub url: Url,
    /// What events are signed with, `whsec_…`.
    pub secret: Source,
    /// A file with certificate authorities in PEM; only they are trusted then.
    pub ca_file: Option<PathBuf>,
    /// The proxy, `http://host:port`.
    pub proxy: Option<String>,
}

/// A program that gets an event on its standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program and its first arguments. No shell reads them.
    pub command: Vec<String>,
    /// How long it may take for one event.
    pub timeout: Duration,
}

words! {
    /// Why somebody is told: one alert for each device, deployment or rollout of which it is so, until it isn't any more.
    AlertKind {
        DeploymentFailed "deployment-failed", "A component of a deployment failed on a device.";
        DeploymentCrashLooping "deployment-crash-looping", "A deployment is installed, ends, and is started again, again and again.";
        DeploymentDegraded "deployment-degraded", "A deployment is installed and doesn't run well: it ended, is unhealthy, or was changed.";
        DeviceStalled "device-stalled", "A device can't go on without a person or a new commit.";
        DeviceStale "device-stale", "A device has no proof any more that its host shows it the newest state.";
        DeviceOffline "device-offline", "Nothing was heard of a device for longer than it may say nothing.";
        RuntimeUnreachable "runtime-unreachable", "What runs on a device can't be observed or changed.";
        NotPublishable "not-publishable", "The last publish could not publish something.";
        RolloutStopped "rollout-stopped", "Too many devices of a rollout failed, and nobody said that it goes on.";
        RolloutFinished "rollout-finished", "A rollout is done.";
        SecurityEvent "security-event", "What a device says can't be believed, or it says something that an auditor should know.";
        CredentialEnds "credential-ends", "The publisher's key, the host's own certificate or an account's secret ends within 30 days.";
    }
}

impl AlertKind {
    /// Whether it tells something that is over: it is told once, and never resolved.
    pub fn is_over(self) -> bool {
        self == Self::RolloutFinished
    }

    /// Whether it may pass by itself, and has to be so for some time before it is told.
    pub fn has_to_last(self) -> bool {
        !matches!(self, Self::RolloutStopped | Self::RolloutFinished | Self::SecurityEvent | Self::CredentialEnds)
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<Alerts> {
    let poll = reader.optional("poll", duration::read).map_or(POLL, Duration::from_secs);
    let receivers = reader.required("receivers", |field| field.entries(named))?;
    Some(Alerts { poll, receivers })
}

fn named(name: &str, field: Field<'_>) -> Option<Receiver> {
    let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if name.is_empty() || name.len() > LONGEST || !name.bytes().all(is_plain) {
        return field.fail(format!("`{name}` can't be a receiver's name: {LONGEST} of a-z, 0-9 and - at most"));
    }
    field.mapping(receiver)
}

fn receiver(reader: &mut Reader<'_>) -> Option<Receiver> {
    let url = reader.optional("url", url);
    let mut secrets = remote::secrets(reader);
    let ca_file = reader.optional("caFile", |field| field.string().map(PathBuf::from));
    let proxy = reader.optional("proxy", Field::string);
    let command = reader.optional("command", remote::command);
    let timeout = reader.optional("timeout", duration::read).map(Duration::from_secs);
    let only = reader.optional("only", |field| field.list(kind)).unwrap_or_default().into_iter().collect();
    let after = reader.optional("for", duration::read).map_or(AFTER, Duration::from_secs);
    let to = match (url, command) {
        (Some(url), None) if timeout.is_none() => match (secrets.pop(), secrets.is_empty()) {
            (Some(secret), true) => To::Webhook(Webhook { url, secret, ca_file, proxy }),
            _ => return reader.field().fail("needs one of `secretFile`, `secretVariable` and `secretCredential`"),
        },
        (None, Some(command)) if secrets.is_empty() && ca_file.is_none() && proxy.is_none() => {
            To::Command(Command { command, timeout: timeout.unwrap_or(TIMEOUT) })
        }
        _ => {
            let what = "needs `url` with a secret and perhaps `caFile` and `proxy`, or `command` and perhaps `timeout`";
            return reader.field().fail(what);
        }
    };
    Some(Receiver { to, only, after })
}

fn url(field: Field<'_>) -> Option<Url> {
    let text = field.clone().string()?;
    match Url::parse(&text) {
        Ok(url) => Some(url),
        Err(error) => field.fail(error.to_string()),
    }
}

fn kind(field: Field<'_>) -> Option<AlertKind> {
    let words: Vec<_> = AlertKind::TABLE.iter().map(|(kind, _)| (kind.as_str(), *kind)).collect();
    field.choice(&words)
}
