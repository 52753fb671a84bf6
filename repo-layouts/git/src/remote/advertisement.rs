//! What a host says of its refs over smart HTTP: the advertisement (gitprotocol-http, gitprotocol-v2) and `ls-refs`.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use super::pktline;
use crate::{Cause, CommitId};

/// The most lines of an advertisement.
pub(super) const MAX_LINES: usize = 100_000;

/// The longest wait that a host may offer.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The refs by their full names.
pub(super) type Refs = BTreeMap<String, CommitId>;

/// What a host says first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Advertisement {
    /// It speaks version 2, and wants to be asked for its refs.
    V2 {
        /// The longest wait that it answers in this conversation, too.
        wait: Option<Duration>,
        /// Whether such a wait can be one for `site`, too.
        waits_for_site: bool,
    },
    /// Its refs, in protocol version 0 or 1.
    Refs(Refs),
}

impl Advertisement {
    /// Reads the answer to `info/refs?service=<service>`.
    pub(super) fn read(mut from: impl Read, service: &str) -> Result<Self, Cause> {
        let first = next(&mut from)?;
        let announced = format!("# service={service}");
        let first = match first {
            Some(line) if line == announced.as_bytes() => match pktline::read(&mut from)? {
                None => next(&mut from)?,
                Some(_) => return Err("expected a flush after the service".into()),
            },
            other => other,
        };
        // Before version 2, an empty repository may say nothing at all.
        let Some(first) = first else { return Ok(Self::Refs(Refs::new())) };
        let rest = pktline::read_all(&mut from, MAX_LINES)?;
        let lines = rest.iter().map(Vec::as_slice);
        match first.as_slice() {
            b"version 2" => check_abilities(&rest),
            b"version 1" => parse_refs(lines).map(Self::Refs),
            line => parse_refs(std::iter::once(line).chain(lines)).map(Self::Refs),
        }
    }
}

/// The next line. A flush right here means that there is nothing.
fn next(from: &mut impl Read) -> Result<Option<Vec<u8>>, Cause> {
    let line = pktline::read(from)?;
    if let Some(said) = line.as_deref().and_then(|line| line.strip_prefix(b"ERR ")) {
        return Err(format!("the host says: {}", String::from_utf8_lossy(said).trim()).into());
    }
    Ok(line)
}

/// Whether a host of version 2 can do what is needed, and what else it offers.
fn check_abilities(lines: &[Vec<u8>]) -> Result<Advertisement, Cause> {
    let (mut lists, mut wait, mut waits_for_site) = (false, None, false);
    for line in lines {
        let text = String::from_utf8_lossy(line);
        match text.split_once('=').unwrap_or((&text, "")) {
            ("ls-refs", _) => lists = true,
            ("object-format", "sha1") => {}
            ("wait-site", _) => waits_for_site = true,
            ("wait", seconds) => wait = seconds.parse().ok().map(Duration::from_secs),
            ("object-format", value) => return Err(format!("the repository has {value} objects, expected sha1").into()),
            _ => {}
        }
    }
    let wait = wait.filter(|wait| !wait.is_zero()).map(|wait| wait.min(LONGEST_WAIT));
    if lists { Ok(Advertisement::V2 { wait, waits_for_site }) } else { Err("the host can't list refs".into()) }
}

/// The body of a request for the refs with one of these prefixes (none: all). Without a word too many, because devices
/// send it all day: who asks stands in the headers, and SHA-1 is the default.
pub(super) fn ls_refs(prefixes: &[&str]) -> Vec<u8> {
    let line = |text: &str| format!("{:04x}{text}\n", text.len() + 5);
    let mut request = line("command=ls-refs") + "0001";
    prefixes.iter().for_each(|prefix| request += &line(&format!("ref-prefix {prefix}")));
    [request.as_bytes(), pktline::FLUSH].concat()
}

/// Reads the answer to `ls-refs`.
pub(super) fn read_ls_refs(mut from: impl Read) -> Result<Refs, Cause> {
    let mut lines = Vec::new();
    while let Some(line) = next(&mut from)? {
        lines.push(line);
        if lines.len() > MAX_LINES {
            return Err("too many refs".into());
        }
    }
    parse_refs(lines.iter().map(Vec::as_slice))
}

