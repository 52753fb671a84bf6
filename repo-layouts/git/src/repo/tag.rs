//! An annotated tag as data, and who signed it.

use gix::ObjectId;
use gix::objs::Kind;

use super::{ReadError, Repo};
use crate::CommitId;
use crate::sign::{PublicKey, SignatureError, verify};

/// Bytes of the largest tag that is read.
pub const MAX_TAG: u64 = 64 << 10;

/// What begins a signature at the end of a tag, on a line of its own (Git's `gpg-interface.c`).
const MARKERS: [&[u8]; 4] = [
    b"-----BEGIN SSH SIGNATURE-----",
    b"-----BEGIN PGP SIGNATURE-----",
    b"-----BEGIN PGP MESSAGE-----",
    b"-----BEGIN SIGNED MESSAGE-----",
];

/// An annotated tag. Text that is not UTF-8 is read with replacement characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// The commit that it is on; a tag on anything else is none of these.
    pub commit: CommitId,
    /// The name that was signed. The ref that it is found under may have another one, which nobody signed.
    pub name: String,
    /// The whole message without the signature.
    pub message: String,
    /// The armoured signature at the end.
    pub signature: Option<String>,
    /// The bytes that the signature is over: all that is before it.
    pub payload: Vec<u8>,
}

impl Tag {
    /// Reads a tag on a commit. Headers that Git doesn't write are refused: nobody should have signed what isn't read.
    pub fn parse(raw: &[u8]) -> Result<Self, String> {
        let (payload, signature) = raw.split_at(signature_at(raw));
        let end = payload.windows(2).position(|pair| pair == b"\n\n").ok_or("it has no message")?;
        let (head, message) = (&payload[..end], &payload[end + 2..]);
        let mut lines = head.split(|byte| *byte == b'\n');
        let mut header = |key: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b" "));
            line.ok_or_else(|| format!("it has no `{key}` where it belongs"))
        };
        let object = header("object")?;
        if header("type")? != b"commit" {
            return Err("it isn't on a commit".to_owned());
        }
        let name = std::str::from_utf8(header("tag")?).map_err(|_| "its name is not UTF-8")?.to_owned();
        header("tagger")?;
        if lines.next().is_some() {
            return Err("it has headers that a tag doesn't have".to_owned());
        }
        let commit = std::str::from_utf8(object).ok().and_then(|id| id.parse().ok()).ok_or("its object has no name")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let signature = (!signature.is_empty()).then(|| text(signature));
        Ok(Self { commit, name, message: text(message), signature, payload: payload.to_owned() })
    }

    /// The key that made the tag's signature, in the namespace `git`. Whether it may have is the caller's question.
    pub fn signer(&self) -> Result<PublicKey, SignatureError> {
        let signature = self.signature.as_deref().ok_or(SignatureError::Unsigned)?;
        verify("git", &self.payload, signature)
    }
}

/// Where the signature begins, as Git finds it: at the last line that begins one of any format; the end if there is none.
fn signature_at(raw: &[u8]) -> usize {
    let mut starts = std::iter::once(0).chain((1..raw.len()).filter(|at| raw[at - 1] == b'\n'));
    let begins = |at: &usize| MARKERS.iter().any(|marker| raw[*at..].starts_with(marker));
    starts.rfind(begins).unwrap_or(raw.len())
}

impl Repo {
    /// The annotated tag with this name of an object, of at most [`MAX_TAG`] bytes; `None` for anything else, and for a
    /// tag that isn't on a commit.
    pub fn tag(&self, id: CommitId) -> Result<Option<Tag>, ReadError> {
        match self.header(id.0)? {
            (Kind::Tag, size) if size > MAX_TAG => {
                Err(ReadError::TooLarge { id: id.to_string(), size, limit: MAX_TAG })
            }
            (Kind::Tag, _) => Ok(Tag::parse(&self.object_of(id.0, Kind::Tag)?).ok()),
            _ => Ok(None),
        }
    }

    /// What the refs below `prefix` name, tags not followed, in the order of their full names. A damaged one is left out:
    /// what nobody can read says nothing.
    pub fn tag_refs(&self, prefix: &str) -> Result<Vec<(String, CommitId)>, ReadError> {
        let names = self.ref_names()?.into_iter().filter(|name| name.starts_with(prefix));
        let target = |name: &String| -> Option<ObjectId> {
            Some(self.git.try_find_reference(name.as_str()).ok()??.try_id()?.detach())
        };
        Ok(names.filter_map(|name| target(&name).map(|id| (name, CommitId(id)))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SigningKey;

    const COMMIT: &str = "1111111111111111111111111111111111111111";

    fn payload(head: &str) -> String {
        format!("object {COMMIT}\ntype commit\ntag approve/1\n{head}\nyes\n")
    }

    const TAGGER: &str = "tagger a <a@b> 1 +0000\n";

    fn signed(payload: &str) -> Vec<u8> {
        let signature = SigningKey::from_seed(&[7; 32]).sign("git", payload.as_bytes()).unwrap();
        [payload.as_bytes(), signature.as_bytes()].concat()
    }

    #[test]
    fn only_what_stands_before_the_last_signature_is_signed() {
        let key = SigningKey::from_seed(&[7; 32]).public();
        let plain = payload(TAGGER);
        let tag = Tag::parse(&signed(&plain)).unwrap();
        assert_eq!((tag.name.as_str(), tag.message.as_str()), ("approve/1", "yes\n"));
        assert_eq!((tag.commit, tag.signer().unwrap()), (COMMIT.parse().unwrap(), key));
        // A second signature behind: Git takes the last one, so the first is part of what had to be signed.
        let twice = [signed(&plain).as_slice(), &signed(&plain)[plain.len()..]].concat();
        assert!(matches!(Tag::parse(&twice).unwrap().signer(), Err(SignatureError::Mismatch)));
        let foreign = [signed(&plain).as_slice(), b"-----BEGIN PGP SIGNATURE-----\n"].concat();
        assert!(matches!(Tag::parse(&foreign).unwrap().signer(), Err(SignatureError::Malformed(_))));
        assert!(matches!(Tag::parse(plain.as_bytes()).unwrap().signer(), Err(SignatureError::Unsigned)));
        // Not at the beginning of a line, so Git doesn't see it either.
        let inside = payload(TAGGER).replace("yes", "x -----BEGIN SSH SIGNATURE-----");
        assert_eq!(Tag::parse(&signed(&inside)).unwrap().signer().unwrap(), key);
    }

    #[test]
    fn what_git_does_not_write_is_no_tag() {
        let changes = [("type commit", "type tag"), (COMMIT, "11"), ("tag approve", "tug approve"), ("tagger ", "by ")];
        for (from, to) in changes {
            assert!(Tag::parse(&signed(&payload(TAGGER).replace(from, to))).is_err(), "{to}");
        }
        for head in ["", "tagger a <a@b> 1 +0000\ngpgsig x\n", "tagger a\n y\n"] {
            assert!(Tag::parse(&signed(&payload(head))).is_err(), "{head:?}");
        }
        assert!(Tag::parse(b"").is_err());
    }
}
