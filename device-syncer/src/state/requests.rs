//! What a person at the device asked for: small files that the next pass picks up, so that no port or socket is needed.

use std::fs;
use std::io;
use std::path::PathBuf;

use repo_git::{CommitId, durable};

use crate::config::Home;
use crate::state::json_file;

/// Requests that wait for the next pass.
#[derive(Debug, Default)]
pub struct Requests {
    /// Each asks to try again what was given up: of everything (empty), or of one deployment by the operator's id.
    pub retry: Vec<String>,
    /// Ask the host at once.
    pub sync: bool,
    /// Accept this commit although its history was rewritten.
    pub accept_history: Option<CommitId>,
}

const SYNC: &str = "request-sync";
const RETRY: &str = "request-retry";
const ACCEPT_HISTORY: &str = "request-accept-history";

/// Where what a person says appears: requests, what is held, and what is approved.
pub fn places(home: &Home) -> Vec<PathBuf> {
    let requests = [SYNC, RETRY, ACCEPT_HISTORY].map(|name| home.root().join(name));
    requests.into_iter().chain([home.hold(), home.approvals(), home.approved_removals(), home.restarts()]).collect()
}

impl Requests {
    /// Reads the request files, and leaves them; a history that is no commit is asked for by nobody.
    pub fn read(home: &Home) -> Self {
        let read = |name: &str| fs::read_to_string(home.root().join(name)).ok().map(|text| text.trim().to_owned());
        let accept_history = read(ACCEPT_HISTORY).and_then(|text| text.parse().ok());
        Self { sync: read(SYNC).is_some(), retry: read_retries(home).unwrap_or_default(), accept_history }
    }

    /// Asks for a pass that asks the host: that the file comes is what makes it begin.
    pub fn ask_sync(home: &Home) -> io::Result<()> {
        durable::replace_file(&home.root().join(SYNC), b"", 0o600)
    }

    /// Asks to try again what was given up of one deployment, by the operator's id; of all where it is `None`. What others asked
    /// for before stays asked for.
    pub fn ask_retry(home: &Home, deployment: Option<&str>) -> io::Result<()> {
        let _lock = json_file::lock(home).map_err(io::Error::other)?;
        let mut retries = read_retries(home)?;
        retries.push(deployment.unwrap_or_default().to_owned());
        write_retries(home, &retries)
    }

    /// Asks for a history to be accepted.
    pub fn ask_accept_history(home: &Home, commit: CommitId) -> io::Result<()> {
        durable::replace_file(&home.root().join(ACCEPT_HISTORY), commit.to_string().as_bytes(), 0o600)
    }

    /// Takes the request to ask the host back.
    pub fn host_is_asked(home: &Home) {
        remove(home, SYNC);
    }

    /// Takes these requests for a retry back, but none that was made since.
    pub fn retries_are_done(home: &Home, done: &[String]) {
        let taken = json_file::lock(home).map_err(io::Error::other).and_then(|_lock| {
            let left: Vec<_> = read_retries(home)?.into_iter().filter(|one| !done.contains(one)).collect();
            if !left.is_empty() {
                return write_retries(home, &left);
            }
            remove(home, RETRY);
            Ok(())
        });
        taken.unwrap_or_else(|error| tracing::warn!(request = RETRY, %error, "can't take a request back that is done"));
    }

    /// Takes the request for a history back.
    pub fn history_is_accepted(home: &Home) {
        remove(home, ACCEPT_HISTORY);
    }
}

/// A line for each; a file without any is of a syncer that knew of one alone, which asked for everything.
fn read_retries(home: &Home) -> io::Result<Vec<String>> {
    match fs::read_to_string(home.root().join(RETRY)) {
        Ok(text) if text.is_empty() => Ok(vec![text]),
        Ok(text) => Ok(text.lines().map(|line| line.trim().to_owned()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn write_retries(home: &Home, retries: &[String]) -> io::Result<()> {
    let text: String = retries.iter().map(|one| format!("{one}\n")).collect();
    durable::replace_file(&home.root().join(RETRY), text.as_bytes(), 0o600)
}

/// One that can't be removed is done once more, which does no harm.
fn remove(home: &Home, name: &str) {
    if let Err(error) = durable::remove_file(&home.root().join(name)) {
        tracing::warn!(request = name, %error, "can't remove a request that is done");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_while_another_retry_is_at_work_is_done_by_the_next_pass() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        let asked = || Requests::read(&home).retry;
        Requests::ask_retry(&home, Some("slow")).unwrap();
        Requests::ask_retry(&home, None).unwrap();
        let at_work = asked();
        assert_eq!(at_work, ["slow", ""]);
        Requests::ask_retry(&home, Some("other")).unwrap();
        Requests::retries_are_done(&home, &at_work);
        assert_eq!(asked(), ["other"]);
        Requests::retries_are_done(&home, &asked());
        assert!(asked().is_empty() && !dir.path().join(RETRY).exists());
        for (before, means) in [("", ""), ("slow", "slow")] {
            durable::replace_file(&dir.path().join(RETRY), before.as_bytes(), 0o600).unwrap();
            assert_eq!(asked(), [means], "as a syncer of before wrote it");
        }
    }
}
