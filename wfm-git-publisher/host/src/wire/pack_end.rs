//! Where a pack ends (gitformat-pack), read while it comes: over SSH a pusher needn't close its side after it.
//!
//! Nothing is kept of what the objects say; whether they are any good is for others to find out.

use flate2::{Decompress, FlushDecompress, Status};

use super::Malformed;
use super::commands::PackHead;

/// Bytes of a pack's checksum, and of a base's name.
const NAME: usize = 20;

/// What is unpacked at once.
const WINDOW: usize = 32 << 10;

/// Follows a pack to its end.
#[derive(Debug)]
pub struct PackEnd {
    state: State,
    /// The objects that follow the present one.
    objects: u32,
    inflate: Decompress,
    /// How many bytes may still be unpacked.
    room: u64,
}

#[derive(Debug)]
enum State {
    Head(Vec<u8>),
    /// The first byte of an object.
    Object,
    /// The size of an object of this kind: what is known of it, and where the next bits of it go.
    Size {
        kind: u8,
        size: u64,
        shift: u32,
    },
    /// How far back the base is; the object's size.
    Offset(u64),
    /// The rest of the base's name; the object's size.
    Base(usize, u64),
    /// What is still to be unpacked of the object.
    Data(u64),
    /// The rest of the checksum.
    Checksum(usize),
    Done,
}

impl PackEnd {
    /// For a pack of which at most `room` bytes are unpacked.
    pub fn new(room: u64) -> Self {
        Self { state: State::Head(Vec::new()), objects: 0, inflate: Decompress::new(true), room }
    }

