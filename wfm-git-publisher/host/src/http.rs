//! One request: who asks, for what, whether that is allowed, and the answer; each leaves a line in the access log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use repo_model::error_chain;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::access::{Access, Who, decide};
use crate::accounting::{Peer, Room};
use crate::accounts::{Identity, Role};
use crate::answer::{Refusal, text, with_type};
use crate::repos::Hosted;
use crate::request::{Asked, gone};
use crate::shared::Host;
use crate::wire::path::{Action, Service, Target, parse};
use crate::{fetch, receive, wait};

/// What a request turned out to be, for log and metrics.
#[derive(Debug, Default)]
struct Logged {
    action: &'static str,
    account: Option<String>,
    repository: Option<String>,
}

/// Answers a request. Never fails.
pub(crate) async fn answer(host: Host, peer: Arc<Peer>, request: Request<Body>) -> Response<Body> {
    let start = Instant::now();
    let method = request.method().clone();
    // As it was announced; how much came and went is counted where it does.
    let received = number(request.headers().get(CONTENT_LENGTH));
    let mut logged = Logged { action: "other", ..Logged::default() };
    let response = route(&host, &peer, request, &mut logged).await.unwrap_or_else(Refusal::into_response);
    let (took, status) = (start.elapsed(), response.status().as_u16());
    host.metrics.answered(logged.action, status, took);
    // Of an answer that is still being made, the bytes aren't known yet.
    let sent = response.body().size_hint().exact().unwrap_or(0);
    tracing::info!(
        target: "access",
        address = %peer.address.ip(),
        account = logged.account,
        repository = logged.repository,
        %method,
        action = logged.action,
        status,
        received,
        sent,
        ms = took.as_millis(),
    );
    response
}

async fn route(
    host: &Host,
    peer: &Peer,
    request: Request<Body>,
    logged: &mut Logged,
) -> Result<Response<Body>, Refusal> {
    match request.uri().path() {
        "/healthz" => return only(request.method(), READ).map(|()| text(StatusCode::OK, "ok")),
        "/readyz" => return only(request.method(), READ).and_then(|()| ready(host)),
        _ => {}
    }
    let accounts = host.accounts.subscribe();
    let who = authenticate(host, request.headers())?;
    logged.account = Some(who.name.to_string());
    peer.count_as(&who, &host.accounting, host.limits.connections_per_account)?;
    let (head, body) = request.into_parts();
    let meant = parse(head.uri.path(), head.uri.query());
    let counts = match meant {
        Some((_, Action::Wait(_))) => &host.accounting.waits,
        _ => &host.accounting.requests,
    };
    let allowance = counts.take_for(&who, host.limits.requests_per_account)?;
    match head.uri.path() {
        "/metrics" => return Box::pin(metrics(host, &who, &head.method, logged)).await,
        "/account" | "/account/renew" => {
            logged.action = "account";
            only(&head.method, if head.uri.path() == "/account" { READ } else { "POST" })?;
            let answered = Box::pin(host.account.clone().oneshot(Request::from_parts(head, body))).await;
            return answered.map_err(|never| match never {});
        }
        _ => {}
    }
    let (target, action) = meant.ok_or(Refusal::NotFound)?;
    match decide(Who { role: who.role, device: who.device.as_ref() }, target, action) {
        Access::Hidden => return Err(Refusal::NotFound),
        Access::Forbidden(why) => return Err(Refusal::Forbidden(why)),
        Access::Granted => {}
    }
    logged.action = name(action);
    only(&head.method, method(action))?;
    let found = Box::pin(host.repos.find(target)).await.map_err(|error| {
        tracing::error!(?target, error = error_chain(&error), "a repository can't be read");
        Refusal::Internal
    })?;
    let hosted = found.ok_or(Refusal::NotFound)?;
    logged.repository = Some(hosted.name.clone());
    if let Action::Wait(known) = action {
        let malformed = "`desired` and `freshness` must each stand once in the query, as 40 hex digits";
        let known = known.ok_or_else(|| Refusal::Bad(malformed.to_owned()))?;
        // Of a request that waits, only what it waits for is kept.
        let longest = wait::longest(&head.headers, Duration::from_secs(host.limits.wait_seconds));
        drop((head, body));
        return Box::pin(waiting(host, peer, &hosted, (known, longest), &who, accounts)).await;
    }
    let place = host.requests.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let (headers, room) = (&head.headers, Room::new(allowance, place));
    let asked = Asked { who: &who, headers, body, room, accounts: accounts.clone() };
    let mut response = tokio::select! {
        response = Box::pin(serve(host, &hosted, action, asked)) => response?,
        refusal = gone(host, &who, accounts) => return Err(refusal),
    };
    if matches!(action, Action::Call(_)) {
        // No cache keeps what answers a POST, and devices get it all day.
        response.headers_mut().remove(CACHE_CONTROL);
    }
    if matches!(target, Target::Device(_)) && !matches!(action, Action::Call(Service::ReceivePack)) {
        response.headers_mut().insert(repo_model::header::WAIT, HeaderValue::from(host.limits.wait_seconds));
    }
    Ok(response)
}

