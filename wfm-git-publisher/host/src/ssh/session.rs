//! A conversation over SSH: requests are read from a channel, and answered as over HTTPS.
//!
//! In protocol v2 any number of requests follow each other, waits among them; without it a reader says step by step what
//! it has, and stock git hears it all at once, as over HTTPS. A push is read to the end of its pack, because not every
//! client closes its side.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Frame;
use repo_model::KeyText;
use repo_model::header::JITTER;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::channel::Channel;
use super::hello::Serve;
use crate::accounting::Peer;
use crate::accounts::Identity;
use crate::answer::Refusal;
use crate::call::{Asking, allowance, call};
use crate::http::audit_index;
use crate::limits::Limits;
use crate::logged::{Logged, Transport};
use crate::paced::Paced;
use crate::request::gone;
use crate::shared::Host;
use crate::wire::commands::{Commands, MAX_BYTES};
use crate::wire::pack_end::PackEnd;
use crate::wire::path::{Action, Service, Target, repository};
use crate::wire::pktline::{self, FLUSH};
use crate::wire::report::Report;
use crate::wire::ssh::{Frames, Said, Wait, command, deepens, said, without_service};

/// The command of an auditor, which is answered as `GET /audit` is.
const AUDIT: &str = "wfm-audit";

/// Stands for a client of whom sshd doesn't know where it is.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// How much is read at once, and how much of a push.
const CHUNK: usize = 8 << 10;
const PACK_CHUNK: usize = 64 << 10;

/// How many times its bytes a pack may come to when it is unpacked, before its end is found.
const UNPACKED: u64 = 64;

/// Which version of Git's protocol a client wants to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Zero,
    One,
    Two,
}

impl Version {
    /// As `GIT_PROTOCOL` says it.
    fn parse(protocol: Option<&str>) -> Self {
        let asks = |version: &str| protocol.is_some_and(|protocol| protocol.split(':').any(|word| word == version));
        match () {
            () if asks("version=2") => Self::Two,
            () if asks("version=1") => Self::One,
            () => Self::Zero,
        }
    }

    /// As the header `Git-Protocol` says it.
    fn headers(self) -> HeaderMap {
        let value = match self {
            Self::Zero => return HeaderMap::new(),
            Self::One => "version=1",
            Self::Two => "version=2",
        };
        HeaderMap::from_iter([("git-protocol".parse().expect("a name"), HeaderValue::from_static(value))])
    }
}

/// Why a conversation ends before its time.
enum End {
    /// It gets one `ERR` line.
    Refused(Refusal),
    /// There is nobody who could be told.
    Gone,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<crate::wire::Malformed> for End {
    fn from(error: crate::wire::Malformed) -> Self {
        Self::Refused(Refusal::BadRequest(error.to_string()))
    }
}

/// A conversation with somebody who is known, about one repository.
struct Session<'a> {
    host: &'a Host,
    peer: &'a Peer,
    who: &'a Identity,
    target: Target<'a>,
    version: Version,
    /// Changes whenever an account was added, changed or ended.
    accounts: watch::Receiver<u64>,
    stream: &'a mut Paced<Channel>,
    /// What came and wasn't looked at yet.
    ahead: Vec<u8>,
}

/// Serves a session; its exit status.
pub(super) async fn serve(host: &Host, client: Option<SocketAddr>, serve: Serve, mut stream: Paced<Channel>) -> u8 {
    let ended = begin(host, client.unwrap_or(NOWHERE), &serve, &mut stream).await;
    let Err(End::Refused(refusal)) = ended else { return u8::from(ended.is_err()) };
    let mut line = Vec::new();
    pktline::write(&mut line, format!("ERR {}\n", refusal.line()).as_bytes());
    let _ = stream.write_all(&line).await;
    1
}

