//! What a client sends over SSH: the command that it asks sshd for, and where its requests end.

use super::path::{Known, Service};
use super::pktline::{FLUSH, Packet, first, line};
use super::{Malformed, object_name};

/// The longest command that is looked at.
pub const MAX_COMMAND: usize = 1024;

/// Reads the command that a client asks for: one of Git's services, and the path as it stands there.
pub fn command(text: &str) -> Option<(Service, &str)> {
    let text = text.strip_prefix("git-").or_else(|| text.strip_prefix("git ")).filter(|_| text.len() <= MAX_COMMAND)?;
    let (service, path) = text.split_once(' ')?;
    let service = match service {
        "upload-pack" => Service::UploadPack,
        "receive-pack" => Service::ReceivePack,
        _ => return None,
    };
    let quoted = path.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    // No name here needs a quote within quotes, or any other character that means something to a shell.
    let path = quoted.unwrap_or(path);
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"/._-".contains(&c);
    path.bytes().all(is_plain).then_some((service, path))
}

/// Looks for the end of a request, which is a flush, in bytes that come little by little.
#[derive(Debug, Default)]
pub struct Frames {
    at: usize,
}

impl Frames {
    /// How many bytes the first request takes, its flush included; `None` if more bytes are needed. The same bytes, and
    /// what came since, are shown again.
    pub fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while let Some((packet, length)) = first(bytes.get(self.at..).unwrap_or_default())? {
            self.at += length;
            if packet == Packet::Flush {
                return Ok(Some(std::mem::take(&mut self.at)));
            }
        }
        Ok(None)
    }
}

/// `command=wait`: a request that waits for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub known: Known,
    /// How long at most; `None` for as long as the host lets.
    pub seconds: Option<u64>,
}

impl Wait {
    /// Reads a request; `None` if it is another one.
    pub fn parse(request: &[u8]) -> Result<Option<Self>, Malformed> {
        const BAD: Malformed =
            Malformed::Line("a wait says `desired`, `freshness` and perhaps `site` and `seconds`, each once");
        let mut packets = super::pktline::all(request);
        match packets.next() {
            Some(Ok(Packet::Data(data))) if line(data) == b"command=wait" => {}
            _ => return Ok(None),
        }
        let (mut desired, mut freshness, mut site, mut seconds, mut arguments) = (None, None, None, None, false);
        for packet in packets {
            let data = match packet? {
                Packet::Delimiter if !arguments => {
                    arguments = true;
                    continue;
                }
                Packet::Flush => break,
                // Capabilities, which say nothing about waiting.
                Packet::Data(_) if !arguments => continue,
                Packet::Data(data) => std::str::from_utf8(line(data)).map_err(|_| BAD)?,
                _ => return Err(BAD),
            };
            let (word, value) = data.split_once(' ').ok_or(BAD)?;
            let id = || object_name(value.as_bytes()).ok_or(BAD);
            let is_first = match word {
                "desired" => desired.replace(id()?).is_none(),
                "freshness" => freshness.replace(id()?).is_none(),
                "site" => site.replace(id()?).is_none(),
                "seconds" => seconds.replace(value.parse().map_err(|_| BAD)?).is_none(),
                _ => false,
            };
            if !is_first {
                return Err(BAD);
            }
        }
        let known = Known { desired: desired.ok_or(BAD)?, freshness: freshness.ok_or(BAD)?, site };
        Ok(Some(Self { known, seconds }))
    }
}

/// What a reader without protocol v2 says, one line after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It has said what it wants, or what it has so far, and waits for an answer.
    Flush,
    /// It has said all that it has.
    Done,
    /// Anything else, which stock git is told.
    Line,
}

/// Reads the first line of these bytes and how many bytes it takes; `None` if more bytes are needed.
pub fn said(bytes: &[u8]) -> Result<Option<(Said, usize)>, Malformed> {
    Ok(match first(bytes)? {
        None => None,
        Some((Packet::Flush, length)) => Some((Said::Flush, length)),
        Some((Packet::Data(data), length)) if line(data) == b"done" => Some((Said::Done, length)),
        Some((Packet::Data(_), length)) => Some((Said::Line, length)),
        Some(_) => return Err(Malformed::Line("only protocol v2 has sections")),
    })
}

/// Whether a reader without protocol v2 wants an answer about the edge of a shallow clone before it says what it has.
pub fn deepens(wants: &[u8]) -> bool {
    super::pktline::all(wants).any(|packet| matches!(packet, Ok(Packet::Data(data)) if data.starts_with(b"deepen")))
}

/// An advertisement without what only HTTP puts in front of it: the service's name, and a flush.
pub fn without_service(advertisement: &[u8]) -> &[u8] {
    let Ok(Some((Packet::Data(data), length))) = first(advertisement) else { return advertisement };
    if !data.starts_with(b"# service=") {
        return advertisement;
    }
    advertisement[length..].strip_prefix(FLUSH).unwrap_or(advertisement)
}

