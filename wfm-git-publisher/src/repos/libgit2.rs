//! Pushing to hosts that aren't ours: libgit2 makes the pack and speaks to any Git server, over the one HTTPS agent.
//!
//! libgit2 never sees an address, a credential or a certificate: it is given a number, and what it reads and writes under
//! it goes through [`repo_http`], which follows no redirect. It reads no configuration but the repository's own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream, Transport};
use git2::{PushOptions, RemoteCallbacks, RemoteRedirect, Repository};
use repo_git::{CommitId, PushResult, PushUpdate};
use repo_http::{Agent, Body, Credentials, HttpError, Problem, Request, Url};

/// The scheme under which libgit2 knows this transport.
const SCHEME: &str = "wfm-agent";

/// The longest answer that is read: refs, or what became of a push.
const MAX_ANSWER: u64 = 32 << 20;

/// How much of what the host says beside its answer is kept.
const MAX_SAID: usize = 1000;

/// A repository at a host, and who asks.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) agent: Agent,
    pub(super) url: Url,
    pub(super) credentials: Credentials,
}

/// A push that was judged for no branch.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The host can't be asked, or refuses.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// libgit2, or the host's Git, failed.
    #[error("`{url}`: {text}")]
    Git {
        url: String,
        /// One line of what the host said.
        text: String,
        #[source]
        source: git2::Error,
    },
}

/// Moves branches at the host by one push, each only from where it is expected; the results have the order of `updates`.
/// If one of them isn't where it is expected when the conversation begins, nothing is sent.
pub(super) fn push(from: &Path, to: &Target, updates: &[PushUpdate]) -> Result<Vec<PushResult>, TransferError> {
    let conversation =
        Arc::new(Conversation { target: to.clone(), failure: Mutex::default(), report: Mutex::default() });
    let number = Number::of(Arc::clone(&conversation));
    let said = RefCell::new(Said::default());
    let pushed = setup().and_then(|()| transfer(from, &number, updates, &said));
    let said = said.into_inner();
    match pushed {
        Ok(()) => Ok(updates.iter().map(|update| said.result(update)).collect()),
        Err(_) if !said.stale.is_empty() => Ok(updates.iter().map(|update| said.lease(update)).collect()),
        Err(source) => Err(match conversation.lock().take() {
            Some(failure) => failure.into(),
            None => {
                let text = conversation.unpack().unwrap_or_else(|| source.message().to_owned());
                TransferError::Git { url: to.url.to_string(), text: said.beside(text), source }
            }
        }),
    }
}

fn transfer(from: &Path, number: &Number, updates: &[PushUpdate], said: &RefCell<Said>) -> Result<(), git2::Error> {
    let repository = Repository::open_bare(from)?;
    let mut remote = repository.remote_anonymous(&format!("{SCHEME}://{}", number.0))?;
    let mut callbacks = RemoteCallbacks::new();
    callbacks.push_negotiation(|found| {
        let at = found.iter().filter_map(|one| Some((one.dst_refname().ok()?.to_owned(), id(one.src()))));
        said.borrow_mut().check(updates, &at.collect())
    });
    callbacks.push_update_reference(|name, refusal| {
        said.borrow_mut().results.insert(name.to_owned(), refusal.map(str::to_owned));
        Ok(())
    });
    callbacks.sideband_progress(|text| {
        said.borrow_mut().hear(text);
        true
    });
    let mut options = PushOptions::new();
    options.remote_callbacks(callbacks).follow_redirects(RemoteRedirect::None).packbuilder_parallelism(1);
    let specs: Vec<_> = updates.iter().map(|one| format!("+{}:{}", one.new, one.ref_name())).collect();
    remote.push(&specs, Some(&mut options))
}

fn id(oid: git2::Oid) -> Option<CommitId> {
    (!oid.is_zero()).then(|| oid.to_string().parse().ok()).flatten()
}

/// What the host said about the branches.
#[derive(Debug, Default)]
struct Said {
    results: BTreeMap<String, Option<String>>,
    stale: BTreeMap<String, Option<CommitId>>,
    beside: String,
}

