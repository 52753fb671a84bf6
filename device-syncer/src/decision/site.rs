//! What persons of the site said from elsewhere: the lists of the branch `site` that this device believed, and what of them
//! counts now.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::clock::SKEW;
use repo_model::report::SeenList;
use repo_model::site::{LIFE, MAX_WORDS, SiteList, SiteWord};
use repo_model::{Digest, KeyText};
use serde::{Deserialize, Serialize};

use super::approval::{ChangeSet, Review, SiteSaid, SiteWords};

/// A key of the site's, as `gates.approval.keys` of `device.yaml` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteKey {
    /// Whose it is: shown with whatever it signed.
    pub name: String,
    pub key: KeyText,
}

/// What is known of the site's lists; the content of `site.json` in the home.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownLists {
    /// The newest list of each key. A serial counts for as long as its key is listed: so a key that was stolen, and signed
    /// the highest serial there is, locks nobody out once it is taken off.
    bounds: BTreeMap<KeyText, Bound>,
    /// The list that was believed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newest: Option<Believed>,
    /// Changes that it approves and of which something may have gone already, as they were before that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    begun: Vec<ChangeSet>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bound {
    serial: u64,
    /// SHA-256 of that `site.json`.
    digest: Digest,
}

/// A list, as it was believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Believed {
    /// The commit on `site`, 40 hex digits.
    pub commit: String,
    /// The key of the site that signed it.
    pub key: KeyText,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    pub list: SiteList,
}

impl KnownLists {
    /// The highest serial that a key signed which is listed, with the digest of that list.
    pub fn bound(&self, keys: &[SiteKey]) -> Option<(u64, Digest)> {
        let listed = keys.iter().filter_map(|one| self.bounds.get(&one.key));
        listed.max_by_key(|bound| bound.serial).map(|Bound { serial, digest }| (*serial, *digest))
    }

    /// Whether this commit was believed last, and its signer is listed still.
    pub fn is_newest(&self, commit: &str, keys: &[SiteKey]) -> bool {
        self.newest(keys).is_some_and(|(newest, _)| newest.commit == commit)
    }

    /// Takes a list over that is believed, in place of the one before.
    pub fn believe(&mut self, believed: Believed) {
        let bound = Bound { serial: believed.list.serial, digest: believed.digest };
        self.bounds.insert(believed.key.clone(), bound);
        self.begun.retain(|change| approves(&believed.list, change));
        self.newest = Some(believed);
    }

    /// Notes what a change is, before anything of it goes; whether that is new.
    pub fn begin(&mut self, change: &ChangeSet) -> bool {
        let is_approved = self.newest.as_ref().is_some_and(|newest| approves(&newest.list, change));
        let is_new = is_approved && !change.going.is_empty() && !self.begun.contains(change);
        if is_new {
            self.begun.push(change.clone());
            self.begun.drain(..self.begun.len().saturating_sub(MAX_WORDS));
        }
        is_new
    }

    /// What `syncer.json` tells of the list that was believed last.
    pub fn seen(&self, keys: &[SiteKey]) -> Option<SeenList> {
        let (Believed { commit, list, .. }, key) = self.newest(keys)?;
        Some(SeenList { serial: list.serial, commit: commit.clone(), expires: list.expires, key: key.name.clone() })
    }

    /// What counts of it now. Where the device's clock shows less than what was proven to it, the list may be over already:
    /// nothing of it counts as approved then, and what is rejected is.
    pub fn words(&self, keys: &[SiteKey], now: Timestamp, clock_is_behind: bool) -> SiteWords {
        let Some((Believed { list, .. }, key)) = self.newest(keys).filter(|(newest, _)| newest.counts(now)) else {
            return SiteWords::default();
        };
        let said = |review, word: &SiteWord| SiteSaid {
            review,
            word: word.clone(),
            begun: self.begun.iter().find(|change| change.digest() == word.set).cloned(),
            key: key.name.clone(),
            serial: list.serial,
        };
        let approved = list.approvals.iter().filter(|_| !clock_is_behind).map(|word| said(Review::Approved, word));
        let words = list.rejected.iter().map(|word| said(Review::Rejected, word)).chain(approved).collect();
        let doubted = list.approvals.iter().filter(|_| clock_is_behind).map(|word| word.set).collect();
        SiteWords { words, doubted }
    }