    /// Whether the end was found.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Reads on, and says how many of these bytes belong to the pack: all of them until its end.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_done() {
            let taken = self.step(rest)?;
            rest = &rest[taken..];
        }
        Ok(bytes.len() - rest.len())
    }

    fn step(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let byte = bytes[0];
        match &mut self.state {
            State::Head(head) => {
                head.push(byte);
                if let Some(pack) = PackHead::parse(head)? {
                    self.objects = pack.objects;
                    self.next();
                }
                Ok(1)
            }
            State::Object => {
                let (kind, size) = (byte >> 4 & 7, u64::from(byte & 15));
                self.sized(kind, size, 4, byte);
                Ok(1)
            }
            State::Size { kind, size, shift } => {
                let (kind, more) = (*kind, u64::from(byte & 127).checked_shl(*shift).filter(|_| *shift < 60));
                let (size, shift) = (*size | more.ok_or(Malformed::Line("the size of an object"))?, *shift + 7);
                self.sized(kind, size, shift, byte);
                Ok(1)
            }
            State::Offset(size) => {
                if byte & 128 == 0 {
                    self.state = State::Data(*size);
                }
                Ok(1)
            }
            State::Base(left, size) => {
                let (taken, size) = (bytes.len().min(*left), *size);
                self.state = match *left - taken {
                    0 => State::Data(size),
                    left => State::Base(left, size),
                };
                Ok(taken)
            }
            State::Data(left) => {
                let left = *left;
                self.unpack(bytes, left)
            }
            State::Checksum(left) => {
                let taken = bytes.len().min(*left);
                self.state = if taken == *left { State::Done } else { State::Checksum(*left - taken) };
                Ok(taken)
            }
            State::Done => Ok(0),
        }
    }

    /// Goes on after a byte of an object's size.
    fn sized(&mut self, kind: u8, size: u64, shift: u32, byte: u8) {
        self.state = match kind {
            _ if byte & 128 != 0 => State::Size { kind, size, shift },
            6 => State::Offset(size),
            7 => State::Base(NAME, size),
            _ => State::Data(size),
        };
    }

    fn unpack(&mut self, bytes: &[u8], left: u64) -> Result<usize, Malformed> {
        let mut window = [0; WINDOW];
        let (read, made) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(bytes, &mut window, FlushDecompress::None);
        let status = status.map_err(|_| Malformed::Line("an object of a pack"))?;
        let (taken, made) = (self.inflate.total_in() - read, self.inflate.total_out() - made);
        self.room = self.room.checked_sub(made).ok_or(Malformed::TooMany("bytes in its objects"))?;
        let left = left.checked_sub(made).ok_or(Malformed::Line("an object is larger than it says"))?;
        match status {
            Status::StreamEnd => {
                self.inflate.reset(true);
                self.next();
            }
            _ if taken == 0 && made == 0 => return Err(Malformed::Line("an object of a pack")),
            _ => self.state = State::Data(left),
        }
        usize::try_from(taken).map_err(|_| Malformed::Short)
    }

    /// Goes on with the next object, or with what follows the last one.
    fn next(&mut self) {
        self.state = match self.objects.checked_sub(1) {
            Some(left) => {
                self.objects = left;
                State::Object
            }
            None => State::Checksum(NAME),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// A pack with an object of each kind, small and large, one of them empty.
    fn pack() -> Vec<u8> {
        let large: Vec<u8> = (0..200_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let mut out = b"PACK\0\0\0\x02\0\0\0\x05".to_vec();
        out.extend([&[0x35][..], &zlib(b"hello")].concat());
        out.extend([&[0x30][..], &zlib(b"")].concat());
        let mut size = large.len() >> 4;
        out.push(0xb0 | u8::try_from(large.len() & 15).unwrap());
        while size > 127 {
            out.push(0x80 | u8::try_from(size & 127).unwrap());
            size >>= 7;
        }
        out.push(u8::try_from(size).unwrap());
        out.extend(zlib(&large));
        out.extend([&[0x63, 0x81, 0x02][..], &zlib(b"abc")].concat());
        out.extend([&[0x73][..], &[0xff; 20], &zlib(b"xyz")].concat());
        out.extend([7; 20]);
        out
    }

    #[test]
    fn a_pack_ends_where_it_ends_however_it_comes() {
        let pack = pack();
        let more = [&pack[..], b"PACK and more"].concat();
        for step in [1, 2, 3, 7, 100, 4096, 70_000, more.len()] {
            let (mut end, mut taken) = (PackEnd::new(1 << 20), 0);
            for chunk in more.chunks(step) {
                assert!(!end.is_done() || taken == pack.len());
                taken += end.feed(chunk).unwrap();
            }
            assert!(end.is_done() && taken == pack.len(), "{step}: {taken} of {}", pack.len());
        }
        let mut end = PackEnd::new(1 << 20);
        assert_eq!(end.feed(&pack[..pack.len() - 1]), Ok(pack.len() - 1));
        assert!(!end.is_done());
    }

    #[test]
    fn a_pack_without_objects_has_an_end_too() {
        let pack = [&b"PACK\0\0\0\x02\0\0\0\0"[..], &[1; 20]].concat();
        let mut end = PackEnd::new(0);
        assert_eq!(end.feed(&pack), Ok(32));
        assert!(end.is_done());
    }

    #[test]
    fn what_unpacks_to_more_than_it_says_or_than_there_is_room_for_is_refused() {
        let head = b"PACK\0\0\0\x02\0\0\0\x01";
        let bomb = zlib(&vec![0; 10 << 20]);
        let says_less = [&head[..], &[0x35], &bomb].concat();
        assert!(PackEnd::new(u64::MAX).feed(&says_less).is_err());
        let size = [0xb0, 0x80, 0x80, 0xa8, 0x02];
        let says_all = [&head[..], &size, &bomb].concat();
        assert_eq!(PackEnd::new(1 << 20).feed(&says_all), Err(Malformed::TooMany("bytes in its objects")));
        for bad in [&b"KCAP"[..], b"PACK\0\0\0\x09\0\0\0\0", &[&head[..], &[0x35, 0x36, 0x37]].concat()] {
            let fed = PackEnd::new(100).feed(&[bad, &[0; 40]].concat());
            assert!(fed.is_err(), "{bad:?}");
        }
        let endless = [&head[..], &[0xff; 20]].concat();
        assert!(PackEnd::new(100).feed(&endless).is_err());
    }
}
