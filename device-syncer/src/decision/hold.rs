//! Holds: a site's own word that nothing is changed, of the whole device or of one deployment.

use jiff::Timestamp;
use repo_model::{DeploymentId, DeploymentName};
use serde::{Deserialize, Serialize};

use super::failure::one_line;

/// What holds, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Hold {
    /// A person at the device said so.
    Person(HoldByPerson),
    /// A file is there, which `gates.hold` of `device.yaml` names, or what persons said can't be read: all is held.
    File {
        file: String,
        /// A sentence that names the file.
        why: String,
    },
}

/// What a person said by `device-syncer hold`; an entry of `hold.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HoldByPerson {
    /// The operator's id of the deployment; the whole device without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentName>,
    /// Margo's `deploymentId` of it, where it was known: what runs of it may still be there when nothing names it any
    /// more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<DeploymentId>,
    pub by: String,
    pub why: String,
    pub since: Timestamp,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What is at work of it is ended, instead of coming to its end.
    #[serde(default, skip_serializing_if = "is_false")]
    pub now: bool,
}

/// When a hold ends by a clock that nobody can set: by how long the device has been up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Timer {
    /// The boot during which it was said.
    pub boot_id: String,
    /// So many seconds after that boot.
    pub ends: u64,
    /// Whether somebody vouched for the wall clock then: else that doesn't end it after a reboot either.
    pub is_vouched_for: bool,
}

/// The clocks of a device at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clocks {
    /// What the wall clock shows.
    pub now: Timestamp,
    /// Whether somebody vouches for that.
    pub is_vouched_for: bool,
    /// This boot, and the seconds since it; `None` where that isn't known.
    pub boot: Option<(String, u64)>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Hold {
    /// Whether it holds what belongs to this deployment, as far as that is known.
    pub fn is_of(&self, id: Option<DeploymentId>, name: Option<&DeploymentName>) -> bool {
        match self {
            Self::Person(hold) => hold.is_of(id, name),
            Self::File { .. } => true,
        }
    }

    /// Who, why and since when, in words that may be signed and shown.
    pub fn message(&self) -> String {
        match self {
            Self::File { why, .. } => one_line(why),
            Self::Person(HoldByPerson { by, why, since, until, .. }) => {
                let until = until.map(|until| format!(" until {until:.0}")).unwrap_or_default();
                one_line(&format!("by {by} since {since:.0}{until}: {why}"))
            }
        }
    }

    /// When it ends by itself.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Person(hold) => hold.until,
            Self::File { .. } => None,
        }
    }
}

impl HoldByPerson {
    /// Whether it holds what belongs to this deployment, as far as that is known.
    pub fn is_of(&self, id: Option<DeploymentId>, name: Option<&DeploymentName>) -> bool {
        let Some(held) = &self.deployment else { return true };
        name == Some(held) || (self.id.is_some() && self.id == id)
    }

    /// Whether it has ended by itself: during the boot in which it was said after the time that was said, whatever is done to
    /// the wall clock; after that when the wall clock says so and somebody vouches for it, then and now.
    pub fn has_ended(&self, timer: Option<&Timer>, clocks: &Clocks) -> bool {
        let Some(until) = self.until else { return false };
        match (timer, &clocks.boot) {
            (Some(timer), Some((boot_id, at))) if timer.boot_id == *boot_id => timer.ends <= *at,
            (Some(timer), _) if !timer.is_vouched_for => false,
            _ => clocks.is_vouched_for && until <= clocks.now,
        }
    }
}

#[cfg(test)]
mod tests {
    use repo_model::text;

    use super::*;
    use crate::decision::failure::LINE;

    fn by_person(by: &str, why: &str) -> HoldByPerson {
        let since = "2026-11-23T15:00:00.5Z".parse().unwrap();
        let (by, why) = (by.to_owned(), why.to_owned());
        HoldByPerson { deployment: None, id: None, by, why, since, until: None, now: false }
    }

