//! One conversation with `git receive-pack` (gitprotocol-pack, *Pushing Data to a Server*). gix has no push.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;

use super::allowance::{Allowance, Allowed};
use super::connection::{failed, start, unreachable};
use super::https::{Https, MAX_REFS};
use super::process::{Pipe, Process, Stage};
use super::said::clean;
#[cfg(feature = "ssh")]
use super::ssh;
use super::{PushError, PushResult, PushUpdate, Remote, RemoteError, Way, pktline};
use crate::{Cause, CommitId};

/// The most lines of an advertisement or a report that are read.
const MAX_LINES: usize = 100_000;

/// The most bytes of a report, and of the messages beside it.
const MAX_REPORT: u64 = 4 << 20;

/// Stands for "no such branch" in a command.
const NOTHING: &str = "0000000000000000000000000000000000000000";

/// A `receive-pack` that has advertised its refs.
pub(super) struct ReceivePack {
    link: Link,
    pub(super) advertised: Advertised,
}

/// What lies under the conversation.
enum Link {
    Process(Process, Pipe<ChildStdout>, Pipe<ChildStdin>),
    Https(Arc<Https>),
    #[cfg(feature = "ssh")]
    Ssh(ssh::Talk),
}

/// The remote's refs and abilities.
#[derive(Default)]
pub(super) struct Advertised {
    refs: BTreeMap<String, CommitId>,
    /// What its alternates have (`.have` lines).
    others: Vec<CommitId>,
    reports_status: bool,
    /// It can say things beside the report.
    speaks_beside: bool,
}

/// What the remote says it did.
pub(super) struct Report {
    results: BTreeMap<String, PushResult>,
    /// The messages of it, or of a hook there, beside that.
    said: String,
}

impl ReceivePack {
    pub(super) fn open(remote: &Remote) -> Result<Self, RemoteError> {
        match &remote.way {
            Way::Https(host) => Self::open_https(remote, host),
            #[cfg(feature = "ssh")]
            Way::Ssh(host) => Self::open_ssh(remote, host),
            Way::Local(_) | Way::SshProgram(_) => Self::open_process(remote),
        }
    }

    fn open_process(remote: &Remote) -> Result<Self, RemoteError> {
        let mut process = start(remote, "receive-pack", None, remote.timeout)?;
        let (mut read, write) = process.pipes().map_err(|source| unreachable(remote, source.into()))?;
        let mut bounded = Allowed { inner: &mut read, left: Allowance::new(MAX_REFS) };
        match pktline::read_all(&mut bounded, MAX_LINES) {
            Ok(lines) => {
                let mut advertised = Advertised::parse(&lines);
                // What Git here says beside its report is on its standard error.
                advertised.speaks_beside &= !matches!(remote.way, Way::Local(_));
                Ok(Self { link: Link::Process(process, read, write), advertised })
            }
            Err(source) => Err(failed(remote, process, remote.timeout, source.into(), Stage::Greeting)),
        }
    }

    fn open_https(remote: &Remote, host: &Arc<Https>) -> Result<Self, RemoteError> {
        let expects = "application/x-git-receive-pack-advertisement";
        let bytes = host.advertisement("git-receive-pack", &[], expects, remote.timeout)?;
        let lines = read_advertisement(&bytes).map_err(|source| host.broken(source))?;
        Ok(Self { link: Link::Https(Arc::clone(host)), advertised: Advertised::parse(&lines) })
    }

    #[cfg(feature = "ssh")]
    fn open_ssh(remote: &Remote, host: &ssh::Host) -> Result<Self, RemoteError> {
        let talk = host.talk("receive-pack", false, remote.timeout)?;
        let lines = pktline::read_all(&mut talk.sides().0, MAX_LINES).map_err(|source| talk.failed(source.into()))?;
        Ok(Self { link: Link::Ssh(talk), advertised: Advertised::parse(&lines) })
    }

