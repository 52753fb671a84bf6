//! What an audit finds: each with a stable code, what it means and what to do.

use repo_git::{CommitId, ReadError, TreeError};
use repo_model::desired::Refusal;
use repo_model::report::Doubt;
use repo_model::report::doubt::{
    ADOPTED_MISMATCH, COMPONENT_MISSING, DESIRED_UNKNOWN, HISTORY_FORKED, INPUT_MISMATCH, REPORT_INVALID,
    STATE_MISMATCH, TIME_AHEAD, WENT_BACK,
};
use repo_model::{Branch, DeviceId, ErrorCode, error_chain};
use serde::{Serialize, Serializer};

/// How much a finding says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// History isn't as it can have come about honestly.
    Error,
    /// It can have; a person should know all the same.
    Note,
}

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its stable name: a code or a doubt of the contract where one means the same.
    pub code: &'static str,
    pub level: Level,
    /// What it means.
    pub meaning: &'static str,
    /// What to do about it.
    pub advice: &'static str,
}

macro_rules! kinds {
    ($($name:ident $level:ident $code:expr, $meaning:literal, $advice:literal;)+) => {
        $(
            #[doc = $meaning]
            pub const $name: Kind = Kind { code: $code, level: Level::$level, meaning: $meaning, advice: $advice };
        )+

        /// Every kind of finding, in the order of the guide.
        pub const TABLE: &[&Kind] = &[$(&$name,)+];
    };
}

