//! One conversation in protocol version 2: the handshake, and what goes wrong in it.

use std::collections::BTreeMap;
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gix::ObjectId;
use gix::progress::Discard;
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;
use gix::protocol::transport::client::git::ConnectMode;
use gix::protocol::transport::client::git::blocking_io::Connection as GitConnection;
use gix::protocol::transport::{Protocol, Service};
use gix::protocol::{Handshake, LsRefsCommand};

use super::process::Process;
use super::{Remote, RemoteError, Way};
use crate::{Cause, CommitId};

pub(super) type Transport = GitConnection<ChildStdout, ChildStdin>;

/// An `upload-pack` that has shaken hands.
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) handshake: Handshake,
    pub(super) process: Process,
    pub(super) limit: Duration,
}

/// How this client names itself.
pub(super) fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(concat!("repo-git/", env!("CARGO_PKG_VERSION")).to_owned()))
}

impl Connection {
    pub(super) fn open(remote: &Remote, limit: Duration) -> Result<Self, RemoteError> {
        let Way::Local(path) = &remote.way;
        let unreachable = |source: Cause| RemoteError::Unreachable { url: remote.url(), detail: String::new(), source };
        let mut process = Process::spawn("upload-pack", path, Some("version=2"), limit)
            .map_err(|source| unreachable(source.into()))?;
        let (read, write) = process.pipes().map_err(|source| unreachable(source.into()))?;
        let mut transport = GitConnection::new(
            read,
            write,
            Protocol::V2,
            path.to_string_lossy().as_ref(),
            None::<(&str, _)>,
            ConnectMode::Process,
            false,
        );
        // Nothing here asks for a password.
        let ask = |_| Ok(None);
        match gix::protocol::handshake(&mut transport, Service::UploadPack, ask, Vec::new(), &mut Discard) {
            Ok(handshake) => Ok(Self { transport, handshake, process, limit }),
            Err(source) => {
                drop(transport);
                Err(failed(remote, process, limit, source.into(), Stage::Greeting))
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
        Ok(refs.into_iter().filter_map(name_and_id).filter(|(name, _)| asked(name)).collect())
    }

    /// The error for a conversation that broke off.
    pub(super) fn failed(self, remote: &Remote, source: Cause) -> RemoteError {
        let Self { transport, process, limit, .. } = self;
        drop(transport);
        failed(remote, process, limit, source, Stage::Talking)
    }

    pub(super) fn expired(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.process.expired)
    }
}

/// Where a conversation broke off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Greeting,
    Talking,
}

/// Ends the process and judges what happened. A Git that finds no repository says so instead of greeting.
pub(super) fn failed(remote: &Remote, process: Process, limit: Duration, source: Cause, stage: Stage) -> RemoteError {
    let url = remote.url();
    let expired = Arc::clone(&process.expired);
    let detail = process.end();
    if expired.load(Ordering::SeqCst) {
        RemoteError::Timeout { url, limit }
    } else if stage == Stage::Greeting {
        RemoteError::Unreachable { url, detail, source }
    } else {
        RemoteError::Protocol { url, detail, source }
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