#[cfg(test)]
mod tests {
    use super::super::NOTHING;
    use super::super::path::{Target, repository};
    use super::super::pktline::{DELIMITER, write};
    use super::*;

    #[test]
    fn a_command_is_one_of_gits_services_and_a_path() {
        let path = "/devices/press-01.git";
        for (text, service) in [
            (format!("git-upload-pack '{path}'"), Service::UploadPack),
            (format!("git upload-pack '{path}'"), Service::UploadPack),
            (format!("git-receive-pack '{path}'"), Service::ReceivePack),
            (format!("git-upload-pack {path}"), Service::UploadPack),
        ] {
            assert_eq!(command(&text), Some((service, path)), "{text}");
        }
        for bad in [
            "",
            "git-upload-pack",
            "git-upload-archive '/fleet.git'",
            "git-shell",
            "scp -t /tmp",
            "git-upload-pack '/fleet.git'; id",
            "git-upload-pack '/fleet.git' '/control.git'",
            "git-upload-pack --upload-pack=id '/fleet.git'",
            "git-upload-pack '/fleet.git\\''",
            "git-upload-pack $(id)",
            "git-upload-pack `id`",
            "git-upload-pack '/fleet.git'\n",
            "git-upload-pack '/fleet.git\0'",
            "GIT_DIR=x git-upload-pack '/fleet.git'",
            &format!("git-upload-pack '/{}'", "a".repeat(MAX_COMMAND)),
        ] {
            assert_eq!(command(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_path_names_a_repository_or_nothing() {
        assert_eq!(repository("/devices/a.git"), Some(Target::Device("a")));
        assert_eq!(repository("/fleet.git"), Some(Target::Fleet));
        assert_eq!(repository("/control.git"), Some(Target::Control));
        for bad in [
            "",
            "/",
            "fleet.git",
            "//fleet.git",
            "/fleet.git/",
            "/devices/../control.git",
            "/devices/..git",
            "/devices/a.git/../b.git",
            "/devices/.git",
            "/devices/A.git",
            "/devices/a.lock.git",
            "/accounts/a.json",
        ] {
            assert_eq!(repository(bad), None, "{bad}");
        }
    }

    fn request(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for one in lines {
            if *one == "|" { out.extend(DELIMITER) } else { write(&mut out, one.as_bytes()) }
        }
        out.extend(FLUSH);
        out
    }

    #[test]
    fn a_request_ends_with_its_flush_however_it_comes() {
        let mut bytes = request(&["command=ls-refs", "|", "peel"]);
        let length = bytes.len();
        bytes.extend(b"0000");
        let mut frames = Frames::default();
        for short in 0..length {
            assert_eq!(frames.end(&bytes[..short]), Ok(None), "{short}");
        }
        assert_eq!(frames.end(&bytes), Ok(Some(length)));
        assert_eq!(frames.end(&bytes[length..]), Ok(Some(4)), "and the next one");
        assert!(Frames::default().end(b"zzzz").is_err());
    }

    #[test]
    fn a_wait_says_where_both_branches_stand() {
        let id = "1".repeat(40);
        let (desired, freshness) = (format!("desired {id}\n"), format!("freshness {NOTHING}"));
        let wait = Wait::parse(&request(&["command=wait\n", "agent=x", "|", &desired, &freshness, "seconds 40"]));
        let known = Known { desired: Some(id.parse().unwrap()), freshness: None, site: None };
        assert_eq!(wait, Ok(Some(Wait { known, seconds: Some(40) })));
        let wait = Wait::parse(&request(&["command=wait", "|", &freshness, &desired]));
        assert_eq!(wait, Ok(Some(Wait { known, seconds: None })));
        let site = format!("site {id}\n");
        let wait = Wait::parse(&request(&["command=wait", "|", &site, &freshness, &desired]));
        assert_eq!(wait, Ok(Some(Wait { known: Known { site: Some(known.desired), ..known }, seconds: None })));
        assert_eq!(Wait::parse(&request(&["command=ls-refs"])), Ok(None));
        for bad in [
            &["command=wait"][..],
            &["command=wait", "|", &desired],
            &["command=wait", "|", &desired, &desired, &freshness],
            &["command=wait", "|", &desired, &freshness, &site, &site],
            &["command=wait", "|", &desired, &freshness, "site"],
            &["command=wait", "|", "desired 1", &freshness],
            &["command=wait", "|", &desired, &freshness, "seconds -1"],
            &["command=wait", "|", &desired, &freshness, "more"],
            &["command=wait", "|", &desired, "|", &freshness],
        ] {
            assert!(Wait::parse(&request(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_only_http_needs_is_left_out() {
        let mut bytes = Vec::new();
        write(&mut bytes, b"# service=git-upload-pack\n");
        bytes.extend(FLUSH);
        bytes.extend(b"000ahello\n");
        assert_eq!(without_service(&bytes), b"000ahello\n");
        assert_eq!(without_service(b"000ahello\n"), b"000ahello\n");
    }
}