    /// Sends the commands, each with the exact old value, and the pack; returns what became of them.
    pub(super) fn send(self, remote: &Remote, updates: &[&PushUpdate], pack: &[u8]) -> Result<Report, PushError> {
        let commands = self.advertised.commands(updates);
        let beside = self.advertised.speaks_beside;
        match self.link {
            Link::Process(process, mut read, mut write) => {
                let talk = commands.and_then(|commands| {
                    write.write_all(&commands)?;
                    write.write_all(pack)?;
                    write.flush()?;
                    report(&mut read, beside)
                });
                match talk {
                    Ok((lines, said)) => {
                        drop(write);
                        process.wait();
                        Report::parse(&lines, said)
                    }
                    Err(source) => Err(failed(remote, process, remote.timeout, source, Stage::Talking).into()),
                }
            }
            Link::Https(host) => {
                let broken = |source| PushError::Remote(host.broken(source));
                let mut request = commands.map_err(broken)?;
                request.extend(pack);
                let expects = "application/x-git-receive-pack-result";
                let headers = [("Content-Type", "application/x-git-receive-pack-request"), ("Accept", expects)];
                let url = host.url.below("git-receive-pack");
                let answer = host.send(&url, &headers, Some(&request), Some(expects), remote.timeout)?;
                let answer = answer.body.bytes(MAX_REPORT).map_err(RemoteError::from)?;
                let (lines, said) = report(&answer[..], beside).map_err(broken)?;
                Report::parse(&lines, said)
            }
            #[cfg(feature = "ssh")]
            Link::Ssh(talk) => {
                talk.left.set(MAX_REPORT);
                let (read, mut write) = talk.sides();
                let written = commands.and_then(|commands| {
                    write.write_all(&commands)?;
                    Ok(write.write_all(pack)?)
                });
                talk.finish_writing();
                // A host that has seen enough says so, and takes no more.
                match report(read, beside) {
                    Ok((lines, said)) => Report::parse(&lines, said),
                    Err(source) => Err(talk.failed(written.err().unwrap_or(source)).into()),
                }
            }
        }
    }
}

/// The lines of an advertisement behind the one that names the service.
fn read_advertisement(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, Cause> {
    let lines = pktline::read_all(&mut bytes, MAX_LINES)?;
    match &lines[..] {
        [service] if service.starts_with(b"# service=") => Ok(pktline::read_all(&mut bytes, MAX_LINES)?),
        _ => Ok(lines),
    }
}

/// The lines of a report, and the messages beside it.
fn report(answer: impl Read, beside: bool) -> Result<(Vec<Vec<u8>>, String), Cause> {
    let mut answer = answer.take(MAX_REPORT);
    if !beside {
        return Ok((pktline::read_all(&mut answer, MAX_LINES)?, String::new()));
    }
    let (report, said) = apart(answer)?;
    Ok((pktline::read_all(&mut &report[..], MAX_LINES)?, said))
}

/// The report, and the messages beside it (gitprotocol-pack, *side-band*).
fn apart(mut answer: impl Read) -> Result<(Vec<u8>, String), Cause> {
    let (mut report, mut said) = (Vec::new(), Vec::new());
    while let Some(line) = pktline::read_exact(&mut answer)? {
        match line.split_first() {
            Some((1, bytes)) => report.extend(bytes),
            Some((2, bytes)) => said.extend(bytes),
            Some((3, bytes)) => return Err(format!("the host says: {}", clean(bytes)).into()),
            _ => return Err("an answer on an unknown band".into()),
        }
    }
    Ok((report, clean(&said)))
}

/// Bytes in the place of an advertisement, and of an answer to a push.
#[cfg(feature = "fuzz")]
pub(super) fn fuzz(bytes: &[u8]) {
    let _ = read_advertisement(bytes).map(|lines| Advertised::parse(&lines));
    for beside in [true, false] {
        let _ = report(bytes, beside).map(|(lines, said)| Report::parse(&lines, said));
    }
}

impl Advertised {
    fn parse(lines: &[Vec<u8>]) -> Self {
        let mut advertised = Self::default();
        for line in lines {
            let text = String::from_utf8_lossy(line);
            let (line, abilities) = text.split_once('\0').unwrap_or((&text, ""));
            advertised.reports_status |= abilities.split(' ').any(|ability| ability == "report-status");
            advertised.speaks_beside |= abilities.split(' ').any(|ability| ability == "side-band-64k");
            match line.split_once(' ').map(|(id, name)| (id.parse(), name)) {
                // An empty repository sends this to carry its abilities.
                Some((_, "capabilities^{}")) | Some((Err(_), _)) | None => {}
                Some((Ok(id), ".have")) => advertised.others.push(id),
                Some((Ok(id), name)) => drop(advertised.refs.insert(name.to_owned(), id)),
            }
        }
        advertised
    }

    /// The commands up to the pack.
    fn commands(&self, updates: &[&PushUpdate]) -> Result<Vec<u8>, Cause> {
        if !self.reports_status {
            return Err("the remote can't report what becomes of a push".into());
        }
        let beside = if self.speaks_beside { " side-band-64k" } else { "" };
        let mut abilities = format!("\0report-status{beside} agent=repo-git/{}", env!("CARGO_PKG_VERSION"));
        let mut commands = Vec::new();
        for update in updates {
            let old = update.expected.map_or(NOTHING.to_owned(), |id| id.to_string());
            let (new, name) = (update.new, update.ref_name());
            pktline::write(&mut commands, format!("{old} {new} {name}{abilities}").as_bytes())?;
            abilities.clear();
        }
        commands.extend(pktline::FLUSH);
        Ok(commands)
    }

    pub(super) fn tip(&self, update: &PushUpdate) -> Option<CommitId> {
        self.refs.get(&update.ref_name()).copied()
    }

    /// All commits that the remote says it has.
    pub(super) fn commits(&self) -> Vec<CommitId> {
        self.refs.values().chain(&self.others).copied().collect()
    }
}

impl Report {
    fn parse(lines: &[Vec<u8>], said: String) -> Result<Self, PushError> {
        let mut results = BTreeMap::new();
        for line in lines {
            let text = String::from_utf8_lossy(line);
            let mut words = text.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("unpack"), Some("ok"), None) => {}
                (Some("unpack"), _, _) => {
                    let text = with_said(text.trim_start_matches("unpack "), &said);
                    return Err(PushError::Unpack { text });
                }
                (Some("ok"), Some(name), _) => drop(results.insert(name.to_owned(), PushResult::Done)),
                (Some("ng"), Some(name), reason) => {
                    results.insert(name.to_owned(), refusal(reason.unwrap_or_default()));
                }
                _ => {}
            }
        }
        Ok(Self { results, said })
    }

    pub(super) fn result(&self, update: &PushUpdate) -> PushResult {
        let silence = || PushResult::Refused { text: "the remote didn't say what became of it".to_owned() };
        match self.results.get(&update.ref_name()).cloned().unwrap_or_else(silence) {
            PushResult::Refused { text } => PushResult::Refused { text: with_said(&text, &self.said) },
            result => result,
        }
    }
}

