//! What a person has still to do for the fleet's keys.

use jiff::{SignedDuration, Timestamp};
use repo_git::SigningKey;
use repo_model::problem::Problem;

use crate::repos::{Home, Rosters, key_text};

/// How long before it the end of a key is reported.
const SOON: SignedDuration = SignedDuration::from_hours(90 * 24);

/// When devices adopt nothing more of what this home's publisher signs; `None`: never, or that isn't known.
pub fn key_ends(home: &Home, rosters: &Rosters) -> Option<Timestamp> {
    let key = key_text(SigningKey::load(&home.publisher_key()).ok()?.public())?;
    rosters.newest.roster.publishers.iter().find(|publisher| publisher.key == key)?.not_after
}

/// Warnings: the root key still lies beside the publisher's, or the publisher's ends soon.
pub fn reminders(home: &Home, rosters: &Rosters, now: Timestamp) -> Vec<Problem> {
    let root = home.root_key();
    let lies_here = root.exists().then(|| {
        let text = "the fleet's root key lies beside the publisher's: a thief has both, and could not be shut out";
        let hint = format!("take it off this machine, publishing doesn't need it: {}", moving(home));
        Problem::error(root.display().to_string(), text).warning().hint(hint)
    });
    let ends = key_ends(home, rosters).filter(|end| end.duration_since(now) < SOON).map(|end| {
        let text = format!("devices adopt nothing more that this key signs from {end} on{}", left(end, now));
        let hint =
            "renew it before: wfm-git-publisher trust propose --new-publisher; docs/drills/publisher-key.md says how";
        Problem::error(home.publisher_key().display().to_string(), text).warning().hint(hint)
    });
    lies_here.into_iter().chain(ends).collect()
}

/// How many days are left until then, with more weight on the last ones.
fn left(end: Timestamp, now: Timestamp) -> String {
    match end.duration_since(now).as_hours() / 24 {
        ..0 => ": it has ended".to_owned(),
        days @ 0..7 => format!(": only {days} days are left, and devices that are away for longer than that will wait"),
        days @ 7..30 => format!(": only {days} days are left"),
        days => format!(": {days} days are left"),
    }
}

/// The command that takes the root key off this machine.
pub fn moving(home: &Home) -> String {
    format!("wfm-git-publisher --home {} trust offline /media/YOUR-STICK", home.root().display())
}
