//! Questions about the fleet: `GET /api/…` is answered by this very program, called as a process of its own. With `POST` an operator
//! sends along what they would push, and the process gets it on its standard input.
//!
//! The host doesn't know what may be asked: it lets in who may read the whole fleet, bounds what an answer takes up, and passes on
//! what the process printed. So a question that is slow, large or wrong holds up no device.

use std::io;
use std::process::Stdio;

use axum::body::Body;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::accounting::{Counted, Room};
use crate::accounts::Identity;
use crate::answer::{Refusal, problem, with_type};
use crate::body;
use crate::limits::Limits;
use crate::process::{Ended, Running};
use crate::request::gone;
use crate::shared::Host;
use crate::spool::Spool;

/// The first argument of this program when it answers a question. The publisher's home follows, and the question: a path with its
/// query. Where an operator sends something along, the account's name follows, and the paths that it is bound to.
pub const ANSWER: &str = "answer";

/// How the process ends where there is no such question (`EX_UNAVAILABLE` of `sysexits.h`).
pub const UNKNOWN: u8 = 69;

/// How it ends where the question is about something that isn't there (`EX_NOINPUT`); as every command it would end with 1.
pub const MISSING: u8 = 66;

/// How it ends where it doesn't understand the question, as every command does.
const WRONG: u8 = 2;

/// Exit codes from here on say that something is wrong with the program or its machine.
const INTERNAL: u8 = 70;

/// The header of an answer with the exit code of the command that gave it.
pub const EXIT_CODE: &str = "wfm-exit-code";

/// The header of an answer with what the command said besides, percent-encoded UTF-8; absent if it said nothing.
pub const NOTES: &str = "wfm-notes";

/// The most bytes of [`NOTES`]: half of what clients commonly take of all headers.
const MAX_NOTES: usize = 4 << 10;

/// What is encoded in [`NOTES`], beside what isn't ASCII.
const ENCODED: AsciiSet = CONTROLS.add(b'%');

/// The end of notes that were too long.
const MORE: &str = "%0Aand more, which the same command tells beside the publisher's home";

/// The most bytes that are sent along with a question, packed or not.
pub const MAX_SENT: u64 = 1 << 20;

/// What a process may use of memory: much of it is address space that threads reserve.
const MEMORY: u64 = 8 << 30;

/// How much processes step back for what devices ask (`nice`).
const NICENESS: i32 = 10;

/// A question from somebody who may read all of the fleet.
pub(crate) struct Question {
    pub(crate) who: Identity,
    /// Its path, and its query.
    pub(crate) text: String,
    /// What is sent along.
    pub(crate) sent: Option<Sent>,
    /// That this account has one more request in flight.
    pub(crate) allowance: Counted<String>,
    /// Tells that accounts changed; made before the identity was found.
    pub(crate) accounts: watch::Receiver<u64>,
}

/// The headers and the body of a `POST`.
pub(crate) type Sent = (HeaderMap, Body);

/// Whether a path is a question's.
pub(crate) fn has(path: &str) -> bool {
    path.starts_with("/api/")
}

/// Answers a question, no longer than the account is good and the host lives.
pub(crate) async fn answer(host: &Host, question: Question) -> Result<Response<Body>, Refusal> {
    let Question { who, text, sent, allowance, accounts } = question;
    let room = Room::new(allowance, host.requests.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?);
    let (spool, ended) = tokio::select! {
        done = made(host, &who, &text, sent) => done?,
        refusal = gone(host, &who, accounts.clone()) => return Err(refusal),
        () = host.stop.cancelled() => return Err(Refusal::Stopping),
    };
    // None where it was killed, by a limit or a person.
    let code = ended.status.code().and_then(|code| u8::try_from(code).ok());
    match code {
        Some(MISSING) => Ok(problem(StatusCode::NOT_FOUND, &ended.said, Some(1))),
        Some(code @ 0..UNKNOWN) if code == 0 || !spool.is_empty() => {
            let of = host.clone();
            let gone = async move { gone(&of, &who, accounts).await };
            let body = Body::new(spool.into_body(gone, room));
            Ok(answered(content_type(&text), body, code, &ended.said))
        }
        Some(UNKNOWN) => Ok(problem(StatusCode::NOT_FOUND, &ended.said, None)),
        Some(WRONG) => Ok(problem(StatusCode::BAD_REQUEST, &ended.said, Some(WRONG.into()))),
        Some(code @ 0..INTERNAL) => Ok(problem(StatusCode::UNPROCESSABLE_ENTITY, &ended.said, Some(code.into()))),
        Some(INTERNAL..) | None => {
            tracing::error!(question = text, status = %ended.status, said = ended.said, "a question can't be answered");
            Err(Refusal::Internal)
        }
    }
}