fn with_said(text: &str, said: &str) -> String {
    if said.is_empty() { text.to_owned() } else { format!("{text} ({said})") }
}

/// The words of stock Git 2.39 to 2.52 for a branch that someone else moved or is moving.
pub fn refusal(reason: &str) -> PushResult {
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
        let report = Report::parse(&report, String::new()).expect("unpacked").results;
        assert!(matches!(report["refs/heads/a"], PushResult::Stale { .. }));
        assert!(matches!(report["refs/heads/b"], PushResult::Refused { .. }));
    }

    #[test]
    fn what_is_said_beside_a_report_goes_with_its_refusals() {
        let mut answer = Vec::new();
        for line in
            [&b"\x02only this \x1b[1mdevice\n"[..], b"\x01000eunpack ok\n0019ng refs/heads/", b"\x01a hook\n0000"]
        {
            pktline::write(&mut answer, line).expect("written");
        }
        answer.extend(pktline::FLUSH);
        let (report, said) = apart(&answer[..]).expect("understood");
        assert_eq!(said, "only this [1mdevice");
        let lines = pktline::read_all(&mut &report[..], 10).expect("lines");
        assert_eq!(lines[1], b"ng refs/heads/a hook");
        assert_eq!(with_said("hook", &said), "hook (only this [1mdevice)");
        for broken in [&b"0006\x03x0000"[..], b"0006\x09x0000", b"0006"] {
            assert!(apart(broken).is_err());
        }
    }

    #[test]
    fn a_pack_that_could_not_be_unpacked_is_an_error() {
        let report = Report::parse(
            &lines(&["unpack index-pack abnormal exit", "ng refs/heads/a unpacker error"]),
            String::new(),
        );
        assert!(matches!(report, Err(PushError::Unpack { text }) if text == "index-pack abnormal exit"));
    }
}
