//! Whether a fetched commit is believed: the order of the contract, before any effect.

use jiff::Timestamp;
use repo_git::repo::{Ancestry, TreeLimits};
use repo_git::{CommitId, PublicKey, sign};
use repo_model::desired::{self, Desired, Reader, Refusal};
use repo_model::freshness::{Freshness, Subject};
use repo_model::join::Join;
use repo_model::message::{Continues, Message};
use repo_model::report::{ConditionType, Reason};
use repo_model::roster::{ROSTER_NAMESPACE, Trust, roster_path};
use repo_model::site::{self, SITE};
use repo_model::{Branch, Digest, ErrorCode, FileTree, KeyText, Trailer, error_chain};

use crate::decision::conditions;
use crate::decision::device_state::{Accepted, DeviceState};
use crate::decision::site::{Believed, KnownLists, SiteKey};
use crate::state::floor::Floor;
use crate::state::view::View;

/// How many commits back a `Continues` is searched for at most.
const MAX_WALK: usize = 100_000;

/// A commit on `desired` that was believed.
#[derive(Debug)]
pub struct Adoption {
    pub commit: CommitId,
    /// The documents of the commit, checked against each other.
    pub desired: Desired,
    /// The newest roster that it brings and that is believed.
    pub trust: Trust,
    /// Exact bytes of that roster.
    pub roster: Vec<u8>,
    /// How it follows from what was accepted before.
    pub descent: Descent,
}

/// How a commit follows from what was accepted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descent {
    /// It descends from it, is the same state, or there was none.
    Shown,
    /// The history at hand ends before the accepted commit is met.
    Unknown,
    /// It doesn't, and the publisher says that it continues it, as after a restore of the host.
    Continued,
    /// A person at the device accepted it as it is.
    ByHand,
}

/// What a verification is judged by.
#[derive(Debug)]
pub struct Judge<'a> {
    /// The clone with the fetched objects.
    pub view: &'a View,
    /// Fleet and device, by the join file.
    pub join: &'a Join,
    /// Nothing below it is believed.
    pub floor: &'a Floor,
    /// The newest roster that was believed.
    pub trust: &'a Trust,
    /// The present moment by the device.
    pub now: Timestamp,
    /// A commit whose history a person at the device accepted.
    pub accepted_history: Option<CommitId>,
}

