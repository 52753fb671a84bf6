//! Reading: `info/refs`, `ls-refs` answered from the object store, and fetches by stock `git upload-pack`.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use repo_git::OpenError;
use repo_model::header::REFS;
use repo_model::{Digest, error_chain};
use tokio::time::timeout;

use crate::accounts::Identity;
use crate::answer::{Refusal, with_type};
use crate::body;
use crate::limits::Limits;
use crate::process::Git;
use crate::repos::{Hosted, Refs, ReposError};
use crate::request::{Asked, gone};
use crate::shared::Host;
use crate::spool::Spool;
use crate::wire::ls_refs::ADVERTISEMENT;
use crate::wire::path::Service;
use crate::wire::pktline;
use crate::wire::upload::Request;

const REFS_NAME: usize = 32;

/// The most bytes of an advertisement of refs.
const ADVERTISED: u64 = 64 << 20;

/// `GET …/info/refs`
pub(crate) async fn info_refs(
    host: &Host,
    hosted: &Arc<Hosted>,
    service: Service,
    version: Option<&str>,
    who: &Identity,
) -> Result<Response<Body>, Refusal> {
    let (mut out, kind) = (Vec::new(), content_type(service, "advertisement"));
    if service == Service::UploadPack && is_v2(version) {
        for line in ADVERTISEMENT {
            pktline::write(&mut out, line.as_bytes());
        }
        out.extend(pktline::FLUSH);
        return Ok(with_type(StatusCode::OK, kind, out));
    }
    let _slot = host.gate(service).enter(who.name.as_str()).await?;
    let mut git = Git::new(&host.path, service, &hosted.path).argument("--http-backend-info-refs");
    // Whatever else the client asks for, v0 is spoken to it.
    if version.is_some_and(|version| version.split(':').any(|word| word == "version=1")) {
        git = git.environment("GIT_PROTOCOL", "version=1");
    }
    let mut running = git.spawn().map_err(|error| internal(hosted, &error))?;
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
pub(crate) async fn upload_pack(
    host: &Host,
    hosted: &Arc<Hosted>,
    version: Option<&str>,
    asked: Asked<'_>,
) -> Result<Response<Body>, Refusal> {
    let Asked { who, headers, body, room, accounts } = asked;
    let spool = body::read(headers, body, Limits::FETCH_BYTES, &host.temp).await?;
    let body = spool.into_memory().map_err(|error| internal(hosted, &error))?;
    let parsed = Request::parse(&body, is_v2(version)).map_err(|error| Refusal::BadRequest(error.to_string()))?;
    let kind = content_type(Service::UploadPack, "result");
    let refs = host.repos.refs(hosted).await.map_err(|error| unreadable(hosted, &error))?;
    match parsed {
        Request::Probe => Ok(with_type(StatusCode::OK, kind, Vec::new())),
        Request::LsRefs(wanted) => Ok(named(wanted.answer(&refs.0), kind, headers)),
        Request::Fetch(wants) => match wants.iter().find(|want| !hosted.has_advertised(&refs, want)) {
            Some(want) => {
                let mut out = Vec::new();
                pktline::write(&mut out, format!("ERR upload-pack: not our ref {want}\n").as_bytes());
                Ok(with_type(StatusCode::OK, kind, out))
            }
            None => {
                let spool = made(host, hosted, who, version, body).await?;
                let (of, who) = (host.clone(), who.clone());
                let gone = async move { gone(&of, &who, accounts).await };
                Ok(with_type(StatusCode::OK, kind, Body::new(spool.into_body(gone, room))))
            }
        },
    }
}

/// An answer to `ls-refs` under the name that it has; only that it is the same, for who has it already.
fn named(answer: Vec<u8>, kind: &'static str, asked: &HeaderMap) -> Response<Body> {
    let name = &Digest::of(&answer).hex()[..REFS_NAME];
    if asked.get(REFS).is_some_and(|known| known == name) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return response;
    }
    let mut response = with_type(StatusCode::OK, kind, answer);
    response.headers_mut().extend(HeaderValue::from_str(name).ok().map(|name| (HeaderName::from_static(REFS), name)));
    response
}

/// Lets stock git make an answer. It ends as soon as that is made, however slowly the client takes it.
async fn made(
    host: &Host,
    hosted: &Arc<Hosted>,
    who: &Identity,
    version: Option<&str>,
    body: Vec<u8>,
) -> Result<Spool, Refusal> {
    let account = who.name.as_str();
    let _slot = host.gate(Service::UploadPack).enter(account).await?;
    let mut git = Git::new(&host.path, Service::UploadPack, &hosted.path);
    if is_v2(version) {
        git = git.environment("GIT_PROTOCOL", "version=2");
    }
    let mut running = git.spawn().map_err(|error| internal(hosted, &error))?;
    running.feed(body, None);
    let mut output = running.output.take().ok_or(Refusal::Internal)?;
    let kept = timeout(Limits::TOTAL, host.spools.keep(account, &mut output));
    let spool = kept.await.map_err(|_| Refusal::Timeout)??;
    let ended = running.end().await.map_err(|error| internal(hosted, &error))?;
    // What it says to the client is passed on; half of a pack isn't.
    if !ended.status.success() && (spool.is_empty() || spool.is_large()) {
        return Err(failed(hosted, &ended.said));
    }
    Ok(spool)
}

impl Hosted {
    /// Whether a ref stands there now, or stood there when refs were advertised not long ago.
    fn has_advertised(&self, refs: &Refs, want: &repo_git::CommitId) -> bool {
        refs.0.iter().any(|one| one.id.as_ref() == Some(want)) || self.was_advertised(want)
    }
}

/// Whether the `Git-Protocol` header asks for v2.
pub(crate) fn is_v2(version: Option<&str>) -> bool {
    version.is_some_and(|version| version.split(':').any(|word| word == "version=2"))
}

pub(crate) fn content_type(service: Service, what: &str) -> &'static str {
    match (service, what) {
        (Service::UploadPack, "advertisement") => "application/x-git-upload-pack-advertisement",
        (Service::UploadPack, _) => "application/x-git-upload-pack-result",
        (Service::ReceivePack, "advertisement") => "application/x-git-receive-pack-advertisement",
        (Service::ReceivePack, _) => "application/x-git-receive-pack-result",
    }
}

/// Why refs can't be advertised: the repository may have gone since it was found.
pub(crate) fn unreadable(hosted: &Hosted, error: &ReposError) -> Refusal {
    match error {
        ReposError::Open(OpenError::NotARepository { .. }) => Refusal::NotFound,
        error => internal(hosted, error),
    }
}

/// Logs what the client doesn't get to know.
pub(crate) fn internal(hosted: &Hosted, error: &dyn std::error::Error) -> Refusal {
    tracing::error!(repository = hosted.name, error = error_chain(error), "a request failed");
    Refusal::Internal
}

fn failed(hosted: &Hosted, said: &str) -> Refusal {
    tracing::error!(repository = hosted.name, said, "git failed");
    Refusal::Internal
}
