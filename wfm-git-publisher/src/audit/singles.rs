//! Judges the branches that are one commit each: `bundle`, `freshness`, `heartbeat`, `site`.

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::ask::is_answer;
use repo_model::bundle::BUNDLE;
use repo_model::clock::SKEW;
use repo_model::freshness::{FRESHNESS, Freshness, Subject};
use repo_model::report::{Adopted, Beside, CURRENT_STATE, Heartbeat, heartbeat as read_heartbeat};
use repo_model::roster::Trust;
use repo_model::site::SiteList;
use repo_model::{DeviceId, Digest, ErrorCode, KeyText, Trailer, json};

use super::commit::Told;
use super::desired::Published;
use super::finding::{
    BUNDLE_AHEAD, DESIRED_UNKNOWN_FOUND, DIGEST_MISMATCH, FOREIGN_FILE, Found, NOT_FRESH, PROOF_REFUSED, PROOF_UNKNOWN,
    SIGNATURE_INVALID, SITE_INVALID, STATUS_BEHIND, WENT_BACK_FOUND, WRONG_DEVICE,
};
use super::status::Answers;

/// What the branches of one commit are judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) device: &'a DeviceId,
    /// The newest roster of `desired`.
    pub(super) trust: &'a Trust,
    /// The newest believed commit of `desired`.
    pub(super) tip: &'a Published,
    pub(super) now: Timestamp,
}

impl Ground<'_> {
    /// The key of a publisher that signed a commit.
    fn publisher<'t>(&self, told: &'t Told<'_>, at: Timestamp) -> Result<&'t KeyText, Found> {
        let publishers: Vec<_> = self.trust.roster.publishers.iter().map(|one| one.key.clone()).collect();
        let signer = told.signed_by(&publishers, "a publisher by the newest roster")?;
        if self.trust.allows(signer, at) {
            return Ok(signer);
        }
        Err(told.found(&SIGNATURE_INVALID, format!("it is of {at}, and its signer's key had ended by then")))
    }
}

/// `bundle`: `states` are the believed states that it may be of, the newest first.
pub(super) fn bundle<'p>(
    told: &Told<'_>,
    ground: Ground<'_>,
    mut states: impl Iterator<Item = &'p Published>,
) -> Vec<Found> {
    let mut found = told.common(ground.trust.roster.fleet, ground.device);
    let at = Timestamp::from_second(told.time).unwrap_or(Timestamp::MIN);
    if let Err(wrong) = ground.publisher(told, at) {
        found.push(wrong);
        return found;
    }
    found.extend(foreign(told, |path| path == BUNDLE));
    let archive = told.files.get(BUNDLE).map(|bytes| Digest::of(bytes));
    if states.any(|state| state.bundle == archive) {
        return found;
    }
    let ahead = told.message.number(Trailer::Serial).filter(|serial| *serial > ground.tip.named.serial);
    found.push(match ahead {
        Some(serial) => told
            .found(&BUNDLE_AHEAD, format!("it is of serial {serial}, and `desired` has {}", ground.tip.named.serial)),
        None => told.found(&DIGEST_MISMATCH, format!("`{BUNDLE}` is the archive of no state of `desired`")),
    });
    found
}

/// `freshness`; `answers` is what the commit that it names is in the history of `desired`, and `tip` that branch's. The
/// proof is given if it is one.
pub(super) fn freshness(
    told: &Told<'_>,
    ground: Ground<'_>,
    answers: impl Fn(CommitId) -> Answers,
) -> (Option<Freshness>, Vec<Found>) {
    let fleet = ground.trust.roster.fleet;
    let mut found = told.common(fleet, ground.device);
    let said: Option<Freshness> = told.files.get(FRESHNESS).and_then(|bytes| json::read(bytes).ok());
    let Some(said) = said else {
        found.extend(ground.publisher(told, ground.now).err());
        found.push(told.found(&PROOF_REFUSED, format!("`{FRESHNESS}` is missing, or can't be read")));
        return (None, found);
    };
    if let Err(wrong) = ground.publisher(told, said.issued) {
        found.push(wrong);
        return (None, found);
    }
    found.extend(foreign(told, |path| path == FRESHNESS));
    let answers = said.tip.parse().map_or(Answers::Unknown, answers);
    let Some(published) = answers.published() else {
        let text = format!("it is of commit {}, which the history of `desired` hasn't, or which is refused", said.tip);
        found.push(told.found(&PROOF_UNKNOWN, text));
        return (None, found);
    };
    let named = &published.named;
    let (tip, envelope, serial) = (named.commit.as_str(), named.envelope, named.serial);
    let subject = Subject { fleet, device: ground.device, tip, envelope, serial };
    let proof = match Freshness::read(told.files, &told.message, false, &subject) {
        Ok(proof) => proof,
        // Where it belongs was said already.
        Err(_) if found.iter().any(|one| one.kind == &WRONG_DEVICE) => return (None, found),
        Err(refusal) => {
            found.push(told.found(&PROOF_REFUSED, refusal.message));
            return (None, found);
        }
    };
    if proof.issued.duration_since(ground.now) > SKEW {
        found.push(told.found(&PROOF_REFUSED, format!("it begins at {}, which is ahead", proof.issued)));
    } else if proof.expires <= ground.now && !ground.tip.retired {
        found.push(told.found(&NOT_FRESH, format!("the last proof of freshness ended at {}", proof.expires)));
    } else if published.commit != ground.tip.commit {
        let newest = ground.tip.named.serial;
        found.push(
            told.found(&NOT_FRESH, format!("the proof of freshness is of serial {serial}, and `desired` has {newest}")),
        );
    }
    (Some(proof), found)
}

