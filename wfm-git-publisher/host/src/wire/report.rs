//! What becomes of a push (gitprotocol-pack, *Report Status*): read from stock git, and written to the pusher.

use repo_model::text;

use super::Malformed;
use super::commands::Commands;
use super::pktline::{FLUSH, Packet, all, line, write};

/// The most bytes that a sideband frame carries.
const MAX_BAND: usize = 65515;

/// What became of a push: stock git's answer, ref by ref.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// `ok`, or why the pack could not be taken.
    pub unpack: String,
    /// Each ref and, if it didn't move, why.
    pub refs: Vec<(String, Result<(), String>)>,
    /// What hooks said, for a person.
    pub messages: String,
}

impl Report {
    /// Everything is refused, for one reason.
    pub fn refused(commands: &Commands, reason: &str) -> Self {
        let reason = one_line(reason);
        let refs = commands.commands.iter().map(|one| (one.name.clone(), Err(reason.clone()))).collect();
        Self { unpack: "ok".to_owned(), refs, messages: format!("{reason}\n") }
    }

    pub fn is_good(&self) -> bool {
        self.unpack == "ok" && self.refs.iter().all(|(_, result)| result.is_ok())
    }

    /// Reads what `git receive-pack` wrote, which is framed in a sideband if the pusher can that.
    pub fn parse(output: &[u8], sideband: bool) -> Result<Self, Malformed> {
        let mut report = Self::default();
        let mut inner = Vec::new();
        if sideband {
            for packet in all(output) {
                match packet? {
                    Packet::Data([1, rest @ ..]) => inner.extend(rest),
                    Packet::Data([2 | 3, rest @ ..]) => report.messages.push_str(&String::from_utf8_lossy(rest)),
                    _ => {}
                }
            }
        }
        for packet in all(if sideband { &inner } else { output }) {
            let Packet::Data(data) = packet? else { continue };
            report.line(&String::from_utf8_lossy(line(data)))?;
        }
        if report.unpack.is_empty() { Err(Malformed::Short) } else { Ok(report) }
    }

    fn line(&mut self, text: &str) -> Result<(), Malformed> {
        let (word, rest) = text.split_once(' ').ok_or(Malformed::Line("a line of a report"))?;
        match word {
            "unpack" => self.unpack = rest.to_owned(),
            "ok" => self.refs.push((rest.to_owned(), Ok(()))),
            "ng" => {
                let (name, reason) = rest.split_once(' ').unwrap_or((rest, "refused"));
                self.refs.push((name.to_owned(), Err(reason.to_owned())));
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes it for the pusher, in the way that it can read.
    pub fn write(&self, commands: &Commands) -> Vec<u8> {
        let mut inner = Vec::new();
        if commands.can("report-status") || commands.can("report-status-v2") {
            write(&mut inner, format!("unpack {}\n", one_line(&self.unpack)).as_bytes());
            for (name, result) in &self.refs {
                let text = match result {
                    Ok(()) => format!("ok {name}\n"),
                    Err(reason) => format!("ng {name} {}\n", one_line(reason)),
                };
                write(&mut inner, text.as_bytes());
            }
            inner.extend(FLUSH);
        }
        if !commands.can("side-band-64k") {
            return inner;
        }
        let mut out = Vec::new();
        band(&mut out, 2, self.messages.as_bytes());
        band(&mut out, 1, &inner);
        out.extend(FLUSH);
        out
    }
}

/// Adds bytes in one channel of a sideband.
fn band(out: &mut Vec<u8>, channel: u8, bytes: &[u8]) {
    for part in bytes.chunks(MAX_BAND) {
        write(out, &[&[channel], part].concat());
    }
}

/// Text that stays in its line and in its length.
pub fn one_line(text: &str) -> String {
    text::line(text.replace(['\r', '\n'], " ").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(abilities: &[&str]) -> Commands {
        let id = Some("1".repeat(40).parse().unwrap());
        let command = super::super::commands::Command { old: None, new: id, name: "refs/heads/main".to_owned() };
        Commands { commands: vec![command], abilities: abilities.iter().map(|&one| one.to_owned()).collect() }
    }

    #[test]
    fn a_report_is_read_as_it_is_written() {
        for abilities in [&["report-status"][..], &["report-status", "side-band-64k"]] {
            let commands = commands(abilities);
            let report = Report::refused(&commands, "denied:\nnot yours");
            assert!(!report.is_good());
            let read = Report::parse(&report.write(&commands), commands.can("side-band-64k")).unwrap();
            assert_eq!(read.refs, [("refs/heads/main".to_owned(), Err("denied: not yours".to_owned()))]);
            assert_eq!(read.messages.is_empty(), !commands.can("side-band-64k"));
        }
    }

    #[test]
    fn a_pusher_that_wants_no_report_gets_none() {
        assert_eq!(Report::refused(&commands(&[]), "x").write(&commands(&[])), b"");
    }

    #[test]
    fn an_output_that_breaks_off_is_no_report() {
        assert!(Report::parse(b"", true).is_err());
        assert!(Report::parse(b"000eunpack ok\n", false).unwrap().is_good());
        assert!(Report::parse(b"000eunpack", false).is_err());
    }
}
