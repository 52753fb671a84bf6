//! Commits made in memory and stored together, as one synced pack.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use gix::ObjectId;
use gix::objs::tree::{Entry, EntryKind};
use gix::objs::{FindHeader as _, Kind, Tree, TreeRefIter, WriteTo as _};
use repo_model::FileTree;

use super::error::corrupt;
use super::tree::is_safe_name;
use super::{ReadError, Repo};
use crate::durable::store::WrittenPack;
use crate::pack::{FinishedPack, PackWriter};
use crate::sign::SigningKey;
use crate::{BlobId, Cause, CommitId, KeyError, TreeId};

/// A name and an address in a commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Person {
    pub name: String,
    pub email: String,
}

impl Person {
    /// A person by name and address.
    pub fn new(name: impl Into<String>, email: impl Into<String>) -> Self {
        Self { name: name.into(), email: email.into() }
    }
}

impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <{}>", self.name, self.email)
    }
}

/// Where a new commit's tree comes from.
#[derive(Debug, Clone, Copy)]
pub enum TreeSource<'a> {
    /// These files, all mode 100644.
    Files(&'a FileTree),
    /// A tree that the repository or the batch has.
    Existing(TreeId),
}

/// A commit to be made. The same fields and key give the same bytes everywhere.
#[derive(Debug, Clone)]
pub struct CommitSpec<'a> {
    pub tree: TreeSource<'a>,
    pub parents: Vec<CommitId>,
    pub author: Person,
    pub committer: Person,
    /// The time of both, in Unix seconds, written as UTC.
    pub time: i64,
    /// The message; a final newline is added if there is none.
    pub message: String,
}

/// A commit can't be made or stored.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A name or address has characters that would break the commit.
    #[error("`{person}` can't stand in a commit: no `<`, `>`, control characters or empty parts")]
    Person { person: String },
    /// The message has a NUL character.
    #[error("the commit message has a NUL character")]
    Message,
    /// A file's path is not allowed in a tree.
    #[error("`{path}` is not an allowed path")]
    Path { path: String },
    /// The existing tree can't be used.
    #[error("cannot use the existing tree")]
    Tree(#[source] ReadError),
    #[error("cannot sign the commit")]
    Sign(#[source] KeyError),
    /// An object has no safe name: its bytes are an attack on SHA-1.
    #[error("cannot name an object")]
    Hash(#[source] Cause),
    /// The objects can't be put into a pack.
    #[error("cannot put the objects into a pack")]
    Pack(#[source] Cause),
    /// The pack can't be written.
    #[error("cannot store the objects in `{}`", path.display())]
    Store {
        path: PathBuf,
        #[source]
        source: Cause,
    },
}

impl BatchError {
    pub(super) fn store(repository: &Path, source: io::Error) -> Self {
        Self::Store { path: repository.to_owned(), source: source.into() }
    }
}

/// Objects waiting to be stored together. Nothing reaches the disk before [`Batch::store`].
pub struct Batch<'a> {
    repo: &'a Repo,
    /// Looks for objects without reading the directory again for each that isn't there.
    known: gix::OdbHandle,
    objects: Objects,
}

/// Commits made before their repository is opened to be written, or is there at all.
#[derive(Default)]
pub struct Prepared<'a> {
    objects: Objects,
    /// Files whose names as objects are known, sorted by their paths.
    named: Vec<(&'a str, &'a [u8], ObjectId)>,
}

/// A pack in memory, for [`Repo::store`] and [`Remote::push_pack`](crate::Remote::push_pack).
pub struct Pack {
    count: usize,
    bytes: Vec<u8>,
    finished: FinishedPack,
}

#[derive(Default)]
struct Objects {
    seen: HashSet<ObjectId>,
    list: Vec<(ObjectId, Kind, Vec<u8>)>,
}

impl Repo {
    /// Begins a batch of commits; nothing is written before it is stored.
    pub fn batch(&self) -> Batch<'_> {
        self.forget_removed();
        let mut known = self.git.objects.clone();
        known.refresh_never();
        Batch { repo: self, known, objects: Objects::default() }
    }

    /// Stores a pack, durable when it returns.
    pub fn store(&self, pack: &Pack) -> Result<(), BatchError> {
        pack.store(&self.path, &self.pack_dir())
    }
}

