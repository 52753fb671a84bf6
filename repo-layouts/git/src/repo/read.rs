//! Names to commits, and objects read with their hash checked.

use std::collections::{BTreeSet, HashSet};
use std::io::ErrorKind;
use std::path::Path;

use gix::ObjectId;
use gix::objs::{Find as _, FindHeader as _, Kind, TagRefIter};
use gix::refs::{FullNameRef, PartialNameRef};
use repo_model::branch::{HEADS, ref_name};

use super::error::corrupt;
use super::plain::plain;
use super::{ReadError, Repo};
use crate::{BlobId, Cause, Commit, CommitId};

impl Repo {
    /// The commit that a ref (full or short name), `HEAD` or 40 hex digits name; tags are followed. `None`: no such
    /// name here.
    pub fn resolve(&self, rev: &str) -> Result<Option<CommitId>, ReadError> {
        if let Ok(id) = rev.parse::<CommitId>() {
            return match self.header(id.0) {
                Err(ReadError::Missing { .. }) => Ok(None),
                Err(error) => Err(error),
                Ok((Kind::Commit, _)) => Ok(Some(id)),
                Ok((Kind::Tag, _)) => self.peel(id.0).map(Some),
                Ok((kind, _)) => Err(wrong_kind(id.0, "commit", kind)),
            };
        }
        let invalid = |_| ReadError::InvalidName { name: rev.to_owned() };
        let name: &PartialNameRef = rev.try_into().map_err(invalid)?;
        self.find_ref(name, rev)
    }

    /// Where a branch stands; `None` if it doesn't exist.
    pub fn tip(&self, branch: impl AsRef<str>) -> Result<Option<CommitId>, ReadError> {
        self.reference(&ref_name(branch))
    }

    /// Where a ref with this full name stands. Whether its commit is here is not checked.
    pub fn reference(&self, full_name: &str) -> Result<Option<CommitId>, ReadError> {
        let invalid = |_| ReadError::InvalidName { name: full_name.to_owned() };
        let name: &FullNameRef = full_name.try_into().map_err(invalid)?;
        // Most branches are plain files; one that isn't there, gix looks for in six places.
        let said = full_name.starts_with(HEADS).then(|| plain(self.git.common_dir(), [full_name])[0]).flatten();
        said.map_or_else(|| self.noted(self.find_ref(name.as_partial_name(), full_name)), Ok)
    }

    /// All refs whose full name begins with `prefix`, in order. A damaged one is an error.
    pub fn references(&self, prefix: &str) -> Result<Vec<(String, CommitId)>, ReadError> {
        let mut refs = Vec::new();
        for name in self.ref_names()?.into_iter().filter(|name| name.starts_with(prefix)) {
            // It may have been deleted since.
            if let Some(id) = self.reference(&name)? {
                refs.push((name, id));
            }
        }
        Ok(refs)
    }

    pub fn commit(&self, id: CommitId) -> Result<Commit, ReadError> {
        Commit::parse(id, &self.object_of(id.0, Kind::Commit)?)
    }

    /// Reads a blob of at most `max` bytes.
    pub fn blob(&self, id: BlobId, max: u64) -> Result<Vec<u8>, ReadError> {
        let (_, size) = self.header(id.0)?;
        if size > max {
            return Err(ReadError::TooLarge { id: id.to_string(), size, limit: max });
        }
        self.object_of(id.0, Kind::Blob)
    }

    /// Kind and size of an object.
    pub(crate) fn header(&self, id: ObjectId) -> Result<(Kind, u64), ReadError> {
        self.noted(self.find_header(id))
    }

    fn find_header(&self, id: ObjectId) -> Result<(Kind, u64), ReadError> {
        match self.git.objects.try_header(&id) {
            Ok(Some(header)) => Ok((header.kind, header.size)),
            Ok(None) => self.quarantined_header(id)?.ok_or(ReadError::Missing { id: id.to_string() }),
            Err(source) => Err(corrupt(id, source)),
        }
    }

    fn quarantined_header(&self, id: ObjectId) -> Result<Option<(Kind, u64)>, ReadError> {
        let Some(quarantine) = &self.quarantine else { return Ok(None) };
        let header = quarantine.try_header(&id).map_err(|source| corrupt(id, source))?;
        Ok(header.map(|header| (header.kind, header.size)))
    }

    /// Reads an object into `data`, from the repository or else from the quarantine.
    fn find(&self, id: ObjectId, data: &mut Vec<u8>) -> Result<Option<Kind>, Cause> {
        let found = self.git.objects.try_find(&id, data)?.map(|found| found.kind);
        match (&self.quarantine, found) {
            (Some(quarantine), None) => Ok(quarantine.try_find(&id, data)?.map(|found| found.kind)),
            _ => Ok(found),
        }
    }

    /// An object whose bytes were checked against its name: gix doesn't, and a power cut may leave anything.
    pub(crate) fn object(&self, id: ObjectId) -> Result<(Kind, Vec<u8>), ReadError> {
        self.noted(self.checked(id))
    }

    fn checked(&self, id: ObjectId) -> Result<(Kind, Vec<u8>), ReadError> {
        let mut data = Vec::new();
        let kind = match self.find(id, &mut data) {
            Ok(Some(kind)) => kind,
            Ok(None) => return Err(ReadError::Missing { id: id.to_string() }),
            Err(source) => return Err(corrupt(id, source)),
        };
        let hash = gix::objs::compute_hash(id.kind(), kind, &data).map_err(|source| corrupt(id, source))?;
        if hash == id { Ok((kind, data)) } else { Err(corrupt(id, format!("its bytes have the name {hash}"))) }
    }

