//! Has the engine pull an image in the name of an account of `device.yaml`.
//!
//! The account goes over the engine's socket and nowhere else: no file holds it, and no process has it among its arguments.
//! A connection of its own can be ended from here, and the engine gives up a pull whose client is gone.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE;
use repo_artifacts::ImageReference;
use repo_http::{Body, Credential};
use serde::Deserialize;
use serde_json::json;

use super::api::{Api, encoded};

/// How often it is asked whether the pull is to end.
const TICK: Duration = Duration::from_millis(100);

/// How much longer than the pull its request may take.
const LATER: Duration = Duration::from_secs(10);

/// How much of one line is read, in bytes: the longest that engines write is of some hundred.
const LINE: u64 = 64 << 10;

/// The registry that stands for Docker Hub in its engines' accounts.
const DOCKER_HUB: [&str; 2] = ["docker.io", "https://index.docker.io/v1/"];

/// What is pulled, and in whose name.
pub(crate) struct Pull<'a> {
    pub(crate) image: &'a ImageReference,
    pub(crate) account: &'a Credential,
    /// How long the pull may take, from the first request to the last byte.
    pub(crate) limit: Duration,
    pub(crate) cancel: &'a dyn Fn() -> bool,
}

/// Why an image isn't pulled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PullError {
    Cancelled,
    TookTooLong,
    /// In the engine's words, or why it can't be asked.
    Failed(String),
}

/// One line of what the engine tells of a pull.
#[derive(Deserialize)]
struct Progress {
    error: Option<String>,
}

impl Pull<'_> {
    pub(super) fn run(&self, socket: &Path) -> Result<(), PullError> {
        let (api, path) = (Api::new(socket), self.path());
        let (header, limit) = (account_header(self.image.host(), self.account), self.limit);
        let (send, pulled) = channel();
        let end = Instant::now() + limit;
        thread::scope(|scope| {
            scope.spawn(|| {
                let headers = header.as_deref().map(|value| ("X-Registry-Auth", value));
                // What ends it is said here, and not in the words of a request.
                let opened = api.post_as(&path, headers.as_slice(), limit + LATER);
                let _ = send.send(opened.and_then(finish));
            });
            loop {
                match pulled.recv_timeout(TICK) {
                    Ok(result) => return result.map_err(PullError::Failed),
                    Err(RecvTimeoutError::Timeout) if (self.cancel)() => {
                        api.interrupt();
                        return Err(PullError::Cancelled);
                    }
                    Err(RecvTimeoutError::Timeout) if Instant::now() >= end => {
                        api.interrupt();
                        return Err(PullError::TookTooLong);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(PullError::Failed("the pull ended without a result".to_owned()));
                    }
                }
            }
        })
    }

    /// A name without a tag means all tags to the engine.
    fn path(&self) -> String {
        let name = match self.image.digest() {
            Some(digest) => format!("{}@{digest}", self.image.name()),
            None => format!("{}:{}", self.image.name(), self.image.tag()),
        };
        format!("/images/create?fromImage={}", encoded(&name))
    }
}

/// Reads to the end how a pull goes: it is done when nothing more comes, and no line said why not.
fn finish(body: Body) -> Result<(), String> {
    let mut lines = BufReader::new(body);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.by_ref().take(LINE).read_until(b'\n', &mut line);
        match read.map_err(|error| format!("the engine broke off: {error}"))? {
            0 => return Ok(()),
            _ => match serde_json::from_slice::<Progress>(&line) {
                Ok(Progress { error: Some(error) }) => return Err(error),
                Ok(_) => {}
                Err(_) if line.trim_ascii().is_empty() => {}
                Err(error) => return Err(format!("the engine says what can't be read: {error}")),
            },
        }
    }
}

