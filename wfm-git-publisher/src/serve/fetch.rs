//! Reading: `info/refs`, `ls-refs` answered from the object store, and fetches by stock `git upload-pack`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response, StatusCode};
use hyper::body::Frame;
use repo_git::OpenError;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::Host;
use super::answer::{Refusal, with_type};
use super::body;
use super::limits::Limits;
use super::process::{Git, Running};
use super::repos::{Hosted, Refs, ReposError};
use super::wire::ls_refs::ADVERTISEMENT;
use super::wire::path::Service;
use super::wire::pktline;
use super::wire::upload::Request;

/// An answer of at most this many bytes waits for the client in memory; of a larger one only a part does.
const BUFFERED: usize = 1 << 20;

/// How much of an answer is read at once.
const CHUNK: usize = 64 << 10;

/// The most bytes of an advertisement of refs.
const ADVERTISED: u64 = 64 << 20;

/// `GET …/info/refs`
pub(super) async fn info_refs(
    host: &Host,
    hosted: &Arc<Hosted>,
    service: Service,
    version: Option<&str>,
) -> Result<Response<Body>, Refusal> {
    let (mut out, kind) = (Vec::new(), content_type(service, "advertisement"));
    if service == Service::UploadPack && is_v2(version) {
        for line in ADVERTISEMENT {
            pktline::write(&mut out, line.as_bytes());
        }
        out.extend(pktline::FLUSH);
        return Ok(with_type(StatusCode::OK, kind, out));
    }
    let _slot = host.gate(service).enter().await?;
    let mut git = Git::new(&host.path, service, &hosted.path).argument("--http-backend-info-refs");
    // Whatever else the client asks for, v0 is spoken to it.
    if version.is_some_and(|version| version.split(':').any(|word| word == "version=1")) {
        git = git.environment("GIT_PROTOCOL", "version=1");
    }
    let running = git.spawn().map_err(|error| internal(hosted, &error))?;
    let finished = timeout(Limits::TOTAL, running.finish(ADVERTISED)).await.map_err(|_| Refusal::Timeout)?;
    let (refs, ended) = finished.map_err(|error| internal(hosted, &error))?;
    if !ended.status.success() {
        return Err(failed(hosted, &ended.said));
    }
    pktline::write(&mut out, format!("# service=git-{}\n", service.name()).as_bytes());
    out.extend(pktline::FLUSH);
    out.extend(refs);
    Ok(with_type(StatusCode::OK, kind, out))
}

/// `POST …/git-upload-pack`
pub(super) async fn upload_pack(
    host: &Host,
    hosted: &Arc<Hosted>,
    version: Option<&str>,
    headers: &HeaderMap,
    request: Body,
) -> Result<Response<Body>, Refusal> {
    let spool = body::read(headers, request, Limits::FETCH_BYTES, &host.temp).await?;
    let body = spool.into_memory().map_err(|error| internal(hosted, &error))?;
    let parsed = Request::parse(&body, is_v2(version)).map_err(|error| Refusal::Bad(error.to_string()))?;
    let kind = content_type(Service::UploadPack, "result");
    let refs = host.repos.refs(hosted).await.map_err(|error| unreadable(hosted, &error))?;
    match parsed {
        Request::Probe => Ok(with_type(StatusCode::OK, kind, Vec::new())),
        Request::LsRefs(asked) => Ok(with_type(StatusCode::OK, kind, asked.answer(&refs.0))),
        Request::Fetch(wants) => match wants.iter().find(|want| !hosted.has_told(&refs, want)) {
            Some(want) => {
                let mut out = Vec::new();
                pktline::write(&mut out, format!("ERR upload-pack: not our ref {want}\n").as_bytes());
                Ok(with_type(StatusCode::OK, kind, out))
            }
            None => spawn(host, hosted, version, body).await,
        },
    }
}

