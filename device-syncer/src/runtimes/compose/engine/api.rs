//! The engine's own API on its socket: no process is needed to ask it.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use repo_http::{Agent, Body, HttpError, Problem, Request, Response, Timeouts, Url};
use repo_model::{IntoMap, error_chain};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::shortened::Shortened;
use crate::runtimes::client::QUERY;

/// The versions of the API that are known here, as the number after `1.`: Docker 20.10 has the oldest. A newer engine
/// answers an older version as long as it has it.
const OLDEST: u32 = 41;
const NEWEST: u32 = 51;

const CONNECT: Duration = Duration::from_secs(10);

/// An answer that is shorter is read as a whole, in bytes; a longer one as it comes.
const SMALL: u64 = 64 << 10;

/// How much of what an engine says of a failure is read.
const ANSWER: u64 = 16 << 10;

/// The engine's API behind a socket of this machine, over HTTP.
#[derive(Debug)]
pub(super) struct Api {
    socket: PathBuf,
    agent: Agent,
    /// What was agreed on; asked again after a failure, because another engine may be there then.
    version: Mutex<Option<u32>>,
    /// Nothing is asked any more.
    is_over: AtomicBool,
}

/// What an engine says of a failure.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

impl Api {
    /// Nothing is asked yet.
    pub(super) fn new(socket: &Path) -> Self {
        let timeouts = Timeouts { connect: CONNECT, answer: QUERY, stall: QUERY, total: QUERY };
        let agent = Agent::on_socket(socket, concat!("device-syncer/", env!("CARGO_PKG_VERSION")), timeouts);
        Self { socket: socket.to_owned(), agent, version: Mutex::default(), is_over: AtomicBool::new(false) }
    }

