//! A pack on its way in: counted, measured and indexed in a directory of its own, and only then part of the repository.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use gix::odb::pack::Bundle;
use gix::odb::pack::bundle::write::{Options, Outcome};
use gix::odb::pack::index::File as Index;
use gix::progress::Discard;

use super::measure::{head, measure};
use super::{FetchError, FetchLimits, Fetched};
use crate::durable::{self, Temp};
use crate::{CommitId, ReadError, Repo};

/// The checksum at the end of a pack.
const TRAILER: u64 = 20;

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
        // gix would take what is wrong here for the remote's fault.
        repo.shallow()?;
        let incoming =
            Self { repo, limits, directory, shallow, pack: None, fetched: Fetched::default(), failure: None };
        if !incoming.shallow.is_empty() {
            // gix moves the boundary in this copy; it wouldn't sync the real one.
            durable::replace_file(&incoming.shallow_file(), &incoming.shallow, 0o644).map_err(fail)?;
        }
        Ok(incoming)
    }

    /// Takes a pack that is read from somewhere.
    pub(super) fn take(
        repo: &'a Repo,
        limits: &'a FetchLimits,
        pack: &mut dyn BufRead,
        wants: &[CommitId],
    ) -> Result<Fetched, FetchError> {
        let mut incoming = Self::begin(repo, limits)?;
        match incoming.receive(pack, &AtomicBool::new(false)) {
            Ok(()) => incoming.keep(wants),
            Err(error) => Err(incoming.failure.take().unwrap_or_else(|| FetchError::Corrupt(error.into()))),
        }
    }

    pub(super) fn shallow_file(&self) -> PathBuf {
        self.directory.0.join("shallow")
    }

    /// Reads the pack, stopping at the first limit; the reason is kept in `failure`. Nothing is resolved before all of it
    /// was measured.
    pub(super) fn receive(&mut self, pack: &mut dyn BufRead, expired: &AtomicBool) -> gix::Result<()> {
        let received = self.spool(pack, expired).and_then(|spooled| self.index(spooled, expired));
        received.map(|outcome| self.pack = Some(outcome)).map_err(|failure| {
            self.failure = Some(failure);
            gix::error::message("the pack was refused").into()
        })
    }

    /// Measures the pack while it comes, and keeps it in a file.
    fn spool(&mut self, pack: &mut dyn BufRead, expired: &AtomicBool) -> Result<File, FetchError> {
        let path = self.directory.0.join("received");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(|source| self.not_stored(source))?;
        let mut spool = BufReader::new(Spool { pack, file, count: 0, limit: self.limits.bytes, expired, store: None });
        let measured = head(&mut spool, self.limits).and_then(|objects| {
            measure(&mut spool, objects, self.repo, self.limits)?;
            let trailer = io::copy(&mut Read::by_ref(&mut spool).take(TRAILER), &mut io::sink());
            trailer.map_err(|error| FetchError::Corrupt(error.into()))?;
            Ok(objects)
        });
        let Spool { mut file, count, limit, store, .. } = spool.into_inner();
        match (measured, store) {
            (_, Some(source)) => Err(self.not_stored(source)),
            _ if count > limit => Err(FetchError::TooManyBytes { limit }),
            (Err(failure), None) => Err(failure),
            (Ok(objects), None) => {
                self.fetched = Fetched { objects, bytes: count };
                file.rewind().map_err(|source| self.not_stored(source))?;
                Ok(file)
            }
        }
    }

    fn not_stored(&self, source: io::Error) -> FetchError {
        FetchError::Store { path: self.repo.path().to_owned(), source }
    }

    /// Makes the pack part of the repository, if every wanted commit is there.
    pub(super) fn keep(self, wants: &[CommitId]) -> Result<Fetched, FetchError> {
        self.check_wants(wants)?;
        let fail = |source| FetchError::Store { path: self.repo.path().to_owned(), source };
        let shallow = read_or_empty(&self.shallow_file()).map_err(fail)?;
        // A boundary without its commit does no harm, a commit without its boundary is a hole: it comes first when it
        // grows, and last when it shrinks.
        self.repo.write_shallow(&union(&self.shallow, &shallow)).map_err(fail)?;
        if let Some((pack, index, name)) = self.pack_files() {
            durable::store::install_pack(&self.repo.pack_dir(), &pack, &index, &name).map_err(|error| {
                let _ = self.repo.write_shallow(&self.shallow);
                fail(error)
            })?;
        }
        self.repo.write_shallow(&shallow).map_err(fail)?;
        Ok(self.fetched)
    }

    fn index(&self, spooled: File, expired: &AtomicBool) -> Result<Outcome, FetchError> {
        let written = Bundle::write_to_directory(
            &mut BufReader::new(spooled),
            Some(&self.directory.0),
            &mut Discard,
            expired,
            Some(self.repo.objects()),
            gix::hash::Kind::Sha1,
            Options { thread_limit: Some(1), ..Options::default() },
        );
        written.map_err(|error| match full(&error) {
            Some(kind) => self.not_stored(kind.into()),
            None => FetchError::Corrupt(error.into()),
        })
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
}

/// The kind of the cause, if that is a disk without room.
fn full(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    let kind = error.downcast_ref().map(io::Error::kind);
    let is_full = |kind: &io::ErrorKind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    kind.filter(is_full).or_else(|| error.source().and_then(full))
}

/// Keeps what is read in a file. Ends with an error beyond the limit, or when the time is up.
struct Spool<'a> {
    pack: &'a mut dyn BufRead,
    file: File,
    count: u64,
    limit: u64,
    expired: &'a AtomicBool,
    /// Why the file can't be written.
    store: Option<io::Error>,
}

impl Read for Spool<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.expired.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let count = self.pack.read(buffer)?;
        self.count += count as u64;
        if self.count > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all(&buffer[..count]).map_err(|error| {
            let kind = error.kind();
            // A full disk is told in one way, wherever it is met.
            self.store = Some(full(&error).map_or(error, io::Error::from));
            io::Error::from(kind)
        })?;
        Ok(count)
    }
}

/// All lines of both, each once.
fn union(old: &[u8], new: &[u8]) -> Vec<u8> {
    let lines = |text: &'_ [u8]| text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let known: HashSet<_> = lines(old).into_iter().collect();
    let added = lines(new).into_iter().filter(|line| !known.contains(line)).flatten();
    old.iter().copied().chain(added).collect()
}

fn read_or_empty(path: &std::path::Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}
