//! The three requests of an enrolment, as strangers send them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use repo_git::durable::Stamp;
use repo_model::enrolment::{EnrolmentError, EnrolmentFile, Kind, Pending, Reveal, Start};
use repo_model::envelope::LAYOUT;
use repo_model::{KeyText, error_chain, json};
use serde_json::{Value, json as object};
use tokio::sync::Semaphore;

use super::claims::{Claims, Opening, Verdict, Waiting};
use super::exchange::{Exchanges, Offer};
use crate::answer::with_type;
use crate::body;
use crate::lock::lock;

/// The most bytes of a first message.
const MAX_START: u64 = 1 << 10;

/// The most bytes of a second one: a claim as JSON in JSON, and its proofs.
const MAX_REVEAL: u64 = 32 << 10;

/// Requests at the same time; they take none of those that accounts have.
const PLACES: usize = 64;

/// After how many seconds one may ask again where as many wait as may.
const FULL: Duration = Duration::from_secs(60);

/// All enrolments at this host.
#[derive(Debug)]
pub(crate) struct Enrolment {
    claims: Claims,
    exchanges: Mutex<Exchanges>,
    /// What `open.json` says, and its stamp when that was read.
    opening: Mutex<(Option<Stamp>, Option<Arc<Open>>)>,
    places: Arc<Semaphore>,
    /// For bodies that don't fit into memory.
    temp: PathBuf,
}

/// An opening and what it offers.
#[derive(Debug)]
struct Open {
    opening: Opening,
    offer: Offer,
}

/// What is answered: a status, and a document where there is one.
type Answer = (StatusCode, Option<Value>, Option<Duration>);

impl Enrolment {
    pub(crate) fn new(claims: PathBuf, temp: PathBuf) -> Self {
        let (exchanges, opening) = (Mutex::default(), Mutex::default());
        Self { claims: Claims::new(claims), exchanges, opening, places: Arc::new(Semaphore::new(PLACES)), temp }
    }

    /// Whether this is one of the paths that strangers may ask for.
    pub(crate) fn has(path: &str) -> bool {
        path == "/enroll" || path.starts_with("/enroll/")
    }