impl Pack {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its two files, the names below the Git directory.
    pub(super) fn files(&self) -> io::Result<[(String, Cow<'_, [u8]>); 2]> {
        let name = |ending| format!("objects/pack/pack-{}.{ending}", self.finished.checksum);
        Ok([(name("pack"), self.bytes.as_slice().into()), (name("idx"), self.finished.index()?.into())])
    }

    pub(super) fn store(&self, repository: &Path, pack_dir: &Path) -> Result<(), BatchError> {
        match self.write(repository, pack_dir)? {
            Some(written) => written.store().map_err(|source| BatchError::store(repository, source)),
            None => Ok(()),
        }
    }

    /// Writes it for what syncs it together with something else; `None` if there is nothing in it.
    pub(super) fn write(&self, repository: &Path, pack_dir: &Path) -> Result<Option<WrittenPack>, BatchError> {
        if self.count == 0 {
            return Ok(None);
        }
        let written = WrittenPack::new(pack_dir, &self.bytes, &self.finished);
        written.map(Some).map_err(|source| BatchError::store(repository, source))
    }
}

impl Batch<'_> {
    /// Makes a commit, signed if a key is given, and keeps those of its objects that the repository lacks.
    pub fn commit(&mut self, spec: &CommitSpec<'_>, signer: Option<&SigningKey>) -> Result<CommitId, BatchError> {
        let tree = match spec.tree {
            TreeSource::Files(files) => self.tree(files)?,
            TreeSource::Existing(id) => self.check_tree(id)?,
        };
        let raw = encode(spec, tree, signer)?;
        self.keep(Kind::Commit, &raw).map(CommitId)
    }

    /// Makes a tree of files, all mode 100644, for [`TreeSource::Existing`] or to compare ids.
    pub fn tree(&mut self, files: &FileTree) -> Result<TreeId, BatchError> {
        write_tree(files, &mut |_, kind, data| self.keep(kind, data)).map(TreeId)
    }

    /// Makes a tree of another one with these files, all mode 100644, in the place of what stands at their paths. Everything else
    /// stays as it is, whatever it is.
    pub fn tree_upon(&mut self, base: TreeId, files: &FileTree) -> Result<TreeId, BatchError> {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
        self.directory_upon(Some(base.0), &files, 0).map(TreeId)
    }

    /// The same for one directory, whose files share their first `prefix` bytes.
    fn directory_upon(
        &mut self,
        base: Option<ObjectId>,
        files: &[(&str, &[u8])],
        prefix: usize,
    ) -> Result<ObjectId, BatchError> {
        let mut tree = match base {
            Some(id) => self.entries(id)?,
            None => Tree::empty(),
        };
        let mut rest = files;
        while let Some((path, bytes)) = rest.first() {
            let name = path[prefix..].split('/').next().unwrap_or_default();
            if !is_safe_name(name.into()) {
                return Err(BatchError::Path { path: (*path).to_owned() });
            }
            let inner = prefix + name.len();
            let there = tree.entries.iter().position(|entry| entry.filename == name);
            let (mode, oid, taken) = if path.len() == inner {
                (EntryKind::Blob, self.keep(Kind::Blob, bytes)?, 1)
            } else {
                let directory = &path[..=inner];
                let taken = rest.partition_point(|(path, _)| path.starts_with(directory));
                let below = there.map(|index| &tree.entries[index]).filter(|entry| entry.mode.is_tree());
                let below = below.map(|entry| entry.oid);
                (EntryKind::Tree, self.directory_upon(below, &rest[..taken], inner + 1)?, taken)
            };
            let entry = Entry { mode: mode.into(), filename: name.into(), oid };
            match there {
                Some(index) => tree.entries[index] = entry,
                None => tree.entries.push(entry),
            }
            rest = &rest[taken..];
        }
        tree.entries.sort_unstable();
        let mut data = Vec::new();
        tree.write_to(&mut data).map_err(|source| BatchError::Hash(source.into()))?;
        self.keep(Kind::Tree, &data)
    }

