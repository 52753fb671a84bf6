//! A commit as data, and who signed it.

use gix::actor::SignatureRef;
use gix::objs::CommitRef;

use super::error::corrupt;
use super::{Person, ReadError};
use crate::sign::{PublicKey, SignatureError, verify};
use crate::{CommitId, TreeId};

/// A commit read from a repository. Text that is not UTF-8 is read with replacement characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub id: CommitId,
    pub tree: TreeId,
    /// Its parents, in order. In a shallow repository they may be absent from it.
    pub parents: Vec<CommitId>,
    /// Who wrote the change. Anyone can write anything here: only [`Commit::signer`] proves something.
    pub author: Person,
    /// When, in Unix seconds, as claimed.
    pub author_time: i64,
    pub committer: Person,
    /// When, in Unix seconds, as claimed.
    pub commit_time: i64,
    /// The whole message, trailers and all.
    pub message: String,
    /// The armoured signature of the `gpgsig` header.
    pub signature: Option<String>,
    /// The bytes that the signature is over: the commit without that header.
    pub payload: Vec<u8>,
}

impl Commit {
    pub(super) fn parse(id: CommitId, raw: &[u8]) -> Result<Self, ReadError> {
        let commit = CommitRef::from_bytes(raw, id.0.kind()).map_err(|source| corrupt(id.0, source))?;
        let author = commit.author().map_err(|source| corrupt(id.0, source))?;
        let committer = commit.committer().map_err(|source| corrupt(id.0, source))?;
        let (signature, payload) = split_signature(raw);
        Ok(Self {
            id,
            tree: TreeId(commit.tree()),
            parents: commit.parents().map(CommitId).collect(),
            author: person(&author),
            author_time: author.seconds(),
            committer: person(&committer),
            commit_time: committer.seconds(),
            message: commit.message.to_string(),
            signature,
            payload,
        })
    }

    /// The key that made the commit's signature, in the namespace `git`. Whether it may have is the caller's question.
    pub fn signer(&self) -> Result<PublicKey, SignatureError> {
        let signature = self.signature.as_deref().ok_or(SignatureError::Unsigned)?;
        verify("git", &self.payload, signature)
    }
}

fn person(signature: &SignatureRef<'_>) -> Person {
    Person::new(signature.name.to_string(), signature.email.to_string())
}

/// The `gpgsig` header's text and the commit without any `gpgsig*` header, as `git verify-commit` splits them.
fn split_signature(raw: &[u8]) -> (Option<String>, Vec<u8>) {
    let header_end = raw.windows(2).position(|pair| pair == b"\n\n").map_or(raw.len(), |at| at + 1);
    let (header, message) = raw.split_at(header_end);
    let (mut signature, mut payload) = (Vec::new(), Vec::with_capacity(raw.len()));
    let mut inside = Inside::Payload;
    for line in header.split_inclusive(|byte| *byte == b'\n') {
        if !line.starts_with(b" ") {
            inside = if line.starts_with(b"gpgsig ") {
                Inside::Signature
            } else if line.starts_with(b"gpgsig") {
                Inside::Other
            } else {
                Inside::Payload
            };
        }
        match inside {
            Inside::Payload => payload.extend(line),
            Inside::Signature => signature.extend(line.strip_prefix(b"gpgsig ").unwrap_or(&line[1..])),
            Inside::Other => {}
        }
    }
    payload.extend(message);
    ((!signature.is_empty()).then(|| String::from_utf8_lossy(&signature).into_owned()), payload)
}

/// Which header a line of a commit belongs to.
enum Inside {
    Payload,
    Signature,
    Other,
}
