//! Approval: a person's word for just what a change of a deployment comes to, and for nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use repo_model::desired::Desired;
use repo_model::envelope::ApprovalPolicy;
use repo_model::site::SiteWord;
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest, IntoMap, json};
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
        let components = wanted.components.iter().map(|one| (one.name.clone(), digest(&one.input))).into_map();
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
    pub(super) fn covers(&self, other: &Self) -> bool {
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedFor {
    /// Patterns of operators' ids.
    pub names: Vec<Pattern>,
    /// Those that aren't asked for all the same.
    pub except: Vec<Pattern>,
}

impl AskedFor {
    /// Whether a change of it is asked for. What nobody knows the name of is.
    pub fn means(&self, name: Option<&DeploymentName>) -> bool {
        let Some(name) = name else { return !self.names.is_empty() };
        let is_among = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.means(name.as_str()));
        is_among(&self.names) && !is_among(&self.except)
    }
}

/// The names under which this device knows what it has, by deployment. The fleet may call it anything else now, and a site's word
/// counts for what it was about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNames(pub BTreeMap<DeploymentId, BTreeSet<DeploymentName>>);

impl KnownNames {
    fn of(&self, deployment: DeploymentId) -> impl Iterator<Item = &DeploymentName> {
        self.0.get(&deployment).into_iter().flatten()
    }

    /// This name, and all others of what is known by it or wanted as that.
    pub(super) fn with<'a>(
        &'a self,
        name: &'a DeploymentName,
        desired: &'a Desired,
    ) -> impl Iterator<Item = &'a DeploymentName> {
        let is_wanted = |id: &DeploymentId| desired.envelope.deployments.get(id).is_some_and(|one| one.id == *name);
        let is_of = move |(id, names): &(&DeploymentId, &BTreeSet<_>)| names.contains(name) || is_wanted(id);
        self.0.iter().filter(is_of).flat_map(|(_, names)| names).chain([name])
    }
}

/// For whose changes a person is asked, and what persons said so far.
#[derive(Debug, Clone)]
pub struct Approvals {
    /// What the site asks for.
    pub asked_for: AskedFor,
    /// What it asks for goes by these names, too.
    pub names: KnownNames,
    /// What the fleet asks for besides.
    pub fleet_asks: FleetAsks,
    /// One word of each deployment at most, said at the device; an error where it can't be read what they said.
    pub words: Result<Vec<Word>, String>,
    /// What was said from elsewhere; an error likewise.
    pub site: Result<SiteWords, String>,
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
        let own = own.filter_map(|(id, one)| Some((*id, asks(one.policy.approval?)))).into_map();
        Self { device: desired.envelope.policy.approval.is_some_and(asks), own }
    }

    /// Whether a change of it is asked for.
    fn means(&self, deployment: DeploymentId) -> bool {
        self.own.get(&deployment).copied().unwrap_or(self.device)
    }

    /// Whether it asks for anything.
    pub fn is_any(&self) -> bool {
        self.device || self.own.values().any(|asks| *asks)
    }
}

impl Approvals {
    /// Whether a person is asked for changes of this deployment.
    pub fn means(&self, name: Option<&DeploymentName>, deployment: DeploymentId) -> bool {
        self.asked_for.means(name) || self.meant_as(deployment).is_some() || self.fleet_asks.means(deployment)
    }

    /// The name under which this device knows it, and under which the site asks for it.
    fn meant_as(&self, deployment: DeploymentId) -> Option<&DeploymentName> {
        self.names.of(deployment).find(|name| self.asked_for.means(Some(name)))
    }

    /// What counts of what persons said of this very change. What somebody rejected is rejected, whoever approved it; an
    /// approval counts only where it is known that nobody did.
    pub fn said(&self, change: &ChangeSet) -> Result<Option<Said<'_>>, &String> {
        let here = self.words.iter().flatten().find(|word| word.change.covers(change)).map(Said::Here);
        let elsewhere = self.site.as_ref().ok().and_then(|site| site.word(change)).map(Said::Elsewhere);
        let mut all = [here, elsewhere].into_iter().flatten();
        if let Some(rejected) = all.clone().find(|said| said.review() == Review::Rejected) {
            return Ok(Some(rejected));
        }
        let (_, _) = (self.words.as_ref()?, self.site.as_ref()?);
        Ok(all.next())
    }

    /// What waits of it for a person, if anything does.
    pub fn waits<'a>(&'a self, name: Option<&DeploymentName>, change: &ChangeSet) -> Option<Waits<'a>> {
        if !self.means(name, change.deployment) {
            return None;
        }
        match self.said(change) {
            Ok(Some(said)) if said.review() == Review::Approved => None,
            Ok(said) => Some(Waits { set: change.digest(), rejected: said }),
            Err(_) => Some(Waits { set: change.digest(), rejected: None }),
        }
    }

    /// Why this change waits, if it does.
    pub fn why_closed(&self, name: Option<&DeploymentName>, change: &ChangeSet) -> Option<String> {
        let waits = self.waits(name, change)?;
        let of = name.map_or_else(|| change.deployment.to_string(), ToString::to_string);
        Some(match (waits.rejected, self.said(change)) {
            (Some(said), _) => said.message(change),
            (None, Err(error)) => format!("nothing counts as approved, because {error}"),
            (None, Ok(_)) if self.site.as_ref().is_ok_and(|site| site.is_doubted(change)) => {
                let short = change.short();
                format!(
                    "change {short} is in the site's list, which may be over: this device's clock shows less than was proven"
                )
            }
            (None, Ok(_)) => {
                let as_known = self.meant_as(change.deployment).filter(|_| !self.asked_for.means(name));
                let as_known = as_known.map(|known| format!(" (here it is `{known}`)")).unwrap_or_default();
                format!("change {} waits for a person: `device-syncer approve {of}` shows it{as_known}", change.short())
            }
        })
    }
}

