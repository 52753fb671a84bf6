//! `command=ls-refs` of protocol v2 (gitprotocol-v2): what is asked, and the answer.

use repo_git::repo::Ref;

use super::Malformed;
use super::pktline::{FLUSH, Packet, line, write};

/// With more prefixes than this none is looked at, as in stock git: they only spare bytes.
const MAX_PREFIXES: usize = 100;

/// The most lines that a request may have.
const MAX_LINES: usize = 10_000;

/// What this host can in protocol v2; the answer to `info/refs`, and the same for every repository.
pub const ADVERTISEMENT: &[&str] = &[
    "version 2\n",
    concat!("agent=wfm-git-publisher/", env!("CARGO_PKG_VERSION"), "\n"),
    "ls-refs=unborn\n",
    "fetch=shallow\n",
    "object-format=sha1\n",
];

/// A request `command=ls-refs` of protocol version 2.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LsRefs {
    peel: bool,
    symrefs: bool,
    unborn: bool,
    prefixes: Vec<Vec<u8>>,
}

impl LsRefs {
    /// Reads what follows the command's own line.
    pub(super) fn parse<'a>(packets: impl Iterator<Item = Result<Packet<'a>, Malformed>>) -> Result<Self, Malformed> {
        let mut asked = Self::default();
        let (mut arguments, mut count) = (false, 0);
        for packet in packets {
            count += 1;
            match packet? {
                _ if count > MAX_LINES => return Err(Malformed::TooMany("lines")),
                Packet::Delimiter => arguments = true,
                Packet::Flush => return Ok(asked),
                Packet::Data(data) if arguments => asked.argument(line(data))?,
                Packet::Data(data) => capability(line(data))?,
                Packet::ResponseEnd => return Err(Malformed::Line("a response ends in a request")),
            }
        }
        Err(Malformed::Short)
    }

    fn argument(&mut self, argument: &[u8]) -> Result<(), Malformed> {
        match argument {
            b"peel" => self.peel = true,
            b"symrefs" => self.symrefs = true,
            b"unborn" => self.unborn = true,
            _ => match argument.strip_prefix(b"ref-prefix ") {
                Some(prefix) if self.prefixes.len() <= MAX_PREFIXES => self.prefixes.push(prefix.to_owned()),
                Some(_) => {}
                None => return Err(Malformed::Line("an argument of ls-refs")),
            },
        }
        Ok(())
    }

    /// The answer, given all refs of the repository, `HEAD` first.
    pub fn answer(&self, refs: &[Ref]) -> Vec<u8> {
        let mut out = Vec::with_capacity(refs.len() * 70 + 4);
        for one in refs.iter().filter(|one| self.wants(&one.name)) {
            let mut text = match one.id {
                Some(id) => format!("{id} {}", one.name),
                None if self.unborn && one.symref.is_some() => format!("unborn {}", one.name),
                None => continue,
            };
            if let Some(target) = one.symref.as_ref().filter(|_| self.symrefs) {
                text.push_str(&format!(" symref-target:{target}"));
            }
            if let Some(peeled) = one.peeled.filter(|_| self.peel) {
                text.push_str(&format!(" peeled:{peeled}"));
            }
            text.push('\n');
            write(&mut out, text.as_bytes());
        }
        out.extend(FLUSH);
        out
    }

    fn wants(&self, name: &str) -> bool {
        self.prefixes.is_empty()
            || self.prefixes.len() > MAX_PREFIXES
            || self.prefixes.iter().any(|prefix| name.as_bytes().starts_with(prefix))
    }
}

/// Capabilities that a client may send along; another hash than SHA-1 can't be served.
fn capability(text: &[u8]) -> Result<(), Malformed> {
    match text.strip_prefix(b"object-format=") {
        Some(format) if format != b"sha1" => Err(Malformed::Line("only sha1 objects are here")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pktline::{DELIMITER, all};
    use super::super::upload::Request;
    use super::*;

    fn request(lines: &[&str]) -> Result<LsRefs, Malformed> {
        let mut body = Vec::new();
        write(&mut body, b"command=ls-refs\n");
        write(&mut body, b"agent=git/2.39\n");
        write(&mut body, b"object-format=sha1");
        body.extend(DELIMITER);
        lines.iter().for_each(|line| write(&mut body, line.as_bytes()));
        body.extend(FLUSH);
        match Request::parse(&body, true)? {
            Request::LsRefs(asked) => Ok(asked),
            other => panic!("{other:?}"),
        }
    }

    fn refs() -> Vec<Ref> {
        let id = |digit: &str| Some(digit.repeat(40).parse().unwrap());
        let named = |name: &str, id| Ref { name: name.to_owned(), id, symref: None, peeled: None };
        let head = Ref { symref: Some("refs/heads/desired".to_owned()), ..named("HEAD", id("1")) };
        let tag = Ref { peeled: id("3"), ..named("refs/tags/v1", id("2")) };
        vec![head, named("refs/heads/desired", id("1")), tag]
    }

    fn lines(answer: &[u8]) -> Vec<String> {
        let text = |packet| match packet {
            Ok(Packet::Data(data)) => String::from_utf8(line(data).to_vec()).unwrap(),
            other => format!("{other:?}"),
        };
        all(answer).map(text).collect()
    }

    #[test]
    fn the_answer_holds_what_was_asked_for() {
        let (one, two, three) = ("1".repeat(40), "2".repeat(40), "3".repeat(40));
        let all = request(&["peel\n", "symrefs\n"]).unwrap().answer(&refs());
        let tag = format!("{two} refs/tags/v1 peeled:{three}");
        let head = format!("{one} HEAD symref-target:refs/heads/desired");
        assert_eq!(lines(&all), [head, format!("{one} refs/heads/desired"), tag, "Ok(Flush)".to_owned()]);
        let some = request(&["ref-prefix refs/heads/des\n"]).unwrap().answer(&refs());
        assert_eq!(lines(&some), [format!("{one} refs/heads/desired"), "Ok(Flush)".to_owned()]);
    }

    #[test]
    fn an_unborn_head_is_told_to_those_who_ask() {
        let head = Ref { name: "HEAD".into(), id: None, symref: Some("refs/heads/desired".into()), peeled: None };
        let asked = request(&["symrefs", "unborn"]).unwrap();
        let expected = "unborn HEAD symref-target:refs/heads/desired".to_owned();
        assert_eq!(lines(&asked.answer(std::slice::from_ref(&head))), [expected, "Ok(Flush)".to_owned()]);
        assert_eq!(lines(&request(&[]).unwrap().answer(&[head])), ["Ok(Flush)"]);
    }

    #[test]
    fn too_many_prefixes_are_as_good_as_none_and_nonsense_is_refused() {
        let many: Vec<String> = (0..500).map(|n| format!("ref-prefix x{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(lines(&request(&many).unwrap().answer(&refs())).len(), 4);
        assert!(request(&["nonsense"]).is_err());
        assert!(request(&vec!["peel"; 20_000]).is_err());
        let mut sha256 = Vec::new();
        write(&mut sha256, b"command=ls-refs\n");
        write(&mut sha256, b"object-format=sha256\n");
        sha256.extend(FLUSH);
        assert!(Request::parse(&sha256, true).is_err());
    }
}
