//! A pack on its way in: counted, checked and indexed in a directory of its own, and only then part of the repository.

use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use gix::odb::pack::Bundle;
use gix::odb::pack::bundle::write::{Options, Outcome};
use gix::odb::pack::index::File as Index;
use gix::progress::Discard;

use super::{FetchError, FetchLimits, Fetched};
use crate::durable::{self, Temp};
use crate::{CommitId, ReadError, Repo};

/// What gix's table for resolving deltas needs per object, with room to spare; it counts towards the same limit.
const TABLE_BYTES: u64 = 256;

/// One fetch's private directory; gone with all it holds unless [`Incoming::keep`] moves the pack out.
pub(super) struct Incoming<'a> {
    repo: &'a Repo,
    limits: &'a FetchLimits,
    directory: Temp,
    /// The `shallow` file before the fetch.
    shallow: Vec<u8>,
    pack: Option<Outcome>,
    fetched: Fetched,
    /// Why the pack was refused.
    pub(super) failure: Option<FetchError>,
}

impl<'a> Incoming<'a> {
    pub(super) fn begin(repo: &'a Repo, limits: &'a FetchLimits) -> Result<Self, FetchError> {
        let fail = |source| FetchError::Store { path: repo.path().to_owned(), source };
        let directory = Temp::dir(repo.path()).map_err(fail)?;
        let shallow = read_or_empty(&repo.path().join("shallow")).map_err(fail)?;
        let incoming =
            Self { repo, limits, directory, shallow, pack: None, fetched: Fetched::default(), failure: None };
        if !incoming.shallow.is_empty() {
            // gix moves the boundary in this copy; it wouldn't sync the real one.
            durable::replace_file(&incoming.shallow_file(), &incoming.shallow, 0o644).map_err(fail)?;
        }
        Ok(incoming)
    }

    pub(super) fn shallow_file(&self) -> PathBuf {
        self.directory.0.join("shallow")
    }

    /// Reads the pack, stopping at the first limit; the reason is kept in `failure`.
    pub(super) fn receive(&mut self, pack: &mut dyn BufRead, expired: &AtomicBool) -> gix::Result<()> {
        let mut header = [0; 12];
        pack.read_exact(&mut header).map_err(|error| self.refuse(FetchError::Corrupt(error.into())))?;
        let objects = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        if objects > self.limits.objects {
            return Err(self.refuse(FetchError::TooManyObjects { found: objects, limit: self.limits.objects }));
        }
        let mut counted = Counted { inner: header.chain(pack), count: 0, limit: self.limits.bytes };
        let written = self.index(objects, &mut counted, expired);
        self.fetched = Fetched { objects, bytes: counted.count };
        match written {
            Ok(outcome) => {
                self.pack = Some(outcome);
                Ok(())
            }
            Err(_) if counted.count > self.limits.bytes => {
                Err(self.refuse(FetchError::TooManyBytes { limit: self.limits.bytes }))
            }
            Err(error) if error.is_resource_exhausted() => {
                Err(self.refuse(FetchError::ObjectTooLarge { limit: self.limits.object_bytes }))
            }
            Err(error) => {
                let failure = match full(&error) {
                    Some(kind) => FetchError::Store { path: self.repo.path().to_owned(), source: kind.into() },
                    None => FetchError::Corrupt(error.into()),
                };
                Err(self.refuse(failure))
            }
        }
    }

    /// Makes the pack part of the repository, if every wanted commit is there.
    pub(super) fn keep(self, wants: &[CommitId]) -> Result<Fetched, FetchError> {
        self.check_wants(wants)?;
        let fail = |source| FetchError::Store { path: self.repo.path().to_owned(), source };
        let shallow = read_or_empty(&self.shallow_file()).map_err(fail)?;
        // A boundary without its commit does no harm, a commit without its boundary is a hole: it comes first when it
        // grows, and last when it shrinks.
        self.write_shallow(&union(&self.shallow, &shallow)).map_err(fail)?;
        if let Some((pack, index, name)) = self.pack_files() {
            durable::store::install_pack(&self.repo.pack_dir(), &pack, &index, &name).map_err(|error| {
                let _ = self.write_shallow(&self.shallow);
                fail(error)
            })?;
        }
        self.write_shallow(&shallow).map_err(fail)?;
        Ok(self.fetched)
    }

    fn index(&self, objects: u32, pack: &mut Counted<impl BufRead>, expired: &AtomicBool) -> gix::Result<Outcome> {
        let limit = self.limits.object_bytes.max(u64::from(objects) * TABLE_BYTES);
        Bundle::write_to_directory(
            &mut BufReader::new(pack),
            Some(&self.directory.0),
            &mut Discard,
            expired,
            Some(self.repo.objects()),
            gix::hash::Kind::Sha1,
            Options { thread_limit: Some(1), alloc_limit_bytes: usize::try_from(limit).ok(), ..Options::default() },
        )
    }

    fn check_wants(&self, wants: &[CommitId]) -> Result<(), FetchError> {
        let index = match self.pack_files() {
            Some((_, index, _)) => {
                let opened = Index::at(&index, gix::hash::Kind::Sha1);
                Some(opened.map_err(|error| FetchError::Corrupt(error.into()))?)
            }
            None => None,
        };
        for want in wants {
            let sent = index.as_ref().is_some_and(|index| index.lookup(want.0).is_some());
            match if sent { Ok(()) } else { self.repo.header(want.0).map(drop) } {
                Ok(()) => {}
                Err(ReadError::Missing { .. }) => return Err(FetchError::NotSent(*want)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Pack, index and name; `None` for a pack without objects.
    fn pack_files(&self) -> Option<(PathBuf, PathBuf, String)> {
        let outcome = self.pack.as_ref()?;
        Some((outcome.data_path.clone()?, outcome.index_path.clone()?, outcome.index.data_hash.to_string()))
    }

    fn write_shallow(&self, contents: &[u8]) -> io::Result<()> {
        let file = self.repo.path().join("shallow");
        if read_or_empty(&file)? == contents {
            Ok(())
        } else if contents.is_empty() {
            durable::remove_file(&file).map(drop)
        } else {
            durable::replace_file(&file, contents, 0o644)
        }
    }

    fn refuse(&mut self, failure: FetchError) -> gix::Error {
        self.failure = Some(failure);
        gix::error::message("the pack was refused").into()
    }
}

/// The kind of the cause, if that is a disk without room.
fn full(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    let kind = error.downcast_ref().map(io::Error::kind);
    let is_full = |kind: &io::ErrorKind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    kind.filter(is_full).or_else(|| error.source().and_then(full))
}

/// Counts what is read and ends with an error beyond the limit.
struct Counted<R> {
    inner: R,
    count: u64,
    limit: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.count > self.limit {
            return Err(io::Error::other("too many bytes"));
        }
        let count = self.inner.read(buffer)?;
        self.count += count as u64;
        Ok(count)
    }
}

/// All lines of both, each once.
fn union(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut all = old.to_vec();
    for line in new.split_inclusive(|byte| *byte == b'\n') {
        if !old.split_inclusive(|byte| *byte == b'\n').any(|known| known == line) {
            all.extend(line);
        }
    }
    all
}

fn read_or_empty(path: &std::path::Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}