/// Lines of `<id> <name>`, with attributes or abilities behind.
fn parse_refs<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Result<Refs, Cause> {
    let mut refs = Refs::new();
    for line in lines {
        let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = std::str::from_utf8(line)?;
        let (id, rest) = text.split_once(' ').ok_or("a ref without a name")?;
        let name = rest.split(' ').next().unwrap_or_default();
        // Peeled tags and the abilities of an empty repository are no refs; nor are shallow boundaries.
        if id == "shallow" || name.ends_with("^{}") {
            continue;
        }
        refs.insert(name.to_owned(), id.parse().map_err(|_| "a ref without an object id of 40 digits")?);
    }
    Ok(refs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789012345678901234567890123456789";

    fn lines(parts: &[&str]) -> Vec<u8> {
        let line =
            |text: &&str| if text.is_empty() { "0000".to_owned() } else { format!("{:04x}{text}", text.len() + 4) };
        parts.iter().map(line).collect::<String>().into_bytes()
    }

    fn read(parts: &[&str]) -> Result<Advertisement, String> {
        Advertisement::read(&lines(parts)[..], "git-upload-pack").map_err(|error| error.to_string())
    }

    #[test]
    fn each_protocol_version_is_understood() {
        let service = "# service=git-upload-pack\n";
        let v2 = read(&[service, "", "version 2\n", "agent=git/2\n", "ls-refs=unborn\n", "object-format=sha1\n", ""]);
        assert_eq!(v2, Ok(Advertisement::V2 { wait: None, waits_for_site: false }));
        let waits = read(&["version 2\n", "ls-refs\n", "wait=300\n", ""]);
        assert_eq!(waits, Ok(Advertisement::V2 { wait: Some(Duration::from_secs(300)), waits_for_site: false }));
        let waits = read(&["version 2\n", "ls-refs\n", "wait=300\n", "wait-site\n", ""]);
        assert_eq!(waits, Ok(Advertisement::V2 { wait: Some(Duration::from_secs(300)), waits_for_site: true }));
        let head = format!("{ID} HEAD\0multi_ack agent=git/2\n");
        let (branch, peeled) = (format!("{ID} refs/heads/desired\n"), format!("{ID} refs/tags/v1^{{}}\n"));
        let Ok(Advertisement::Refs(v0)) = read(&[service, "", &head, &branch, &peeled, ""]) else { panic!("v0") };
        assert_eq!(v0.keys().collect::<Vec<_>>(), ["HEAD", "refs/heads/desired"]);
        let v1 = read(&[service, "", "version 1\n", &head, &branch, ""]);
        assert_eq!(v1, Ok(Advertisement::Refs(v0)));
        let empty = format!("{} capabilities^{{}}\0agent=git/2\n", "0".repeat(40));
        assert_eq!(read(&[service, "", &empty, ""]), Ok(Advertisement::Refs(Refs::new())));
        assert_eq!(read(&[service, "", ""]), Ok(Advertisement::Refs(Refs::new())));
    }

    #[test]
    fn what_is_no_advertisement_is_an_error() {
        let service = "# service=git-upload-pack\n";
        for (parts, words) in [
            (&[service, "", "version 2\n", "fetch\n", ""][..], "can't list"),
            (&[service, "", "version 2\n", "ls-refs\n", "object-format=sha256\n", ""], "sha256"),
            (&["ERR no such repository\n", ""], "no such repository"),
            (&[service, "", "nonsense\n", ""], "without a name"),
            (&[service, "", "12 refs/heads/a\n", ""], "40 digits"),
        ] {
            let error = read(parts).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(Advertisement::read(&b"<html>"[..], "git-upload-pack").is_err());
        assert!(Advertisement::read(&b"00"[..], "git-upload-pack").is_err());
    }

    #[test]
    fn refs_are_asked_for_by_prefix() {
        let request = String::from_utf8(ls_refs(&["refs/heads/"])).unwrap();
        assert_eq!(request, "0014command=ls-refs\n0001001bref-prefix refs/heads/\n0000");
    }

    #[test]
    fn attributes_of_refs_are_passed_over() {
        let (head, branch) =
            (format!("{ID} HEAD symref-target:refs/heads/desired\n"), format!("{ID} refs/heads/desired\n"));
        let refs = read_ls_refs(&lines(&[&head, &branch, ""])[..]).unwrap();
        assert_eq!(refs.keys().collect::<Vec<_>>(), ["HEAD", "refs/heads/desired"]);
    }
}