/// The value of `X-Registry-Auth` (Engine API, *Authentication*); `None` asks as nobody.
pub(super) fn account_header(host: &str, account: &Credential) -> Option<String> {
    let address = if host == DOCKER_HUB[0] { DOCKER_HUB[1] } else { host };
    let account = match account {
        Credential::None => return None,
        Credential::Basic { user, secret } => json!({"username": user, "password": secret, "serveraddress": address}),
        Credential::Bearer(token) => json!({"registrytoken": token, "serveraddress": address}),
    };
    Some(BASE64_URL_SAFE.encode(account.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use repo_testkit::faults::listening::{Listening, kept};

    use super::*;

    const IMAGE: &str = "registry.plant.local/line/app";

    /// An engine that answers a pull with this, and says no end of it where it shall hang.
    fn engine(status: &'static str, body: &'static [u8], hangs: bool) -> Listening {
        Listening::start(move |head, stream| {
            if head.contains("_ping") {
                return stream.write_all(kept("200 OK", &["Api-Version: 1.44"], "OK").as_bytes()).is_ok();
            }
            stream.write_all(format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n").as_bytes()).unwrap();
            stream.write_all(format!("{:x}\r\n", body.len()).as_bytes()).unwrap();
            stream.write_all(&[body, b"\r\n"].concat()).unwrap();
            if hangs {
                thread::sleep(Duration::from_secs(20));
            }
            stream.write_all(b"0\r\n\r\n").is_ok()
        })
    }

    fn pull(engine: &Listening, image: &str, cancel: &dyn Fn() -> bool) -> Result<(), PullError> {
        pull_within(Duration::from_secs(30), engine, image, cancel)
    }

    fn pull_within(
        limit: Duration,
        engine: &Listening,
        image: &str,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), PullError> {
        let account = Credential::Basic { user: "press-01".to_owned(), secret: "s3cr3t".to_owned() };
        let image = ImageReference::parse(image).unwrap();
        Pull { image: &image, account: &account, limit, cancel }.run(&engine.path())
    }

    #[test]
    fn an_image_is_asked_for_by_one_tag_or_digest_in_the_name_of_its_account() {
        let engine = engine("200 OK", b"{\"status\": \"Pulling\"}\n\n{\"status\": \"Done\"}\n", false);
        let digest = format!("{IMAGE}@sha256:{}", "0".repeat(64));
        for image in [IMAGE, &digest] {
            pull(&engine, image, &|| false).unwrap();
        }
        let asked = engine.asked();
        for name in [format!("{IMAGE}:latest"), digest] {
            let line = format!("POST /v1.44/images/create?fromImage={name} ");
            assert!(asked.iter().any(|head| head.starts_with(&line)), "{line}: {asked:?}");
        }
        let account = br#"{"password":"s3cr3t","serveraddress":"registry.plant.local","username":"press-01"}"#;
        let header = account_header(
            "registry.plant.local",
            &Credential::Basic { user: "press-01".into(), secret: "s3cr3t".into() },
        );
        assert_eq!(header, Some(BASE64_URL_SAFE.encode(account)));
        let bearer = account_header("docker.io", &Credential::Bearer("token".to_owned()));
        let hub = br#"{"registrytoken":"token","serveraddress":"https://index.docker.io/v1/"}"#;
        assert_eq!(bearer, Some(BASE64_URL_SAFE.encode(hub)));
        assert_eq!(account_header("docker.io", &Credential::None), None);
    }

    #[test]
    fn a_pull_fails_for_what_the_engine_says_at_first_or_later() {
        let later = engine("200 OK", b"{\"status\": \"Pulling\"}\n{\"error\": \"unauthorized\"}\n", false);
        assert_eq!(pull(&later, IMAGE, &|| false), Err(PullError::Failed("unauthorized".to_owned())));
        let first = engine("404 Not Found", b"{\"message\": \"pull access denied\"}", false);
        let Err(PullError::Failed(why)) = pull(&first, IMAGE, &|| false) else { panic!("it failed") };
        assert!(why.contains("answers 404: pull access denied"), "{why}");
        let odd = engine("200 OK", b"nonsense\n", false);
        let Err(PullError::Failed(why)) = pull(&odd, IMAGE, &|| false) else { panic!("it failed") };
        assert!(why.contains("can't be read"), "{why}");
    }

    #[test]
    fn a_pull_that_is_not_wanted_any_more_ends_at_once() {
        let (engine, began) = (engine("200 OK", b"{\"status\": \"Pulling\"}\n", true), Instant::now());
        let soon = || began.elapsed() > Duration::from_millis(500);
        assert_eq!(pull(&engine, IMAGE, &soon), Err(PullError::Cancelled));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }

    #[test]
    fn a_pull_whose_time_is_over_says_so() {
        let engine = engine("200 OK", b"{\"status\": \"Pulling\"}\n", true);
        let limit = Duration::from_millis(500);
        assert_eq!(pull_within(limit, &engine, IMAGE, &|| false), Err(PullError::TookTooLong));
    }
}
