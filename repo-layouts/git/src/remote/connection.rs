//! One conversation in protocol version 2: the handshake, and what goes wrong in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use repo_model::IntoMap;

use gix::ObjectId;
use gix::progress::Discard;
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;
use gix::protocol::transport::client::blocking_io::Transport;
use gix::protocol::transport::client::git::ConnectMode;
use gix::protocol::transport::client::git::blocking_io::Connection as GitConnection;
use gix::protocol::transport::{Protocol, Service};
use gix::protocol::{Handshake, LsRefsCommand};

use super::allowance::{Allowance, Allowed};
use super::deadline::Deadline;
use super::gix_http::Conversation;
use super::https::MAX_REFS;
use super::process::{self, Process, Stage};
#[cfg(feature = "ssh")]
use super::ssh;
use super::{Remote, RemoteError, Way};
use crate::{Cause, CommitId};

/// An `upload-pack` that has shaken hands.
pub(super) struct Connection {
    pub(super) transport: Box<dyn Transport>,
    pub(super) handshake: Handshake,
    link: Link,
    left: Allowance,
    limit: Duration,
}

/// What lies under a conversation, and knows why it broke off.
enum Link {
    Process(Process),
    Http(Conversation, Deadline),
    #[cfg(feature = "ssh")]
    Ssh(ssh::Talk, Deadline),
}

/// How this client names itself.
pub(super) fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(concat!("repo-git/", env!("CARGO_PKG_VERSION")).to_owned()))
}

impl Connection {
    pub(super) fn open(remote: &Remote, limit: Duration) -> Result<Self, RemoteError> {
        let host = match &remote.way {
            Way::Https(host) => host,
            #[cfg(feature = "ssh")]
            Way::Ssh(host) => return Self::open_ssh(remote, host, limit),
            Way::Local(_) | Way::SshProgram(_) => return Self::open_process(remote, limit),
        };
        let conversation = Conversation::new(Arc::clone(host), limit);
        let url = gix::url::parse(host.url.as_str());
        let transport = url.map(|url| Box::new(conversation.transport(url)) as Box<dyn Transport>);
        let transport = transport.map_err(|source| RemoteError::Protocol {
            url: remote.url(),
            detail: String::new(),
            source: source.into(),
        })?;
        let left = conversation.left.clone();
        Self::greet(remote, transport, Link::Http(conversation, Deadline::after(limit, || ())), left, limit)
    }

    /// Over a process: stock Git here, or an `ssh` that leads to it.
    pub(super) fn open_process(remote: &Remote, limit: Duration) -> Result<Self, RemoteError> {
        let mut process = start(remote, "upload-pack", Some("version=2"), limit)?;
        let (read, write) = process.pipes().map_err(|source| unreachable(remote, source.into()))?;
        let left = Allowance::new(MAX_REFS);
        let transport = GitConnection::new(
            Allowed { inner: read, left: left.clone() },
            write,
            Protocol::V2,
            remote.url().as_str(),
            None::<(&str, _)>,
            ConnectMode::Process,
            false,
        );
        Self::greet(remote, Box::new(transport), Link::Process(process), left, limit)
    }

    #[cfg(feature = "ssh")]
    fn open_ssh(remote: &Remote, host: &ssh::Host, limit: Duration) -> Result<Self, RemoteError> {
        let talk = host.talk("upload-pack", true, limit)?;
        let (read, write) = talk.sides();
        let left = talk.left.clone();
        let transport = GitConnection::new(
            read,
            write,
            Protocol::V2,
            host.url.path(),
            None::<(&str, _)>,
            ConnectMode::Process,
            false,
        );
        let too_slow = ssh::Problem::Slow { phase: repo_http::Phase::Total, limit };
        let deadline = Deadline::after(limit, talk.ending(too_slow));
        Self::greet(remote, Box::new(transport), Link::Ssh(talk, deadline), left, limit)
    }

    fn greet(
        remote: &Remote,
        mut transport: Box<dyn Transport>,
        link: Link,
        left: Allowance,
        limit: Duration,
    ) -> Result<Self, RemoteError> {
        // Whoever needs a credential has it already.
        let ask = |_| Ok(None);
        match gix::protocol::handshake(&mut transport, Service::UploadPack, ask, Vec::new(), &mut Discard) {
            Ok(handshake) => Ok(Self { transport, handshake, link, left, limit }),
            Err(source) => {
                drop(transport);
                Err(link.failed(remote, limit, source.into(), Stage::Greeting))
            }
        }
    }