impl Judge<'_> {
    /// Verifies a fetched commit on `desired`.
    pub fn desired(&self, commit: CommitId) -> Result<Adoption, Refusal> {
        let (key, message) = self.signed(commit)?;
        let files = self.files(commit)?;
        let by_hand = self.is_accepted_by_hand(commit)?;
        let reader = if by_hand { self.lenient_reader(&files)? } else { self.reader() };
        let (desired, trust) = desired::accept(&files, &message, &key, &reader, &roster_signer)?;
        let roster = files[&roster_path(trust.roster.version)].clone();
        let descent = if by_hand { Descent::ByHand } else { self.descent(commit, &desired, &trust)? };
        Ok(Adoption { commit, desired, trust, roster, descent })
    }

    fn reader(&self) -> Reader<'_> {
        Reader {
            fleet: self.join.fleet,
            device: &self.join.device,
            trust: self.trust,
            serial: (self.floor.serial, self.floor.envelope),
            manifest_version: (self.floor.manifest_version, self.floor.manifest),
            roster: (self.floor.trust, self.floor.trust_digest),
            now: self.now,
        }
    }

    /// Numbers may fall, and be the same with other content, but not jump.
    fn lenient_reader(&self, files: &FileTree) -> Result<Reader<'_>, Refusal> {
        let found = desired::read(files)?.envelope;
        Ok(Reader {
            serial: (self.floor.serial.min(found.serial), None),
            manifest_version: (self.floor.manifest_version.min(found.manifest_version), None),
            ..self.reader()
        })
    }

    /// The commit that a person named, or one that the publisher has put on top of it since.
    fn is_accepted_by_hand(&self, tip: CommitId) -> Result<bool, Refusal> {
        let Some(accepted) = self.accepted_history else { return Ok(false) };
        Ok(self.view.repo.is_ancestor(accepted, tip).map_err(unreadable)? == Ancestry::Yes)
    }

    /// The key that signed a commit, and its message.
    fn signed(&self, commit: CommitId) -> Result<(KeyText, Message), Refusal> {
        let commit = self.view.repo.commit(commit).map_err(unreadable)?;
        let key = commit.signer().map_err(|error| Refusal::new(ErrorCode::SignatureInvalid, error_chain(&error)))?;
        Ok((key_text(&key), Message::parse(&commit.message)))
    }

    fn files(&self, commit: CommitId) -> Result<FileTree, Refusal> {
        self.view.repo.files(commit, &TreeLimits::default()).map_err(unreadable)
    }

    fn descent(&self, tip: CommitId, desired: &Desired, trust: &Trust) -> Result<Descent, Refusal> {
        let accepted = self.view.device_state.accepted.as_ref().and_then(Accepted::id);
        let ancestry = match accepted {
            Some(accepted) => self.view.repo.is_ancestor(accepted, tip).map_err(unreadable)?,
            None if self.floor.envelope.is_none_or(|known| known == desired.envelope_digest) => Ancestry::Yes,
            None => Ancestry::Unknown,
        };
        match ancestry {
            Ancestry::Yes => Ok(Descent::Shown),
            _ if self.continues(tip, trust)? => Ok(Descent::Continued),
            Ancestry::Unknown => Ok(Descent::Unknown),
            Ancestry::No => Err(Refusal::new(
                ErrorCode::HistoryRewritten,
                format!(
                    "it doesn't descend from {}, which was accepted before, and nothing says that it continues that; \
                     if it is right, run `device-syncer accept-history {tip}` at the device",
                    accepted.map_or_else(String::new, |id| id.to_string())
                ),
            )),
        }
    }

    /// Whether a commit names the state that was accepted as the one it continues, as a publisher does after a restore.
    /// Only one made after that state can know its digest, so where in the history it stands doesn't matter.
    fn continues(&self, tip: CommitId, trust: &Trust) -> Result<bool, Refusal> {
        // The floor may be raised already, for this very tip, by a pass that was killed.
        let expected = match (&self.view.device_state.accepted, self.floor.envelope) {
            (Some(accepted), _) => Continues { envelope: accepted.envelope, serial: accepted.serial }.to_string(),
            (None, Some(envelope)) => Continues { envelope, serial: self.floor.serial }.to_string(),
            (None, None) => return Ok(false),
        };
        for id in self.view.repo.history(tip, None, MAX_WALK).map_err(unreadable)? {
            let commit = self.view.repo.commit(id).map_err(unreadable)?;
            let message = Message::parse(&commit.message);
            let says_so = message.get(Trailer::Kind) == Some(Branch::Desired.as_str())
                && message.get(Trailer::Continues) == Some(&expected);
            if says_so && commit.signer().is_ok_and(|key| trust.allows(&key_text(&key), self.now)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Verifies a fetched commit on `freshness` against the state that is accepted, but for what time it is. Returns who
    /// signed it, too.
    pub fn freshness(&self, commit: CommitId, accepted: &Accepted) -> Result<(KeyText, Freshness), Refusal> {
        let (key, message) = self.signed(commit)?;
        if !self.trust.allows(&key, self.now) {
            return Err(Refusal::new(
                ErrorCode::SignatureInvalid,
                "the proof of freshness isn't signed by an allowed key",
            ));
        }
        let has_parents = !self.view.repo.commit(commit).map_err(unreadable)?.parents.is_empty();
        let subject = Subject {
            fleet: self.join.fleet,
            device: &self.join.device,
            tip: &accepted.commit,
            envelope: accepted.envelope,
            serial: accepted.serial,
        };
        Ok((key, Freshness::read(&self.files(commit)?, &message, has_parents, &subject)?))
    }
}

impl Judge<'_> {
    /// Verifies a fetched commit on `site`, after what is known of the site's lists.
    pub fn site_list(&self, commit: CommitId, keys: &[SiteKey], known: &KnownLists) -> Result<Believed, Refusal> {
        let unreadable = |error: &dyn std::error::Error| Refusal::new(Reason::Unreadable, error_chain(error));
        let read = self.view.repo.commit(commit).map_err(|error| unreadable(&error))?;
        let signer = read.signer().map_err(|error| Refusal::new(ErrorCode::SignatureInvalid, error_chain(&error)))?;
        let (key, message) = (key_text(&signer), Message::parse(&read.message));
        let texts: Vec<_> = keys.iter().map(|one| one.key.clone()).collect();
        let reader = site::Reader {
            fleet: self.join.fleet,
            device: &self.join.device,
            keys: &texts,
            known: known.bound(keys),
            now: self.now,
        };
        // Nobody's tree is read before it is known to be of the site.
        let files = match texts.contains(&key) {
            true => self.view.repo.files(commit, &TreeLimits::default()).map_err(|error| unreadable(&error))?,
            false => FileTree::new(),
        };
        let list = site::accept(&files, &message, !read.parents.is_empty(), &key, &reader)?;
        Ok(Believed { commit: commit.to_string(), key, digest: Digest::of(&files[SITE]), list })
    }
}

impl Adoption {
    /// Puts this state in force. What was proven fresh before is as much a proof of this one, which came after it; but
    /// where the device is `Stale`, an adoption ends nothing.
    pub fn put_into(&self, device_state: &mut DeviceState, now: Timestamp) {
        device_state.roster.clone_from(&self.roster);
        let is_stale = conditions::all(&device_state.status).iter().any(|one| one.kind == ConditionType::Stale);
        let before = device_state.accepted.take().filter(|_| !is_stale && self.descent != Descent::ByHand);
        device_state.accepted = Some(Accepted {
            commit: self.commit.to_string(),
            serial: self.desired.envelope.serial,
            manifest_version: self.desired.envelope.manifest_version,
            envelope: self.desired.envelope_digest,
            trust: self.trust.roster.version,
            since: now,
            fresh_until: None,
            fresh_before: before.and_then(|before| before.fresh_until.or(before.fresh_before)),
            unverified: self.descent == Descent::Unknown,
        });
    }

    /// The floor that this state raises.
    pub fn raise(&self, floor: &Floor) -> Floor {
        Floor {
            seq: floor.seq,
            serial: self.desired.envelope.serial,
            envelope: Some(self.desired.envelope_digest),
            manifest_version: self.desired.envelope.manifest_version,
            manifest: Some(self.desired.manifest_digest),
            trust: self.trust.roster.version,
            trust_digest: self.trust.digest,
            time: floor.time,
            issued: floor.issued,
        }
    }
}

/// What can't be read isn't a desired state.
fn unreadable(error: impl std::error::Error + 'static) -> Refusal {
    Refusal::new(ErrorCode::ManifestInvalid, error_chain(&error))
}

/// Says who made a roster's signature.
pub fn roster_signer(bytes: &[u8], armored: &str) -> Option<KeyText> {
    sign::verify(ROSTER_NAMESPACE, bytes, armored).ok().map(|key| key_text(&key))
}

/// A key as documents write it.
pub fn key_text(key: &PublicKey) -> KeyText {
    key.to_string().parse().expect("a public key's text is one")
}
