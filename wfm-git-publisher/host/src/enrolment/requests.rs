//! The three requests of an enrolment, as strangers send them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use repo_model::enrolment::{Claim, EnrolmentError, Kind, Pending, Reveal, Start, TokenProof, Transcript};
use repo_model::envelope::LAYOUT;
use repo_model::{DeviceId, Digest, error_chain, json};
use serde_json::{Value, json as object};
use tokio::sync::Semaphore;

use super::claims::{Claims, Verdict, Waiting};
use super::exchange::{Exchanges, Offer};
use super::opened::{Kept, Open, WithTokens, signer};
use crate::answer::with_type;
use crate::body;
use crate::lock::lock;
use crate::publisher::{Publisher, ReadmitError};

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
    publisher: Arc<dyn Publisher>,
    exchanges: Mutex<Exchanges>,
    opening: Mutex<Kept<Open>>,
    tokens: Mutex<Kept<WithTokens>>,
    places: Arc<Semaphore>,
    /// For bodies that don't fit into memory.
    temp: PathBuf,
}

/// What is answered: a status, and a document where there is one.
type Answer = (StatusCode, Option<Value>, Option<Duration>);

impl Enrolment {
    pub(crate) fn new(publisher: Arc<dyn Publisher>, claims: PathBuf, temp: PathBuf) -> Self {
        let (exchanges, opening, tokens) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (claims, places) = (Claims::new(claims), Arc::new(Semaphore::new(PLACES)));
        Self { claims, publisher, exchanges, opening, tokens, places, temp }
    }

    /// Whether this is one of the paths that strangers may ask for.
    pub(crate) fn has(path: &str) -> bool {
        path == "/enroll" || path.starts_with("/enroll/")
    }