impl Said {
    /// The lease: what libgit2 sends as the old value is what it found here, so the host compares the same again.
    fn check(&mut self, updates: &[PushUpdate], found: &BTreeMap<String, Option<CommitId>>) -> Result<(), git2::Error> {
        for update in updates {
            let name = update.ref_name();
            let at = found.get(&name).copied().flatten();
            if at != update.expected {
                self.stale.insert(name, at);
            }
        }
        if self.stale.is_empty() { Ok(()) } else { Err(git2::Error::from_str("a branch was moved by someone else")) }
    }

    fn hear(&mut self, text: &[u8]) {
        let room = MAX_SAID.saturating_sub(self.beside.len());
        let clean = String::from_utf8_lossy(text);
        self.beside.extend(clean.chars().map(|c| if c.is_control() { ' ' } else { c }).take(room));
    }

    /// The text, with the messages of the host in brackets.
    fn beside(&self, text: String) -> String {
        let beside = self.beside.split_whitespace().collect::<Vec<_>>().join(" ");
        if beside.is_empty() { text } else { format!("{text} ({beside})") }
    }

    fn lease(&self, update: &PushUpdate) -> PushResult {
        let at = match self.stale.get(&update.ref_name()) {
            Some(Some(at)) => format!("the branch is at {at}"),
            Some(None) => "the branch doesn't exist".to_owned(),
            None => "another branch of this push was moved by someone else".to_owned(),
        };
        PushResult::Stale { text: at }
    }

    fn result(&self, update: &PushUpdate) -> PushResult {
        match self.results.get(&update.ref_name()) {
            Some(None) => PushResult::Done,
            Some(Some(text)) => repo_git::remote::refusal(text),
            None => PushResult::Refused { text: "the host didn't say what became of it".to_owned() },
        }
    }
}

/// One push: where it goes, and why it failed. libgit2 carries only texts.
struct Conversation {
    target: Target,
    failure: Mutex<Option<HttpError>>,
    /// The beginning of what the host reports: libgit2 keeps to itself why a pack couldn't be unpacked.
    report: Mutex<Vec<u8>>,
}

impl Conversation {
    fn lock(&self) -> MutexGuard<'_, Option<HttpError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, bytes: &[u8]) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_SAID.saturating_sub(report.len()).min(bytes.len());
        report.extend(&bytes[..room]);
    }

    /// Why the host couldn't unpack what was sent (gitprotocol-pack, *Report Status*).
    fn unpack(&self) -> Option<String> {
        const WORD: &[u8] = b"unpack ";
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let at = report.windows(WORD.len()).position(|bytes| bytes == WORD)?;
        let line = report[at + WORD.len()..].split(|byte| byte.is_ascii_control()).next()?;
        (line != b"ok").then(|| format!("the host can't unpack it: {}", String::from_utf8_lossy(line)))
    }

    fn ask(&self, path: &str, body: Option<&[u8]>, expects: &'static str) -> io::Result<Body> {
        let url = self.target.url.below(path);
        let headers: &[_] = match body {
            Some(_) => &[("Content-Type", "application/x-git-receive-pack-request"), ("Accept", expects)],
            None => &[],
        };
        let credential =
            self.target.credentials.get().map_err(|error| self.fail(HttpError::credential(&url, error)))?;
        let request = Request {
            body,
            headers,
            credential: &credential,
            expects: Some(expects),
            repeatable: body.is_none(),
            ..Request::get(&url)
        };
        self.target.agent.send(&request).map(|answer| answer.body).map_err(|error| self.fail(error))
    }

    /// Keeps the failure, and gives libgit2 a text without any.
    fn fail(&self, failure: HttpError) -> io::Error {
        self.lock().get_or_insert(failure);
        io::Error::other("the host can't be asked")
    }
}

/// The conversations under way, by the numbers that libgit2 knows them by.
static UNDER_WAY: LazyLock<Mutex<BTreeMap<u64, Arc<Conversation>>>> = LazyLock::new(Mutex::default);

