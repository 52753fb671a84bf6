//! One conversation with Git at a host: opened up to its first word, and judged when it breaks off.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use repo_http::Phase;
use repo_model::answer::RETIRED;

use super::pipe::{Pipe, Side};
use super::{Answer, Client, Problem, SshError, Url};
use crate::Cause;
use crate::remote::allowance::Allowance;
use crate::remote::https::MAX_REFS;
use crate::remote::{RemoteError, pktline};

/// The longest time that a host may ask to be left alone.
const LONGEST_RETRY: Duration = Duration::from_secs(24 * 3600);

/// A command at the host that has begun to speak. Dropping it ends the conversation.
#[derive(Debug)]
pub(in crate::remote) struct Talk {
    url: Url,
    pipe: Arc<Pipe>,
    side: Side,
    /// How many bytes the host may still say.
    pub(in crate::remote) left: Allowance,
    /// Whether the conversation ends when this is dropped.
    is_owner: bool,
}

impl Talk {
    /// Has the host run `git-upload-pack` or `git-receive-pack` on the repository, all within `limit`.
    pub(super) fn open(
        client: &Client,
        url: &Url,
        service: &str,
        wants_v2: bool,
        limit: Duration,
    ) -> Result<Self, SshError> {
        if !client.is_for(url) {
            return Err(SshError::new(url, Problem::Settings, None));
        }
        // A URL's path holds nothing that a shell could understand.
        let command = format!("git-{service} '{}'", url.path());
        let pipe = client.run(command, wants_v2).map_err(|failure| failure.at(url))?;
        let timeouts = client.timeouts();
        let side = Side::new(Arc::clone(&pipe), limit, timeouts);
        let mut talk = Self { url: url.clone(), pipe, side, left: Allowance::new(MAX_REFS), is_owner: true };
        let patience = (timeouts.connect + timeouts.answer).min(limit);
        let slow = Problem::Slow { phase: Phase::Connect, limit: patience };
        let opened = talk.pipe.wait_for(Instant::now() + patience, slow, |state| state.opened || state.is_read);
        opened.map(drop).map_err(|failure| failure.at(url))?;
        if talk.says_something()? { Ok(talk) } else { Err(talk.silent()) }
    }

    /// Whether the host says something next, which is an error if it is a refusal.
    pub(super) fn says_something(&mut self) -> Result<bool, SshError> {
        let fail = |failure: super::pipe::Failure| failure.at(&self.url);
        let length = self.side.peek(4).map_err(fail)?;
        if length.len() < 4 || length == pktline::FLUSH {
            return Ok(length.len() == 4);
        }
        if self.side.peek(8).map_err(fail)?.get(4..) != Some(b"ERR ") {
            return Ok(true);
        }
        let line = pktline::read(&mut self.side).ok().flatten().unwrap_or_default();
        Err(SshError::new(&self.url, refusal(&super::pipe::clean(line.get(4..).unwrap_or_default())), None))
    }

    /// The error of a conversation that had ended before it was asked anything.
    pub(super) fn gone(&self) -> SshError {
        let failure = self.pipe.failure().unwrap_or_else(|| Problem::Cut.into());
        failure.at(&self.url)
    }

    /// The command ended without a word of Git's.
    fn silent(&self) -> SshError {
        let (status, said) = self.pipe.ended();
        if let Some(failure) = self.pipe.failure() {
            return failure.at(&self.url);
        }
        let said = match (status, said) {
            (Some(status), said) if said.is_empty() => format!("its command ended with status {status} and no word"),
            (_, said) => said,
        };
        let problem = match (status, said.is_empty()) {
            (None, true) => Problem::Cut,
            _ => Problem::Answer { answer: of_words(&said), said, retry_after: None },
        };
        SshError::new(&self.url, problem, None)
    }

    /// The error of a conversation that broke off.
    pub(in crate::remote) fn failed(&self, source: Cause) -> RemoteError {
        if let Some(failure) = self.pipe.failure() {
            return failure.at(&self.url).into();
        }
        let url = self.url.to_string();
        if !self.pipe.lock().is_read {
            return RemoteError::Protocol { url, detail: String::new(), source };
        }
        let (status, said) = self.pipe.ended();
        // Stock Git's word for a commit that was replaced meanwhile, which the caller understands.
        let is_known = [&said, &format!("{source:?}")].iter().any(|text| text.contains("not our ref"));
        if status == Some(0) || is_known {
            return RemoteError::Protocol { url, detail: said, source };
        }
        let problem = match said.is_empty() {
            true => Problem::Cut,
            false => Problem::Answer { answer: Answer::Failed, said, retry_after: None },
        };
        SshError::new(url, problem, Some(source)).into()
    }