kinds! {
    REPOSITORY_UNREADABLE Error "repository-unreadable", "The repository can't be opened or read.", "clone it anew: git clone --mirror";
    REPOSITORY_MISSING Error "repository-missing", "The checkpoint covers a device of which no repository is here.", "find out who took it away; clone it, and name its directory";
    DEVICE_TWICE Error "device-twice", "Two repositories say that they are of one device.", "find out which of them is the device's, and audit that alone";
    NAME_MISMATCH Error "name-mismatch", "The directory has the name of another device's repository.", "if nobody renamed it, the host shows one device's repository in the place of another's";
    HISTORY_INCOMPLETE Error "history-incomplete", "The clone is shallow, so that older commits aren't here.", "git fetch --unshallow, or clone it anew";
    HISTORY_REWRITTEN Error ErrorCode::HistoryRewritten.as_str(), "A branch doesn't go on from what the checkpoint covers.", "keep both clones; ask who moved the branch, because an honest host can't";
    OBJECT_DAMAGED Error "object-damaged", "An object is missing, has other bytes than its name says, or is no object that may stand there.", "clone it anew; if that doesn't help, the host lost or changed it";
    NOT_ONE_LINE Error "not-one-line", "A commit has parents that it may not have.", "find out who made it; the first parent is followed";
    FOREIGN_REF Error "foreign-ref", "There is a ref that no device repository has.", "find out who made it, and delete it at the host";
    EPOCH_MISSING Error "epoch-missing", "An epoch of `status` isn't there, and another one goes on from it.", "fetch every branch, and name the ledger with --control, which knows what is archived; if it stays so, the host withholds part of the device's history, or lost it: its backup, or an older clone, has it";
    EPOCH_MOVED Error "epoch-moved", "An epoch of `status` doesn't end where it ended.", "keep both clones; ask who moved the branch, because an honest host can't";
    EPOCH_FORKED Error "epoch-forked", "An epoch of `status` begins where another one is.", "keep it; ask who made it, because an honest device begins each once";
    EPOCH_UNSIGNED Note "epoch-unsigned", "A host kept an epoch of `status` of a device that knows no epochs, and nobody signed that it is whole.", "compare its end with an older clone, if that matters";
    EPOCH_ARCHIVED Note "epoch-archived", "An epoch of `status` is in an archive, by the word of the publisher's ledger, and isn't read.", "name the directory that has it: --archives";
    ARCHIVE_MISMATCH Error "archive-mismatch", "The archive of an epoch isn't the one that the publisher's ledger names.", "look for another copy of it; somebody changed this one, or it is damaged";
    FOREIGN_FILE Note "foreign-file", "A tree holds a file that this program doesn't know there.", "a newer program may write it; else find out what it is";
    HEAD_ELSEWHERE Error "head-elsewhere", "`HEAD` doesn't name `desired`.", "git symbolic-ref HEAD with the full name of the branch, at the host";
    BRANCH_MISSING Error "branch-missing", "A branch is missing without which the others mean nothing.", "find out who deleted it";
    SIGNATURE_INVALID Error ErrorCode::SignatureInvalid.as_str(), "A commit is unsigned, was changed after it was signed, or is signed by a key that wasn't allowed.", "somebody else than the branch's writer wrote it: find out who can push there";
    WRONG_DEVICE Error ErrorCode::WrongDevice.as_str(), "A commit or document is for another device, fleet or branch.", "somebody put it in another place than it was signed for: find out who";
    MESSAGE_INVALID Error "message-invalid", "A commit's text is too long or holds control characters.", "read it with care: git log may show it as something else";
    TRAILER_MISMATCH Error "trailer-mismatch", "A trailer contradicts the tree.", "believe the tree; find out which program wrote the trailer";
    CHANGE_UNTOLD Note "change-untold", "A deployment changed, and no trailer says so.", "git diff shows what changed";
    MANIFEST_INVALID Error ErrorCode::ManifestInvalid.as_str(), "A desired state can't be read, or contradicts itself.", "no device takes it; find out which program wrote it";
    DEPLOYMENT_INVALID Error ErrorCode::DeploymentInvalid.as_str(), "An ApplicationDeployment can't be read.", "no device takes it; find out which program wrote it";
    DIGEST_MISMATCH Error ErrorCode::DigestMismatch.as_str(), "A file's bytes don't have the digest that is recorded for them.", "no device takes it; find out which program wrote it";
    LAYOUT_TOO_NEW Error ErrorCode::LayoutTooNew.as_str(), "The layout, or a feature, is newer than this program.", "audit with a newer wfm-git-publisher";
    SERIAL_ROLLBACK Error ErrorCode::SerialRollback.as_str(), "A serial or manifest version doesn't rise, or jumps too far.", "an old state may have been published again: compare it with the one of that serial";
    TRUST_INVALID Error ErrorCode::TrustInvalid.as_str(), "The rosters can't be followed from the one that is trusted.", "check that --roster is the first roster of this fleet; else somebody exchanged one";
    ROSTER_UNPROVEN Error "roster-unproven", "A roster isn't signed by enough of its own root keys.", "a root key in it may have been mistyped, or nobody has it: have its roots sign the next version while the old ones can";
    BEGINS_LATE Note "begins-late", "History begins with a serial above 1.", "ask the operator whether the repository was made anew";
    PROOF_UNKNOWN Error "proof-unknown", "The proof of freshness is of a commit that isn't in the history of `desired`.", "the host shows an older `desired` than the publisher made: ask it for the newest";
    PROOF_REFUSED Error "proof-refused", "The proof of freshness can't be read, or its times can't be.", "no device believes it; find out which program wrote it";
    NOT_FRESH Note "not-fresh", "No proof of freshness holds now, so this may not be the newest state.", "fetch, and audit again within a day of the last publish";
    BUNDLE_AHEAD Note "bundle-ahead", "`bundle` is of a newer state than `desired`.", "a publish was interrupted, or `desired` is an old one: fetch, and audit again";
    REPORT_INVALID_FOUND Error REPORT_INVALID, "A document of the device is missing or can't be read.", "look at the device: its program is broken, or somebody else uses its key";
    DESIRED_UNKNOWN_FOUND Error DESIRED_UNKNOWN, "The device names a commit that isn't in the history of `desired`.", "the host shows an older `desired` than the device saw, or the device was told one by somebody else";
    STATE_LOST Note "state-lost", "The device answers a state that the host lost, and that a later one continues.", "ask the operator when the host was restored";
    ADOPTED_REFUSED Error "adopted-refused", "The device adopted a commit that this audit refuses.", "look at the device: it runs what nobody of this fleet signed";
    ADOPTED_MISMATCH_FOUND Error ADOPTED_MISMATCH, "What the device says that it adopted contradicts the trailers, or the commit.", "look at the device: its program is broken, or somebody else uses its key";
    STATE_MISMATCH_FOUND Error STATE_MISMATCH, "A deployment's state isn't the most severe of its components'.", "believe the components";
    COMPONENT_MISSING_FOUND Error COMPONENT_MISSING, "The device says nothing of something that it adopted.", "look at the device";
    TRANSITION_IMPOSSIBLE Error "transition-impossible", "A transition doesn't follow from the one before, or the tree says another state.", "commits in between are gone, or somebody else uses the device's key";
    WENT_BACK_FOUND Error WENT_BACK, "Something is older than what was said before.", "the host shows something old, or somebody else uses the key";
    HISTORY_FORKED_FOUND Error HISTORY_FORKED, "Two installations take turns with one device's key.", "a disk was cloned: give one of them a key of its own";
    INSTALLATION_NEW Note "installation-new", "Another installation goes on with a device's history.", "ask the site whether the device was set up anew";
    INPUT_MISMATCH_FOUND Error INPUT_MISMATCH, "The heartbeat says that something runs that the commit doesn't give.", "look at the device";
    STATUS_BEHIND Note "status-behind", "The heartbeat has a newer state than `status` tells of.", "fetch, and audit again: if it stays so, the host withholds what the device told";
    SITE_INVALID Error "site-invalid", "The site's list can't be read, or breaks a rule of its branch.", "no device believes it; ask the site who made it";
    TIME_AHEAD_FOUND Error TIME_AHEAD, "The heartbeat is from the future.", "the device's clock, or this machine's, is wrong";
}

