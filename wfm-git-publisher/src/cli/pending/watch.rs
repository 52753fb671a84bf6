//! `device pending --watch`: who comes to wait, and what becomes of those that did.

use std::collections::BTreeSet;

use jiff::Timestamp;
use repo_model::DeviceId;
use serde_json::{Value, json};
use wfm_git_host::enrolment::{Claims, Verdict, Waiting};

use super::{Seen, fingerprint, rows, shown, waiting};
use crate::cli::{OutputArgs, Place, pause, print, print_json_line};
use crate::error::Failure;
use crate::repos::Home;

/// What became of one that waited.
enum Settled<'a> {
    Approved(&'a DeviceId),
    Rejected,
    /// Its time was over, or its key asked anew.
    Over,
}

/// Shows what changes from now on, until it is interrupted.
pub(super) fn run(
    place: &Place,
    home: &Home,
    output: OutputArgs,
    (mut seen, mut told): (Seen, BTreeSet<String>),
) -> Result<u8, Failure> {
    let claims = Claims::new(home.enrolments());
    if output.is_json() {
        seen.undecided().for_each(|one| print_json_line(&came(&seen, one)));
    }
    loop {
        // What waits is here, wherever devices' repositories are.
        pause(place, true)?;
        let now = Timestamp::now();
        let listed = waiting(&claims, now, &mut told)?;
        if listed == seen.listed {
            continue;
        }
        let newer = Seen::of(place, home, listed, now)?;
        let is_new = |one: &&Waiting| found(&seen, one).is_none();
        let new: Vec<_> = newer.undecided().filter(is_new).collect();
        // Also who came and was settled between two looks.
        let settled = seen.undecided().chain(newer.listed.iter().filter(is_new));
        let settled: Vec<_> = settled.filter_map(|one| Some((one, newer.settled(one)?))).collect();
        if output.is_json() {
            settled.iter().for_each(|(one, how)| print_json_line(&how.json(one)));
            new.iter().for_each(|one| print_json_line(&came(&newer, one)));
        } else {
            let said: String = settled.iter().map(|(one, how)| how.said(one)).collect();
            let new = if new.is_empty() { String::new() } else { format!("\n{}", rows(&newer, &new)) };
            print(&format!("{said}{new}"));
        }
        seen = newer;
    }
}

fn found<'a>(seen: &'a Seen, one: &Waiting) -> Option<&'a Waiting> {
    seen.listed.iter().find(|other| other.request == one.request)
}

impl Seen {
    /// What has become of one that waited before; `None` while it does.
    fn settled(&self, one: &Waiting) -> Option<Settled<'_>> {
        match found(self, one).map(|one| &one.verdict) {
            Some(None) => None,
            Some(Some(Verdict::Approved { answer, .. })) => Some(Settled::Approved(&answer.device)),
            Some(Some(Verdict::Rejected { .. })) => Some(Settled::Rejected),
            None => Some(Settled::Over),
        }
    }
}

impl Settled<'_> {
    fn said(&self, Waiting { number, .. }: &Waiting) -> String {
        match self {
            Self::Approved(device) => format!("{number} is approved as {device}\n"),
            Self::Rejected => format!("{number} is rejected\n"),
            Self::Over => format!("{number} waits no longer\n"),
        }
    }

    fn json(&self, one: &Waiting) -> Value {
        let (event, device) = match self {
            Self::Approved(device) => ("approved", Some(device)),
            Self::Rejected => ("rejected", None),
            Self::Over => ("over", None),
        };
        json!({ "event": event, "number": one.number, "fingerprint": fingerprint(one), "device": device })
    }
}

/// One that waits, as it came.
fn came(seen: &Seen, one: &Waiting) -> Value {
    let mut shown = shown(seen, one);
    shown["event"] = "waiting".into();
    shown
}
