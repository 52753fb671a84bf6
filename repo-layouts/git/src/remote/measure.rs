//! What a pack comes to once its deltas are resolved, found out before anything is.
//!
//! A few kilobytes of deltas can stand for terabytes, and whoever resolves them keeps the bases of a whole chain in
//! memory. Each delta says at its beginning how large its result is (gitformat-pack, *Deltified representation*), so one
//! reading of the pack that keeps an offset and two sums per object tells what resolving would take.

use std::io::{self, BufRead, Read};

use flate2::bufread::ZlibDecoder;
use gix::ObjectId;
use gix::odb::pack::data::Entry;
use gix::odb::pack::data::entry::Header;

use super::{FetchError, FetchLimits};
use crate::{ReadError, Repo};

/// The most deltas from an object to what it is based on in the end. `git gc --aggressive` made chains of 250 before Git
/// 2.11, and of 50 since; our own packs have none.
const MAX_DELTAS: u64 = 250;

/// How many times the largest object allowed all that lies on one chain may be together. Whoever resolves it has that in
/// memory.
const MAX_CHAIN: u64 = 4;

/// A delta begins with two sizes of at most ten bytes each.
const SIZES: usize = 20;

impl Repo {
    /// Refuses a pack that is over the limits, but for those of bytes and time, after one reading that resolves nothing.
    /// The bases that a thin pack leaves out are looked up here. Beyond its last object nothing is read.
    pub fn measure_pack(&self, mut pack: impl BufRead, limits: &FetchLimits) -> Result<(), FetchError> {
        let objects = head(&mut pack, limits)?;
        measure(&mut pack, objects, self, limits)
    }
}

/// Reads the header of a pack: how many objects it announces.
pub(super) fn head(pack: &mut impl Read, limits: &FetchLimits) -> Result<u32, FetchError> {
    let mut head = [0; 12];
    pack.read_exact(&mut head).map_err(corrupt)?;
    let objects = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    if objects > limits.objects {
        return Err(FetchError::TooManyObjects { found: objects, limit: limits.objects });
    }
    Ok(objects)
}

/// Measures the objects of a pack that stands behind its header.
pub(super) fn measure(
    pack: &mut impl BufRead,
    objects: u32,
    repo: &Repo,
    limits: &FetchLimits,
) -> Result<(), FetchError> {
    let mut pack = Positioned { inner: pack, at: 12 };
    let mut measure = Measure { repo, limits, known: Vec::new(), all: 0, longest: Chain::default(), named: 0 };
    for _ in 0..objects {
        measure.entry(&mut pack)?;
    }
    measure.close_chains()
}

/// An object with all that it is based on.
#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    /// Deltas up to here.
    deltas: u64,
    /// The base, and of each delta its instructions and its result.
    bytes: u64,
}

struct Measure<'a> {
    repo: &'a Repo,
    limits: &'a FetchLimits,
    /// Where each object begins, in order, and its chain.
    known: Vec<(u64, Chain)>,
    /// All chains together: what reading every object by itself takes.
    all: u64,
    /// The most deltas and the most bytes of a chain, not necessarily of the same one.
    longest: Chain,
    /// Deltas that name a base in this pack by its id, so that it isn't known which object that is.
    named: u64,
}