async fn spawn(
    host: &Host,
    hosted: &Arc<Hosted>,
    version: Option<&str>,
    body: Vec<u8>,
) -> Result<Response<Body>, Refusal> {
    let slot = host.gate(Service::UploadPack).enter().await?;
    let mut git = Git::new(&host.path, Service::UploadPack, &hosted.path);
    if is_v2(version) {
        git = git.environment("GIT_PROTOCOL", "version=2");
    }
    let mut running = git.spawn().map_err(|error| internal(hosted, &error))?;
    running.feed(body, None);
    let mut output = running.output.take().ok_or(Refusal::Internal)?;
    let mut begin = Vec::with_capacity(CHUNK);
    let mut beginning = (&mut output).take(BUFFERED as u64);
    let read = timeout(Limits::TOTAL, beginning.read_to_end(&mut begin)).await.map_err(|_| Refusal::Timeout)?;
    read.map_err(|error| internal(hosted, &error))?;
    let kind = content_type(Service::UploadPack, "result");
    if begin.len() == BUFFERED {
        return Ok(with_type(StatusCode::OK, kind, Body::new(stream(hosted, begin, output, running, slot))));
    }
    let ended = running.end().await.map_err(|error| internal(hosted, &error))?;
    if !ended.status.success() && begin.is_empty() {
        return Err(failed(hosted, &ended.said));
    }
    Ok(with_type(StatusCode::OK, kind, begin))
}

/// Passes an answer on while it is made. The process ends when the client goes away or takes nothing for too long.
fn stream(
    hosted: &Arc<Hosted>,
    begin: Vec<u8>,
    mut output: ChildStdout,
    running: Running,
    slot: OwnedSemaphorePermit,
) -> Stream {
    let (sender, receiver) = mpsc::channel(2);
    let hosted = Arc::clone(hosted);
    tokio::spawn(async move {
        let _slot = slot;
        let pass = async {
            let mut chunk = Bytes::from(begin);
            while !chunk.is_empty() {
                let sent = timeout(Limits::STALL, sender.send(Ok(chunk))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return Err("the client takes nothing more".to_owned());
                }
                let mut buffer = vec![0; CHUNK];
                let count = output.read(&mut buffer).await.map_err(|error| error.to_string())?;
                buffer.truncate(count);
                chunk = Bytes::from(buffer);
            }
            Ok(())
        };
        let passed = timeout(Limits::TOTAL, pass).await.unwrap_or_else(|_| Err("it took too long".to_owned()));
        match passed {
            Err(reason) => tracing::warn!(repository = hosted.name, reason, "a fetch was broken off"),
            Ok(()) => match running.end().await {
                Ok(ended) if ended.status.success() => return,
                Ok(ended) => tracing::warn!(repository = hosted.name, said = ended.said, "a fetch failed"),
                Err(error) => tracing::warn!(repository = hosted.name, %error, "a fetch failed"),
            },
        }
        // The client must not take this for the end of a good answer.
        let _ = sender.try_send(Err("the answer was broken off".into()));
    });
    Stream(receiver)
}

/// The body of an answer that is still being made.
struct Stream(mpsc::Receiver<Result<Bytes, axum::BoxError>>);

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        self.0.poll_recv(context).map(|next| next.map(|chunk| chunk.map(Frame::data)))
    }
}

impl Hosted {
    /// Whether a ref stands there now, or stood there when someone was told so.
    fn has_told(&self, refs: &Refs, want: &repo_git::CommitId) -> bool {
        refs.0.iter().any(|one| one.id.as_ref() == Some(want)) || self.told_before(want)
    }
}

/// Whether the `Git-Protocol` header asks for v2.
pub(super) fn is_v2(version: Option<&str>) -> bool {
    version.is_some_and(|version| version.split(':').any(|word| word == "version=2"))
}

pub(super) fn content_type(service: Service, what: &str) -> &'static str {
    match (service, what) {
        (Service::UploadPack, "advertisement") => "application/x-git-upload-pack-advertisement",
        (Service::UploadPack, _) => "application/x-git-upload-pack-result",
        (Service::ReceivePack, "advertisement") => "application/x-git-receive-pack-advertisement",
        (Service::ReceivePack, _) => "application/x-git-receive-pack-result",
    }
}

/// Why refs can't be told: the repository may have gone since it was found.
pub(super) fn unreadable(hosted: &Hosted, error: &ReposError) -> Refusal {
    match error {
        ReposError::Open(OpenError::NotARepository { .. }) => Refusal::NotFound,
        error => internal(hosted, error),
    }
}

/// Tells the log what the client isn't told.
pub(super) fn internal(hosted: &Hosted, error: &dyn std::error::Error) -> Refusal {
    tracing::error!(repository = hosted.name, error = super::chain(error), "a request failed");
    Refusal::Internal
}

fn failed(hosted: &Hosted, said: &str) -> Refusal {
    tracing::error!(repository = hosted.name, said, "git failed");
    Refusal::Internal
}
