//! What a reader sends to `git-upload-pack`: a v2 command, or the wants of v0 and v1.

use repo_git::CommitId;

use super::ls_refs::LsRefs;
use super::pktline::{Packet, all, line};
use super::{Malformed, object_name};

/// The most wants in one request: more than a repository of this host has branches.
const MAX_WANTS: usize = 1000;

/// A request to `git-upload-pack`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Protocol v2 asks where the refs stand.
    LsRefs(LsRefs),
    /// Objects are wanted, in any version of the protocol.
    Fetch(Vec<CommitId>),
    /// Nothing is asked: git tries out whether it may send something.
    Probe,
}

impl Request {
    /// Reads a request of protocol v2, or of v0 and v1.
    pub fn parse(body: &[u8], is_v2: bool) -> Result<Self, Malformed> {
        if body.is_empty() || body == super::pktline::FLUSH {
            return Ok(Self::Probe);
        }
        if !is_v2 {
            return wants(all(body)).map(Self::Fetch);
        }
        let mut packets = all(body);
        match packets.next().ok_or(Malformed::Short)?? {
            Packet::Data(data) if line(data) == b"command=ls-refs" => LsRefs::parse(packets).map(Self::LsRefs),
            Packet::Data(data) if line(data) == b"command=fetch" => wants(packets).map(Self::Fetch),
            _ => Err(Malformed::Line("this host knows the commands ls-refs and fetch")),
        }
    }
}

/// Every object that any line wants. A line that wants in a way that isn't understood is refused, so that stock git
/// never sees a want that was not looked at.
fn wants<'a>(packets: impl Iterator<Item = Result<Packet<'a>, Malformed>>) -> Result<Vec<CommitId>, Malformed> {
    let mut wants = Vec::new();
    for packet in packets {
        let Packet::Data(data) = packet? else { continue };
        if !data.starts_with(b"want") {
            continue;
        }
        let name = data.strip_prefix(b"want ").and_then(|rest| rest.get(..40)).and_then(object_name).flatten();
        wants.push(name.ok_or(Malformed::Line("a want names no object"))?);
        if wants.len() > MAX_WANTS {
            return Err(Malformed::TooMany("wants"));
        }
    }
    Ok(wants)
}

#[cfg(test)]
mod tests {
    use super::super::pktline::{DELIMITER, FLUSH, write};
    use super::*;

    const ID: &str = "1234567890123456789012345678901234567890";

    fn body(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            match *line {
                "." => out.extend(FLUSH),
                "|" => out.extend(DELIMITER),
                line => write(&mut out, line.as_bytes()),
            }
        }
        out
    }

    #[test]
    fn wants_are_found_in_every_version() {
        let want = format!("want {ID}");
        let v0 = body(&[&format!("{want} multi_ack ofs-delta\n"), &format!("{want}\n"), ".", "done\n"]);
        let id: CommitId = ID.parse().unwrap();
        assert_eq!(Request::parse(&v0, false), Ok(Request::Fetch(vec![id, id])));
        let v2 = body(&["command=fetch", "agent=git/2", "|", "thin-pack", &want, "done\n", "."]);
        assert_eq!(Request::parse(&v2, true), Ok(Request::Fetch(vec![id])));
        assert_eq!(Request::parse(b"0000", false), Ok(Request::Probe));
    }

    #[test]
    fn a_want_that_is_not_understood_is_refused() {
        for bad in ["want-ref refs/heads/x", "want abc", "want  1234", &format!("want\t{ID}")] {
            let body = body(&["command=fetch", "|", bad, "."]);
            assert!(matches!(Request::parse(&body, true), Err(Malformed::Line(_))), "{bad}");
        }
        assert!(Request::parse(&body(&["command=object-info", "."]), true).is_err());
        assert!(Request::parse(&body(&["."]), true).is_ok());
        assert!(Request::parse(&body(&["|"]), true).is_err());
        let want = format!("want {ID}");
        let many = body(&vec![want.as_str(); 1001]);
        assert_eq!(Request::parse(&many, false), Err(Malformed::TooMany("wants")));
    }
}
