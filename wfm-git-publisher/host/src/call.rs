//! What is asked of a repository, over HTTPS or SSH: whether that is allowed, and the answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, HeaderValue, Response};
use repo_model::error_chain;
use tokio::sync::watch;

use crate::access::{Access, Who, decide};
use crate::accounting::{Counted, Peer, Room};
use crate::accounts::Identity;
use crate::answer::Refusal;
use crate::logged::Logged;
use crate::repos::Hosted;
use crate::request::{Asked, gone};
use crate::shared::Host;
use crate::wire::path::{Action, Known, Service, Target};
use crate::{fetch, receive, wait};

/// A request to a repository from somebody who is known.
pub(crate) struct Asking<'a> {
    pub(crate) who: &'a Identity,
    pub(crate) target: Target<'a>,
    pub(crate) action: Action,
    /// `Git-Protocol`, and what else says how it is to be answered.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    /// That this account has one more request in flight.
    pub(crate) allowance: Counted<String>,
    /// Tells that accounts changed; made before the identity was found.
    pub(crate) accounts: watch::Receiver<u64>,
}

impl Asking<'_> {
    /// Refuses what this account may not do, or may not even see.
    pub(crate) fn check(&self, logged: &mut Logged) -> Result<(), Refusal> {
        let Identity { role, device, devices, .. } = self.who;
        match decide(Who { role: *role, device: device.as_ref(), devices }, self.target, self.action) {
            Access::Hidden => Err(Refusal::NotFound),
            Access::Forbidden(why) => Err(Refusal::Forbidden(why)),
            Access::Granted => {
                logged.action = name(self.action);
                Ok(())
            }
        }
    }
}

/// Counts one more request of an account, unless it has as many in flight as it may have. Those that wait for a change
/// are counted apart.
pub(crate) fn allowance(host: &Host, who: &Identity, action: Option<Action>) -> Result<Counted<String>, Refusal> {
    let counts = match action {
        Some(Action::Wait(_)) => &host.accounting.waits,
        _ => &host.accounting.requests,
    };
    counts.take_for(who, host.limits.requests_per_account)
}

/// Answers a request to a repository.
pub(crate) async fn call(
    host: &Host,
    peer: &Peer,
    asking: Asking<'_>,
    logged: &mut Logged,
) -> Result<Response<Body>, Refusal> {
    asking.check(logged)?;
    let Asking { who, target, action, headers, body, allowance, accounts } = asking;
    let found = Box::pin(host.repos.find(target)).await.map_err(|error| {
        tracing::error!(?target, error = error_chain(&error), "a repository can't be read");
        Refusal::Internal
    })?;
    let hosted = found.ok_or(Refusal::NotFound)?;
    logged.repository = Some(hosted.name.clone());
    if let Action::Wait(known) = action {
        let malformed =
            "`desired` and `freshness`, and `site` if it is there, must each stand once in the query, as 40 hex digits";
        let known = known.ok_or_else(|| Refusal::BadRequest(malformed.to_owned()))?;
        // Of a request that waits, only what it waits for is kept.
        let longest = wait::longest(&headers, Duration::from_secs(host.limits.wait_seconds));
        drop((headers, body));
        let _allowance = allowance;
        return Box::pin(waiting(host, peer, &hosted, (known, longest), who, accounts)).await;
    }
    let place = host.requests.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let room = Room::new(allowance, place);
    let asked = Asked { who, headers: &headers, body, room, accounts: accounts.clone() };
    let mut response = tokio::select! {
        response = Box::pin(serve(host, &hosted, action, asked)) => response?,
        refusal = gone(host, who, accounts) => return Err(refusal),
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
    (known, longest): (Known, Duration),
    who: &Identity,
    accounts: watch::Receiver<u64>,
) -> Result<Response<Body>, Refusal> {
    tokio::select! {
        response = wait::wait(host, peer, hosted, known, longest) => response,
        () = host.stop.cancelled() => Err(Refusal::Stopping),
        refusal = gone(host, who, accounts) => Err(refusal),
    }
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
