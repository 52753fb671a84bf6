//! Waiting instead of polling: a request that ends when `desired` or `freshness` moves.
//!
//! Whoever moves a ref, this process or another one, the file system tells at once; what it doesn't tell is found by
//! looking, often where it can't be watched and now and then everywhere.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use repo_git::CommitId;
use repo_model::branch::HEADS;
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

/// The header that says how many seconds a request waits at most.
pub(crate) const WAIT: &str = "wfm-wait";

/// The header that says within how many milliseconds to come for the change.
const JITTER: &str = "wfm-jitter";

/// How many devices a second are called to come, so that a publish of all is no herd.
const CALLS_PER_SECOND: u32 = 300;

/// How often repositories that can't be watched are looked at.
const UNWATCHED: Duration = Duration::from_millis(100);

/// How often all others are, in case the file system forgot to tell.
const SWEEP: Duration = Duration::from_secs(10);

/// Hints that are kept until they are looked at; when there are more, everything is looked at.
const HINTS: usize = 10_000;

/// `GET …/wait`
pub(crate) async fn wait(
    host: &Host,
    peer: &Peer,
    hosted: &Arc<Hosted>,
    known: Known,
    longest: Duration,
) -> Result<Response<Body>, Refusal> {
    let known = Tips { desired: known.desired, freshness: known.freshness };
    let end = tokio::time::Instant::now() + longest;
    // Watched first, read then: what moves in between is told.
    let mut tips = hosted.tips.subscribe();
    host.wakes.watch(hosted);
    Box::pin(host.repos.refs(hosted)).await.map_err(|error| unreadable(hosted, &error))?;
    let _waiting = host.metrics.waiting();
    peer.waits(true);
    let changed = timeout_at(end, tips.wait_for(|now| *now != known)).await;
    match changed {
        Ok(Ok(now)) => Ok(changed_to(&now, host.wakes.call())),
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

fn changed_to(now: &Tips, jitter: Duration) -> Response<Body> {
    let text = |id: Option<CommitId>| id.map(|id| id.to_string());
    let json = serde_json::json!({Branch::Desired.as_str(): text(now.desired), Branch::Freshness.as_str(): text(now.freshness)});
    let mut response = with_type(StatusCode::OK, "application/json", format!("{json}\n"));
    let millis = u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX);
    response.headers_mut().insert(JITTER, HeaderValue::from(millis));
    response
}

/// Notices that refs moved.
pub(crate) struct Wakes {
    watcher: Mutex<Option<RecommendedWatcher>>,
    watched: Mutex<HashSet<String>>,
    unwatched: Mutex<HashSet<String>>,
    hints: mpsc::Sender<String>,
    overflow: AtomicBool,
    calls: Mutex<Calls>,
}

/// A queue of devices that were called, emptied at a steady rate.
#[derive(Debug)]
struct Calls {
    free_at: Instant,
}

impl Calls {
    /// How far behind the queue is with one more in it.
    fn call(&mut self, now: Instant) -> Duration {
        let backlog = self.free_at.saturating_duration_since(now);
        self.free_at = now + backlog + Duration::from_secs(1) / CALLS_PER_SECOND;
        backlog
    }
}

impl std::fmt::Debug for Wakes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wakes").field("watched", &lock(&self.watched).len()).finish_non_exhaustive()
    }
}