/// What the device's `status` says at its tip.
#[derive(Debug, Clone, Copy)]
pub(super) struct AtStatus<'a> {
    /// The keys that may sign, beside those of the newest state.
    pub(super) keys: &'a [KeyText],
    /// When it was made, and what it adopted.
    pub(super) last: Option<(i64, &'a Adopted)>,
    /// The commit that it answers.
    pub(super) published: Option<&'a Published>,
}

/// `heartbeat`; its time is given if it is believed.
pub(super) fn heartbeat(told: &Told<'_>, ground: Ground<'_>, status: AtStatus<'_>) -> (Option<Timestamp>, Vec<Found>) {
    let mut found = told.common(ground.trust.roster.fleet, ground.device);
    let keys = [status.keys, &ground.tip.keys].concat();
    if let Err(wrong) = told.signed_by(&keys, "this device") {
        found.push(wrong);
        return (None, found);
    }
    found.extend(foreign(told, |path| path == CURRENT_STATE || is_answer(path)));
    let named = status.published.map(|published| &published.named);
    let Heartbeat { state, doubts, .. } =
        match read_heartbeat(told.files, Beside { status: status.last, named, now: ground.now }) {
            Ok(read) => read,
            Err(doubt) => {
                found.push(Found::doubt(told.branch, told.id, &doubt));
                return (None, found);
            }
        };
    found.extend(doubts.iter().map(|doubt| Found::doubt(told.branch, told.id, doubt)));
    let (serial, newest) = (state.serial, ground.tip.named.serial);
    let told_of = status.last.map_or(0, |(_, adopted)| adopted.serial);
    if serial > newest.max(told_of) {
        let text = format!("it has serial {serial}, and the newest that was published is {newest}");
        found.push(told.found(&DESIRED_UNKNOWN_FOUND, text));
    } else if serial > told_of {
        found.push(told.found(&STATUS_BEHIND, format!("it has serial {serial}, and `status` tells of {told_of}")));
    }
    (Some(state.time), found)
}

/// `site`, whoever of the site signed it; its serial is given if it can be read.
pub(super) fn site(told: &Told<'_>, ground: Ground<'_>) -> (Option<u64>, Vec<Found>) {
    let fleet = ground.trust.roster.fleet;
    let mut found = told.common(fleet, ground.device);
    if let Err(why) = &told.signer {
        found.push(told.found(&SIGNATURE_INVALID, why));
        return (None, found);
    }
    match SiteList::read(told.files, &told.message, false, (fleet, ground.device)) {
        Ok(list) => (Some(list.serial), found),
        Err(refusal) => {
            let is_elsewhere = refusal.code == ErrorCode::WrongDevice.as_str();
            let kind = if is_elsewhere { &WRONG_DEVICE } else { &SITE_INVALID };
            if !found.iter().any(|one| one.kind == kind) {
                found.push(told.found(kind, refusal.message));
            }
            (None, found)
        }
    }
}

/// What is less than when the checkpoint was made, although it only rises.
pub(super) fn went_back<T: PartialOrd + std::fmt::Display>(
    told: &Told<'_>,
    what: &str,
    now: Option<&T>,
    before: Option<&T>,
) -> Option<Found> {
    let (now, before) = now.zip(before).filter(|(now, before)| now < before)?;
    Some(told.found(&WENT_BACK_FOUND, format!("its {what} is {now}, and the checkpoint has {before}")))
}

fn foreign(told: &Told<'_>, is_own: impl Fn(&str) -> bool) -> Vec<Found> {
    let foreign = told.files.keys().filter(|path| !is_own(path));
    foreign.map(|path| told.found(&FOREIGN_FILE, format!("`{path}` is no file of this branch"))).collect()
}
