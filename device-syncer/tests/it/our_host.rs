//! A host that offers what ours does, scripted: stock `git http-backend` in the test's own process, waiting, and accounts
//! whose secrets end. Each of these can be made to fail at the worst moment.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use repo_testkit::faults::scripted_host::{Asked, Host, Reply, answer};
use repo_testkit::git;
use serde_json::json;

/// What the host knows and does.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Secrets that are valid now.
    pub(crate) secrets: BTreeSet<String>,
    /// When the secret in use ends.
    pub(crate) expires: Option<String>,
    /// The next secret, once it was asked for; its use ends all others.
    pub(crate) renewed: Option<String>,
    /// The answer to a renewal, or to the first use of what it gave, gets lost.
    pub(crate) lose: Option<&'static str>,
    /// Says to whoever shows a secret that its device is retired.
    pub(crate) retired: bool,
    /// Offers waiting, for so long.
    pub(crate) wait: Option<Duration>,
    /// Waits that are under way.
    pub(crate) waiting: usize,
    /// Answers every wait at once, whatever moved.
    pub(crate) lies: bool,
    /// Ends the connection of every wait at once.
    pub(crate) breaks: bool,
    /// Within how many milliseconds to come for what moved.
    pub(crate) jitter: u64,
    pub(crate) ended: bool,
}

/// A running host with one repository at `/devices/press-01.git`.
pub(crate) struct OurHost {
    pub(crate) host: Host,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl OurHost {
    pub(crate) fn start(repository: PathBuf, state: State) -> Self {
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let shared = Arc::clone(&state);
        Self { host: Host::start(move |asked| serve(asked, &repository, &shared)), state }
    }

    pub(crate) fn url(&self) -> String {
        self.host.url("/devices/press-01.git")
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request lines so far that have this in them.
    pub(crate) fn asked(&self, words: &str) -> Vec<String> {
        let lines = self.host.asked().into_iter().filter_map(|asked| asked.head.lines().next().map(str::to_owned));
        lines.filter(|line| line.contains(words)).collect()
    }
}

impl Drop for OurHost {
    fn drop(&mut self) {
        self.state().ended = true;
    }
}

fn serve(asked: &Asked, repository: &Path, shared: &(Mutex<State>, Condvar)) -> Reply {
    let line = asked.head.lines().next().unwrap_or_default();
    let path = line.split(' ').nth(1).unwrap_or_default();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(secret) = secret_of(asked).filter(|secret| state.secrets.contains(secret)) else {
        return Reply::Keep(answer("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"wfm\""], b""));
    };
    if state.retired {
        let body = b"retired: this device is retired\n";
        return Reply::Keep(answer(
            "403 Forbidden",
            &["Content-Type: text/plain; charset=utf-8", "Retry-After: 86400"],
            body,
        ));
    }
    // The use of the next secret ends the others.
    if state.renewed.as_deref() == Some(&secret) {
        state.secrets.retain(|known| *known == secret);
        state.renewed = None;
        state.expires = Some("2096-01-01T00:00:00Z".to_owned());
    }
    if state.lose == Some("proof") && state.renewed.is_none() && path == "/account" && secret.contains("renewed") {
        return Reply::End(Vec::new());
    }
    match path {
        "/account" => json_answer(&json!({"user": "press-01", "role": "device", "expires": state.expires})),
        "/account/renew" => {
            let next = format!("c4nary-renewed-{}", state.secrets.len());
            state.secrets.insert(next.clone());
            state.renewed = Some(next.clone());
            if state.lose == Some("renewal") {
                state.lose = None;
                return Reply::End(Vec::new());
            }
            json_answer(&json!({"user": "press-01", "secret": next, "expires": "2096-01-01T00:00:00Z"}))
        }
        _ if path.ends_with("/wait") => {
            let Some(longest) = state.wait else { return Reply::Keep(answer("404 Not Found", &[], b"")) };
            if state.breaks {
                return Reply::End(Vec::new());
            }
            state.waiting += 1;
            drop(state);
            let preferred = header(asked, "prefer");
            let preferred = preferred.strip_prefix("wait=").and_then(|seconds| seconds.parse().ok());
            let longest = preferred.map_or(longest, |seconds| longest.min(Duration::from_secs(seconds)));
            let reply = wait(query, repository, longest, shared);
            shared.0.lock().unwrap_or_else(PoisonError::into_inner).waiting -= 1;
            reply
        }
        _ => {
            let wait = state.wait;
            drop(state);
            Reply::Keep(backend(asked, path, query, repository, wait))
        }
    }
}

fn secret_of(asked: &Asked) -> Option<String> {
    let value = asked.head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization: basic "))?;
    let decoded = BASE64_STANDARD.decode(value.rsplit(' ').next()?).ok()?;
    Some(String::from_utf8(decoded).ok()?.split_once(':')?.1.to_owned())
}

fn json_answer(value: &serde_json::Value) -> Reply {
    Reply::Keep(answer("200 OK", &["Content-Type: application/json"], value.to_string().as_bytes()))
}

/// Answers when a branch isn't where the query says, or after the longest wait.
fn wait(query: &str, repository: &Path, longest: Duration, shared: &(Mutex<State>, Condvar)) -> Reply {
    let begin = std::time::Instant::now();
    let tip = |branch| git::tip(repository, branch).unwrap_or_else(|| "0".repeat(40));
    loop {
        let now = format!("desired={}&freshness={}", tip("desired"), tip("freshness"));
        let state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now != query || state.lies {
            let body = json!({"desired": tip("desired"), "freshness": tip("freshness")}).to_string();
            let headers = ["Content-Type: application/json", &format!("Wfm-Jitter: {}", state.jitter)];
            return Reply::Keep(answer("200 OK", &headers, body.as_bytes()));
        }
        if begin.elapsed() >= longest || state.ended {
            return Reply::Keep(answer("204 No Content", &[], b""));
        }
        drop(shared.1.wait_timeout(state, Duration::from_millis(10)));
    }
}

/// The value of a header; empty if there is none.
fn header(asked: &Asked, name: &str) -> String {
    let find = |line: &str| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then(|| value.to_owned())
    };
    asked.head.lines().find_map(find).unwrap_or_default()
}