async fn begin(host: &Host, client: SocketAddr, serve: &Serve, stream: &mut Paced<Channel>) -> Result<(), End> {
    let mut logged = Logged::new(Instant::now(), 0, Transport::Ssh);
    let nobody = || Peer::unlisted(client);
    let accounts = host.accounts.subscribe();
    let key = serve.key.parse::<KeyText>().map_err(|_| Refusal::Unauthorized);
    let who = match key.and_then(|key| Ok(host.accounts.of_ssh_key(&key)?)) {
        Ok(who) => who,
        Err(refusal) => {
            logged.write(host, &nobody(), refusal.status(), 0);
            return Err(refusal.into());
        }
    };
    logged.account = Some(who.name.to_string());
    let admitted = host.admit(client).ok_or(Refusal::Busy);
    let let_in = admitted.and_then(|admitted| {
        let limit = host.limits.connections_per_account;
        let session = host.arrivals.belongs_to(client, &who, (&host.accounting, limit))?;
        admitted.peer.count_as(&who, &host.accounting, limit)?;
        if serve.command == AUDIT {
            return Ok((admitted, session, None));
        }
        let (service, path) = command(&serve.command).ok_or_else(|| {
            Refusal::BadRequest("this host only speaks Git: git-upload-pack and git-receive-pack".to_owned())
        })?;
        let target = repository(path).ok_or(Refusal::NotFound)?;
        Ok((admitted, session, Some((service, target))))
    });
    let (admitted, _session, asked) = match let_in {
        Ok(let_in) => let_in,
        Err(refusal) => {
            logged.write(host, &nobody(), refusal.status(), 0);
            return Err(refusal.into());
        }
    };
    let Some((service, target)) = asked else {
        host.accounts.check(&who).map_err(Refusal::from)?;
        let index = Box::pin(audit_index(host, &who, &Method::GET, &mut logged)).await;
        written(host, &admitted.peer, logged, &index);
        return Ok(stream.write_all(&bytes(index?).await?).await?);
    };
    let version = Version::parse(serve.protocol.as_deref());
    let (peer, ahead) = (&*admitted.peer, Vec::new());
    let session = Session { host, peer, who: &who, target, version, accounts, stream, ahead };
    match (service, version) {
        (Service::UploadPack, Version::Two) => Box::pin(session.requests()).await,
        (Service::UploadPack, _) => Box::pin(session.fetch_step_by_step()).await,
        (Service::ReceivePack, _) => Box::pin(session.push()).await,
    }
}

