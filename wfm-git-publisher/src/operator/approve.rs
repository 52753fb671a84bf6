//! A person's word that a commit of the fleet may be published: a tag `approve/…` that stock Git signs with their own key.

use std::path::Path;

use jiff::Timestamp;
use repo_git::repo::Tag;
use repo_git::{CommitId, PublicKey, SignatureError};
use repo_model::text;
use serde::Serialize;

use crate::coverage::Written;
use crate::repos::{FleetRepo, GitError, SourceError, StockGit};

/// The most characters of a commit's subject that the tag repeats.
const MAX_SUBJECT: usize = 100;

/// What is approved, and how.
#[derive(Debug, Clone, Copy)]
pub struct Approving<'a> {
    pub rev: &'a str,
    /// What is published now, where the commit doesn't go on from it.
    pub instead_of: Option<&'a str>,
    /// The key's file; absent: the one that the operator's Git signs with.
    pub key: Option<&'a Path>,
    /// Whether the tag goes where the branch goes.
    pub push: bool,
}

/// A commit with somebody's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approved {
    pub commit: CommitId,
    pub subject: String,
    /// The tag's name, without `refs/tags/`.
    pub tag: String,
    /// The fingerprint of the key that signed it.
    pub key: String,
    /// Whose key it is by the `signers.yaml` of that commit; absent if it is nobody's there.
    pub person: Option<String>,
    /// What it was approved in the place of.
    pub published: Option<CommitId>,
    /// Where the tag was pushed to; absent if it wasn't.
    pub pushed: Option<String>,
}

/// A commit can't be approved.
#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    /// The commit can't be read.
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    /// Git can't sign, or can't make the tag.
    #[error("cannot make the tag `{tag}`")]
    Tag {
        tag: String,
        #[source]
        source: GitError,
    },
    /// The tag is there, and is no approval of this commit.
    #[error("the tag `{tag}` is there, and is no approval of {commit}")]
    Other { tag: String, commit: CommitId },
    /// It was made, and proves nothing here.
    #[error("the tag `{tag}` was made, and its signature can't be used")]
    Signature {
        tag: String,
        #[source]
        source: SignatureError,
    },
    /// It is here, and not where it counts.
    #[error("the tag `{tag}` is here, and can't be pushed to `{remote}`")]
    Push {
        tag: String,
        remote: String,
        #[source]
        source: GitError,
    },
}

/// Approves a commit, by the name of whoever Git says that this is. Once it is approved it stays so: done again, the same tag
/// is only pushed.
pub fn approve(root: &Path, approving: &Approving<'_>, now: Timestamp) -> Result<Approved, ApproveError> {
    let (source, git) = (FleetRepo::open(root)?, StockGit::new(root));
    let commit = source.resolve(approving.rev)?;
    let instead = |rev: &str| rev.parse().map_or_else(|_| source.resolve(rev), Ok);
    let published = approving.instead_of.map(instead).transpose()?;
    let tag = name(commit, published, &git.run(&["var", "GIT_COMMITTER_IDENT"]).unwrap_or_default());
    let subject = text::line(source.commit(commit)?.message.lines().next().unwrap_or_default());
    let subject: String = subject.chars().take(MAX_SUBJECT).collect();
    let full = format!("refs/tags/{tag}");
    let is_new = git.run(&["rev-parse", "--quiet", "--verify", &full]).is_err();
    if is_new {
        let message = message(commit, &subject, published);
        let signing = approving.key.map(|key| format!("user.signingKey={}", key.display()));
        let signing: Vec<_> = signing.iter().flat_map(|key| ["-c", key.as_str()]).collect();
        let id = commit.to_string();
        let make = ["-c", "gpg.format=ssh", "tag", "--sign", "--message", &message, &tag, &id];
        let made = git.run(&[&signing[..], &make].concat());
        made.map_err(|source| ApproveError::Tag { tag: tag.clone(), source })?;
    }
    let found = FleetRepo::open(root)?.approval_named(&full).filter(|found| found.commit == commit);
    let key = match found.as_ref().map(Tag::signer) {
        None => return Err(ApproveError::Other { tag, commit }),
        Some(Ok(key)) => key,
        Some(Err(error)) => {
            if is_new {
                // It would only be in the way of one that counts.
                let _ = git.run(&["tag", "--delete", &tag]);
            }
            return Err(ApproveError::Signature { tag, source: error });
        }
    };
    let pushed = approving.push.then(|| remote(&git)).flatten();
    if let Some(remote) = &pushed {
        let done = git.run(&["push", "--quiet", remote, &full]);
        done.map_err(|source| ApproveError::Push { tag: tag.clone(), remote: remote.clone(), source })?;
    }
    let person = person(&source.written(commit)?, &key, now);
    Ok(Approved { commit, subject, tag, key: key.fingerprint(), person, published, pushed })
}

fn person(written: &Written, key: &PublicKey, now: Timestamp) -> Option<String> {
    match written {
        Written::Good(signers) => signers.person(key, now).ok().map(str::to_owned),
        _ => None,
    }
}

/// One name for each commit and person, as Git names them: `Olga <olga@example.com> 1 +0000`.
fn name(commit: CommitId, published: Option<CommitId>, identity: &str) -> String {
    let mail = identity.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(mail, _)| mail);
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let person: String = mail.chars().map(letter).take(60).collect();
    let person = person.trim_matches('-');
    let person = if person.is_empty() { "operator" } else { person };
    let short = |id: CommitId| id.to_string()[..12].to_owned();
    let instead = published.map(|id| format!("-for-{}", short(id))).unwrap_or_default();
    format!("approve/{}/{person}{instead}", short(commit))
}

fn message(commit: CommitId, subject: &str, published: Option<CommitId>) -> String {
    let published = published.map(|id| format!("\n\nPublished: {id}")).unwrap_or_default();
    format!("Approve {commit}: {subject}{published}")
}

/// Where the branch goes that is checked out, or `origin`; absent where there is none.
fn remote(git: &StockGit) -> Option<String> {
    let branch = git.run(&["symbolic-ref", "--quiet", "--short", "HEAD"]).ok();
    let key = branch.map(|branch| format!("branch.{}.remote", branch.trim()));
    let configured = key.and_then(|key| git.run(&["config", "--get", &key]).ok());
    let remotes = git.run(&["remote"]).unwrap_or_default();
    let wanted = configured.as_deref().map_or("origin", str::trim);
    remotes.lines().find(|remote| *remote == wanted).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_named_after_commit_and_person_and_its_message_says_in_whose_place() {
        let [one, two]: [CommitId; 2] = ["1", "2"].map(|digit| digit.repeat(40).parse().unwrap());
        let olga = "Olga O. <Olga.O@example.com> 1 +0000";
        assert_eq!(name(one, None, olga), "approve/111111111111/olga-o-example-com");
        assert_eq!(name(one, Some(two), olga), "approve/111111111111/olga-o-example-com-for-222222222222");
        for nobody in ["", "x", "<> 1", "<..>"] {
            assert_eq!(name(one, None, nobody), "approve/111111111111/operator", "{nobody}");
        }
        let text = message(one, "Published: no", Some(two));
        assert_eq!(text.lines().filter(|line| line.starts_with("Published: ")).count(), 1, "{text}");
    }
}
