//! One conversation with `git receive-pack` (gitprotocol-pack, *Pushing Data to a Server*). gix has no push.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::{ChildStdin, ChildStdout};

use super::connection::{Stage, failed};
use super::process::Process;
use super::{PushError, PushResult, PushUpdate, Remote, RemoteError, Way, pktline};
use crate::{Cause, CommitId};

/// The most lines of an advertisement or a report that are read.
const MAX_LINES: usize = 100_000;

/// Stands for "no such branch" in a command.
const NOTHING: &str = "0000000000000000000000000000000000000000";

/// A `receive-pack` that has told its refs.
pub(super) struct ReceivePack {
    process: Process,
    read: ChildStdout,
    write: ChildStdin,
    pub(super) advertised: Advertised,
}

/// The remote's refs and abilities.
#[derive(Default)]
pub(super) struct Advertised {
    refs: BTreeMap<String, CommitId>,
    /// What its alternates have (`.have` lines).
    others: Vec<CommitId>,
    reports_status: bool,
}

/// What the remote says it did.
pub(super) struct Report(BTreeMap<String, PushResult>);

impl ReceivePack {
    pub(super) fn open(remote: &Remote) -> Result<Self, RemoteError> {
        let Way::Local(path) = &remote.way;
        let unreachable = |source: io::Error| RemoteError::Unreachable {
            url: remote.url(),
            detail: String::new(),
            source: source.into(),
        };
        let mut process = Process::spawn("receive-pack", path, None, remote.timeout).map_err(unreachable)?;
        let (mut read, write) = process.pipes().map_err(unreachable)?;
        match pktline::read_all(&mut read, MAX_LINES) {
            Ok(lines) => Ok(Self { process, read, write, advertised: Advertised::parse(&lines) }),
            Err(source) => Err(failed(remote, process, remote.timeout, source.into(), Stage::Greeting)),
        }
    }

    /// Sends the commands, each with the exact old value, and the pack; returns what became of them.
    pub(super) fn send(mut self, remote: &Remote, updates: &[&PushUpdate], pack: &[u8]) -> Result<Report, PushError> {
        match self.talk(updates, pack) {
            Ok(lines) => {
                drop(self.write);
                self.process.wait();
                Report::parse(&lines)
            }
            Err(source) => Err(failed(remote, self.process, remote.timeout, source, Stage::Talking).into()),
        }
    }

    fn talk(&mut self, updates: &[&PushUpdate], pack: &[u8]) -> Result<Vec<Vec<u8>>, Cause> {
        if !self.advertised.reports_status {
            return Err("the remote can't report what becomes of a push".into());
        }
        let mut abilities = concat!("\0report-status agent=repo-git/", env!("CARGO_PKG_VERSION"));
        for PushUpdate { branch, expected, new, .. } in updates {
            let old = expected.map_or(NOTHING.to_owned(), |id| id.to_string());
            pktline::write(&mut self.write, format!("{old} {new} refs/heads/{branch}{abilities}").as_bytes())?;
            abilities = "";
        }
        self.write.write_all(pktline::FLUSH)?;
        self.write.write_all(pack)?;
        self.write.flush()?;
        Ok(pktline::read_all(&mut self.read, MAX_LINES)?)
    }
}

impl Advertised {
    fn parse(lines: &[Vec<u8>]) -> Self {
        let mut advertised = Self::default();
        for line in lines {
            let text = String::from_utf8_lossy(line);
            let (line, abilities) = text.split_once('\0').unwrap_or((&text, ""));
            advertised.reports_status |= abilities.split(' ').any(|ability| ability == "report-status");
            match line.split_once(' ').map(|(id, name)| (id.parse(), name)) {
                // An empty repository sends this to carry its abilities.
                Some((_, "capabilities^{}")) | Some((Err(_), _)) | None => {}
                Some((Ok(id), ".have")) => advertised.others.push(id),
                Some((Ok(id), name)) => drop(advertised.refs.insert(name.to_owned(), id)),
            }
        }
        advertised
    }

    pub(super) fn tip(&self, update: &PushUpdate) -> Option<CommitId> {
        self.refs.get(&format!("refs/heads/{}", update.branch)).copied()
    }

    /// All commits that the remote says it has.
    pub(super) fn commits(&self) -> Vec<CommitId> {
        self.refs.values().chain(&self.others).copied().collect()
    }
}

impl Report {
    fn parse(lines: &[Vec<u8>]) -> Result<Self, PushError> {
        let mut results = BTreeMap::new();
        for line in lines {
            let text = String::from_utf8_lossy(line);
            let mut words = text.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("unpack"), Some("ok"), None) => {}
                (Some("unpack"), _, _) => {
                    return Err(PushError::Unpack { text: text.trim_start_matches("unpack ").to_owned() });
                }
                (Some("ok"), Some(name), _) => drop(results.insert(name.to_owned(), PushResult::Done)),
                (Some("ng"), Some(name), reason) => {
                    results.insert(name.to_owned(), refusal(reason.unwrap_or_default()));
                }
                _ => {}
            }
        }
        Ok(Self(results))
    }

    pub(super) fn result(&self, update: &PushUpdate) -> PushResult {
        let silence = || PushResult::Refused { text: "the remote didn't say what became of it".to_owned() };
        self.0.get(&format!("refs/heads/{}", update.branch)).cloned().unwrap_or_else(silence)
    }
}

/// The words of stock Git 2.39 to 2.52 for a branch that someone else moved or is moving.
fn refusal(reason: &str) -> PushResult {
    let text = reason.to_owned();
    let stale =
        ["failed to update ref", "cannot lock ref", "incorrect old value", "reference already exists", "fetch first"];
    if stale.iter().any(|words| reason.contains(words)) {
        PushResult::Stale { text }
    } else {
        PushResult::Refused { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<Vec<u8>> {
        text.iter().map(|line| line.as_bytes().to_vec()).collect()
    }

    #[test]
    fn an_empty_repository_advertises_only_its_abilities() {
        let line = format!("{NOTHING} capabilities^{{}}\0report-status delete-refs");
        let advertised = Advertised::parse(&lines(&[&line]));
        assert!(advertised.reports_status && advertised.commits().is_empty());
    }

    #[test]
    fn a_lost_race_is_stale_and_a_hook_refuses() {
        let report = lines(&["unpack ok", "ng refs/heads/a failed to update ref", "ng refs/heads/b hook declined"]);
        let report = Report::parse(&report).expect("unpacked").0;
        assert!(matches!(report["refs/heads/a"], PushResult::Stale { .. }));
        assert!(matches!(report["refs/heads/b"], PushResult::Refused { .. }));
    }

    #[test]
    fn a_pack_that_could_not_be_unpacked_is_an_error() {
        let report = Report::parse(&lines(&["unpack index-pack abnormal exit", "ng refs/heads/a unpacker error"]));
        assert!(matches!(report, Err(PushError::Unpack { text }) if text == "index-pack abnormal exit"));
    }
}