    fn entries(&self, id: ObjectId) -> Result<Tree, BatchError> {
        let data = self.repo.object_of(id, Kind::Tree).map_err(BatchError::Tree)?;
        let owned = |entry: gix::objs::tree::EntryRef<'_>| Entry {
            mode: entry.mode,
            filename: entry.filename.to_owned(),
            oid: entry.oid.to_owned(),
        };
        let entries = TreeRefIter::from_bytes(&data, id.kind()).map(|entry| entry.map(owned));
        let entries = entries.collect::<Result<_, _>>().map_err(|source| BatchError::Tree(corrupt(id, source)))?;
        Ok(Tree { entries })
    }

    /// Writes all objects as one pack, durable when it returns; nothing is written when nothing is new.
    pub fn store(self) -> Result<(), BatchError> {
        self.repo.store(&self.objects.pack(PackWriter::new(Vec::new(), self.objects.list.len()))?)
    }

    fn check_tree(&self, id: TreeId) -> Result<TreeId, BatchError> {
        if self.objects.seen.contains(&id.0) {
            return Ok(id);
        }
        self.repo.object_of(id.0, Kind::Tree).map(|_| id).map_err(BatchError::Tree)
    }

    /// A header that can be read: a loose object may be there and empty after a power cut, and is then written anew.
    fn keep(&mut self, kind: Kind, data: &[u8]) -> Result<ObjectId, BatchError> {
        self.objects.keep(kind, data, |id| matches!(self.known.try_header(id), Ok(Some(_))))
    }
}

impl<'a> Prepared<'a> {
    /// Begins; the repository holds these blobs for good, because a branch does that moves with what is made here.
    pub fn upon(blobs: impl IntoIterator<Item = BlobId>) -> Self {
        let seen = blobs.into_iter().map(|blob| blob.0).collect();
        Self { objects: Objects { seen, list: Vec::new() }, ..Self::default() }
    }

    /// The same, of the blobs with the content of these files, which are sorted by their paths.
    pub fn upon_files(files: impl IntoIterator<Item = (&'a String, &'a Vec<u8>)>) -> Result<Self, BatchError> {
        let named =
            |(path, bytes): (&'a String, &'a Vec<u8>)| Ok((path.as_str(), bytes.as_slice(), hash(Kind::Blob, bytes)?));
        let named = files.into_iter().map(named).collect::<Result<Vec<_>, BatchError>>()?;
        let seen = named.iter().map(|(.., id)| *id).collect();
        Ok(Self { objects: Objects { seen, list: Vec::new() }, named })
    }

    /// Makes a commit of files, signed if a key is given.
    pub fn commit(&mut self, spec: &CommitSpec<'_>, signer: Option<&SigningKey>) -> Result<CommitId, BatchError> {
        let Self { objects, named } = self;
        let mut keep = |kind, data: &[u8]| objects.keep(kind, data, |_| false);
        let name_of = |path: &str, data: &[u8]| {
            let (_, bytes, id) = named[named.binary_search_by_key(&path, |(path, ..)| path).ok()?];
            (bytes == data).then_some(id)
        };
        let tree = match spec.tree {
            TreeSource::Files(files) => TreeId(write_tree(files, &mut |path, kind, data| {
                name_of(path, data).map_or_else(|| keep(kind, data), Ok)
            })?),
            TreeSource::Existing(id) => id,
        };
        keep(Kind::Commit, &encode(spec, tree, signer)?).map(CommitId)
    }

    /// All of it as one pack.
    pub fn pack(self) -> Result<Pack, BatchError> {
        self.objects.pack(PackWriter::one_of_many(Vec::new(), self.objects.list.len()))
    }
}

impl Objects {
    fn keep(
        &mut self,
        kind: Kind,
        data: &[u8],
        is_there: impl FnOnce(&ObjectId) -> bool,
    ) -> Result<ObjectId, BatchError> {
        let id = hash(kind, data)?;
        if self.seen.insert(id) && !is_there(&id) {
            self.list.push((id, kind, data.to_vec()));
        }
        Ok(id)
    }

    fn pack(&self, writer: io::Result<PackWriter<Vec<u8>>>) -> Result<Pack, BatchError> {
        let fail = |source: io::Error| BatchError::Pack(source.into());
        let mut writer = writer.map_err(fail)?;
        self.list.iter().try_for_each(|(id, kind, data)| writer.add(*id, *kind, data)).map_err(fail)?;
        let (mut bytes, finished) = writer.finish().map_err(fail)?;
        bytes.shrink_to_fit();
        Ok(Pack { count: self.list.len(), bytes, finished })
    }
}

