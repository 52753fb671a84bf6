//! Approval: a person's word for just what a change of a deployment comes to, and for nothing else.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::desired::Desired;
use repo_model::envelope::ApprovalPolicy;
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest, json};
use serde::{Deserialize, Serialize};

use super::deployment::DesiredDeployment;
use super::failure::one_line;
use super::pattern::Pattern;

/// What a change of a deployment comes to: what it will consist of, and what of it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeSet {
    pub deployment: DeploymentId,
    /// Each component's input digest; without one, this device can't run it as it is.
    pub components: BTreeMap<ComponentName, Option<Digest>>,
    /// What goes, under the names by which the runtimes know it.
    pub going: BTreeSet<String>,
}

impl ChangeSet {
    /// What it takes to make of a deployment what is wanted.
    pub fn of(wanted: &DesiredDeployment) -> Self {
        let digest = |input: &Result<super::component::Component, _>| input.as_ref().ok().map(|one| one.input_digest);
        let components = wanted.components.iter().map(|one| (one.name.clone(), digest(&one.input))).collect();
        Self { deployment: wanted.id, components, going: BTreeSet::new() }
    }

    /// A deployment goes as a whole; the caller fills in what that is.
    pub fn removal(deployment: DeploymentId) -> Self {
        Self { deployment, components: BTreeMap::new(), going: BTreeSet::new() }
    }

    /// Names it: SHA-256 over all of it, in one form.
    pub fn digest(&self) -> Digest {
        Digest::of(&json::canonical(self))
    }

    /// The beginning of its name, for people.
    pub fn short(&self) -> String {
        self.digest().hex()[..12].to_owned()
    }

    /// Whether who agreed to this agreed to `other`: the same, of which some may have gone already.
    fn covers(&self, other: &Self) -> bool {
        (self.deployment, &self.components) == (other.deployment, &other.components)
            && other.going.is_subset(&self.going)
    }
}

/// What a person at the device said of a change; an entry of `approvals.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Word {
    #[serde(rename = "said")]
    pub review: Review,
    pub change: ChangeSet,
    pub by: String,
    pub why: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Review {
    Approved,
    Rejected,
}

/// Which deployments are changed only after a person's word (`gates.approval` of `device.yaml`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedFor {
    /// Patterns of operators' ids.
    #[serde(rename = "for")]
    pub names: Vec<Pattern>,
    /// Those that aren't asked for all the same.
    #[serde(default)]
    pub except: Vec<Pattern>,
}

impl AskedFor {
    /// Each change.
    pub fn all() -> Self {
        Self { names: vec![Pattern::anything()], except: Vec::new() }
    }

    /// Whether a change of it is asked for. What nobody knows the name of is.
    pub fn means(&self, name: Option<&DeploymentName>) -> bool {
        let Some(name) = name else { return !self.names.is_empty() };
        let is_among = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.means(name.as_str()));
        is_among(&self.names) && !is_among(&self.except)
    }
}

/// The site's gate, with what persons said so far.
#[derive(Debug, Clone)]
pub struct Approvals {
    pub asked_for: AskedFor,
    /// One word of each deployment at most; an error where it can't be read what they said.
    pub words: Result<Vec<Word>, String>,
}

/// For whose changes the fleet wants a person's word (`policy.approval`), whatever the site does.
#[derive(Debug, Clone, Default)]
pub struct FleetAsks {
    /// Of whatever has no word of its own.
    device: bool,
    own: BTreeMap<DeploymentId, bool>,
}

impl FleetAsks {
    pub fn of(desired: Option<&Desired>) -> Self {
        let Some(desired) = desired else { return Self::default() };
        let asks = |word: ApprovalPolicy| word != ApprovalPolicy::None;
        let own = desired.envelope.deployments.iter();
        let own = own.filter_map(|(id, one)| Some((*id, asks(one.policy.approval?)))).collect();
        Self { device: desired.envelope.policy.approval.is_some_and(asks), own }
    }

    /// Whether a change of it is asked for.
    pub fn means(&self, deployment: Option<DeploymentId>) -> bool {
        deployment.and_then(|id| self.own.get(&id)).copied().unwrap_or(self.device)
    }

    /// Whether it asks for anything.
    pub fn is_any(&self) -> bool {
        self.device || self.own.values().any(|asks| *asks)
    }
}

impl Approvals {
    /// The same, where everybody is asked for.
    pub fn of_all(&self) -> Self {
        Self { asked_for: AskedFor::all(), words: self.words.clone() }
    }

    /// What persons said of this very change.
    fn word(&self, change: &ChangeSet) -> Option<&Word> {
        self.words.iter().flatten().find(|word| word.change.covers(change))
    }

    /// Why this change waits, if it does.
    pub fn why_closed(&self, name: Option<&DeploymentName>, change: &ChangeSet) -> Option<String> {
        let word = self.word(change);
        if !self.asked_for.means(name) || word.is_some_and(|word| word.review == Review::Approved) {
            return None;
        }
        let of = name.map_or_else(|| change.deployment.to_string(), ToString::to_string);
        Some(match (word, &self.words) {
            (Some(word), _) => word.message(),
            (None, Ok(_)) => {
                format!("change {} waits for a person: `device-syncer approve {of}` shows it", change.short())
            }
            (None, Err(error)) => format!("nothing counts as approved, because {error}"),
        })
    }
}

