//! One repository of a host that is reached by SSH, and what is known of it.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use repo_http::Timeouts;

use super::kept::Kept;
use super::talk::Talk;
use super::{Client, Problem, SshError, Url};
use crate::Cause;
use crate::remote::advertisement::{Advertisement, Refs, ls_refs, read_ls_refs};
use crate::remote::https::only;
use crate::remote::wait::{GRACE, Waited};
use crate::remote::{RemoteError, pktline};

/// A repository, and the client for its host.
#[derive(Debug)]
pub(in crate::remote) struct Host {
    pub(in crate::remote) url: Url,
    client: Client,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The longest wait that it offers.
    waits: Option<Duration>,
    /// Whether it can be asked to wait for `site`, too.
    waits_for_site: bool,
    /// The conversation that stays open, at a host that answers more than one request in it.
    kept: Option<Arc<Kept>>,
}

impl Host {
    pub(in crate::remote) fn new(url: Url, client: Client) -> Self {
        Self { url, client, known: Mutex::default() }
    }

    pub(in crate::remote) fn interrupt(&self) {
        self.client.interrupt();
    }

    /// The longest wait that the host offers.
    pub(in crate::remote) fn waits(&self) -> Option<Duration> {
        self.known().waits
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the host run `git-<service>` on the repository.
    pub(in crate::remote) fn talk(&self, service: &str, wants_v2: bool, limit: Duration) -> Result<Talk, SshError> {
        Talk::open(&self.client, &self.url, service, wants_v2, limit)
    }

    /// The refs with one of these prefixes (none: all). One request in the conversation that stays open, where there is one.
    pub(in crate::remote) fn refs(&self, prefixes: &[&str], limit: Duration) -> Result<Refs, RemoteError> {
        let request = ls_refs(prefixes);
        let read = |reader: &mut dyn std::io::Read| read_ls_refs(reader);
        if let Some(refs) = self.ask_kept(&request, limit, self.client.timeouts(), read)? {
            return Ok(only(refs, prefixes));
        }
        let talk = self.talk("upload-pack", true, limit)?;
        let (mut reader, mut writer) = talk.sides();
        let advertised = Advertisement::read(&mut reader, "git-upload-pack").map_err(|source| talk.failed(source))?;
        let refs = match advertised {
            Advertisement::Refs(refs) => refs,
            Advertisement::V2 { wait: Some(longest), waits_for_site } => {
                let kept = self.keep(talk, longest, waits_for_site);
                kept.ask(&request, limit, self.client.timeouts(), read)?
            }
            Advertisement::V2 { wait: None, .. } => {
                let asked = writer.write_all(&request).map_err(Cause::from);
                let refs = asked.and_then(|()| read_ls_refs(&mut reader)).map_err(|source| talk.failed(source))?;
                // A flush ends the conversation in version 2, and says in version 0 that nothing is wanted.
                let _ = writer.write_all(pktline::FLUSH);
                talk.finish_writing();
                refs
            }
        };
        Ok(only(refs, prefixes))
    }

    /// Waits until `desired`, `freshness` or, at a host that can, `site` isn't where it is said to be, at most so long.
    pub(in crate::remote) fn wait(
        &self,
        desired: &str,
        freshness: &str,
        site: Option<&str>,
        at_most: Duration,
    ) -> Result<Waited, RemoteError> {
        let Some(longest) = self.waits() else { return Ok(Waited::Unsupported) };
        let at_most = longest.min(at_most);
        let mut request = Vec::new();
        let seconds = at_most.as_secs().max(1);
        let site = site.filter(|_| self.known().waits_for_site).map(|site| format!("site {site}\n"));
        let lines =
            [format!("desired {desired}\n"), format!("freshness {freshness}\n"), format!("seconds {seconds}\n")];
        let written = pktline::write(&mut request, b"command=wait\n").and_then(|()| {
            request.extend(b"0001");
            lines.iter().chain(&site).try_for_each(|line| pktline::write(&mut request, line.as_bytes()))
        });
        written.map_err(|source| self.broken(source.into()))?;
        request.extend(pktline::FLUSH);
        let limit = at_most + GRACE;
        let timeouts = Timeouts { answer: limit, stall: limit, ..self.client.timeouts() };
        if let Some(waited) = self.ask_kept(&request, limit, timeouts, read_wait)? {
            return Ok(waited);
        }
        let talk = self.talk("upload-pack", true, limit + timeouts.connect)?;
        let (mut reader, _) = talk.sides();
        match Advertisement::read(&mut reader, "git-upload-pack").map_err(|source| talk.failed(source))? {
            Advertisement::V2 { wait: Some(longest), waits_for_site } => {
                self.keep(talk, longest, waits_for_site).ask(&request, limit, timeouts, read_wait)
            }
            _ => {
                talk.finish_writing();
                self.known().waits = None;
                Ok(Waited::Unsupported)
            }
        }
    }

    /// Asks in the conversation that stays open. `None`: there is none, or it turned out to have ended.
    fn ask_kept<T>(
        &self,
        request: &[u8],
        limit: Duration,
        timeouts: Timeouts,
        read: impl FnOnce(&mut dyn std::io::Read) -> Result<T, Cause>,
    ) -> Result<Option<T>, RemoteError> {
        let Some(kept) = self.known().kept.clone() else { return Ok(None) };
        let interrupts = self.client.interrupts();
        let error = match kept.ask(request, limit, timeouts, read) {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        let mut known = self.known();
        known.kept.take_if(|other| Arc::ptr_eq(other, &kept));
        drop(known);
        // It may have died while nobody used it; a new one says what is wrong.
        let is_cut = matches!(&error, RemoteError::Ssh(error) if error.problem == Problem::Cut);
        if is_cut && interrupts == self.client.interrupts() { Ok(None) } else { Err(error) }
    }

    fn keep(&self, talk: Talk, longest: Duration, waits_for_site: bool) -> Arc<Kept> {
        let kept = Arc::new(Kept::new(talk));
        let mut known = self.known();
        (known.waits, known.waits_for_site) = (Some(longest), waits_for_site);
        known.kept = Some(Arc::clone(&kept));
        kept
    }

    fn broken(&self, source: Cause) -> RemoteError {
        RemoteError::Protocol { url: self.url.to_string(), detail: String::new(), source }
    }
}

/// The answer to a wait.
fn read_wait(mut from: &mut dyn std::io::Read) -> Result<Waited, Cause> {
    let lines = pktline::read_all(&mut from, 16)?;
    let line = lines.first().map(|line| String::from_utf8_lossy(line).into_owned()).unwrap_or_default();
    let mut words = line.split(' ');
    match words.next() {
        Some("nothing") => Ok(Waited::Nothing),
        Some("moved") => {
            let jitter = words.find_map(|word| word.strip_prefix("jitter=")?.parse().ok()).unwrap_or(0);
            Ok(Waited::moved(jitter))
        }
        _ => Err("an answer to a wait that isn't one".into()),
    }
}
