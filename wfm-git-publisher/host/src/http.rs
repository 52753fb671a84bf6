//! One request over HTTPS: who asks, and for what; what is asked of a repository is answered as over SSH, by [`call`].

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, HttpBody};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use repo_model::error_chain;
use repo_model::roster::RosterSteps;
use tower::ServiceExt;

use crate::accounting::Peer;
use crate::accounts::{Identity, Role};
use crate::answer::{Refusal, text, with_type};
use crate::api::{self, Question};
use crate::call::{Asking, allowance, call};
use crate::enrolment::Enrolment;
use crate::logged::{Logged, Transport};
use crate::shared::Host;
use crate::wire::path::{Action, parse};

/// Answers a request. Never fails.
pub(crate) async fn answer(host: Host, peer: Arc<Peer>, request: Request<Body>) -> Response<Body> {
    let start = Instant::now();
    let method = request.method().clone();
    // As it was announced; how much came and went is counted where it does.
    let received = number(request.headers().get(CONTENT_LENGTH));
    let mut logged = Logged::new(start, received, Transport::Https(method));
    let refused = if api::has(request.uri().path()) { Refusal::into_problem } else { Refusal::into_response };
    let response = route(&host, &peer, request, &mut logged).await.unwrap_or_else(refused);
    // Of an answer that is still being made, the bytes aren't known yet.
    let sent = response.body().size_hint().exact().unwrap_or(0);
    logged.write(&host, &peer, response.status(), sent);
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
        "/trust" => return Box::pin(rosters(host, request.method(), request.uri().query(), logged)).await,
        path if Enrolment::has(path) => {
            logged.action = "enroll";
            return Ok(Box::pin(host.enrolment.answer(peer.address.ip(), request)).await);
        }
        _ => {}
    }
    let accounts = host.accounts.subscribe();
    let who = authenticate(host, peer, request.headers())?;
    logged.account = Some(who.name.to_string());
    peer.count_as(&who, &host.accounting, host.limits.connections_per_account)?;
    let (mut head, body) = request.into_parts();
    let (path, query) = (head.uri.path().to_owned(), head.uri.query().map(str::to_owned));
    let meant = parse(&path, query.as_deref());
    let allowance = allowance(host, &who, meant.map(|(_, action)| action))?;
    match path.as_str() {
        "/metrics" => return Box::pin(metrics(host, &who, &head.method, logged)).await,
        "/audit" => return Box::pin(audit_index(host, &who, &head.method, logged)).await,
        "/account" | "/account/renew" => {
            logged.action = "account";
            only(&head.method, if path == "/account" { READ } else { "POST" })?;
            head.extensions.insert(who);
            let answered = Box::pin(host.account.clone().oneshot(Request::from_parts(head, body))).await;
            return answered.map_err(|never| match never {});
        }
        path if api::has(path) => {
            // Only who may push may send along what they would push.
            let is_sent = head.method == Method::POST && who.role == Role::Operator;
            if !is_sent {
                of_the_fleet(&who, &head.method)?;
            }
            logged.action = "api";
            let text = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
            let sent = is_sent.then_some((head.headers, body));
            return Box::pin(api::answer(host, Question { who, text, sent, allowance, accounts })).await;
        }
        _ => {}
    }
    let (target, action) = meant.ok_or(Refusal::NotFound)?;
    let (verb, headers) = kept(head);
    let asking = Asking { who: &who, target, action, headers, body, allowance, accounts };
    // Whoever may not do it by any method isn't told of another one.
    asking.check(logged)?;
    only(&verb, method(action))?;
    Box::pin(call(host, peer, asking, logged)).await
}

/// What is still needed of a request's head. The rest goes: its address is a part of the buffer that all of it was read into, which
/// thousands of requests that wait would keep.
fn kept(head: Parts) -> (Method, HeaderMap) {
    (head.method, head.headers)
}

