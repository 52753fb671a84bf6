//! Packs (version 2) and their indices (version 2), written object by object and without deltas.
//!
//! gix writes packs from counted objects of a repository only; a commit that isn't stored yet needs no more than this.

use std::cell::Cell;
use std::io::{self, Write};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use gix::ObjectId;
use gix::hash::Hasher;
use gix::objs::Kind;

thread_local! {
    /// Kept from pack to pack where a thread makes many.
    static ENCODER: Cell<Option<ZlibEncoder<Vec<u8>>>> = const { Cell::new(None) };
}

/// Writes a pack to `out` while hashing it.
pub(crate) struct PackWriter<W> {
    out: W,
    /// Reused, because making one costs more than most objects.
    encoder: ZlibEncoder<Vec<u8>>,
    keeps_encoder: bool,
    hash: Hasher,
    offset: u64,
    entries: Vec<IndexEntry>,
}

/// What the index says about one object.
struct IndexEntry {
    id: ObjectId,
    offset: u32,
    crc: u32,
}

/// A finished pack: its checksum, which names it, and what its index is made of, which is less than that.
pub(crate) struct FinishedPack {
    pub(crate) checksum: ObjectId,
    /// Sorted by their ids, as the index has them.
    entries: Box<[IndexEntry]>,
}

impl<W: Write> PackWriter<W> {
    /// Begins a pack of exactly `count` objects.
    pub(crate) fn new(out: W, count: usize) -> io::Result<Self> {
        Self::begin(out, count, new_encoder(), false)
    }

    /// Begins one of many that this thread makes.
    pub(crate) fn one_of_many(out: W, count: usize) -> io::Result<Self> {
        Self::begin(out, count, ENCODER.take().unwrap_or_else(new_encoder), true)
    }

    fn begin(out: W, count: usize, encoder: ZlibEncoder<Vec<u8>>, keeps_encoder: bool) -> io::Result<Self> {
        let count = u32::try_from(count).map_err(|_| too_large())?;
        let hash = gix::hash::hasher(gix::hash::Kind::Sha1);
        let mut writer = Self { out, encoder, keeps_encoder, hash, offset: 0, entries: Vec::new() };
        let header = [b"PACK".as_slice(), &2u32.to_be_bytes(), &count.to_be_bytes()].concat();
        writer.write(&header)?;
        Ok(writer)
    }

    /// Adds one object. Up to 2 GiB of pack.
    pub(crate) fn add(&mut self, id: ObjectId, kind: Kind, data: &[u8]) -> io::Result<()> {
        // Above 2 GiB the index would need its table of 64-bit offsets.
        let offset = u32::try_from(self.offset).ok().filter(|offset| *offset < 1 << 31).ok_or_else(too_large)?;
        *self.encoder.get_mut() = entry_header(kind, data.len());
        self.encoder.write_all(data)?;
        let entry = self.encoder.reset(Vec::new())?;
        let mut crc = Crc::new();
        crc.update(&entry);
        self.entries.push(IndexEntry { id, offset, crc: crc.sum() });
        self.write(&entry)
    }

    /// Writes the checksum at the end.
    pub(crate) fn finish(mut self) -> io::Result<(W, FinishedPack)> {
        if self.keeps_encoder {
            ENCODER.set(Some(self.encoder));
        }
        let checksum = finish(self.hash)?;
        self.out.write_all(checksum.as_slice())?;
        self.out.flush()?;
        self.entries.sort_unstable_by_key(|entry| entry.id);
        Ok((self.out, FinishedPack { checksum, entries: self.entries.into_boxed_slice() }))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

/// What takes most room, bundles, is compressed already; trying harder wins 2 % for three times the work.
fn new_encoder() -> ZlibEncoder<Vec<u8>> {
    ZlibEncoder::new(Vec::new(), Compression::fast())
}

/// Kind and size, the size in groups of 4, 7, 7 … bits (gitformat-pack, *pack-*.pack files*).
fn entry_header(kind: Kind, size: usize) -> Vec<u8> {
    let kind = match kind {
        Kind::Commit => 1,
        Kind::Tree => 2,
        Kind::Blob => 3,
        Kind::Tag => 4,
    };
    let mut header = Vec::with_capacity(16 + size / 2);
    let mut byte = kind << 4 | (size & 15) as u8;
    let mut rest = size >> 4;
    while rest > 0 {
        header.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    header.push(byte);
    header
}

impl FinishedPack {
    /// The bytes of its index (gitformat-pack, *Version 2 pack-*.idx files*).
    pub(crate) fn index(&self) -> io::Result<Vec<u8>> {
        let mut index = b"\xfftOc\x00\x00\x00\x02".to_vec();
        for first in 0..=255u8 {
            let count = self.entries.partition_point(|entry| entry.id.first_byte() <= first);
            index.extend((count as u32).to_be_bytes());
        }
        self.entries.iter().for_each(|entry| index.extend(entry.id.as_slice()));
        self.entries.iter().for_each(|entry| index.extend(entry.crc.to_be_bytes()));
        self.entries.iter().for_each(|entry| index.extend(entry.offset.to_be_bytes()));
        index.extend(self.checksum.as_slice());
        let mut hash = gix::hash::hasher(gix::hash::Kind::Sha1);
        hash.update(&index);
        index.extend(finish(hash)?.as_slice());
        Ok(index)
    }
}

fn finish(hash: Hasher) -> io::Result<ObjectId> {
    hash.try_finalize().map_err(io::Error::other)
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "a pack of more than 2 GiB or 4 billion objects is not supported")
}