impl Session<'_> {
    /// Protocol v2: one request after the other, until the client has no more.
    async fn requests(mut self) -> Result<(), End> {
        self.advertise_v2().await?;
        while let Some(request) = self.next_request().await? {
            match Wait::parse(&request)? {
                Some(wait) => {
                    drop(request);
                    self.wait(wait).await?;
                }
                None => {
                    let response = self.ask(Action::Call(Service::UploadPack), self.version.headers(), request).await?;
                    self.send(response).await?;
                }
            }
        }
        Ok(())
    }

    /// What HTTPS advertises, and that a client of a device's repository may wait.
    async fn advertise_v2(&mut self) -> Result<(), End> {
        let response = self.ask(Action::InfoRefs(Service::UploadPack), self.version.headers(), Vec::new()).await?;
        let mut advertisement = bytes(response).await?.to_vec();
        if matches!(self.target, Target::Device(_)) && advertisement.ends_with(FLUSH) {
            advertisement.truncate(advertisement.len() - FLUSH.len());
            let wait = format!("wait={}\n", self.host.limits.wait_seconds);
            pktline::write(&mut advertisement, wait.as_bytes());
            pktline::write(&mut advertisement, b"wait-site\n");
            advertisement.extend(FLUSH);
        }
        Ok(self.stream.write_all(&advertisement).await?)
    }

    /// The next request; `None` if there is none.
    async fn next_request(&mut self) -> Result<Option<Vec<u8>>, End> {
        let mut frames = Frames::default();
        loop {
            if let Some(length) = frames.end(&self.ahead)? {
                let rest = self.ahead.split_off(length);
                let request = std::mem::replace(&mut self.ahead, rest);
                return Ok((request != FLUSH).then_some(request));
            }
            if self.ahead.len() as u64 > Limits::FETCH_BYTES {
                return Err(Refusal::TooLarge(Limits::FETCH_BYTES).into());
            }
            if !self.more_or_end().await? {
                return Ok(None);
            }
        }
    }

    /// Waits for a change. Whatever the client says meanwhile ends the waiting.
    async fn wait(&mut self, wait: Wait) -> Result<(), End> {
        let mut headers = HeaderMap::new();
        if let Some(seconds) = wait.seconds {
            headers.insert("prefer", HeaderValue::try_from(format!("wait={seconds}")).map_err(|_| Refusal::Internal)?);
        }
        let action = Action::Wait(Some(wait.known));
        let (host, peer, who, target) = (self.host, self.peer, self.who, self.target);
        let accounts = self.accounts.clone();
        let answer = async {
            let mut logged = Logged::new(Instant::now(), 0, Transport::Ssh);
            let answer = ask(host, peer, who, target, (action, headers, Body::empty()), accounts, &mut logged).await;
            written(host, peer, logged, &answer);
            answer
        };
        let answer = tokio::select! {
            biased;
            answer = Box::pin(answer) => Some(answer?),
            // Cancel-safe: what was read is kept.
            more = fill(self.stream, &mut self.ahead), if self.ahead.is_empty() => more.map(|_| None)?,
            () = std::future::ready(()), if !self.ahead.is_empty() => None,
        };
        let jitter = answer.filter(|answer| answer.status() == StatusCode::OK).map(|answer| {
            let jitter = answer.headers().get(JITTER).and_then(|value| value.to_str().ok()).unwrap_or("0");
            format!("moved jitter={jitter}\n")
        });
        let mut out = Vec::new();
        pktline::write(&mut out, jitter.as_deref().unwrap_or("nothing\n").as_bytes());
        out.extend(FLUSH);
        Ok(self.stream.write_all(&out).await?)
    }

    /// Without protocol v2: the client says what it wants, and then what it has, for as long as it hears that nothing of
    /// it is known. Stock git hears all of it at once, when the client is done.
    async fn fetch_step_by_step(mut self) -> Result<(), End> {
        let response = self.ask(Action::InfoRefs(Service::UploadPack), self.version.headers(), Vec::new()).await?;
        let advertisement = bytes(response).await?;
        self.stream.write_all(without_service(&advertisement)).await?;
        let Some(wants) = self.next_request().await? else { return Ok(()) };
        let deepens = deepens(&wants);
        if deepens {
            let edge = self.ask(Action::Call(Service::UploadPack), self.version.headers(), wants.clone()).await?;
            self.send(edge).await?;
        }
        let Some(request) = self.all_that_it_has(wants).await? else { return Ok(()) };
        let response = self.ask(Action::Call(Service::UploadPack), self.version.headers(), request).await?;
        // Over HTTP each answer begins with where history is cut off; here that was said.
        self.send_behind(response, deepens.then(Frames::default)).await
    }

    /// The wants with all that the client has behind them; `None` if it left.
    async fn all_that_it_has(&mut self, mut request: Vec<u8>) -> Result<Option<Vec<u8>>, End> {
        loop {
            let Some((word, length)) = said(&self.ahead)? else {
                if !self.more_or_end().await? {
                    return Ok(None);
                }
                continue;
            };
            let rest = self.ahead.split_off(length);
            let line = std::mem::replace(&mut self.ahead, rest);
            if word == Said::Flush {
                let mut nothing = Vec::new();
                pktline::write(&mut nothing, b"NAK\n");
                self.stream.write_all(&nothing).await?;
                continue;
            }
            request.extend(line);
            if request.len() as u64 > Limits::FETCH_BYTES {
                return Err(Refusal::TooLarge(Limits::FETCH_BYTES).into());
            }
            if word == Said::Done {
                return Ok(Some(request));
            }
        }
    }

    /// A push: what is to move, a pack if anything is to be there afterwards, and what became of it.
    async fn push(mut self) -> Result<(), End> {
        let response = self.ask(Action::InfoRefs(Service::ReceivePack), self.version.headers(), Vec::new()).await?;
        let advertisement = bytes(response).await?;
        self.stream.write_all(without_service(&advertisement)).await?;
        let (commands, length) = loop {
            match Commands::parse(&self.ahead)? {
                Some(parsed) => break parsed,
                None if self.ahead.len() > MAX_BYTES + pktline::MAX_DATA => {
                    return Err(Refusal::TooLarge(MAX_BYTES as u64).into());
                }
                None if !self.more_or_end().await? => return Ok(()),
                None => {}
            }
        };
        if commands.commands.is_empty() {
            return Ok(());
        }
        let has_pack = commands.commands.iter().any(|command| command.new.is_some());
        match self.pushed(length, has_pack).await {
            Ok(response) => self.send(response).await,
            // It waits to hear what became of each ref.
            Err(End::Refused(refusal)) if commands.can("report-status") => {
                let report = Report::refused(&commands, &refusal.line()).write(&commands);
                self.stream.write_all(&report).await?;
                self.hear_out().await;
                Ok(())
            }
            Err(end) => Err(end),
        }
    }

    /// Passes a push on while it comes, until the end of its pack.
    async fn pushed(&mut self, commands: usize, has_pack: bool) -> Result<Response<Body>, End> {
        let pack = self.ahead.split_off(commands);
        let commands = std::mem::take(&mut self.ahead);
        let (host, peer, who, target) = (self.host, self.peer, self.who, self.target);
        let (sender, receiver) = mpsc::channel(2);
        let body = Body::new(Coming { first: Some(commands.into()), rest: receiver });
        let (action, headers) = (Action::Call(Service::ReceivePack), self.version.headers());
        let mut logged = Logged::new(Instant::now(), 0, Transport::Ssh);
        let asked = ask(host, peer, who, target, (action, headers, body), self.accounts.clone(), &mut logged);
        let most = host.limits.push_bytes.max(host.limits.fleet_push_bytes).saturating_mul(UNPACKED);
        let end = PackEnd::new(if matches!(target, Target::Device(_)) {
            host.limits.push_bytes.saturating_mul(UNPACKED)
        } else {
            most
        });
        let passed = async {
            if has_pack {
                pass_on(self.stream, pack, end, sender).await;
            } else {
                drop(sender);
            }
        };
        let mut asked = Box::pin(asked);
        let answer = tokio::select! {
            answer = &mut asked => answer,
            () = passed => asked.as_mut().await,
        };
        drop(asked);
        written(host, peer, logged, &answer);
        Ok(answer?)
    }

    /// Lets a client say the rest of what nobody wants to hear, for a moment: cut off, it might not hear why.
    async fn hear_out(&mut self) {
        let mut ignored = vec![0; PACK_CHUNK];
        let rest = async { while self.stream.read(&mut ignored).await.is_ok_and(|count| count > 0) {} };
        let _ = timeout(Duration::from_secs(1), rest).await;
    }

    async fn ask(&self, action: Action, headers: HeaderMap, request: Vec<u8>) -> Result<Response<Body>, Refusal> {
        let mut logged = Logged::new(Instant::now(), request.len() as u64, Transport::Ssh);
        let (asked, accounts) = ((action, headers, Body::from(request)), self.accounts.clone());
        let answer = ask(self.host, self.peer, self.who, self.target, asked, accounts, &mut logged).await;
        written(self.host, self.peer, logged, &answer);
        answer
    }

    /// Sends an answer, for as long as the account is good: the body itself sees to that.
    async fn send(&mut self, response: Response<Body>) -> Result<(), End> {
        self.send_behind(response, None).await
    }

    /// The same without the first section of the answer, if that is looked for.
    async fn send_behind(&mut self, response: Response<Body>, mut section: Option<Frames>) -> Result<(), End> {
        let (mut body, mut head) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(|_| End::Gone)?.into_data() else { continue };
            if bytes.get(4..8) == Some(b"ERR ") {
                // Nothing follows an error, as if stock git had died of it.
                self.stream.write_all(&bytes).await?;
                return Err(End::Gone);
            }
            let Some(frames) = &mut section else {
                self.stream.write_all(&bytes).await?;
                continue;
            };
            head.extend(bytes);
            if let Some(length) = frames.end(&head)? {
                section = None;
                self.stream.write_all(&head.split_off(length)).await?;
                head = Vec::new();
            }
        }
        // An error has no sections.
        Ok(self.stream.write_all(&head).await?)
    }

    /// Reads more; `false` at the end. Between two requests a client may be silent for long, within one it may not, and
    /// neither if its account or the host ends.
    async fn more_or_end(&mut self) -> Result<bool, End> {
        let silence = if self.ahead.is_empty() { Limits::SESSION_IDLE } else { Limits::STALL };
        tokio::select! {
            more = fill(self.stream, &mut self.ahead) => Ok(more?),
            () = self.host.stop.cancelled() => Err(Refusal::Stopping.into()),
            refusal = gone(self.host, self.who, self.accounts.clone()) => Err(refusal.into()),
            () = tokio::time::sleep(silence) => {
                if self.ahead.is_empty() { Ok(false) } else { Err(Refusal::Timeout.into()) }
            }
        }
    }
}

