//! Waiting instead of polling: a request that ends when `desired`, `freshness` or, if that is asked for, `site` moves.
//!
//! Whoever moves a ref, this process or another one, the file system tells at once; what it doesn't tell is found by
//! looking, often where it can't be watched and now and then everywhere.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use repo_git::CommitId;
use repo_model::header::JITTER;
use repo_model::{Branch, error_chain};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout_at};

use crate::accounting::Peer;
use crate::answer::{Refusal, with_type};
use crate::fetch::unreadable;
use crate::lock::lock;
use crate::repos::{Hosted, Tips};
use crate::shared::Host;
use crate::wire::path::Known;

/// How often repositories that can't be watched are looked at.
const UNWATCHED: Duration = Duration::from_millis(100);

/// How often all others are, in case the file system forgot to tell.
const SWEEP: Duration = Duration::from_secs(10);

/// `GET …/wait`
pub(crate) async fn wait(
    host: &Host,
    peer: &Peer,
    hosted: &Arc<Hosted>,
    known: Known,
    longest: Duration,
) -> Result<Response<Body>, Refusal> {
    let has_moved = |now: &Tips| {
        (now.desired, now.freshness) != (known.desired, known.freshness)
            || known.site.is_some_and(|site| site != now.site)
    };
    let end = tokio::time::Instant::now() + longest;
    // Watched first, read then: what moves in between wakes it.
    let mut tips = hosted.tips.subscribe();
    host.watcher.watch(hosted);
    Box::pin(host.repos.refs(hosted)).await.map_err(|error| unreadable(hosted, &error))?;
    let _waiting = host.metrics.waiting();
    peer.set_waiting(true);
    let changed = timeout_at(end, tips.wait_for(has_moved)).await;
    match changed {
        Ok(Ok(now)) => Ok(changed_to(&now, known.site.is_some(), lock(&host.calls).call(Instant::now()))),
        Ok(Err(_)) => Err(Refusal::Stopping),
        Err(_) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
    }
}

/// How long a request with these headers waits at most: `limit`, or what it prefers (RFC 7240, 4.3) if that is less.
pub(crate) fn longest(headers: &HeaderMap, limit: Duration) -> Duration {
    let values = headers.get_all("prefer").into_iter().filter_map(|value| value.to_str().ok());
    let preferences = values.flat_map(|value| value.split(','));
    let wait = |preference: &str| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        let seconds = value.trim().trim_matches('"').parse().ok()?;
        name.trim().eq_ignore_ascii_case("wait").then(|| Duration::from_secs(seconds))
    };
    preferences.filter_map(wait).next().map_or(limit, |preferred| preferred.min(limit))
}

fn changed_to(now: &Tips, with_site: bool, jitter: Duration) -> Response<Body> {
    let text = |id: Option<CommitId>| id.map(|id| id.to_string());
    let mut json = serde_json::json!({Branch::Desired.as_str(): text(now.desired), Branch::Freshness.as_str(): text(now.freshness)});
    if with_site {
        json[Branch::Site.as_str()] = text(now.site).into();
    }
    let mut response = with_type(StatusCode::OK, "application/json", format!("{json}\n"));
    let millis = u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX);
    response.headers_mut().insert(JITTER, HeaderValue::from(millis));
    response
}

/// Whether the refs of a repository had moved.
fn refresh(hosted: &Hosted) -> bool {
    hosted.refresh().unwrap_or_else(|error| {
        tracing::warn!(repository = hosted.name, error = error_chain(&error), "it can't be looked at");
        false
    })
}

/// Looks at the repositories that may have moved, for as long as the host lives.
pub(crate) async fn refresh_moved(host: Host, mut hinted: mpsc::Receiver<String>) {
    let mut sweep = tokio::time::Instant::now() + SWEEP;
    loop {
        let next = if host.watcher.unwatched().is_empty() {
            sweep
        } else {
            sweep.min(tokio::time::Instant::now() + UNWATCHED)
        };
        let mut names = HashSet::new();
        tokio::select! {
            // All are cancel-safe: what isn't received stays in the channel.
            () = host.stop.cancelled() => return,
            () = sleep_until(next) => {}
            name = hinted.recv() => match name {
                Some(name) => _ = names.insert(name),
                None => return,
            },
        }
        while let Ok(name) = hinted.try_recv() {
            names.insert(name);
        }
        names.extend(host.watcher.unwatched());
        let everything = host.watcher.take_overflow() || tokio::time::Instant::now() >= sweep;
        if everything {
            sweep = tokio::time::Instant::now() + SWEEP;
        }
        let looking = host.clone();
        let look = move || {
            let waited_for = |hosted: &Arc<Hosted>| hosted.tips.receiver_count() > 0;
            let moved: Vec<_> = names.iter().filter_map(|name| looking.repos.get(name)).filter(waited_for).collect();
            for hosted in &moved {
                refresh(hosted);
            }
            let all = if everything { looking.repos.known() } else { Vec::new() };
            for hosted in all.iter().filter(|hosted| waited_for(hosted) && !names.contains(&hosted.name)) {
                if refresh(hosted) {
                    looking.watcher.watch_again(hosted);
                }
            }
        };
        if tokio::task::spawn_blocking(look).await.is_err() {
            tracing::error!("looking for moved refs failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_no_longer_than_it_prefers_and_the_host_allows() {
        let limit = Duration::from_secs(300);
        let longest = |values: &[&'static str]| {
            let headers = values.iter().map(|value| ("prefer".parse().unwrap(), HeaderValue::from_static(value)));
            longest(&headers.collect(), limit).as_secs()
        };
        for (values, seconds) in [
            (&[][..], 300),
            (&["wait=40"], 40),
            (&["wait=900"], 300),
            (&["respond-async, Wait = \"7\"; x=1"], 7),
            (&["respond-async", "wait=7", "wait=8"], 7),
            (&["wait"], 300),
            (&["wait=-1, waiting=3"], 300),
        ] {
            assert_eq!(longest(values), seconds, "{values:?}");
        }
    }
}
