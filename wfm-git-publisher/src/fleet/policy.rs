//! What operators say about a device's behaviour, in durations that people read.

use repo_model::envelope::{ApprovalPolicy, DriftPolicy, IgnoredDrift, ObjectPointer, OnFailure};
use repo_model::yaml::{Field, Reader};

use super::file::refuse_unbuilt;
use super::place::Place;
use super::site::{self, ForSites};
use super::windows::{self, Windows};
use crate::duration;

/// What `fleet.yaml`, a group or a device says about a device's behaviour; an absent key leaves it to whoever is below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// How often a device asks the host.
    pub poll: Option<Seconds>,
    /// How often a device replaces `heartbeat` when nothing changed.
    pub report: Option<Seconds>,
    /// What a device does where a deployment that says nothing can't run as it is wanted.
    pub on_failure: Option<(OnFailure, Place)>,
    /// For how long such a deployment runs well on a device before that takes it for good.
    pub stabilise: Option<Seconds>,
    /// Whether a device puts back what doesn't run of such a deployment as it was applied.
    pub drift: Option<(DriftPolicy, Place)>,
    /// What of such a deployment's charts' objects may be as it is.
    pub drift_ignore: Option<(Vec<IgnoredDrift>, Place)>,
    /// When it may be changed.
    pub windows: Option<Windows>,
    /// Whether a person has to agree to changes, and where that is written.
    pub approval: Option<Approval>,
    /// What of a site's own policy a device has in place of it, where the site hands that over.
    pub site: ForSites,
}

/// Whether a person has to agree, and where that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval(pub ApprovalPolicy, pub Place);

/// So many seconds, and where they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seconds(pub u64, pub Place);

/// How often a device asks the host where nothing sets it, in seconds.
pub(super) const POLL: u64 = 15;

/// How often to report where nothing sets it, in seconds.
pub(super) const REPORT: u64 = 300;

/// Keys that later versions will understand; until then they are refused by name.
const UNBUILT: &[&str] = &["jitter", "period", "applyWindows", "prefetchWindows", "downtime", "massRemoval"];

pub(super) fn read(field: Field<'_>) -> Option<Policy> {
    field.mapping(|reader: &mut Reader<'_>| {
        let (poll, report) = (reader.optional("poll", seconds), reader.optional("report", seconds));
        let (on_failure, stabilise) = (reader.optional("onFailure", on_failure), reader.optional("stabilise", seconds));
        let (drift, drift_ignore) = (reader.optional("drift", drift), reader.optional("driftIgnore", drift_ignore));
        let windows = reader.optional("windows", windows::read);
        let approval = reader.optional("approval", approval);
        let site = reader.optional("site", site::read).unwrap_or_default();
        refuse_unbuilt(reader, UNBUILT);
        Some(Policy { poll, report, on_failure, stabilise, drift, drift_ignore, windows, approval, site })
    })
}

pub(super) fn approval(field: Field<'_>) -> Option<Approval> {
    let place = Place::of(&field);
    let words: Vec<_> = ApprovalPolicy::TABLE.iter().map(|(word, _)| (word.as_str(), *word)).collect();
    Some(Approval(field.choice(&words)?, place))
}

pub(super) fn seconds(field: Field<'_>) -> Option<Seconds> {
    let place = Place::of(&field);
    Some(Seconds(duration::read(field)?, place))
}

pub(super) fn on_failure(field: Field<'_>) -> Option<(OnFailure, Place)> {
    word(&field, OnFailure::parse, OnFailure::TABLE.iter().map(|(word, _)| word.as_str()))
}

pub(super) fn drift(field: Field<'_>) -> Option<(DriftPolicy, Place)> {
    word(&field, DriftPolicy::parse, DriftPolicy::TABLE.iter().map(|(word, _)| word.as_str()))
}

/// The most entries of one list.
const IGNORED: usize = 100;

pub(super) fn drift_ignore(field: Field<'_>) -> Option<(Vec<IgnoredDrift>, Place)> {
    let (place, whole) = (Place::of(&field), field.clone());
    let all = field.list(|field| {
        field.mapping(|reader: &mut Reader<'_>| {
            let (kind, name) = (reader.required("kind", some_text), reader.optional("name", some_text));
            let pointer = reader.required("pointer", |field| {
                let text = field.clone().string()?;
                match ObjectPointer::try_from(text.clone()) {
                    Ok(pointer) => Some(pointer),
                    Err(why) => field.fail(format!("`{text}` {why}")),
                }
            });
            Some(IgnoredDrift { kind: kind?, name, pointer: pointer? })
        })
    })?;
    if all.len() > IGNORED {
        return whole.fail(format!("lists {} parts, and {IGNORED} at most", all.len()));
    }
    Some((all, place))
}

/// A text that isn't empty.
fn some_text(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    if text.is_empty() { field.fail("is empty") } else { Some(text) }
}

fn word<T>(
    field: &Field<'_>,
    parse: fn(&str) -> Option<T>,
    words: impl Iterator<Item = &'static str>,
) -> Option<(T, Place)> {
    let text = field.clone().string()?;
    let fail = || field.fail(format!("`{text}` is none of `{}`", words.collect::<Vec<_>>().join("`, `")));
    Some((parse(&text).or_else(fail)?, Place::of(field)))
}