    /// An object that must be of this kind.
    pub(crate) fn object_of(&self, id: ObjectId, wanted: Kind) -> Result<Vec<u8>, ReadError> {
        match self.object(id)? {
            (kind, data) if kind == wanted => Ok(data),
            (kind, _) => Err(wrong_kind(id, kind_name(wanted), kind)),
        }
    }

    /// The full names of all refs, read from the directory and `packed-refs`, so that a damaged one is named too.
    pub(crate) fn ref_names(&self) -> Result<BTreeSet<String>, ReadError> {
        let fail = |source: Cause| ReadError::Ref { name: "refs/".to_owned(), source };
        let mut names = BTreeSet::new();
        loose_names(&self.git.common_dir().join("refs"), "refs", &mut names).map_err(|error| fail(error.into()))?;
        if let Some(packed) = self.git.refs.cached_packed_buffer().map_err(|error| fail(error.into()))? {
            for reference in packed.iter().map_err(|error| fail(error.into()))? {
                names.insert(reference.map_err(|error| fail(error.into()))?.name.as_bstr().to_string());
            }
        }
        Ok(names)
    }

    /// What every ref names directly, tags included, and a detached `HEAD`.
    pub(crate) fn ref_targets(&self) -> Result<Vec<ObjectId>, ReadError> {
        let mut targets = Vec::new();
        for name in self.ref_names()?.iter().map(String::as_str).chain(["HEAD"]) {
            let fail = |source: gix::Error| ReadError::Ref { name: name.to_owned(), source: source.into() };
            let found = self.git.try_find_reference(name).map_err(fail)?;
            targets.extend(found.and_then(|found| found.try_id().map(gix::Id::detach)));
        }
        Ok(targets)
    }

    /// The commits where a shallow repository's history ends.
    pub(crate) fn shallow(&self) -> Result<HashSet<ObjectId>, ReadError> {
        self.noted(self.read_shallow())
    }

    fn read_shallow(&self) -> Result<HashSet<ObjectId>, ReadError> {
        let fail = |source: Cause| ReadError::Ref { name: "shallow".to_owned(), source };
        match std::fs::read_to_string(self.git.common_dir().join("shallow")) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(HashSet::new()),
            Err(error) => Err(fail(error.into())),
            Ok(text) => {
                text.lines().map(|line| ObjectId::from_hex(line.as_bytes()).map_err(|e| fail(e.into()))).collect()
            }
        }
    }

    fn find_ref(&self, name: &PartialNameRef, text: &str) -> Result<Option<CommitId>, ReadError> {
        let fail = |source: gix::Error| ReadError::Ref { name: text.to_owned(), source: source.into() };
        let Some(mut found) = self.git.try_find_reference(name).map_err(fail)? else { return Ok(None) };
        while let Some(next) = found.follow() {
            match next {
                Ok(next) => found = next,
                // `HEAD` of a repository without commits.
                Err(_) => return self.unborn(&found).map_err(fail),
            }
        }
        match found.try_id() {
            None => Ok(None),
            Some(id) if found.name().as_bstr().starts_with(b"refs/tags/") => self.peel(id.detach()).map(Some),
            Some(id) => Ok(Some(CommitId(id.detach()))),
        }
    }

    /// `None` if the symbolic ref's target really doesn't exist.
    fn unborn(&self, symbolic: &gix::Reference<'_>) -> gix::Result<Option<CommitId>> {
        let target = symbolic.target();
        let Some(name) = target.try_name() else { return Ok(None) };
        let found = self.git.try_find_reference(name)?;
        Ok(found.and_then(|found| Some(CommitId(found.try_id()?.detach()))))
    }

    /// What an annotated tag names.
    pub(crate) fn tag_target(&self, id: ObjectId) -> Result<ObjectId, ReadError> {
        let data = self.object_of(id, Kind::Tag)?;
        TagRefIter::from_bytes(&data, id.kind()).target_id().map_err(|source| corrupt(id, source))
    }

    /// The commit behind a tag, which may be behind more tags.
    fn peel(&self, mut id: ObjectId) -> Result<CommitId, ReadError> {
        loop {
            match self.object(id)? {
                (Kind::Commit, _) => return Ok(CommitId(id)),
                (Kind::Tag, _) => id = self.tag_target(id)?,
                (kind, _) => return Err(wrong_kind(id, "commit", kind)),
            }
        }
    }
}

/// Lock and temporary files are no refs.
fn loose_names(dir: &Path, prefix: &str, names: &mut BTreeSet<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let Some(name) = file_name.to_str().filter(|name| !name.starts_with('.') && !name.ends_with(".lock")) else {
            continue;
        };
        let name = format!("{prefix}/{name}");
        if entry.file_type()?.is_dir() {
            loose_names(&entry.path(), &name, names)?;
        } else {
            names.insert(name);
        }
    }
    Ok(())
}

pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Commit => "commit",
        Kind::Tree => "tree",
        Kind::Blob => "blob",
        Kind::Tag => "tag",
    }
}

fn wrong_kind(id: ObjectId, wanted: &'static str, found: Kind) -> ReadError {
    ReadError::Kind { id: id.to_string(), wanted, found: kind_name(found).to_owned() }
}