impl Wakes {
    /// The hints go to [`run`].
    pub(crate) fn new(home: &Path) -> (Arc<Self>, mpsc::Receiver<String>) {
        let (hints, hinted) = mpsc::channel(HINTS);
        let wakes = Arc::new(Self {
            watcher: Mutex::default(),
            watched: Mutex::default(),
            unwatched: Mutex::default(),
            hints,
            overflow: AtomicBool::new(false),
            calls: Mutex::new(Calls { free_at: Instant::now() }),
        });
        let (told, home) = (Arc::downgrade(&wakes), home.to_owned());
        let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Some(wakes) = told.upgrade() else { return };
            match event {
                Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
                Ok(event) if event.need_rescan() => wakes.overflow.store(true, Ordering::Relaxed),
                Ok(event) => event.paths.iter().filter_map(|path| moved(&home, path)).for_each(|name| wakes.hint(name)),
                Err(_) => wakes.overflow.store(true, Ordering::Relaxed),
            }
        });
        match made {
            Ok(watcher) => *lock(&wakes.watcher) = Some(watcher),
            Err(error) => tracing::warn!(%error, "moves of refs are only seen by looking"),
        }
        (wakes, hinted)
    }

    /// Says that the refs of a repository may have moved.
    pub(crate) fn hint(&self, name: String) {
        if self.hints.try_send(name).is_err() {
            self.overflow.store(true, Ordering::Relaxed);
        }
    }

    /// Watches a repository from now on.
    fn watch(&self, hosted: &Hosted) {
        if !lock(&self.watched).insert(hosted.name.clone()) {
            return;
        }
        let heads = hosted.path.join(HEADS);
        let watched = lock(&self.watcher).as_mut().map(|watcher| watcher.watch(&heads, RecursiveMode::NonRecursive));
        if !matches!(watched, Some(Ok(()))) {
            tracing::debug!(repository = hosted.name, "it can't be watched, and is looked at often");
            lock(&self.unwatched).insert(hosted.name.clone());
            // Whoever looks may rest for longer than that.
            self.hint(hosted.name.clone());
        }
    }

    /// Watches a repository anew: what moved without a hint isn't what is watched, another directory took its place.
    fn watch_again(&self, hosted: &Hosted) {
        if lock(&self.watched).remove(&hosted.name)
            && let Some(watcher) = lock(&self.watcher).as_mut()
        {
            // It fails when what was watched is gone, which is as good.
            let _ = watcher.unwatch(&hosted.path.join(HEADS));
        }
        self.watch(hosted);
    }

    /// Another device is called to come; within how long it should.
    fn call(&self) -> Duration {
        lock(&self.calls).call(Instant::now())
    }
}

/// The repository whose branch a path is. Lock files are none; that a ref's file went is only a hint, too.
fn moved(home: &Path, path: &Path) -> Option<String> {
    let inside = path.strip_prefix(home).ok()?;
    let is_lock = inside.extension().is_some_and(|ending| ending == "lock");
    let name: PathBuf = inside.components().take_while(|part| part.as_os_str() != "refs").collect();
    (!is_lock && name.as_path() != inside).then(|| name.to_string_lossy().into_owned())
}

/// Whether the refs of a repository had moved.
fn refresh(hosted: &Hosted) -> bool {
    hosted.refresh().unwrap_or_else(|error| {
        tracing::warn!(repository = hosted.name, error = error_chain(&error), "it can't be looked at");
        false
    })
}

/// Looks at the repositories that may have moved, for as long as the host lives.
pub(crate) async fn run(host: Host, mut hinted: mpsc::Receiver<String>) {
    let mut sweep = tokio::time::Instant::now() + SWEEP;
    loop {
        let next = if lock(&host.wakes.unwatched).is_empty() {
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
        names.extend(lock(&host.wakes.unwatched).iter().cloned());
        let everything = host.wakes.overflow.swap(false, Ordering::Relaxed) || tokio::time::Instant::now() >= sweep;
        if everything {
            sweep = tokio::time::Instant::now() + SWEEP;
        }
        let looking = host.clone();
        let look = move || {
            let waited_for = |hosted: &Arc<Hosted>| hosted.tips.receiver_count() > 0;
            let told: Vec<_> = names.iter().filter_map(|name| looking.repos.get(name)).filter(waited_for).collect();
            for hosted in &told {
                refresh(hosted);
            }
            let all = if everything { looking.repos.known() } else { Vec::new() };
            for hosted in all.iter().filter(|hosted| waited_for(hosted) && !names.contains(&hosted.name)) {
                if refresh(hosted) {
                    looking.wakes.watch_again(hosted);
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
    fn only_the_path_of_a_branch_is_a_hint() {
        let found = |path: &str| moved(Path::new("/home"), Path::new(path));
        assert_eq!(found("/home/devices/a.git/refs/heads/desired").as_deref(), Some("devices/a.git"));
        assert_eq!(found("/home/fleet.git/refs/heads/a/b").as_deref(), Some("fleet.git"));
        for other in ["/home/devices/a.git/refs/heads/desired.lock", "/home/devices/a.git/HEAD", "/elsewhere/refs/x"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

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

    #[test]
    fn a_herd_is_called_at_a_steady_rate_and_one_alone_at_once() {
        let now = Instant::now();
        let mut calls = Calls { free_at: now };
        assert_eq!(calls.call(now), Duration::ZERO);
        let last = (0..3 * CALLS_PER_SECOND).map(|_| calls.call(now)).last().unwrap();
        assert!(last > Duration::from_millis(2900) && last < Duration::from_millis(3100), "{last:?}");
        assert_eq!(calls.call(now + Duration::from_secs(60)), Duration::ZERO);
    }
}
