//! One commit as it is judged: read elsewhere, with its signature checked.

use repo_git::{Commit, CommitId};
use repo_model::message::{MAX_TEXT, Message};
use repo_model::{Branch, DeviceId, FileTree, FleetId, KeyText, error_chain};

use super::finding::{Found, MESSAGE_INVALID, NOT_ONE_LINE, SIGNATURE_INVALID, WRONG_DEVICE};
use crate::repos::key_text;

/// A commit with all that a judge needs of it.
#[derive(Debug)]
pub(super) struct Told<'a> {
    pub(super) branch: Branch,
    pub(super) id: CommitId,
    /// When, in Unix seconds, by its writer's word.
    pub(super) time: i64,
    /// Who wrote it, by the same word.
    pub(super) author: String,
    pub(super) parents: usize,
    /// The key whose signature on it verified, or why there is none.
    pub(super) signer: Result<KeyText, String>,
    pub(super) message: Message,
    /// The message as it stands.
    text: &'a str,
    pub(super) files: &'a FileTree,
}

impl<'a> Told<'a> {
    pub(super) fn of(branch: Branch, commit: &'a Commit, files: &'a FileTree) -> Self {
        let signer = commit.signer().map_err(|error| error_chain(&error));
        Self {
            branch,
            id: commit.id,
            time: commit.commit_time,
            author: commit.author.name.clone(),
            parents: commit.parents.len(),
            signer: signer.and_then(|key| key_text(key).ok_or_else(|| "its key has no text".to_owned())),
            message: Message::parse(&commit.message),
            text: &commit.message,
            files,
        }
    }

    /// What is wrong with it, in these words.
    pub(super) fn found(&self, kind: &'static super::finding::Kind, message: impl Into<String>) -> Found {
        Found::at(kind, self.branch, self.id, message)
    }

    /// What every commit has to be, whatever its branch says (*Common rules* 4 and 5).
    pub(super) fn common(&self, fleet: FleetId, device: &DeviceId) -> Vec<Found> {
        let wrong = self.message.wrong_identity(self.branch, fleet, device).map(|(key, value)| {
            self.found(&WRONG_DEVICE, format!("the trailer `{key}` must stand exactly once, as `{value}`"))
        });
        let replaced = self.is_single() && self.parents > 0;
        let parents = (replaced || self.parents > 1).then(|| {
            let may = if self.is_single() { "none" } else { "one at most" };
            self.found(&NOT_ONE_LINE, format!("it has {} parents, and may have {may}", self.parents))
        });
        wrong.into_iter().chain(parents).chain(self.bad_text()).collect()
    }

    /// The signer, if it is one of these keys.
    pub(super) fn signed_by(&self, keys: &[KeyText], whose: &str) -> Result<&KeyText, Found> {
        match &self.signer {
            Ok(key) if keys.contains(key) => Ok(key),
            Ok(key) => {
                Err(self.found(&SIGNATURE_INVALID, format!("it is signed by {key}, which is no key of {whose}")))
            }
            Err(why) => Err(self.found(&SIGNATURE_INVALID, why)),
        }
    }

    /// Whether its branch is one parentless commit, replaced.
    fn is_single(&self) -> bool {
        !matches!(self.branch, Branch::Desired | Branch::Status)
    }

    fn bad_text(&self) -> Option<Found> {
        let text = self.text.trim_end_matches('\n');
        let trailers = self.message.trailers();
        let head = if trailers.is_empty() { text } else { text.rsplit_once("\n\n").map_or(text, |(head, _)| head) };
        let is_bad = |c: char| c.is_control() && c != '\n';
        if head.len() > MAX_TEXT {
            let text = format!("subject and body have {} bytes, more than the {MAX_TEXT} allowed", head.len());
            return Some(self.found(&MESSAGE_INVALID, text));
        }
        let bad = text.chars().find(|c| is_bad(*c))?;
        Some(self.found(&MESSAGE_INVALID, format!("its message holds the control character {}", bad.escape_unicode())))
    }
}