impl Word {
    /// Who said it, when and why, in words that may be signed and shown.
    pub fn message(&self) -> String {
        let Self { review, change, by, why, at } = self;
        let reviewed = match review {
            Review::Approved => "approved",
            Review::Rejected => "rejected",
        };
        one_line(&format!("change {} was {reviewed} by {by} at {at:.0}: {why}", change.short()))
    }
}

#[cfg(test)]
mod tests {
    use repo_model::text;

    use super::*;
    use crate::decision::failure::LINE;
    use crate::testing::{id, wanted};

    fn word(review: Review, change: ChangeSet) -> Word {
        let at = "2026-11-23T15:00:00Z".parse().unwrap();
        Word { review, change, by: "j.doe".to_owned(), why: "line 2 is idle".to_owned(), at }
    }

    fn asked(names: &[&str], except: &[&str], words: Vec<Word>) -> Approvals {
        let patterns = |all: &[&str]| all.iter().map(|one| Pattern::try_from((*one).to_owned()).unwrap()).collect();
        let asked_for = AskedFor { names: patterns(names), except: patterns(except) };
        Approvals { asked_for, words: Ok(words) }
    }

    fn change(parts: &[(&str, &str)], going: &[&str]) -> ChangeSet {
        let going = going.iter().map(|one| (*one).to_owned()).collect();
        ChangeSet { going, ..ChangeSet::of(&wanted("a", parts)) }
    }

    #[test]
    fn what_is_approved_is_just_the_set_that_was_shown() {
        let seen = || change(&[("x", "1"), ("y", "1")], &["old", "older"]);
        let name: DeploymentName = "a".parse().unwrap();
        let approvals = asked(&["*"], &[], vec![word(Review::Approved, seen())]);
        let waits = |other: &ChangeSet| approvals.why_closed(Some(&name), other).is_some();
        assert!(!waits(&seen()), "the same set in a newer revision keeps it");
        assert!(!waits(&change(&[("y", "1"), ("x", "1")], &["older"])), "one of them has gone already");
        for (what, other) in [
            ("another input", change(&[("x", "2"), ("y", "1")], &["old", "older"])),
            ("one component more", change(&[("x", "1"), ("y", "1"), ("z", "1")], &["old", "older"])),
            ("one component less", change(&[("x", "1")], &["old", "older"])),
            ("an input that can't be known", change(&[("x", "1"), ("y", "!x")], &["old", "older"])),
            ("more that goes", change(&[("x", "1"), ("y", "1")], &["old", "older", "oldest"])),
            ("another deployment", ChangeSet { deployment: id("b"), ..seen() }),
            ("all of it goes", ChangeSet { going: ["old".to_owned()].into(), ..ChangeSet::removal(id("a")) }),
        ] {
            assert!(waits(&other), "{what}");
            assert_ne!(other.digest(), seen().digest(), "{what}");
        }
    }

    #[test]
    fn who_is_asked_for_and_what_was_rejected_waits() {
        let seen = || change(&[("x", "1")], &[]);
        let name: DeploymentName = "line-2".parse().unwrap();
        let why = |approvals: &Approvals, name| approvals.why_closed(name, &seen());
        for (names, except, of_name, of_unknown) in [
            (&["*"][..], &[][..], true, true),
            (&["*"], &["line-*"], false, true),
            (&["line-*"], &["line-3"], true, true),
            (&["metrics"], &[], false, true),
            (&[], &[], false, false),
        ] {
            let approvals = asked(names, except, Vec::new());
            assert_eq!(why(&approvals, Some(&name)).is_some(), of_name, "{names:?} {except:?}");
            assert_eq!(why(&approvals, None).is_some(), of_unknown, "{names:?} {except:?}");
        }
        let short = seen().short();
        let open = asked(&["*"], &[], Vec::new());
        let words = format!("change {short} waits for a person: `device-syncer approve line-2` shows it");
        assert_eq!(why(&open, Some(&name)), Some(words));
        let rejected = asked(&["*"], &[], vec![word(Review::Rejected, seen())]);
        let words = format!("change {short} was rejected by j.doe at 2026-11-23T15:00:00Z: line 2 is idle");
        assert_eq!(why(&rejected, Some(&name)), Some(words));
        let unread = Approvals { words: Err("`approvals.json` is no JSON".to_owned()), ..open };
        let words = "nothing counts as approved, because `approvals.json` is no JSON";
        assert_eq!(why(&unread, Some(&name)).as_deref(), Some(words));
    }

    #[test]
    fn whatever_somebody_wrote_is_one_visible_line() {
        let word = Word {
            why: "\u{1b}[2J\n".repeat(100),
            by: "\u{202e}".repeat(100),
            ..word(Review::Rejected, change(&[], &[]))
        };
        assert_eq!(text::line(&word.message()), word.message());
        assert!(word.message().chars().count() <= LINE);
    }
}