async fn serve(host: &Host, hosted: &Arc<Hosted>, action: Action, asked: Asked<'_>) -> Result<Response<Body>, Refusal> {
    let version = asked.headers.get("git-protocol").and_then(|value| value.to_str().ok());
    match action {
        Action::InfoRefs(service) => fetch::info_refs(host, hosted, service, version, asked.who).await,
        Action::Call(Service::UploadPack) => fetch::upload_pack(host, hosted, version, asked).await,
        Action::Call(Service::ReceivePack) => receive::receive_pack(host, hosted, asked).await,
        Action::Wait(_) => Err(Refusal::Internal),
    }
}

/// Waits for a change, and no longer than the account is good and the host lives.
async fn waiting(
    host: &Host,
    peer: &Peer,
    hosted: &Arc<Hosted>,
    (known, longest): (crate::wire::path::Known, Duration),
    who: &Identity,
    accounts: watch::Receiver<u64>,
) -> Result<Response<Body>, Refusal> {
    tokio::select! {
        response = wait::wait(host, peer, hosted, known, longest) => response,
        () = host.stop.cancelled() => Err(Refusal::Stopping),
        refusal = gone(host, who, accounts) => Err(refusal),
    }
}

fn authenticate(host: &Host, headers: &HeaderMap) -> Result<Identity, Refusal> {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    host.accounts.authenticate(authorization).map_err(|_| Refusal::Unauthorized)
}

fn ready(host: &Host) -> Result<Response<Body>, Refusal> {
    if host.stop.is_cancelled() {
        return Err(Refusal::Stopping);
    }
    if !host.publisher.is_ready() {
        return Err(Refusal::Busy);
    }
    Ok(text(StatusCode::OK, "ready"))
}

/// Names of devices and accounts stay out of the metrics, but their numbers are nothing for a device, either.
async fn metrics(host: &Host, who: &Identity, method: &Method, logged: &mut Logged) -> Result<Response<Body>, Refusal> {
    if who.role == Role::Device {
        return Err(Refusal::NotFound);
    }
    only(method, READ)?;
    logged.action = "metrics";
    let publisher = Arc::clone(&host.publisher);
    match tokio::task::spawn_blocking(move || publisher.figures()).await.map_err(|_| Refusal::Internal)? {
        Ok(figures) => host.metrics.set_figures(&figures),
        Err(error) => tracing::warn!(error = error_chain(&*error), "how the devices stand can't be told"),
    }
    if let Some(expires) = host.certificate.expires() {
        host.metrics.certificate_expires(expires.as_second() - Timestamp::now().as_second());
    }
    let text = host.metrics.text().map_err(|_| Refusal::Internal)?;
    Ok(with_type(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text))
}

fn name(action: Action) -> &'static str {
    match action {
        Action::InfoRefs(Service::UploadPack) => "info-refs",
        Action::InfoRefs(Service::ReceivePack) => "info-refs-push",
        Action::Call(Service::UploadPack) => "upload-pack",
        Action::Call(Service::ReceivePack) => "receive-pack",
        Action::Wait(_) => "wait",
    }
}

/// The methods of what is only read.
const READ: &str = "GET, HEAD";

fn method(action: Action) -> &'static str {
    match action {
        Action::InfoRefs(_) | Action::Wait(_) => "GET",
        Action::Call(_) => "POST",
    }
}

/// Refuses any method but these, which are listed as the header `Allow` lists them.
fn only(method: &Method, allowed: &'static str) -> Result<(), Refusal> {
    if allowed.split(", ").any(|one| one == method.as_str()) { Ok(()) } else { Err(Refusal::Method(allowed)) }
}

fn number(value: Option<&HeaderValue>) -> u64 {
    value.and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
}