    /// The refs with one of these prefixes (none: all).
    pub(super) fn refs(&mut self, prefixes: &[&str]) -> gix::Result<BTreeMap<String, CommitId>> {
        let refs = match self.handshake.refs.take() {
            Some(refs) => refs,
            None => {
                let mut wanted = RefPrefixes::new();
                wanted.extend(prefixes.iter().map(|prefix| (*prefix).into()));
                let command = LsRefsCommand::new(Some(wanted), &self.handshake.capabilities, agent());
                command.invoke_blocking(&mut self.transport, &mut Discard, false)?
            }
        };
        // The prefixes are a hint to the other side, which may send more.
        let asked = |name: &str| prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix));
        Ok(refs.into_iter().filter_map(name_and_id).filter(|(name, _)| asked(name)).into_map())
    }

    /// The error for a conversation that broke off.
    pub(super) fn failed(self, remote: &Remote, source: Cause) -> RemoteError {
        let Self { transport, link, limit, .. } = self;
        drop(transport);
        link.failed(remote, limit, source, Stage::Talking)
    }

    /// How many bytes the other side may still say.
    pub(super) fn left(&self) -> Allowance {
        self.left.clone()
    }

    /// Raised when the time is up, also for what is made of an answer that is here in full.
    pub(super) fn expired(&self) -> Arc<AtomicBool> {
        let deadline = match &self.link {
            Link::Process(Process { deadline, .. }) | Link::Http(_, deadline) => deadline,
            #[cfg(feature = "ssh")]
            Link::Ssh(_, deadline) => deadline,
        };
        Arc::clone(&deadline.expired)
    }
}

impl Link {
    fn failed(self, remote: &Remote, limit: Duration, source: Cause, stage: Stage) -> RemoteError {
        match self {
            Self::Process(process) => failed(remote, process, limit, source, stage),
            Self::Http(conversation, deadline) => match conversation.failure() {
                Some(error) => error.into(),
                None if deadline.has_passed() => RemoteError::Timeout { url: remote.url(), limit },
                None => RemoteError::Protocol { url: remote.url(), detail: String::new(), source },
            },
            #[cfg(feature = "ssh")]
            Self::Ssh(talk, deadline) => match talk.failed(source) {
                RemoteError::Protocol { url, .. } if deadline.has_passed() => RemoteError::Timeout { url, limit },
                error => error,
            },
        }
    }
}

/// Starts the process that serves a remote which is reached by one.
pub(super) fn start(
    remote: &Remote,
    service: &str,
    protocol: Option<&str>,
    limit: Duration,
) -> Result<Process, RemoteError> {
    match &remote.way {
        Way::Local(path) => {
            let mut command = process::git(service, path);
            command.envs(protocol.map(|version| ("GIT_PROTOCOL", version)));
            Process::start(command, limit, None).map_err(|source| unreachable(remote, source.into()))
        }
        Way::SshProgram(ssh) => ssh.start(service, protocol, limit),
        _ => Err(unreachable(remote, "no process leads there".into())),
    }
}

pub(super) fn unreachable(remote: &Remote, source: Cause) -> RemoteError {
    RemoteError::Unreachable { url: remote.url(), detail: String::new(), source }
}

/// Ends the process and judges what happened. A Git that finds no repository says so instead of greeting.
pub(super) fn failed(remote: &Remote, process: Process, limit: Duration, source: Cause, stage: Stage) -> RemoteError {
    if let Way::SshProgram(ssh) = &remote.way {
        return ssh.failed(process, limit, source, stage);
    }
    let url = remote.url();
    let ended = process.end(Duration::ZERO);
    if ended.has_passed {
        RemoteError::Timeout { url, limit }
    } else if stage == Stage::Greeting {
        RemoteError::Unreachable { url, detail: ended.said, source }
    } else {
        RemoteError::Protocol { url, detail: ended.said, source }
    }
}

fn name_and_id(found: Ref) -> Option<(String, CommitId)> {
    let (name, id): (_, ObjectId) = match found {
        Ref::Peeled { full_ref_name, object, .. }
        | Ref::Direct { full_ref_name, object }
        | Ref::Symbolic { full_ref_name, object, .. } => (full_ref_name, object),
        Ref::Unborn { .. } => return None,
    };
    Some((String::from_utf8(name.into()).ok()?, CommitId(id)))
}
