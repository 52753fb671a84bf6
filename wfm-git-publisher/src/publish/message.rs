//! The messages of the publisher's commits: templated, and never with a parameter's value in them.

use jiff::Timestamp;
use repo_git::{Commit, CommitId, Person, PublicKey};
use repo_model::desired::Assembled;
use repo_model::message::{Continues, Message};
use repo_model::{Branch, DeviceId, FleetId, Trailer};

use super::holds::ReleasedBy;
use crate::plan::{Change, ChangeKind, DevicePlan};
use crate::repos::{Published, publisher};

/// The most parameters that a subject names.
const MAX_NAMED: usize = 3;

/// The most characters of a subject before its serial.
const MAX_SUBJECT: usize = 100;

/// The fleet commit that is published, and who answers for it.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) commit: CommitId,
    /// The operator whose key verifiably signed it.
    pub(super) operator: Option<PublicKey>,
    /// Its author, if that is verifiably an operator.
    author: Option<Person>,
}

impl Origin {
    /// What a commit says of itself.
    pub(super) fn of(commit: &Commit, operator: Option<PublicKey>) -> Self {
        let good = |text: &str| !text.trim().is_empty() && !text.contains(|c: char| c.is_control() || "<>".contains(c));
        let author = Some(&commit.author).filter(|author| good(&author.name) && good(&author.email));
        let author = author.filter(|_| operator.is_some()).cloned();
        Self { commit: commit.id, operator, author }
    }

    /// No commit, where nothing is published.
    pub(super) fn none() -> Self {
        let commit = "0".repeat(40).parse().expect("40 digits");
        Self { commit, operator: None, author: None }
    }

    /// Whose key verifiably signed it, as commits say it.
    pub(super) fn operator_key(&self) -> String {
        self.operator.map_or("unverified".to_owned(), |key| key.fingerprint())
    }

    /// Who stands as the author of a `desired` commit; `sole` says that no other commit can have caused it.
    pub(super) fn author(&self, sole: bool) -> Person {
        self.author.clone().filter(|_| sole).unwrap_or_else(publisher)
    }
}

/// The message of a `desired` commit. `released` says which rollouts something of it is released by, and `cause` is given when
/// no fleet commit caused it.
pub(super) fn desired(
    plan: &DevicePlan,
    assembled: &Assembled,
    origin: &Origin,
    released: &[ReleasedBy],
    cause: Option<&str>,
    continues: Option<Published>,
) -> Message {
    let envelope = &assembled.envelope;
    let subject: String = subject(plan, cause).chars().take(MAX_SUBJECT).collect();
    let mut message = Message::new(format!("{subject} (serial {})", envelope.serial));
    if plan.changes.len() + plan.settings.len() > 1 {
        message = plan.changes.iter().fold(message, |message, change| message.line(line(change)));
        message = plan.settings.iter().fold(message, |message, one| message.line(format!("{} changes", one.what)));
    }
    message = message
        .identity(Branch::Desired, envelope.fleet, &envelope.device.id)
        .trailer(Trailer::Serial, envelope.serial)
        .trailer(Trailer::ManifestVersion, envelope.manifest_version)
        .trailer(Trailer::ManifestDigest, assembled.manifest_digest)
        .trailer(Trailer::EnvelopeDigest, assembled.envelope_digest)
        .trailer(Trailer::FleetCommit, origin.commit)
        .trailer(Trailer::OperatorKey, origin.operator_key());
    for Change { kind, name, id, .. } in &plan.changes {
        let release = released.iter().find(|release| release.deployments.contains(name));
        let commit = release.map_or_else(|| origin.commit.to_string(), |release| release.fleet_commit.clone());
        message = message.trailer(Trailer::Deployment, format!("{} {name} {id} {commit}", kind.as_str()));
    }
    if let Some(cause) = cause {
        message = message.trailer(Trailer::Cause, cause);
    }
    if let Some(Published { serial, envelope }) = continues {
        message = message.trailer(Trailer::Continues, Continues { envelope, serial });
    }
    released.iter().fold(message, |message, release| {
        message.trailer(Trailer::Rollout, format!("{} {}", release.rollout, release.wave))
    })
}

/// The highest number of a rollout by which something of a `desired` commit was released; 0 without any.
pub(super) fn rollout_number(message: &Message) -> u32 {
    message.waves().map(|wave| wave.rollout).max().unwrap_or(0)
}

fn subject(plan: &DevicePlan, cause: Option<&str>) -> String {
    match (plan.changes.as_slice(), plan.settings.as_slice()) {
        ([change], []) => format!("{}: {}", change.name, what(change)),
        ([], [setting]) => format!("{} changes", setting.what),
        ([], []) if plan.serial.is_none() => "nothing to run yet".to_owned(),
        ([], []) => cause.unwrap_or("published anew").to_owned(),
        ([], settings) => format!("{} settings change", settings.len()),
        (changes, []) => format!("{} deployments change", changes.len()),
        (changes, settings) => format!("{} deployments and {} settings change", changes.len(), settings.len()),
    }
}

fn line(change: &Change) -> String {
    format!("{}: {}", change.name, what(change))
}

/// What happens to the deployment; names of parameters and components, never their values.
fn what(change: &Change) -> String {
    let kind = change.kind.as_str();
    if change.kind != ChangeKind::Change || change.differences.is_empty() {
        return kind.to_owned();
    }
    let names: Vec<_> = change.differences.iter().take(MAX_NAMED).map(|one| one.what.as_str()).collect();
    let more = change.differences.len() - names.len();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{kind} {}{rest}", names.join(", "))
}

/// The message of a `bundle` commit.
pub(super) fn bundle(assembled: &Assembled) -> Message {
    let envelope = &assembled.envelope;
    Message::new(format!("bundle of serial {}", envelope.serial))
        .identity(Branch::Bundle, envelope.fleet, &envelope.device.id)
        .trailer(Trailer::Serial, envelope.serial)
        .trailer(Trailer::ManifestDigest, assembled.manifest_digest)
}

/// The message of a `freshness` commit.
pub(super) fn freshness(fleet: FleetId, device: &DeviceId, serial: u64, expires: Timestamp) -> Message {
    Message::new(format!("serial {serial} is fresh until {expires:.0}"))
        .identity(Branch::Freshness, fleet, device)
        .trailer(Trailer::Serial, serial)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::Difference;

    fn change(kind: ChangeKind, names: &[&str]) -> Change {
        let difference = |name: &&str| Difference {
            what: (*name).to_owned(),
            old: Some("a secret".to_owned()),
            new: Some("another".to_owned()),
        };
        Change {
            kind,
            name: "hello".parse().unwrap(),
            id: uuid::Uuid::nil().into(),
            differences: names.iter().map(difference).collect(),
            unresolved: BTreeSet::new(),
            replaces: None,
            guard: None,
            allowed: false,
        }
    }

    #[test]
    fn a_change_is_told_by_names_and_never_by_values() {
        for (change, expected) in [
            (change(ChangeKind::Add, &["greeting"]), "add"),
            (change(ChangeKind::Remove, &[]), "remove"),
            (change(ChangeKind::Change, &["greeting"]), "change greeting"),
            (change(ChangeKind::Change, &["a", "b", "c"]), "change a, b, c"),
            (change(ChangeKind::Change, &["a", "b", "c", "d", "e"]), "change a, b, c and 2 more"),
        ] {
            assert_eq!(what(&change), expected);
        }
    }
}
