//! All refs of a repository, as a host tells them.

use gix::ObjectId;
use gix::objs::Kind;

use super::{ReadError, Repo};
use crate::CommitId;

/// A ref as it is advertised (gitprotocol-v2, *ls-refs*).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ref {
    /// The full name, or `HEAD`.
    pub name: String,
    /// Where it stands, tags not followed; `None` for a `HEAD` whose branch doesn't exist yet.
    pub id: Option<CommitId>,
    /// The ref that a symbolic one names.
    pub symref: Option<String>,
    /// What an annotated tag names in the end.
    pub peeled: Option<CommitId>,
}

impl Repo {
    /// `HEAD` and all refs, in order. A damaged ref is left out and told, so that the others can still be read.
    pub fn advertisement(&self) -> Result<Vec<Ref>, ReadError> {
        let mut refs = Vec::new();
        for name in std::iter::once("HEAD".to_owned()).chain(self.ref_names()?) {
            match self.advertised(&name) {
                Ok(found) => refs.extend(found),
                Err(error) => tracing::error!(repository = %self.path.display(), %error, "a ref is not advertised"),
            }
        }
        Ok(refs)
    }

    fn advertised(&self, name: &str) -> Result<Option<Ref>, ReadError> {
        let fail = |source: gix::Error| ReadError::Ref { name: name.to_owned(), source: source.into() };
        let Some(found) = self.git.try_find_reference(name).map_err(fail)? else { return Ok(None) };
        let (name, symref) = (name.to_owned(), found.target().try_name().map(|target| target.as_bstr().to_string()));
        let id = match found.try_id() {
            Some(id) => Some(id.detach()),
            None => self.resolve(&name)?.map(|id| id.0),
        };
        let peeled = match id {
            Some(id) if name.starts_with("refs/tags/") => self.peeled(id)?,
            _ => None,
        };
        Ok(Some(Ref { name, id: id.map(CommitId), symref, peeled }))
    }

    /// What an annotated tag names in the end; `None` for anything that is no tag.
    fn peeled(&self, mut id: ObjectId) -> Result<Option<CommitId>, ReadError> {
        let first = id;
        while self.header(id)?.0 == Kind::Tag {
            id = self.tag_target(id)?;
        }
        Ok((id != first).then_some(CommitId(id)))
    }
}