/// Reads more of what a client says; `false` at the end.
async fn fill(stream: &mut Paced<Channel>, ahead: &mut Vec<u8>) -> io::Result<bool> {
    ahead.reserve(CHUNK);
    Ok(stream.read_buf(ahead).await? > 0)
}

/// Passes a pack on until its end; what can't be followed to its end is passed on as it is, and refused for that.
async fn pass_on(stream: &mut Paced<Channel>, mut chunk: Vec<u8>, mut end: PackEnd, to: mpsc::Sender<Bytes>) {
    loop {
        if chunk.is_empty() {
            chunk.reserve(PACK_CHUNK);
            match stream.read_buf(&mut chunk).await {
                Ok(count) if count > 0 => {}
                _ => return,
            }
        }
        let follow = move || {
            let fed = end.feed(&chunk);
            (end, chunk, fed)
        };
        let Ok((followed, mut read, fed)) = tokio::task::spawn_blocking(follow).await else { return };
        if let Ok(taken) = fed {
            read.truncate(taken);
        }
        if to.send(read.into()).await.is_err() || fed.is_err() || followed.is_done() {
            return;
        }
        (end, chunk) = (followed, Vec::new());
    }
}

/// The body of a push that is still coming.
struct Coming {
    first: Option<Bytes>,
    rest: mpsc::Receiver<Bytes>,
}

impl hyper::body::Body for Coming {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => self.rest.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }
}

/// Asks as an account whatever HTTPS could ask.
async fn ask(
    host: &Host,
    peer: &Peer,
    who: &Identity,
    target: Target<'_>,
    (action, headers, body): (Action, HeaderMap, Body),
    accounts: watch::Receiver<u64>,
    logged: &mut Logged,
) -> Result<Response<Body>, Refusal> {
    logged.account = Some(who.name.to_string());
    host.accounts.check(who)?;
    let allowance = allowance(host, who, Some(action))?;
    call(host, peer, Asking { who, target, action, headers, body, allowance, accounts }, logged).await
}

fn written(host: &Host, peer: &Peer, logged: Logged, answer: &Result<Response<Body>, Refusal>) {
    let (status, sent) = match answer {
        Ok(response) => (response.status(), response.body().size_hint().exact().unwrap_or(0)),
        Err(refusal) => (refusal.status(), 0),
    };
    logged.write(host, peer, status, sent);
}

/// An answer that is all in memory.
async fn bytes(response: Response<Body>) -> Result<Bytes, End> {
    Ok(response.into_body().collect().await.map_err(|_| End::Gone)?.to_bytes())
}