    /// For reading, and for writing.
    pub(in crate::remote) fn sides(&self) -> (Reader, Writer) {
        (Reader { side: self.side.clone(), left: self.left.clone() }, Writer(self.side.clone()))
    }

    /// The same conversation, which goes on when this is dropped, with another limit in time, and other patience.
    pub(super) fn again(&self, limit: Duration, timeouts: repo_http::Timeouts) -> Self {
        let side = Side::new(Arc::clone(&self.pipe), limit, timeouts);
        let (url, pipe, left) = (self.url.clone(), Arc::clone(&self.pipe), Allowance::new(MAX_REFS));
        Self { url, pipe, side, left, is_owner: false }
    }

    /// Nothing more will be written.
    pub(in crate::remote) fn finish_writing(&self) {
        self.side.finish_writing();
    }

    /// Ends the conversation at this moment.
    pub(in crate::remote) fn ending(&self, problem: Problem) -> impl FnOnce() + Send + 'static {
        let pipe = Arc::clone(&self.pipe);
        move || {
            pipe.fail(problem.into());
            pipe.abandon();
        }
    }

    /// Ends the conversation: nobody reads or writes any more.
    pub(super) fn abandon(&self) {
        self.pipe.abandon();
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if self.is_owner {
            self.abandon();
        }
    }
}

/// Reads what a host says, as much as it may.
pub(in crate::remote) struct Reader {
    side: Side,
    left: Allowance,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.side.read(buffer)?;
        if self.left.spend(count) {
            return Ok(count);
        }
        let problem = Problem::TooLarge { limit: MAX_REFS };
        let error = io::Error::other(problem.to_string());
        self.side.pipe.fail(problem.into());
        Err(error)
    }
}

/// Writes to the input of the command.
pub(in crate::remote) struct Writer(Side);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// What a host says in an `ERR` line; the words are those of the contract of hosts over SSH.
fn refusal(text: &str) -> Problem {
    let (text, retry_after) = match text.split_once("retry-after=") {
        Some((text, seconds)) => (text.trim_end_matches([';', ' ']), seconds.trim().parse().ok()),
        None => (text, None),
    };
    let retry_after = retry_after.map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY));
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    let answer = match word {
        "unauthorized" => Answer::Unauthorized,
        RETIRED => Answer::Retired,
        "forbidden" => Answer::Forbidden,
        "not-found" => Answer::NotFound,
        "busy" => Answer::Busy,
        "bad-request" => Answer::BadRequest,
        "stopping" | "internal" => Answer::Failed,
        _ => return Problem::Answer { answer: of_words(text), said: text.to_owned(), retry_after },
    };
    Problem::Answer { answer, said: rest.trim().to_owned(), retry_after }
}

/// What a host's own words come to, where it has no better way to say it: those of stock Git, gitolite and the forges.
fn of_words(said: &str) -> Answer {
    let said = said.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["not appear to be a git repository", "does not exist", "not found", "no such"]) {
        Answer::NotFound
    } else if has(&["denied", "not allowed", "permission", "unauthorized", "forbidden"]) {
        Answer::Forbidden
    } else {
        Answer::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_it_is_and_when_to_come_again() {
        for (text, answer, said, seconds) in [
            ("not-found: there is nothing here", Answer::NotFound, "there is nothing here", None),
            ("busy: too many requests; retry-after=5", Answer::Busy, "too many requests", Some(5)),
            (
                "stopping: the host is being stopped; retry-after=2",
                Answer::Failed,
                "the host is being stopped",
                Some(2),
            ),
            ("retired: it is; retry-after=86400", Answer::Retired, "it is", Some(86400)),
            ("busy: x; retry-after=99999999", Answer::Busy, "x", Some(86400)),
            ("access denied: no", Answer::Forbidden, "access denied: no", None),
            ("what: ever", Answer::Failed, "what: ever", None),
        ] {
            let expected =
                Problem::Answer { answer, said: said.to_owned(), retry_after: seconds.map(Duration::from_secs) };
            assert_eq!(refusal(text), expected, "{text}");
        }
    }

    #[test]
    fn foreign_words_are_understood() {
        for (said, answer) in [
            ("fatal: '/x.git' does not appear to be a git repository", Answer::NotFound),
            (
                "FATAL: R any devices/x device-x DENIED by fallthru / (or you mis-spelled the reponame)",
                Answer::Forbidden,
            ),
            ("remote: Repository not found.", Answer::NotFound),
            ("fatal: out of memory", Answer::Failed),
        ] {
            assert_eq!(of_words(said), answer, "{said}");
        }
    }
}