impl Repo {
    pub(crate) fn pack_dir(&self) -> PathBuf {
        self.git.common_dir().join("objects/pack")
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("repo", self.repo)
            .field("objects", &self.objects.list.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("objects", &self.objects.list.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pack")
            .field("objects", &self.count)
            .field("name", &self.finished.checksum)
            .finish_non_exhaustive()
    }
}

/// The id that these files have as a tree, without a repository.
pub fn tree_id(files: &FileTree) -> Result<TreeId, BatchError> {
    write_tree(files, &mut |_, kind, data| hash(kind, data)).map(TreeId)
}

fn hash(kind: Kind, data: &[u8]) -> Result<ObjectId, BatchError> {
    gix::objs::compute_hash(gix::hash::Kind::Sha1, kind, data).map_err(|source| BatchError::Hash(source.into()))
}

/// Where made objects go, those of files with their paths; answers with their names.
type Sink<'a> = dyn FnMut(&str, Kind, &[u8]) -> Result<ObjectId, BatchError> + 'a;

fn write_tree(files: &FileTree, sink: &mut Sink<'_>) -> Result<ObjectId, BatchError> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
    write_directory(&files, 0, sink)
}

/// Writes the tree of `files`, which are sorted and share their first `prefix` bytes.
fn write_directory(files: &[(&str, &[u8])], prefix: usize, sink: &mut Sink<'_>) -> Result<ObjectId, BatchError> {
    let mut tree = Tree::empty();
    let mut rest = files;
    while let Some((path, bytes)) = rest.first() {
        let name = path[prefix..].split('/').next().unwrap_or_default();
        let bad_path = || BatchError::Path { path: (*path).to_owned() };
        let is_new = !tree.entries.iter().any(|entry| entry.filename == name);
        if !is_new || !is_safe_name(name.into()) {
            return Err(bad_path());
        }
        let inner = prefix + name.len();
        let (mode, oid, taken) = if path.len() == inner {
            (EntryKind::Blob, sink(path, Kind::Blob, bytes)?, 1)
        } else {
            let directory = &path[..=inner];
            let taken = rest.partition_point(|(path, _)| path.starts_with(directory));
            (EntryKind::Tree, write_directory(&rest[..taken], inner + 1, sink)?, taken)
        };
        tree.entries.push(Entry { mode: mode.into(), filename: name.into(), oid });
        rest = &rest[taken..];
    }
    tree.entries.sort_unstable();
    let mut data = Vec::new();
    tree.write_to(&mut data).map_err(|source| BatchError::Hash(source.into()))?;
    sink("", Kind::Tree, &data)
}

/// The commit's bytes, with the signature as Git puts it: after the committer, continued lines indented.
fn encode(spec: &CommitSpec<'_>, tree: TreeId, signer: Option<&SigningKey>) -> Result<Vec<u8>, BatchError> {
    if spec.message.contains('\0') {
        return Err(BatchError::Message);
    }
    let mut head = format!("tree {tree}\n");
    spec.parents.iter().for_each(|parent| head += &format!("parent {parent}\n"));
    for (role, person) in [("author", &spec.author), ("committer", &spec.committer)] {
        head += &format!("{role} {} {} +0000\n", checked(person)?, spec.time);
    }
    let end = if spec.message.ends_with('\n') { "" } else { "\n" };
    let message = format!("\n{}{end}", spec.message);
    if let Some(key) = signer {
        let signature = key.sign("git", format!("{head}{message}").as_bytes()).map_err(BatchError::Sign)?;
        head += &format!("gpgsig {}\n", signature.trim_end().replace('\n', "\n "));
    }
    Ok((head + &message).into_bytes())
}

fn checked(person: &Person) -> Result<&Person, BatchError> {
    let fits = |text: &str| {
        !text.is_empty() && text.trim() == text && !text.contains(|c: char| c.is_control() || c == '<' || c == '>')
    };
    if fits(&person.name) && fits(&person.email) {
        Ok(person)
    } else {
        Err(BatchError::Person { person: person.to_string() })
    }
}