/// By the credentials of the request, and only where it has none by the certificate of its connection.
fn authenticate(host: &Host, peer: &Peer, headers: &HeaderMap) -> Result<Identity, Refusal> {
    let found = match (headers.get(AUTHORIZATION), peer.certificate()) {
        (None, Some(certificate)) => host.accounts.of_certificate(certificate),
        (authorization, _) => host.accounts.authenticate(authorization.and_then(|value| value.to_str().ok())),
    };
    Ok(found?)
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
    of_the_fleet(who, method)?;
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

/// The repositories that an auditor clones, and what their commits are checked by.
pub(crate) async fn audit_index(
    host: &Host,
    who: &Identity,
    method: &Method,
    logged: &mut Logged,
) -> Result<Response<Body>, Refusal> {
    of_the_fleet(who, method)?;
    logged.action = "audit";
    let publisher = Arc::clone(&host.publisher);
    let index = tokio::task::spawn_blocking(move || publisher.audit_index()).await.map_err(|_| Refusal::Internal)?;
    let index = index.map_err(|error| {
        tracing::error!(error = error_chain(&*error), "which repositories there are can't be told");
        Refusal::Internal
    })?;
    let text = serde_json::to_string(&index).map_err(|_| Refusal::Internal)?;
    Ok(with_type(StatusCode::OK, "application/json", text + "\n"))
}

/// The rosters after a version, for everyone: they hold public keys, and prove themselves by the roots' signatures.
async fn rosters(
    host: &Host,
    method: &Method,
    query: Option<&str>,
    logged: &mut Logged,
) -> Result<Response<Body>, Refusal> {
    only(method, READ)?;
    logged.action = "trust";
    let wanted = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("from="));
    let wrong = || Refusal::BadRequest("name the version that you have: /trust?from=1".to_owned());
    let from = wanted.and_then(|from| from.parse::<u64>().ok()).ok_or_else(wrong)?;
    let _place = host.rosters.try_acquire().map_err(|_| Refusal::Busy)?;
    let publisher = Arc::clone(&host.publisher);
    let steps = tokio::task::spawn_blocking(move || publisher.rosters_after(from)).await;
    let steps = steps.map_err(|_| Refusal::Internal)?.map_err(|error| {
        tracing::error!(error = error_chain(&*error), "the rosters can't be told");
        Refusal::Internal
    })?;
    let steps =
        steps.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>().map_err(|_| Refusal::Internal)?;
    Ok(with_type(StatusCode::OK, "application/json", rosters_text(&steps, RosterSteps::MAX)))
}

/// The answer, with as many of the oldest as fit: whoever gets no more asks again, from the last version that it got.
fn rosters_text(steps: &[String], most: usize) -> String {
    let mut text = "{\"rosters\":[".to_owned();
    for step in steps {
        if text.len() + step.len() + ",]}\n".len() > most {
            break;
        }
        if !text.ends_with('[') {
            text.push(',');
        }
        text += step;
    }
    text + "]}\n"
}

/// What is said of the whole fleet is read by auditors and operators; for devices and persons of a site it isn't there.
fn of_the_fleet(who: &Identity, method: &Method) -> Result<(), Refusal> {
    if matches!(who.role, Role::Device | Role::Site) { Err(Refusal::NotFound) } else { only(method, READ) }
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

#[cfg(test)]
mod tests {
    use super::rosters_text;

    #[test]
    fn as_many_of_the_oldest_rosters_are_told_as_fit() {
        let steps = ["\"a\"", "\"bb\"", "\"ccc\""].map(str::to_owned);
        for (most, expected) in
            [(1 << 20, r#"["a","bb","ccc"]"#), (29, r#"["a","bb","ccc"]"#), (28, r#"["a","bb"]"#), (0, "[]")]
        {
            let text = rosters_text(&steps, most);
            assert_eq!(text, format!("{{\"rosters\":{expected}}}\n"), "{most}");
            assert!(most == 0 || text.len() <= most, "{most}");
        }
    }
}