    /// What is at a path (with its query), of each text so many bytes as `longest` says; `None` if there is nothing. An
    /// error says why that can't be had.
    pub(super) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        longest: usize,
        limit: Duration,
    ) -> Result<Option<T>, String> {
        self.get_as(path, &[], longest, limit)
    }

    /// The same, with these header lines.
    pub(super) fn get_as<T: DeserializeOwned>(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        longest: usize,
        limit: Duration,
    ) -> Result<Option<T>, String> {
        let found = self.answer(path, headers, limit).and_then(|answer| match answer.status {
            404 => Ok(None),
            200..=299 => self.read(answer, longest).map(Some),
            _ => Err(self.refusal(answer)),
        });
        found.inspect_err(|_| self.forget())
    }

    /// Has something done that takes so long at the most; what it would be done to may be gone by now. An error says why it
    /// isn't done.
    pub(super) fn post(&self, path: &str, limit: Duration) -> Result<(), String> {
        let path = format!("/v1.{}{path}", self.version()?);
        let url = Url::on_socket(&path).map_err(|error| format!("`{path}`: {error}"))?;
        let done = self.send(Request::post(&url, &[]), limit).and_then(|answer| match answer.status {
            // Its end is read, so that the connection can be kept.
            200..=299 | 404 => answer.body.bytes(ANSWER).map(drop).map_err(|error| self.failure(&error)),
            _ => Err(self.refusal(answer)),
        });
        done.inspect_err(|_| self.forget())
    }

    /// Begins something with these header lines that takes so long at the most, and says how it goes.
    pub(super) fn post_as(&self, path: &str, headers: &[(&str, &str)], limit: Duration) -> Result<Body, String> {
        let path = format!("/v1.{}{path}", self.version()?);
        let url = Url::on_socket(&path).map_err(|error| format!("`{path}`: {error}"))?;
        let begun = self.send(Request { headers, ..Request::post(&url, &[]) }, limit);
        begun.and_then(|answer| match answer.status {
            200..=299 => Ok(answer.body),
            _ => Err(self.refusal(answer)),
        })
    }

    /// Whatever comes from a path, for so long at the most.
    pub(super) fn open(&self, path: &str, limit: Duration) -> Result<Body, String> {
        let opened = self.answer(path, &[], limit).and_then(|answer| match answer.status {
            200..=299 => Ok(answer.body),
            _ => Err(self.refusal(answer)),
        });
        opened.inspect_err(|_| self.forget())
    }

    /// Ends the requests in flight, from whatever thread.
    pub(super) fn interrupt(&self) {
        self.agent.interrupt();
    }

    /// The same, and each that is still to come.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.interrupt();
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether it answers, and has a version of the API that we know; always asked anew.
    pub(super) fn ping(&self) -> Result<(), String> {
        self.forget();
        self.version().map(drop)
    }

    fn answer(&self, path: &str, headers: &[(&str, &str)], limit: Duration) -> Result<Response, String> {
        self.ask(&format!("/v1.{}{path}", self.version()?), headers, limit)
    }

    fn ask(&self, path: &str, headers: &[(&str, &str)], limit: Duration) -> Result<Response, String> {
        let url = Url::on_socket(path).map_err(|error| format!("`{path}`: {error}"))?;
        self.send(Request { headers, ..Request::get(&url) }, limit)
    }

    fn send(&self, request: Request<'_>, limit: Duration) -> Result<Response, String> {
        if self.is_over.load(Ordering::SeqCst) {
            return Err(format!("{} isn't asked any more", self.name()));
        }
        let timeouts = Timeouts { answer: limit, stall: limit, total: limit, ..self.agent.timeouts() };
        let request = Request { timeouts: Some(timeouts), ..request };
        self.agent.answer(&request).map_err(|error| self.failure(&error))
    }

    fn read<T: DeserializeOwned>(&self, answer: Response, longest: usize) -> Result<T, String> {
        let failed = |error: io::Error| {
            let cut = error.get_ref().and_then(|cause| cause.downcast_ref::<HttpError>());
            cut.map_or_else(|| format!("{} gives what can't be read: {error}", self.name()), |cut| self.failure(cut))
        };
        let (mut text, mut begin) = (Shortened::new(answer.body, longest), Vec::new());
        (&mut text).take(SMALL).read_to_end(&mut begin).map_err(failed)?;
        // What is there as a whole is read several times as fast.
        let is_whole = (begin.len() as u64) < SMALL;
        let read = if is_whole {
            serde_json::from_slice(&begin)
        } else {
            serde_json::from_reader(BufReader::new(begin.as_slice().chain(text)))
        };
        read.map_err(|error| failed(error.into()))
    }

    /// The version of the API that both know.
    fn version(&self) -> Result<u32, String> {
        if let Some(version) = *self.version.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(version);
        }
        let answer = self.ask("/_ping", &[], QUERY)?;
        if answer.status != 200 {
            return Err(self.refusal(answer));
        }
        let theirs = answer.header("api-version").unwrap_or_default().to_owned();
        let minor = theirs.strip_prefix("1.").and_then(|minor| minor.parse::<u32>().ok());
        let agreed = minor.filter(|minor| *minor >= OLDEST).map(|minor| minor.min(NEWEST)).ok_or_else(|| {
            let theirs: String = theirs.chars().take(20).collect();
            format!("{} has API `{theirs}`: it takes 1.{OLDEST}, which Docker 20.10 has, or newer", self.name())
        })?;
        // Its end is read, so that the connection can be kept.
        answer.body.bytes(ANSWER).map_err(|error| self.failure(&error))?;
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(agreed);
        Ok(agreed)
    }

    fn forget(&self) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// One line of what the engine says of its refusal.
    fn refusal(&self, answer: Response) -> String {
        let status = answer.status;
        let refusal = serde_json::from_slice(&answer.body.bytes(ANSWER).unwrap_or_default());
        let message = refusal.map_or_else(|_| String::new(), |Refusal { message }| message);
        let line: String = message.trim().chars().filter(|c| !c.is_control()).take(300).collect();
        format!("{} answers {status}: {line}", self.name())
    }

    fn failure(&self, error: &HttpError) -> String {
        let cause = error.source.as_ref().map(|cause| format!(": {}", error_chain(&**cause)));
        let hint = match error.problem {
            Problem::Refused => "; does the engine run?",
            Problem::Network => {
                "; does the engine run, is this what `docker.host` should name, and may this user open it?"
            }
            _ => "",
        };
        format!("{} {}{}{hint}", self.name(), error.problem, cause.unwrap_or_default())
    }

    fn name(&self) -> String {
        format!("the engine at `unix://{}`", self.socket.display())
    }
}

/// A text as a part of a path or query (RFC 3986); what parts an image's name stays as it is.
pub(super) fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte);
    let one = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

