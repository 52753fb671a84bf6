//! The frames of Git's protocols (gitprotocol-common): four hex digits of length, then the bytes.

use super::Malformed;

/// The end of a message.
pub const FLUSH: &[u8] = b"0000";

/// The end of a section (protocol v2).
pub const DELIMITER: &[u8] = b"0001";

/// The most bytes that one pkt-line can carry.
pub const MAX_DATA: usize = 65516;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    Data(&'a [u8]),
    /// `0000`
    Flush,
    /// `0001`
    Delimiter,
    /// `0002`
    ResponseEnd,
}

/// The first frame of these bytes and how many bytes it takes; `None` if more bytes are needed to tell.
pub fn first(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, Malformed> {
    let Some(digits) = bytes.get(..4) else { return Ok(None) };
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|c| c.is_ascii_hexdigit()));
    let length = digits.and_then(|text| usize::from_str_radix(text, 16).ok()).ok_or(Malformed::Length)?;
    match length {
        0 => Ok(Some((Packet::Flush, 4))),
        1 => Ok(Some((Packet::Delimiter, 4))),
        2 => Ok(Some((Packet::ResponseEnd, 4))),
        3 => Err(Malformed::Length),
        _ if length > MAX_DATA + 4 => Err(Malformed::Length),
        _ => Ok(bytes.get(4..length).map(|data| (Packet::Data(data), length))),
    }
}

/// All frames of these bytes, which must end with one.
pub fn all(mut bytes: &[u8]) -> impl Iterator<Item = Result<Packet<'_>, Malformed>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let (packet, rest) = match first(bytes) {
            Ok(Some((packet, length))) => (Ok(packet), &bytes[length..]),
            Ok(None) => (Err(Malformed::Short), &bytes[..0]),
            Err(error) => (Err(error), &bytes[..0]),
        };
        bytes = rest;
        Some(packet)
    })
}

/// A line without its end.
pub fn line(data: &[u8]) -> &[u8] {
    data.strip_suffix(b"\n").unwrap_or(data)
}

/// Adds bytes as one frame, or as many as they need; nothing for no bytes.
pub fn write(out: &mut Vec<u8>, data: &[u8]) {
    for part in data.chunks(MAX_DATA) {
        out.extend(format!("{:04x}", part.len() + 4).as_bytes());
        out.extend(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_are_written() {
        let mut out = Vec::new();
        write(&mut out, b"hello\n");
        out.extend(FLUSH);
        out.extend(DELIMITER);
        let packets: Vec<_> = all(&out).map(Result::unwrap).collect();
        assert_eq!(packets, [Packet::Data(b"hello\n"), Packet::Flush, Packet::Delimiter]);
        let big = vec![7u8; MAX_DATA + 1];
        let mut out = Vec::new();
        write(&mut out, &big);
        assert_eq!(all(&out).count(), 2);
    }

    #[test]
    fn what_is_no_frame_is_refused_and_a_part_of_one_waited_for() {
        for bad in [&b"00"[..], b"", b"0009abc"] {
            assert_eq!(first(bad), Ok(None), "{bad:?}");
        }
        for bad in [&b"0003"[..], b"+001", b"ffff", b"fff1", b"zzzz", b"\xff\xff\xff\xff", b" 0a0"] {
            assert_eq!(first(bad), Err(Malformed::Length), "{bad:?}");
        }
        assert_eq!(first(b"0004"), Ok(Some((Packet::Data(b""), 4))));
        assert_eq!(all(b"0009abc").collect::<Vec<_>>(), [Err(Malformed::Short)]);
    }
}
