//! Git's lines with a length in front (gitprotocol-common, *pkt-line Format*), as far as a push needs them.

use std::io::{self, Read, Write};

/// The longest line there can be, its length included.
const MAX_LINE: usize = 65520;

pub(super) const FLUSH: &[u8] = b"0000";

/// Reads one line without its final newline; `None` for a flush packet.
pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut line = read_exact(from)?;
    if let Some(line) = line.as_mut().filter(|line| line.last() == Some(&b'\n')) {
        line.pop();
    }
    Ok(line)
}

/// Reads one line with all its bytes; `None` for a flush packet.
pub(super) fn read_exact(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let digits = std::str::from_utf8(&length).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
    match digits {
        Some(0) => Ok(None),
        Some(length @ 4..=MAX_LINE) => {
            let mut line = vec![0; length - 4];
            from.read_exact(&mut line)?;
            Ok(Some(line))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a pkt-line")),
    }
}

/// Reads lines up to a flush packet, at most `max` of them.
pub(super) fn read_all(from: &mut impl Read, max: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut lines = Vec::new();
    while let Some(line) = read(from)? {
        lines.push(line);
        if lines.len() > max {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many pkt-lines"));
        }
    }
    Ok(lines)
}

/// Writes one line, which must be shorter than 65,517 bytes.
pub(super) fn write(to: &mut impl Write, line: &[u8]) -> io::Result<()> {
    if line.len() + 4 > MAX_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too long for a pkt-line"));
    }
    write!(to, "{:04x}", line.len() + 4)?;
    to.write_all(line)
}