/// The kind with this code of the contract; a test asks for each that there is.
pub fn kind(code: &str) -> &'static Kind {
    let known = TABLE.iter().find(|kind| kind.code == code);
    known.copied().unwrap_or(&REPORT_INVALID_FOUND)
}

/// Something found in one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub kind: &'static Kind,
    /// The branch, without `refs/heads/`; absent if it is about the repository.
    pub branch: Option<String>,
    /// The commit, if it is about one.
    pub commit: Option<CommitId>,
    /// What is wrong, in one sentence. It may quote what strangers wrote.
    pub message: String,
}

impl Found {
    /// About the repository as a whole.
    pub fn whole(kind: &'static Kind, message: impl Into<String>) -> Self {
        Self { kind, branch: None, commit: None, message: message.into() }
    }

    /// About a commit of a branch.
    pub fn at(kind: &'static Kind, branch: impl AsRef<str>, commit: CommitId, message: impl Into<String>) -> Self {
        Self { kind, branch: Some(branch.as_ref().to_owned()), commit: Some(commit), message: message.into() }
    }

    /// Why a reader refuses a commit.
    pub fn refusal(branch: Branch, commit: CommitId, refusal: &Refusal) -> Self {
        Self::at(kind(refusal.code), branch, commit, &refusal.message)
    }

    /// Why a reader doubts a report.
    pub fn doubt(branch: impl AsRef<str>, commit: CommitId, doubt: &Doubt) -> Self {
        Self::at(kind(&doubt.code), branch, commit, &doubt.message)
    }

    /// An object that can't be read.
    pub fn unreadable(branch: impl AsRef<str>, commit: CommitId, error: &ReadError) -> Self {
        Self::at(&OBJECT_DAMAGED, branch, commit, error_chain(error))
    }

    /// A tree that can't be read, or holds what it may not.
    pub fn tree(branch: impl AsRef<str>, commit: CommitId, error: &TreeError) -> Self {
        let kind = if error.is_damage() { &OBJECT_DAMAGED } else { &MANIFEST_INVALID };
        Self::at(kind, branch, commit, error_chain(error))
    }
}

/// Something found, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The directory of the repository, as it was named or found.
    pub repository: String,
    /// The device that it is of, if that is known.
    pub device: Option<DeviceId>,
    pub found: Found,
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Found { kind, branch, commit, message } = &self.found;
        serde_json::json!({
            "code": kind.code,
            "level": kind.level,
            "repository": self.repository,
            "device": self.device,
            "branch": branch,
            "commit": commit,
            "message": message,
            "advice": kind.advice,
        })
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use repo_model::report::doubt::ADOPTED_UNKNOWN;

    use super::*;

    #[test]
    fn each_code_is_one_kind_and_every_doubt_and_refusal_has_one() {
        let codes: BTreeSet<_> = TABLE.iter().map(|kind| kind.code).collect();
        assert_eq!(codes.len(), TABLE.len());
        // That is what a publisher knows by its ledger; an audit has none.
        for (word, ..) in Doubt::TABLE.iter().filter(|(word, ..)| *word != ADOPTED_UNKNOWN) {
            assert_eq!(kind(word).code, *word);
        }
        let refusals = [
            ErrorCode::ManifestInvalid,
            ErrorCode::SerialRollback,
            ErrorCode::SignatureInvalid,
            ErrorCode::TrustInvalid,
            ErrorCode::WrongDevice,
            ErrorCode::LayoutTooNew,
            ErrorCode::DigestMismatch,
            ErrorCode::DeploymentInvalid,
        ];
        for code in refusals {
            assert_eq!(kind(code.as_str()).code, code.as_str());
        }
    }
}