    #[test]
    fn a_hold_says_who_why_since_when_and_until_when() {
        let hold = by_person("j.doe", "line 2 is filling");
        assert_eq!(Hold::Person(hold.clone()).message(), "by j.doe since 2026-11-23T15:00:00Z: line 2 is filling");
        let until = Some("2026-11-23T23:00:00Z".parse().unwrap());
        let said = Hold::Person(HoldByPerson { until, ..hold }).message();
        assert_eq!(said, "by j.doe since 2026-11-23T15:00:00Z until 2026-11-23T23:00:00Z: line 2 is filling");
    }

    #[test]
    fn whatever_somebody_wrote_is_one_visible_line_of_200_characters() {
        for text in ["é".repeat(5000), "\u{1b}[2J\n".repeat(400), "\u{202e}".repeat(3000)] {
            let file = Hold::File { file: "/run/busy".to_owned(), why: text.clone() };
            for said in [Hold::Person(by_person(&text, &text)).message(), file.message()] {
                assert!(said.chars().count() <= LINE, "{said}");
                assert_eq!(text::line(&said), said);
                assert!(said.ends_with('…'), "{said}");
            }
        }
    }

    #[test]
    fn a_hold_of_a_deployment_holds_that_one_by_its_name_or_its_id() {
        let id = |name: &str| crate::testing::id(name);
        let of = |deployment: Option<&str>, known: Option<DeploymentId>| {
            let deployment = deployment.map(|name| name.parse().unwrap());
            Hold::Person(HoldByPerson { deployment, id: known, ..by_person("a", "b") })
        };
        let name: DeploymentName = "a".parse().unwrap();
        for (hold, given, holds) in [
            (of(None, None), (None, None), true),
            (of(Some("a"), None), (Some(id("a")), Some(&name)), true),
            (of(Some("a"), None), (Some(id("a")), None), false),
            (of(Some("a"), Some(id("a"))), (Some(id("a")), None), true),
            (of(Some("b"), Some(id("b"))), (Some(id("a")), Some(&name)), false),
            (of(Some("b"), None), (None, None), false),
        ] {
            assert_eq!(hold.is_of(given.0, given.1), holds, "{hold:?} {given:?}");
        }
    }

    #[test]
    fn a_hold_ends_when_it_says() {
        let until: Timestamp = "2026-11-23T23:00:00Z".parse().unwrap();
        let hold = HoldByPerson { until: Some(until), ..by_person("a", "b") };
        let second = jiff::SignedDuration::from_secs(1);
        let at = |now| Clocks { now, is_vouched_for: true, boot: None };
        let has_ended = |now| hold.has_ended(None, &at(now));
        assert!(!has_ended(until - second) && has_ended(until) && has_ended(until + second));
        assert!(!by_person("a", "b").has_ended(None, &at(Timestamp::MAX)));
        assert!(!hold.has_ended(None, &Clocks { is_vouched_for: false, ..at(Timestamp::MAX) }));
    }

    #[test]
    fn a_hold_lasts_as_long_as_was_said_whatever_becomes_of_the_wall_clock() {
        let until: Timestamp = "1970-01-01T09:00:00Z".parse().unwrap();
        let hold = HoldByPerson { until: Some(until), ..by_person("a", "b") };
        let timer = |is_vouched_for| Timer { boot_id: "first".to_owned(), ends: 30_000, is_vouched_for };
        let (early, late): (Timestamp, Timestamp) = (Timestamp::UNIX_EPOCH, "2026-11-23T15:00:00Z".parse().unwrap());
        for (was_vouched_for, now, is_vouched_for, boot, expected) in [
            (false, late, true, Some(("first", 29_999)), false),
            (true, late, true, Some(("first", 29_999)), false),
            (false, early, false, Some(("first", 30_000)), true),
            (true, early, true, Some(("first", 30_000)), true),
            (false, late, true, Some(("second", 40_000)), false),
            (true, late, true, Some(("second", 1)), true),
            (true, late, false, Some(("second", 40_000)), false),
            (true, early, true, Some(("second", 40_000)), false),
            (true, late, true, None, true),
        ] {
            let boot = boot.map(|(id, at)| (id.to_owned(), at));
            let clocks = Clocks { now, is_vouched_for, boot };
            assert_eq!(
                hold.has_ended(Some(&timer(was_vouched_for)), &clocks),
                expected,
                "{was_vouched_for} {clocks:?}"
            );
        }
    }
}