/// Runs stock Git's CGI program.
fn backend(asked: &Asked, path: &str, query: &str, repository: &Path, wait: Option<Duration>) -> Vec<u8> {
    let header = |name: &str| header(asked, name);
    let mut command = Command::new("git");
    let service = path.strip_prefix("/devices/press-01.git").unwrap_or("/nowhere");
    command.args(["-c", "http.receivepack=true", "http-backend"]).env("GIT_PROJECT_ROOT", repository);
    command.env("PATH_INFO", service).env("GIT_HTTP_EXPORT_ALL", "1").env("QUERY_STRING", query);
    command.env("REQUEST_METHOD", asked.head.split(' ').next().unwrap_or("GET")).env("REMOTE_USER", "press-01");
    command.env("CONTENT_TYPE", header("content-type")).env("CONTENT_LENGTH", asked.body.len().to_string());
    command.env("GIT_PROTOCOL", header("git-protocol")).env("HTTP_CONTENT_ENCODING", header("content-encoding"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("git is installed");
    let mut input = child.stdin.take().expect("piped");
    let body = asked.body.clone();
    let writer = std::thread::spawn(move || input.write_all(&body));
    let output = child.wait_with_output().expect("it ends").stdout;
    let _ = writer.join();
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0);
    let head = String::from_utf8_lossy(&output[..end]).into_owned();
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK").to_owned();
    let mut headers: Vec<String> =
        head.lines().filter(|line| !line.starts_with("Status: ")).map(str::to_owned).collect();
    headers.extend(wait.map(|wait| format!("Wfm-Wait: {}", wait.as_secs().max(1))));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    answer(&status, &headers, output.get(end + 4..).unwrap_or_default())
}