impl Measure<'_> {
    /// Reads one object to its end.
    fn entry(&mut self, pack: &mut Positioned<impl BufRead>) -> Result<(), FetchError> {
        let offset = pack.at;
        let entry = Entry::from_read(pack, offset, ObjectId::null(gix::hash::Kind::Sha1).as_slice().len());
        let entry = entry.map_err(corrupt)?;
        let size = self.object(entry.decompressed_size)?;
        let mut sizes = [0; SIZES];
        let sizes = inflate(pack, size, &mut sizes).map_err(corrupt)?;
        let base = match entry.header {
            Header::OfsDelta { base_distance } => Some(self.earlier(&entry, base_distance)?),
            Header::RefDelta { base_id } => Some(self.named(base_id, sizes)?),
            Header::Commit | Header::Tree | Header::Blob | Header::Tag => None,
        };
        let chain = match base {
            None => Chain { deltas: 0, bytes: size },
            Some(base) => {
                let (_, result) = delta_sizes(sizes)?;
                Chain { deltas: base.deltas + 1, bytes: base.bytes + size + self.object(result)? }
            }
        };
        self.known.push((offset, chain));
        self.all = self.all.saturating_add(chain.bytes);
        self.longest.deltas = self.longest.deltas.max(chain.deltas);
        self.longest.bytes = self.longest.bytes.max(chain.bytes);
        self.check(self.longest, self.all)
    }

    /// Checks the chains again as long as they can be at worst, where some don't say in which object they go on.
    fn close_chains(self) -> Result<(), FetchError> {
        if self.named == 0 {
            return Ok(());
        }
        let parts = self.named + 1;
        let longest = Chain { deltas: self.longest.deltas * parts, bytes: self.longest.bytes.saturating_mul(parts) };
        self.check(longest, longest.bytes.saturating_mul(self.known.len() as u64))
    }

    fn check(&self, longest: Chain, all: u64) -> Result<(), FetchError> {
        let chain = self.limits.object_bytes.saturating_mul(MAX_CHAIN);
        if longest.deltas > MAX_DELTAS {
            Err(FetchError::TooManyDeltas { limit: MAX_DELTAS })
        } else if longest.bytes > chain {
            Err(FetchError::TooMuchToResolve { limit: chain })
        } else if all > self.limits.resolved_bytes {
            Err(FetchError::TooMuchToResolve { limit: self.limits.resolved_bytes })
        } else {
            Ok(())
        }
    }

    /// The size of an object, or of the instructions for one, if that is allowed.
    fn object(&self, size: u64) -> Result<u64, FetchError> {
        let limit = self.limits.object_bytes;
        if size > limit { Err(FetchError::ObjectTooLarge { limit }) } else { Ok(size) }
    }

    /// The chain of a base so far before an object.
    fn earlier(&self, entry: &Entry, distance: u64) -> Result<Chain, FetchError> {
        let base = entry.checked_base_pack_offset(distance);
        let found = base.and_then(|base| self.known.binary_search_by_key(&base, |(offset, _)| *offset).ok());
        found.map(|at| self.known[at].1).ok_or_else(|| corrupt(broken("a delta whose base is no object before it")))
    }

    /// The chain of a base in the repository; of one in this pack only what the delta says of it.
    fn named(&mut self, id: ObjectId, sizes: &[u8]) -> Result<Chain, FetchError> {
        let (base, _) = delta_sizes(sizes)?;
        let bytes = match self.repo.header(id) {
            Ok((_, bytes)) => bytes,
            Err(ReadError::Missing { .. }) => {
                self.named += 1;
                base
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Chain { deltas: 0, bytes: self.object(bytes)? })
    }
}

/// Reads what is deflated to its end; it must come to `size` bytes. Returns the first of them.
fn inflate<'a>(pack: &mut impl BufRead, size: u64, first: &'a mut [u8]) -> io::Result<&'a [u8]> {
    // One more than there may be, so that it shows.
    let mut data = ZlibDecoder::new(pack).take(size + 1);
    let mut filled = 0;
    while let count @ 1.. = data.read(&mut first[filled..])? {
        filled += count;
    }
    let rest = io::copy(&mut data, &mut io::sink())?;
    if filled as u64 + rest == size {
        Ok(&first[..filled])
    } else {
        Err(broken("an object of another size than it says"))
    }
}

/// The sizes of base and result at the beginning of a delta.
fn delta_sizes(mut delta: &[u8]) -> Result<(u64, u64), FetchError> {
    let mut next = || {
        let mut size = 0u64;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = delta.split_first()?;
            delta = rest;
            size |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(size);
            }
        }
        None
    };
    next().zip(next()).ok_or_else(|| corrupt(broken("a delta without its sizes")))
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn corrupt(error: io::Error) -> FetchError {
    FetchError::Corrupt(error.into())
}

/// Knows where in the pack it is.
struct Positioned<R> {
    inner: R,
    at: u64,
}

impl<R: BufRead> Read for Positioned<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Positioned<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.at += count as u64;
    }
}