/// Lets a process make the answer. It ends as soon as that is made, however slowly the client takes it.
async fn made(host: &Host, who: &Identity, question: &str, sent: Option<Sent>) -> Result<(Spool, Ended), Refusal> {
    let account = who.name.as_str();
    let failed = |error: io::Error| {
        tracing::error!(question, %error, "a question can't be answered");
        Refusal::Internal
    };
    // Who sends slowly takes nobody's turn.
    let sent = match sent {
        Some((headers, body)) => Some(body::read(&headers, body, MAX_SENT, &host.temp).await?),
        None => None,
    };
    let _slot = host.questions.enter(account).await?;
    let mut running = start(host, question, sent.as_ref().map(|_| who)).map_err(failed)?;
    if let Some(sent) = sent {
        running.feed(sent.head, sent.rest);
    }
    let mut output = running.output.take().ok_or(Refusal::Internal)?;
    let making = async {
        let spool = host.spools.keep(account, &mut output).await?;
        Ok((spool, running.end().await.map_err(failed)?))
    };
    timeout(Limits::QUESTION, making).await.map_err(|_| Refusal::Timeout)?
}

/// `by`: who sends something along.
fn start(host: &Host, question: &str, by: Option<&Identity>) -> io::Result<Running> {
    let mut command = Command::new(&host.program);
    command.arg(ANSWER).arg(&host.home).arg(question).env("PATH", &host.path).stdin(Stdio::null());
    if let Some(Identity { name, paths, .. }) = by {
        command.arg(name.as_str()).args(paths).stdin(Stdio::piped());
    }
    let running = Running::start(command, MEMORY)?;
    running.step_back(NICENESS);
    Ok(running)
}

/// JSON, unless another form was asked for.
fn content_type(question: &str) -> &'static str {
    let (_, query) = question.split_once('?').unwrap_or_default();
    let other = query.split('&').filter_map(|pair| pair.strip_prefix("output=")).any(|form| form != "json");
    if other { "text/plain; charset=utf-8" } else { "application/json" }
}

fn answered(content_type: &'static str, body: Body, code: u8, said: &str) -> Response<Body> {
    let mut response = with_type(StatusCode::OK, content_type, body);
    let headers = response.headers_mut();
    headers.insert(EXIT_CODE, HeaderValue::from(u16::from(code)));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(notes) = HeaderValue::from_str(&notes(said)).ok().filter(|notes| !notes.is_empty()) {
        headers.insert(NOTES, notes);
    }
    response
}

/// What a command said, as far as it fits into a header: whole lines.
fn notes(said: &str) -> String {
    let mut notes = String::new();
    for line in said.lines() {
        let line = utf8_percent_encode(line, &ENCODED).to_string();
        if notes.len() + line.len() + "%0A".len() + MORE.len() > MAX_NOTES {
            return notes + MORE;
        }
        let next = if notes.is_empty() { "" } else { "%0A" };
        notes.extend([next, &line]);
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_said_fits_into_a_header_and_comes_back() {
        let said = "warning: 50 % of it\nhint: über";
        assert_eq!(notes(said), "warning: 50 %25 of it%0Ahint: %C3%BCber");
        assert_eq!(notes(""), "");
        let long = notes(&"über\n".repeat(1000));
        assert!(long.len() <= MAX_NOTES && long.ends_with(MORE) && HeaderValue::from_str(&long).is_ok());
    }

    #[test]
    fn an_answer_is_json_unless_another_form_is_asked_for() {
        for (question, expected) in [
            ("/api/v1/status", "application/json"),
            ("/api/v1/status?output=json", "application/json"),
            ("/api/v1/status?failed&output=text", "text/plain; charset=utf-8"),
            ("/api/v1/plan?output=markdown", "text/plain; charset=utf-8"),
        ] {
            assert_eq!(content_type(question), expected, "{question}");
        }
    }
}