/// A change that waits for a person.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waits<'a> {
    /// The digest of the deployment's set, which a person's word is bound to.
    pub set: Digest,
    /// Who rejected it, if anybody did.
    pub rejected: Option<Said<'a>>,
}

/// A person's word, wherever it was said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Said<'a> {
    /// By a command at the device.
    Here(&'a Word),
    /// In the site's list.
    Elsewhere(&'a SiteSaid),
}

impl Said<'_> {
    pub fn review(&self) -> Review {
        match self {
            Self::Here(word) => word.review,
            Self::Elsewhere(said) => said.review,
        }
    }

    /// Who said it; by which key, if it was said elsewhere.
    pub fn by(&self) -> String {
        match self {
            Self::Here(word) => one_line(&word.by),
            Self::Elsewhere(said) => said.by(),
        }
    }

    /// Who said it, and why, in words that may be signed and shown.
    pub fn message(&self, change: &ChangeSet) -> String {
        match self {
            Self::Here(word) => word.message(),
            Self::Elsewhere(said) => said.message(change),
        }
    }
}

/// A word of the site's list that counts now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteSaid {
    pub review: Review,
    pub word: SiteWord,
    /// The change as it was before something of it went, where that is known.
    pub(super) begun: Option<ChangeSet>,
    /// The name of the key that signed it.
    pub key: String,
    /// The serial of the list.
    pub(super) serial: u64,
}

/// What of the site's list counts now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteWords {
    pub(super) words: Vec<SiteSaid>,
    /// What would be approved, were this device's clock not behind what was proven to it.
    pub(super) doubted: Vec<Digest>,
}

impl SiteWords {
    /// What was said of this very change; a rejection before an approval.
    pub fn word(&self, change: &ChangeSet) -> Option<&SiteSaid> {
        let set = change.digest();
        let is_of =
            |said: &&SiteSaid| said.word.set == set || said.begun.as_ref().is_some_and(|begun| begun.covers(change));
        self.words.iter().find(is_of)
    }

    /// Whether it would be approved, were the device's clock believed.
    pub fn is_doubted(&self, change: &ChangeSet) -> bool {
        self.doubted.contains(&change.digest())
    }
}

impl SiteSaid {
    /// Who said it, and by whose key.
    pub fn by(&self) -> String {
        one_line(&format!("{} (key of {})", self.word.by, self.key))
    }

    /// Who said it, by which list, and why, in words that may be signed and shown.
    pub fn message(&self, change: &ChangeSet) -> String {
        let Self { review, word, key, serial, .. } = self;
        let short = change.short();
        let SiteWord { by, why, .. } = word;
        one_line(&format!(
            "change {short} was {review} by {by} in the site's list {serial}, with the key of {key}: {why}"
        ))
    }
}

impl fmt::Display for Review {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        })
    }
}

impl Word {
    /// Who said it, when and why, in words that may be signed and shown.
    pub fn message(&self) -> String {
        let Self { review, change, by, why, at } = self;
        one_line(&format!("change {} was {review} by {by} at {at:.0}: {why}", change.short()))
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
        let (fleet_asks, names) = (FleetAsks::default(), KnownNames::default());
        Approvals { asked_for, names, fleet_asks, words: Ok(words), site: Ok(SiteWords::default()) }
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
    fn what_is_known_here_under_a_name_that_is_asked_for_is_asked_for_whatever_the_fleet_calls_it_now() {
        let names = |all: &[&str]| all.iter().map(|one| one.parse::<DeploymentName>().unwrap()).collect();
        let known = |all: &[&str]| KnownNames([(id("a"), names(all))].into());
        let why = |known: KnownNames, now: &str| {
            let approvals = Approvals { names: known, ..asked(&["*"], &["metrics*"], Vec::new()) };
            approvals.why_closed(Some(&now.parse().unwrap()), &change(&[("x", "1")], &[]))
        };
        assert_eq!(why(KnownNames::default(), "metrics-x"), None, "it is new");
        assert_eq!(why(known(&["metrics-1"]), "metrics-x"), None);
        let renamed = why(known(&["greeter"]), "metrics-x").unwrap();
        assert!(renamed.ends_with("`device-syncer approve metrics-x` shows it (here it is `greeter`)"), "{renamed}");
        assert!(why(known(&["metrics-1"]), "greeter").is_some());
        assert!(why(known(&["metrics-1", "greeter"]), "metrics-1").is_some());
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