    /// The list that was believed last, and its key, if that is listed still.
    fn newest<'a>(&'a self, keys: &'a [SiteKey]) -> Option<(&'a Believed, &'a SiteKey)> {
        let newest = self.newest.as_ref()?;
        Some((newest, keys.iter().find(|one| one.key == newest.key)?))
    }
}

/// Whether a list approves just this change.
fn approves(list: &SiteList, change: &ChangeSet) -> bool {
    let set = change.digest();
    list.approvals.iter().any(|word| word.set == set)
}

impl Believed {
    /// Whether it counts at this moment by the device's clock.
    fn counts(&self, now: Timestamp) -> bool {
        let left = self.list.expires.duration_since(now);
        left.is_positive() && left <= LIFE + SKEW
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use repo_model::site::SiteWord;
    use repo_model::{Digest, json};

    use super::*;
    use crate::decision::approval::{Approvals, AskedFor, FleetAsks, Said, Word};
    use crate::decision::pattern::Pattern;
    use crate::testing::{id, wanted};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn now() -> Timestamp {
        at("2026-11-21T12:00:00Z")
    }

    fn key(name: &str) -> SiteKey {
        let key = format!("ssh-ed25519 AAAA{}", name.replace('.', "")).parse().unwrap();
        SiteKey { name: name.to_owned(), key }
    }

    fn change(greeting: &str, going: &[&str]) -> ChangeSet {
        let going = going.iter().map(|one| (*one).to_owned()).collect();
        ChangeSet { going, ..ChangeSet::of(&wanted("a", &[("x", greeting)])) }
    }

    fn list(serial: u64, approved: &[&ChangeSet], rejected: &[&ChangeSet]) -> SiteList {
        let word =
            |change: &&ChangeSet| SiteWord { set: change.digest(), by: "J. Doe".to_owned(), why: "x".to_owned() };
        SiteList {
            layout: 1,
            fleet: crate::testing::fleet(),
            device: "press-01".parse().unwrap(),
            serial,
            expires: at("2026-11-28T12:00:00Z"),
            approvals: approved.iter().map(word).collect(),
            rejected: rejected.iter().map(word).collect(),
        }
    }

    fn believed(by: &str, list: SiteList) -> Believed {
        let digest = Digest::of(&json::to_bytes(&list));
        Believed { commit: list.serial.to_string(), key: key(by).key, digest, list }
    }

    fn known(lists: &[(&str, SiteList)]) -> KnownLists {
        let mut known = KnownLists::default();
        lists.iter().for_each(|(by, list)| known.believe(believed(by, list.clone())));
        known
    }

    fn review(words: &SiteWords, change: &ChangeSet) -> Option<Review> {
        words.word(change).map(|said| said.review)
    }

    #[test]
    fn a_serial_and_a_word_count_for_as_long_as_their_key_is_listed() {
        let (one, none) = (change("1", &[]), list(4, &[], &[]));
        let known = known(&[("j.doe", none), ("a.roe", list(9, &[&one], &[]))]);
        let bound = |names: &[&str]| {
            let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
            known.bound(&keys).map(|(serial, _)| serial)
        };
        for (listed, expected) in
            [(&["j.doe", "a.roe"][..], Some(9)), (&["a.roe"], Some(9)), (&["j.doe"], Some(4)), (&["other"], None)]
        {
            assert_eq!(bound(listed), expected, "{listed:?}");
        }
        let both = [key("j.doe"), key("a.roe")];
        assert_eq!(review(&known.words(&both, now(), false), &one), Some(Review::Approved));
        assert_eq!(known.seen(&both).unwrap().key, "a.roe");
        assert_eq!(known.words(&both[..1], now(), false), SiteWords::default());
        assert_eq!(known.seen(&both[..1]), None);
        assert!(known.is_newest("9", &both) && !known.is_newest("4", &both) && !known.is_newest("9", &both[..1]));
    }

    #[test]
    fn a_list_counts_in_its_days_and_where_the_clock_is_doubted_only_what_it_rejects_does() {
        let (yes, no) = (change("1", &[]), change("2", &[]));
        let (known, keys) = (known(&[("j.doe", list(1, &[&yes], &[&no]))]), [key("j.doe")]);
        for (moment, expected) in [
            ("2026-11-21T12:00:00Z", Some(Review::Approved)),
            ("2026-11-28T11:59:59Z", Some(Review::Approved)),
            ("2026-11-28T12:00:00Z", None),
            ("2026-11-13T11:59:59Z", None),
            ("1970-01-01T00:00:00Z", None),
        ] {
            assert_eq!(review(&known.words(&keys, at(moment), false), &yes), expected, "{moment}");
        }
        let behind = known.words(&keys, now(), true);
        assert_eq!((review(&behind, &yes), review(&behind, &no)), (None, Some(Review::Rejected)));
        assert!(behind.is_doubted(&yes) && !behind.is_doubted(&no));
    }

    #[test]
    fn what_was_approved_stays_so_while_parts_of_it_go_until_it_is_left_out() {
        let (all, left) = (change("1", &["old", "older"]), change("1", &["older"]));
        let (mut known, keys) = (known(&[("j.doe", list(1, &[&all], &[]))]), [key("j.doe")]);
        assert_eq!(review(&known.words(&keys, now(), false), &left), None);
        assert!(!known.begin(&left), "not what was approved");
        assert!(known.begin(&all) && !known.begin(&all));
        let json = serde_json::to_string(&known).unwrap();
        let mut known: KnownLists = serde_json::from_str(&json).unwrap();
        assert_eq!(review(&known.words(&keys, now(), false), &left), Some(Review::Approved));
        let more = change("1", &["old", "oldest"]);
        assert_eq!(review(&known.words(&keys, now(), false), &more), None);
        known.believe(believed("j.doe", list(2, &[], &[])));
        assert_eq!(review(&known.words(&keys, now(), false), &left), None);
        assert_eq!(known.begun, []);
    }

    #[test]
    fn a_rejection_counts_before_an_approval_wherever_each_was_said() {
        let one = change("1", &[]);
        let word =
            |review| Word { review, change: one.clone(), by: "a.roe".to_owned(), why: "y".to_owned(), at: now() };
        let here = [Vec::new(), vec![word(Review::Approved)], vec![word(Review::Rejected)]];
        let elsewhere = [list(1, &[], &[]), list(1, &[&one], &[]), list(1, &[], &[&one]), list(1, &[&one], &[&one])];
        let approved = [[false, true, false, false], [true, true, false, false], [false; 4]];
        for (words, expected) in here.iter().zip(approved) {
            for (list, expected) in elsewhere.iter().zip(expected) {
                let site = known(&[("j.doe", list.clone())]).words(&[key("j.doe")], now(), false);
                let names = vec![Pattern::try_from("*".to_owned()).unwrap()];
                let asked_for = AskedFor { names, except: Vec::new() };
                let (names, fleet_asks) = (Default::default(), FleetAsks::default());
                let all = Approvals { asked_for, names, fleet_asks, words: Ok(words.clone()), site: Ok(site) };
                let name = "a".parse().unwrap();
                assert_eq!(all.why_closed(Some(&name), &one).is_none(), expected, "{words:?} {list:?}");
                let unknown = Approvals { site: Err("`site.json` is none".to_owned()), ..all.clone() };
                assert!(unknown.why_closed(Some(&name), &one).is_some());
                let rejected = |said: Said<'_>| said.review() == Review::Rejected;
                let by = all.waits(Some(&name), &one).and_then(|waits| waits.rejected).filter(|said| rejected(*said));
                assert_eq!(
                    by.is_some(),
                    words.iter().any(|one| one.review == Review::Rejected) || !list.rejected.is_empty()
                );
            }
        }
    }

    #[test]
    fn a_change_has_the_name_that_the_vectors_for_other_implementations_give_it() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../../fixtures/vectors/site.json")).unwrap();
        let read: ChangeSet = serde_json::from_value(vectors["change"].clone()).unwrap();
        assert_eq!(serde_json::json!(read.digest()), vectors["set"]);
        let components = BTreeMap::from([("x".parse().unwrap(), None)]);
        let with_none = ChangeSet { deployment: id("a"), components, going: BTreeSet::from(["b".into(), "a".into()]) };
        let text = format!("{{\"components\":{{\"x\":null}},\"deployment\":\"{}\",\"going\":[\"a\",\"b\"]}}", id("a"));
        assert_eq!(with_none.digest(), Digest::of(text.as_bytes()));
    }
}