fn under_way() -> MutexGuard<'static, BTreeMap<u64, Arc<Conversation>>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A conversation's number, free again when dropped.
struct Number(u64);

impl Number {
    fn of(conversation: Arc<Conversation>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        under_way().insert(number, conversation);
        Self(number)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        under_way().remove(&self.0);
    }
}

/// Tells libgit2 about this transport, and takes all configuration but the repositories' own away from it.
#[expect(unsafe_code, reason = "git2 offers both settings in no other way")]
fn setup() -> Result<(), git2::Error> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if *done {
        return Ok(());
    }
    use git2::ConfigLevel::{Global, ProgramData, System, XDG};
    for level in [ProgramData, System, XDG, Global] {
        // SAFETY: under the lock, and before the first use of libgit2 in this program: nothing reads it meanwhile.
        unsafe { git2::opts::set_search_path(level, "") }?;
    }
    // SAFETY: under the lock, and before any transport is made.
    unsafe {
        git2::transport::register(SCHEME, |remote| {
            let url = remote.url().unwrap_or_default();
            let number = url.rsplit('/').next().and_then(|text| text.parse().ok()).unwrap_or_default();
            let conversation = under_way().get(&number).cloned();
            let conversation = conversation.ok_or_else(|| git2::Error::from_str("not a conversation under way"))?;
            Transport::smart(remote, true, Subtransport(conversation))
        })
    }?;
    *done = true;
    Ok(())
}

struct Subtransport(Arc<Conversation>);

impl SmartSubtransport for Subtransport {
    fn action(&self, _url: &str, service: Service) -> Result<Box<dyn SmartSubtransportStream>, git2::Error> {
        let conversation = Arc::clone(&self.0);
        match service {
            Service::ReceivePackLs => {
                Ok(Box::new(Stream { conversation, sends: None, answer: None, left: MAX_ANSWER }))
            }
            Service::ReceivePack => {
                Ok(Box::new(Stream { conversation, sends: Some(Vec::new()), answer: None, left: MAX_ANSWER }))
            }
            Service::UploadPackLs | Service::UploadPack => Err(git2::Error::from_str("this transport only pushes")),
        }
    }

    fn close(&self) -> Result<(), git2::Error> {
        Ok(())
    }
}

/// One request, sent when its answer is first read.
struct Stream {
    conversation: Arc<Conversation>,
    /// What a push sends; `None` asks for the refs.
    sends: Option<Vec<u8>>,
    answer: Option<Body>,
    left: u64,
}

impl Stream {
    fn ask(&mut self) -> io::Result<Body> {
        match &self.sends {
            None => {
                let expects = "application/x-git-receive-pack-advertisement";
                self.conversation.ask("info/refs?service=git-receive-pack", None, expects)
            }
            Some(body) => {
                self.conversation.ask("git-receive-pack", Some(body), "application/x-git-receive-pack-result")
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.answer.is_none() {
            self.answer = Some(self.ask()?);
        }
        let Some(answer) = &mut self.answer else { return Ok(0) };
        let count = loop {
            match answer.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let failure = error.downcast::<HttpError>().unwrap_or_else(|error| HttpError {
                        url: self.conversation.target.url.to_string(),
                        problem: Problem::Cut,
                        source: Some(error.into()),
                    });
                    return Err(self.conversation.fail(failure));
                }
                Ok(count) => break count,
            }
        };
        if self.sends.is_some() {
            self.conversation.note(&buffer[..count]);
        }
        self.left = self.left.saturating_sub(count as u64);
        if self.left > 0 {
            return Ok(count);
        }
        let problem = Problem::TooLarge { limit: MAX_ANSWER };
        let url = self.conversation.target.url.to_string();
        Err(self.conversation.fail(HttpError { url, problem, source: None }))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(sends) = &mut self.sends else { return Err(io::Error::other("nothing is sent before the refs")) };
        sends.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