    /// Answers a request from there. Never fails.
    pub(crate) async fn answer(self: &Arc<Self>, from: IpAddr, request: Request<Body>) -> Response<Body> {
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
        // What a first message or a question is about is known once it is read.
        if let (Some(name), &Method::POST) = (&name, &head.method) {
            let kind = lock(&self.exchanges).kind(name);
            if let Err(late) = self.pace(kind, from) {
                return respond(too_many(late));
            }
        }
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
            (Some(name), _) => this.ask(from, &name),
        };
        respond(tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| failed()))
    }

    /// Whether somebody from there may ask for something of this kind, which is a code's where nothing is known of it.
    fn pace(&self, kind: Option<Kind>, from: IpAddr) -> Result<(), Duration> {
        lock(&self.exchanges).ask(kind.unwrap_or(Kind::Code), from, Instant::now())
    }

    /// `POST /enroll`.
    fn start(&self, from: IpAddr, bytes: &[u8]) -> Answer {
        let now = Timestamp::now();
        let start = json::read::<Start>(bytes).ok().filter(|start| start.layout == LAYOUT);
        if let Err(late) = self.pace(start.as_ref().map(|start| start.kind), from) {
            return too_many(late);
        }
        let codes = match Kept::read(&self.opening, &self.claims) {
            Ok(open) => open.filter(|open: &Arc<Open>| open.opening.admits(from, now)),
            Err(error) => return logged(&*error),
        };
        let tokens = match Kept::read(&self.tokens, &self.claims) {
            Ok(tokens) => tokens.filter(|tokens: &Arc<WithTokens>| tokens.any_counts(now)),
            Err(error) => return logged(&*error),
        };
        let Some(start) = start else {
            let is_closed = codes.is_none() && tokens.is_none();
            return if is_closed { nothing() } else { refused(&EnrolmentError::Malformed(String::new())) };
        };
        let offer = match start.kind {
            Kind::Code => codes.map(|open| open.offer.clone()),
            Kind::Token => tokens.map(|tokens| tokens.offer.clone()),
            Kind::Known => Some(Offer::nothing()),
        };
        // What isn't offered is as closed.
        let Some(offer) = offer else { return nothing() };
        if start.kind == Kind::Code {
            match self.claims.has_room(from, now) {
                Ok(true) => {}
                Ok(false) => return too_many(FULL),
                Err(error) => return logged(&error),
            }
        }
        self.begin(start, offer, from)
    }

    fn begin(&self, start: Start, offer: Offer, from: IpAddr) -> Answer {
        let (mut nonce, mut name) = ([0; 32], [0; 16]);
        if let Err(error) = getrandom::fill(&mut nonce).and_then(|()| getrandom::fill(&mut name)) {
            return logged(&error);
        }
        let begun = lock(&self.exchanges).begin(start, offer, from, (nonce, name), Instant::now());
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
        let now = Timestamp::now();
        if begun.start.kind == Kind::Known {
            return match checked {
                Ok((claim, transcript)) if claim.replaces.is_some() => {
                    let waiting = |device| Waiting {
                        rekeys: Some(device),
                        ..waiting(request, from, (reveal.claim, transcript), begun.offer.roster, None, now)
                    };
                    self.rekey(from, &claim, waiting, now)
                }
                checked => self.readmit(from, checked.map(|(claim, _)| claim)),
            };
        }
        let vouched = checked.map_err(Ok).and_then(|(claim, transcript)| match &reveal.token {
            None => Ok((transcript, 0)),
            Some(proof) => {
                let tokens = Kept::read(&self.tokens, &self.claims).map_err(Err)?;
                let unknown = Err(EnrolmentError::TokenUnknown);
                let places = tokens.map_or(unknown, |tokens| tokens.vouches(proof, &claim, &transcript, now));
                places.map(|places| (transcript, places)).map_err(Ok)
            }
        });
        let (transcript, places) = match vouched {
            Ok(vouched) => vouched,
            Err(Ok(error)) => {
                tracing::info!(address = %from, error = %error, "an enrolment is refused");
                return refused(&error);
            }
            Err(Err(error)) => return logged(&*error),
        };
        let waiting = waiting(request, from, (reveal.claim, transcript), begun.offer.roster, reveal.token, now);
        self.keep(waiting, places, now)
    }

    /// Lets one that proved itself wait for a person.
    fn keep(&self, waiting: Waiting, places: u32, now: Timestamp) -> Answer {
        let (from, device) = (waiting.address, waiting.rekeys.clone());
        match self.claims.add(waiting, places, now) {
            Ok(Some(Waiting { number, .. })) => {
                match device {
                    None => tracing::info!(address = %from, number, "a device waits to be enrolled"),
                    Some(device) => tracing::info!(address = %from, number, %device, "a device asks for a new key"),
                }
                // It is told at once how it stands, and asks again: a stranger's connection isn't kept.
                document(StatusCode::ACCEPTED, &Pending { wait: 0 })
            }
            Ok(None) => too_many(FULL),
            Err(error) => logged(&error),
        }
    }

    /// The answer to a device that proved the key of its claim, and by that alone comes in or doesn't.
    fn readmit(&self, from: IpAddr, claim: Result<Claim, EnrolmentError>) -> Answer {
        match claim.map_err(Into::into).and_then(|claim| self.publisher.readmit(&claim)) {
            Ok(answer) => {
                tracing::info!(address = %from, device = %answer.device, "a device comes back by its key");
                document(StatusCode::OK, &answer)
            }
            Err(ReadmitError::Refused(error)) => {
                tracing::info!(address = %from, error = %error, "a device doesn't come back by its key");
                refused(&error)
            }
            Err(error) => logged(&error),
        }
    }

    /// The answer to a device that proved a new key, and the one that it shall replace: a person decides.
    fn rekey(&self, from: IpAddr, claim: &Claim, waiting: impl FnOnce(DeviceId) -> Waiting, now: Timestamp) -> Answer {
        match self.publisher.may_rekey(claim) {
            Ok(device) => self.keep(waiting(device), 0, now),
            Err(ReadmitError::Refused(error)) => {
                tracing::info!(address = %from, error = %error, "a device gets no new key");
                refused(&error)
            }
            Err(error) => logged(&error),
        }
    }

    /// `GET /enroll/<request>`.
    fn ask(&self, from: IpAddr, request: &str) -> Answer {
        let found = self.claims.get(request, Timestamp::now());
        if let Err(late) = self.pace(found.as_ref().ok().and_then(|one| one.as_ref().map(Waiting::kind)), from) {
            return too_many(late);
        }
        match found {
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
}

/// What waits for a person, who said nothing yet. Its number comes when it is kept.
fn waiting(
    request: &str,
    address: IpAddr,
    (claim, transcript): (String, Transcript),
    roster: Digest,
    token: Option<TokenProof>,
    received: Timestamp,
) -> Waiting {
    let (request, rekeys, verdict) = (request.to_owned(), None, None);
    Waiting { layout: LAYOUT, request, number: 0, received, address, claim, transcript, roster, token, rekeys, verdict }
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