    /// Answers a request from there. Never fails.
    pub(crate) async fn answer(self: &Arc<Self>, from: IpAddr, request: Request<Body>) -> Response<Body> {
        let late = lock(&self.exchanges).ask(from, Instant::now());
        if let Err(late) = late {
            return respond(too_many(late));
        }
        let Ok(_place) = Arc::clone(&self.places).try_acquire_owned() else {
            return respond((StatusCode::SERVICE_UNAVAILABLE, None, Some(Duration::from_secs(5))));
        };
        let (head, sent) = request.into_parts();
        let name = head.uri.path().strip_prefix("/enroll/").map(str::to_owned);
        let limit = match (&name, &head.method) {
            (None, &Method::POST) => MAX_START,
            (Some(_), &Method::POST) => MAX_REVEAL,
            (Some(_), &Method::GET) => 0,
            (name, _) => return not_by(if name.is_some() { "GET, POST" } else { "POST" }),
        };
        // Before anything is known of whoever asks, nothing of theirs is taken that won't be looked at.
        let bytes = match body::read(&head.headers, sent, limit, &self.temp).await.map(body::Spool::into_memory) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => return respond(failed()),
            Err(refusal) => return refusal.into_response(),
        };
        let this = Arc::clone(self);
        let work = move || match (name, head.method) {
            (None, _) => this.start(from, &bytes),
            (Some(name), Method::POST) => this.reveal(from, &name, &bytes),
            (Some(name), _) => this.ask(&name),
        };
        respond(tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| failed()))
    }

    /// `POST /enroll`.
    fn start(&self, from: IpAddr, bytes: &[u8]) -> Answer {
        let now = Timestamp::now();
        let open = match self.open() {
            Ok(open) => open.filter(|open| open.opening.admits(from, now)),
            Err(error) => return logged(&*error),
        };
        let Some(open) = open else { return nothing() };
        let start: Start = match json::read(bytes) {
            Ok(start) => start,
            Err(_) => return refused(&EnrolmentError::Malformed(String::new())),
        };
        match start {
            Start { layout: LAYOUT, kind: Kind::Code, .. } => {}
            // What isn't offered is as closed.
            Start { layout: LAYOUT, .. } => return nothing(),
            _ => return refused(&EnrolmentError::Malformed(String::new())),
        }
        match self.claims.has_room(from, now) {
            Ok(true) => {}
            Ok(false) => return too_many(FULL),
            Err(error) => return logged(&error),
        }
        let (mut nonce, mut name) = ([0; 32], [0; 16]);
        if let Err(error) = getrandom::fill(&mut nonce).and_then(|()| getrandom::fill(&mut name)) {
            return logged(&error);
        }
        let begun = lock(&self.exchanges).begin(start, open.offer.clone(), from, (nonce, name), Instant::now());
        match begun {
            Ok(started) => document(StatusCode::CREATED, &started),
            Err(late) => too_many(late),
        }
    }

    /// `POST /enroll/<request>`.
    fn reveal(&self, from: IpAddr, request: &str, bytes: &[u8]) -> Answer {
        let Some(begun) = lock(&self.exchanges).take(request, Instant::now()) else { return nothing() };
        let reveal: Reveal = match json::read(bytes) {
            Ok(reveal) => reveal,
            Err(_) => return refused(&EnrolmentError::Malformed(String::new())),
        };
        let checked = reveal.check(&begun.start, &begun.nonce, begun.offer.text.as_bytes(), &signer);
        let transcript = match checked {
            Ok((_, transcript)) => transcript,
            Err(error) => {
                tracing::info!(address = %from, error = %error, "an enrolment is refused");
                return refused(&error);
            }
        };
        let now = Timestamp::now();
        let waiting = Waiting {
            layout: LAYOUT,
            request: request.to_owned(),
            number: 0,
            received: now,
            address: from,
            claim: reveal.claim,
            transcript,
            roster: begun.offer.roster,
            verdict: None,
        };
        match self.claims.add(waiting, now) {
            Ok(Some(waiting)) => {
                tracing::info!(address = %from, number = waiting.number, "a device waits to be enrolled");
                // It is told at once how it stands, and asks again: a stranger's connection isn't kept.
                document(StatusCode::ACCEPTED, &Pending { wait: 0 })
            }
            Ok(None) => too_many(FULL),
            Err(error) => logged(&error),
        }
    }

    /// `GET /enroll/<request>`.
    fn ask(&self, request: &str) -> Answer {
        match self.claims.get(request, Timestamp::now()) {
            Ok(None) => nothing(),
            Ok(Some(Waiting { verdict: None, .. })) => (StatusCode::NO_CONTENT, None, None),
            Ok(Some(Waiting { verdict: Some(Verdict::Approved { answer, .. }), .. })) => {
                document(StatusCode::OK, &answer)
            }
            Ok(Some(Waiting { verdict: Some(Verdict::Rejected { .. }), .. })) => {
                (StatusCode::CONFLICT, Some(object!({ "error": "rejected" })), None)
            }
            Err(error) => logged(&error),
        }
    }

    /// What `open.json` says now.
    fn open(&self) -> Result<Option<Arc<Open>>, Box<dyn std::error::Error>> {
        let stamp = Stamp::of(&self.claims.dir().join("open.json"));
        let mut kept = lock(&self.opening);
        if stamp.is_none() {
            return Ok(None);
        }
        if kept.0 != stamp {
            let open = self.claims.opening()?.map(|opening| {
                let file = EnrolmentFile::parse(opening.offer.as_bytes())?;
                let offer = Offer { text: opening.offer.as_str().into(), roster: file.trust.sha256 };
                Ok::<_, EnrolmentError>(Arc::new(Open { opening, offer }))
            });
            *kept = (stamp, open.transpose()?);
        }
        Ok(kept.1.clone())
    }
}

/// Which key made a signature.
fn signer(bytes: &[u8], namespace: &str, signature: &str) -> Option<KeyText> {
    repo_git::sign::verify(namespace, bytes, signature).ok()?.to_string().parse().ok()
}

/// The same for whoever isn't let in, whatever is behind it.
fn nothing() -> Answer {
    (StatusCode::NOT_FOUND, None, None)
}

fn too_many(late: Duration) -> Answer {
    (StatusCode::TOO_MANY_REQUESTS, None, Some(late))
}

fn failed() -> Answer {
    (StatusCode::SERVICE_UNAVAILABLE, None, Some(Duration::from_secs(60)))
}

fn logged(error: &(dyn std::error::Error + 'static)) -> Answer {
    tracing::error!(error = error_chain(error), "enrolments can't be kept");
    failed()
}

/// One word, and nothing of why: it is a stranger who asks.
fn refused(error: &EnrolmentError) -> Answer {
    let status = match error {
        EnrolmentError::Malformed(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::FORBIDDEN,
    };
    (status, Some(object!({ "error": error.code() })), None)
}

fn document(status: StatusCode, document: &impl serde::Serialize) -> Answer {
    match serde_json::to_value(document) {
        Ok(value) => (status, Some(value), None),
        Err(error) => logged(&error),
    }
}

fn respond((status, document, late): Answer) -> Response<Body> {
    let mut response = match document {
        Some(document) => with_type(status, "application/json", format!("{document}\n")),
        None if status == StatusCode::NO_CONTENT => with_type(status, "text/plain; charset=utf-8", Body::empty()),
        None => crate::answer::text(status, status.canonical_reason().unwrap_or_default()),
    };
    let headers = response.headers_mut();
    headers.insert(axum::http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(late) = late {
        headers.insert(RETRY_AFTER, HeaderValue::from(late.as_secs().max(1)));
    }
    response
}

fn not_by(allowed: &'static str) -> Response<Body> {
    let mut response = respond((StatusCode::METHOD_NOT_ALLOWED, None, None));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
