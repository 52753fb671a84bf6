//! The commands at the head of a push (gitprotocol-pack, *Reference Update Request*).

use repo_git::CommitId;

use super::pktline::{Packet, first, line};
use super::{Malformed, object_name};

/// The most commands in one push. A device has two branches to write; an operator may push many at once.
const MAX_COMMANDS: usize = 200;

/// The most bytes that commands may take.
pub const MAX_BYTES: usize = 64 << 10;

/// One ref that shall move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Where the pusher believes it to stand.
    pub old: Option<CommitId>,
    /// Where it goes; `None` deletes it.
    pub new: Option<CommitId>,
    /// In full: `refs/heads/status`.
    pub name: String,
}

/// What stands in front of the pack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commands {
    /// At least one, but for a probe.
    pub commands: Vec<Command>,
    /// The capabilities that the pusher named, as it wrote them.
    pub abilities: Vec<String>,
}

/// The 12 bytes with which a pack begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackHead {
    /// How many objects it says to hold.
    pub objects: u32,
}

impl Commands {
    /// Reads the commands and how many bytes they take, their flush included; `None` if more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let (mut head, mut at) = (Self::default(), 0);
        loop {
            if at > MAX_BYTES || head.commands.len() > MAX_COMMANDS {
                return Err(Malformed::TooMany("commands"));
            }
            match first(&bytes[at..])? {
                None if bytes.len() > MAX_BYTES + super::pktline::MAX_DATA => {
                    return Err(Malformed::TooMany("commands"));
                }
                None => return Ok(None),
                Some((Packet::Flush, length)) => return Ok(Some((head, at + length))),
                Some((Packet::Data(data), length)) => {
                    head.add(data)?;
                    at += length;
                }
                Some(_) => return Err(Malformed::Line("a push has no sections")),
            }
        }
    }

    fn add(&mut self, data: &[u8]) -> Result<(), Malformed> {
        let (text, abilities) = match data.iter().position(|byte| *byte == 0) {
            Some(at) if self.commands.is_empty() => (&data[..at], &data[at + 1..]),
            Some(_) => return Err(Malformed::Line("a NUL within a command")),
            None => (data, &b""[..]),
        };
        // What stands at the edge of a shallow clone is for stock git to look at.
        if let Some(id) = text.strip_prefix(b"shallow ") {
            let good = self.commands.is_empty() && matches!(object_name(line(id)), Some(Some(_)));
            return if good { Ok(()) } else { Err(Malformed::Line("the edge of a shallow clone")) };
        }
        if !abilities.is_empty() {
            let abilities = std::str::from_utf8(line(abilities)).map_err(|_| Malformed::Line("abilities"))?;
            self.abilities = abilities.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        }
        self.commands.push(Command::parse(line(text))?);
        Ok(())
    }

    /// Whether the pusher can this.
    pub fn can(&self, ability: &str) -> bool {
        self.abilities.iter().any(|one| one == ability)
    }
}

impl Command {
    fn parse(text: &[u8]) -> Result<Self, Malformed> {
        const BAD: Malformed = Malformed::Line("a command of a push");
        let text = std::str::from_utf8(text).map_err(|_| BAD)?;
        let mut words = text.splitn(3, ' ');
        let mut id = || words.next().and_then(|word| object_name(word.as_bytes())).ok_or(BAD);
        let (old, new) = (id()?, id()?);
        let name = words.next().ok_or(BAD)?;
        let good = name.starts_with("refs/") && !name.bytes().any(|c| c.is_ascii_control() || c == b' ');
        if !good || (old.is_none() && new.is_none()) {
            return Err(BAD);
        }
        Ok(Self { old, new, name: name.to_owned() })
    }
}

impl PackHead {
    /// Reads the first twelve bytes of a pack; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(head) = bytes.first_chunk::<12>() else { return Ok(None) };
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if &head[..4] != b"PACK" || !matches!(number(4), 2 | 3) {
            return Err(Malformed::Line("what follows the commands is no pack"));
        }
        Ok(Some(Self { objects: number(8) }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::NOTHING;
    use super::super::pktline::{FLUSH, write};
    use super::*;

    fn push(lines: &[String]) -> Vec<u8> {
        let mut out = Vec::new();
        lines.iter().for_each(|line| write(&mut out, line.as_bytes()));
        out.extend(FLUSH);
        out
    }

    #[test]
    fn commands_are_read_up_to_the_pack() {
        let id = "1".repeat(40);
        let first = format!("{NOTHING} {id} refs/heads/status\0report-status side-band-64k agent=git/2\n");
        let edge = format!("shallow {id}\n");
        let mut bytes = push(&[edge, first, format!("{id} {NOTHING} refs/heads/heartbeat")]);
        let length = bytes.len();
        bytes.extend(b"PACK");
        let (head, taken) = Commands::parse(&bytes).unwrap().unwrap();
        assert_eq!(taken, length);
        assert!(head.can("side-band-64k") && !head.can("atomic"));
        let id = Some(id.parse().unwrap());
        let command = |old, new, name: &str| Command { old, new, name: format!("refs/heads/{name}") };
        assert_eq!(head.commands, [command(None, id, "status"), command(id, None, "heartbeat")]);
        for short in 0..length {
            assert_eq!(Commands::parse(&bytes[..short]), Ok(None), "{short}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let id = "1".repeat(40);
        for bad in [
            format!("{id} {id} HEAD"),
            format!("{id} {id} refs/heads/a b"),
            format!("{id} {id} refs/heads/a\u{1b}"),
            format!("{NOTHING} {NOTHING} refs/heads/a"),
            format!("{id} refs/heads/a"),
            "shallow 1111".to_owned(),
            format!("shallow {NOTHING}"),
            "push-cert\0push-options".to_owned(),
        ] {
            assert!(Commands::parse(&push(std::slice::from_ref(&bad))).is_err(), "{bad}");
        }
        let many = vec![format!("{NOTHING} {id} refs/heads/a"); 300];
        assert_eq!(Commands::parse(&push(&many)), Err(Malformed::TooMany("commands")));
    }

    #[test]
    fn a_pack_says_how_many_objects_it_holds() {
        assert_eq!(PackHead::parse(b"PACK\0\0\0\x02\0\0\x01\0x"), Ok(Some(PackHead { objects: 256 })));
        assert_eq!(PackHead::parse(b"PACK\0\0\0\x02\0"), Ok(None));
        assert!(PackHead::parse(b"KCAP\0\0\0\x02\0\0\0\0").is_err());
        assert!(PackHead::parse(b"PACK\0\0\0\x09\0\0\0\0").is_err());
    }
}