/// A query's filters, by name.
pub(super) fn filters(filters: &[(&str, &[String])]) -> String {
    let filters = filters.iter().copied().into_map();
    encoded(&serde_json::json!(filters).to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use repo_testkit::faults::listening::{Listening, kept};
    use serde_json::Value;

    use super::*;

    const SHORT: Duration = Duration::from_millis(500);

    /// An engine of this version, which answers everything with this.
    fn engine(version: &str, status: &'static str, body: &'static str) -> (Listening, Api) {
        let version = format!("Api-Version: {version}");
        let listening = Listening::start(move |head, stream| {
            let is_ping = head.starts_with("GET /_ping ");
            let answer = if is_ping { kept("200 OK", &[&version], "OK") } else { kept(status, &[], body) };
            stream.write_all(answer.as_bytes()).is_ok()
        });
        let api = Api::new(&listening.path());
        (listening, api)
    }

    fn get(api: &Api) -> Result<Option<Value>, String> {
        api.get("/x?y", 100, SHORT)
    }

    #[test]
    fn the_newest_version_that_both_know_is_asked_for_over_one_connection() {
        for (theirs, ours) in [("1.41", "v1.41"), ("1.47", "v1.47"), ("1.51", "v1.51"), ("1.99", "v1.51")] {
            let (listening, api) = engine(theirs, "200 OK", "[1]\n");
            assert_eq!(get(&api), Ok(Some(serde_json::json!([1]))));
            assert_eq!(get(&api), Ok(Some(serde_json::json!([1]))));
            let expected = format!("GET /{ours}/x?y HTTP/1.1");
            assert_eq!(listening.asked(), ["GET /_ping HTTP/1.1", &expected, &expected]);
            assert_eq!(listening.connections(), 1);
        }
        for old in ["1.40", "1.9", "2.0", "", "words"] {
            let error = get(&engine(old, "200 OK", "[]").1).unwrap_err();
            assert!(error.contains(&format!("has API `{old}`")) && error.contains("Docker 20.10"), "{error}");
        }
    }

    #[test]
    fn after_a_failure_the_version_is_asked_again() {
        let (listening, api) = engine("1.41", "500 No", r#"{"message": "it is\u001b[31m damaged"}"#);
        for _ in 0..2 {
            let error = get(&api).unwrap_err();
            assert!(error.ends_with("answers 500: it is[31m damaged"), "{error}");
        }
        assert_eq!(listening.asked().iter().filter(|line| line.contains("_ping")).count(), 2);
        assert_eq!(get(&engine("1.41", "404 Not Found", "{}").1), Ok(None));
    }

    #[test]
    fn what_is_wrong_names_the_socket_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("no.sock");
        let error = get(&Api::new(&nowhere)).unwrap_err();
        for word in [&*format!("unix://{}", nowhere.display()), "No such file", "docker.host", "may this user open it"]
        {
            assert!(error.contains(word), "{word} in {error}");
        }
        drop(std::os::unix::net::UnixListener::bind(&nowhere).unwrap());
        let error = get(&Api::new(&nowhere)).unwrap_err();
        assert!(error.contains("refuses connections; does the engine run?"), "{error}");
        for body in ["[1", "<html>", ""] {
            let error = get(&engine("1.41", "200 OK", body).1).unwrap_err();
            assert!(error.contains("gives what can't be read"), "{error}");
        }
        let listening = Listening::start(|head, stream| {
            let answer = kept("200 OK", &["Api-Version: 1.41"], "OK");
            !head.contains("_ping") || stream.write_all(answer.as_bytes()).is_ok()
        });
        let error = get(&Api::new(&listening.path())).unwrap_err();
        assert!(error.contains("is too slow: not done within 0.5 s"), "{error}");
    }

    #[test]
    fn an_answer_that_stops_in_the_middle_is_no_whole_one() {
        let listening = Listening::start(|head, stream| {
            let ping = kept("200 OK", &["Api-Version: 1.41"], "OK");
            let half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1, 2";
            stream.write_all(if head.contains("_ping") { ping.as_bytes() } else { half.as_bytes() }).is_ok()
        });
        let error = get(&Api::new(&listening.path())).unwrap_err();
        assert!(error.ends_with("sock` is too slow: not done within 0.5 s"), "{error}");
    }

    #[test]
    fn a_part_of_a_path_stays_one() {
        assert_eq!(encoded("registry:5000/a@sha256:0"), "registry:5000/a@sha256:0");
        assert_eq!(encoded("a b?c#d%\u{e4}\n"), "a%20b%3Fc%23d%25%C3%A4%0A");
        assert_eq!(filters(&[("label", &["a=b".to_owned()])]), "%7B%22label%22:%5B%22a%3Db%22%5D%7D");
    }
}
