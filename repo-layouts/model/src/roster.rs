//! The trust roster: which publisher keys a device believes, followed version by version.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Digest, FileTree, FleetId, IntoMap, IntoSet, KeyText};

/// The namespace of a roster's detached signatures (`ssh-keygen -Y sign -n wfm-roster`).
pub const ROSTER_NAMESPACE: &str = "wfm-roster";

/// The most root keys and publishers that a roster may list.
const MAX_KEYS: usize = 64;

/// `trust/<n>.json`: whose signatures count from this version on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// 1 at first, and higher by one with each roster that the one before signs.
    pub version: u64,
    pub fleet: FleetId,
    /// When it was proposed. Absent in rosters of programs before 0.3, of which nobody asks [`check_own`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Timestamp>,
    /// How many of `roots` must sign the next version.
    pub threshold: usize,
    /// The keys that sign the next version.
    pub roots: Vec<KeyText>,
    /// The keys that sign `desired`, `bundle` and `freshness`.
    pub publishers: Vec<Publisher>,
    /// Where the host is and how it is known, in place of what join files say. Absent: as those say. Programs before 0.3 ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<RosterHost>,
}

/// What the roots say of the host: keys of a [join file](crate::join::Join) that count in place of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RosterHost {
    /// The URL of a device's repository, in which [`DEVICE`] stands for the device's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// PEM of the authorities, to one of which the host's certificate must chain: two of them while one replaces the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Public keys of the host, one of which it must show, as `<algorithm> <base64>`; over SSH only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<KeyText>,
}

/// Stands for the id of a device in the URL of a [`RosterHost`].
pub const DEVICE: &str = "{device}";

/// The longest URL and the most PEM of a [`RosterHost`], in bytes.
const MAX_URL: usize = 1024;
const MAX_CA: usize = 32 << 10;

/// A publisher key that the roots delegate to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Publisher {
    pub key: KeyText,
    /// From then on nothing more is adopted on its word; what was adopted stays so. Absent: no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
}

/// Why a roster, or the way from the pinned one to it, can't be believed. All are the code `trust-invalid`.
#[derive(Debug, thiserror::Error)]
pub enum RosterError {
    /// The tip doesn't hold the version that is pinned.
    #[error("`{0}` is missing")]
    Missing(String),
    /// The pinned version has other bytes in the tip.
    #[error("`{path}` is {found}, but {pinned} is pinned")]
    Replaced { path: String, pinned: Digest, found: Digest },
    /// The file is not a roster.
    #[error("`{path}` is not a roster")]
    Parse { path: String, source: serde_json::Error },
    /// The file contradicts its path, the fleet or itself.
    #[error("`{path}`: {problem}")]
    Invalid { path: String, problem: String },
    /// Too few of the previous version's roots signed it.
    #[error("`{path}` is signed by {found} of the roots of version {}, and needs {needed}", version - 1)]
    Signatures { path: String, version: u64, found: usize, needed: usize },
    /// Too few of its own roots signed it, so that nobody knows whether the next version can be signed.
    #[error("`{path}` is signed by {found} of its own roots, and needs {needed}")]
    Own { path: String, found: usize, needed: usize },
}

/// A roster together with the digest of its exact bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    pub roster: Roster,
    /// SHA-256 of the bytes that were signed.
    pub digest: Digest,
}

/// Says which key made a detached signature over bytes in the namespace [`ROSTER_NAMESPACE`], if it verifies at all.
pub type Signer<'a> = &'a dyn Fn(&[u8], &str) -> Option<KeyText>;

impl Trust {
    /// Reads a roster that is trusted as it is: pinned by a join file, or by the device state.
    pub fn pin(path: &str, bytes: &[u8], fleet: FleetId) -> Result<Self, RosterError> {
        let roster: Roster =
            crate::json::read(bytes).map_err(|source| RosterError::Parse { path: path.to_owned(), source })?;
        roster.check(fleet).map_err(|problem| RosterError::Invalid { path: path.to_owned(), problem })?;
        Ok(Self { roster, digest: Digest::of(bytes) })
    }

    /// Follows the rosters in the tree of `desired` from this one to the newest, each signed by the threshold of the
    /// one before.
    pub fn follow(&self, files: &FileTree, signer: Signer<'_>) -> Result<Self, RosterError> {
        let path = roster_path(self.roster.version);
        let pinned = files.get(&path).ok_or_else(|| RosterError::Missing(path.clone()))?;
        let found = Digest::of(pinned);
        if found != self.digest {
            return Err(RosterError::Replaced { path, pinned: self.digest, found });
        }
        let mut newest = self.clone();
        while let Some(bytes) = files.get(&roster_path(newest.roster.version + 1)) {
            newest = newest.next(bytes, files, signer)?;
        }
        match highest_version(files) {
            Some(highest) if highest > newest.roster.version => {
                Err(RosterError::Missing(roster_path(newest.roster.version + 1)))
            }
            _ => Ok(newest),
        }
    }

    fn next(&self, bytes: &[u8], files: &FileTree, signer: Signer<'_>) -> Result<Self, RosterError> {
        let version = self.roster.version + 1;
        let path = roster_path(version);
        let next = Self::pin(&path, bytes, self.roster.fleet)?;
        if next.roster.version != version {
            let problem = format!("`version` is {}, expected {version}", next.roster.version);
            return Err(RosterError::Invalid { path, problem });
        }
        let found = self.roster.signed(files, version, signature_path, signer).len();
        let needed = self.roster.threshold;
        if found < needed { Err(RosterError::Signatures { path, version, found, needed }) } else { Ok(next) }
    }

    /// Whether `key` may sign for the publisher at `now`.
    pub fn allows(&self, key: &KeyText, now: Timestamp) -> bool {
        self.roster
            .publishers
            .iter()
            .any(|publisher| publisher.key == *key && publisher.not_after.is_none_or(|end| now < end))
    }

    /// When a publisher's key ends; `None` if it never does, or is none.
    pub fn end_of(&self, key: &KeyText) -> Option<Timestamp> {
        let mut ends = self.roster.publishers.iter().filter(|publisher| publisher.key == *key).map(|one| one.not_after);
        let first = ends.next()??;
        ends.try_fold(first, |latest, end| end.map(|end| latest.max(end)))
    }
}

impl Roster {
    fn check(&self, fleet: FleetId) -> Result<(), String> {
        let roots = self.roots.iter().into_set();
        if self.fleet != fleet {
            Err(format!("`fleet` is {}, expected {fleet}", self.fleet))
        } else if self.version == 0 || self.version > 1_000_000 {
            Err("`version` must be 1 to 1000000".to_owned())
        } else if roots.len() != self.roots.len() {
            Err("`roots` lists a key twice".to_owned())
        } else if self.threshold == 0 || self.threshold > self.roots.len() {
            Err(format!("`threshold` must be 1 to {}, the number of roots", self.roots.len()))
        } else if self.roots.len() > MAX_KEYS || self.publishers.len() > MAX_KEYS {
            Err(format!("lists more than {MAX_KEYS} keys"))
        } else {
            self.host.as_ref().map_or(Ok(()), RosterHost::check)
        }
    }

    /// The indexes of this roster's roots that signed version `version`, as `path` names the signature of each: the
    /// version that follows ([`signature_path`]), or this one itself ([`own_signature_path`]).
    pub fn signed(
        &self,
        files: &FileTree,
        version: u64,
        path: impl Fn(u64, usize) -> String,
        signer: Signer<'_>,
    ) -> Vec<usize> {
        let Some(bytes) = files.get(&roster_path(version)) else { return Vec::new() };
        let signed = |(index, root): &(usize, &KeyText)| {
            files
                .get(&path(version, *index))
                .and_then(|armored| std::str::from_utf8(armored).ok())
                .and_then(|armored| signer(bytes, armored))
                .is_some_and(|key| key == **root)
        };
        self.roots.iter().enumerate().filter(signed).map(|(index, _)| index).collect()
    }
}

impl RosterHost {
    fn check(&self) -> Result<(), String> {
        let is_wrong = |url: &String| url.len() > MAX_URL || url.matches(DEVICE).count() != 1;
        if self.url.as_ref().is_some_and(is_wrong) {
            Err(format!("`host.url` must hold `{DEVICE}` once, and have {MAX_URL} bytes at most"))
        } else if self.ca.as_ref().is_some_and(|pem| pem.len() > MAX_CA) {
            Err(format!("`host.ca` has more than {MAX_CA} bytes"))
        } else if self.host_keys.len() > MAX_KEYS {
            Err(format!("`host.hostKeys` lists more than {MAX_KEYS} keys"))
        } else {
            Ok(())
        }
    }
}

/// The rosters after a version, as a host tells them, the oldest first (`GET /trust?from=<n>`, and the file of `trust export`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterSteps {
    pub rosters: Vec<RosterStep>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterStep {
    pub version: u64,
    /// Its exact text.
    pub roster: String,
    /// The exact texts of its signatures, by the index of the root in the version before.
    #[serde(default)]
    pub signatures: BTreeMap<u32, String>,
}

impl RosterSteps {
    /// The most bytes of such an answer or file.
    pub const MAX: usize = 1 << 20;

    /// The newest roster that these lead to from `known`, with its exact text; `None` where none is newer. What isn't proven by
    /// the roots of the version before is an error, whatever comes after it.
    pub fn follow(&self, known: &Trust, signer: Signer<'_>) -> Result<Option<(Trust, String)>, RosterError> {
        let mut newest: Option<(Trust, String)> = None;
        for step in self.rosters.iter().skip_while(|step| step.version <= known.roster.version) {
            let signature = |(index, text): (&u32, &String)| {
                (signature_path(step.version, *index as usize), text.clone().into_bytes())
            };
            let mut files = step.signatures.iter().map(signature).into_map();
            files.insert(roster_path(step.version), step.roster.clone().into_bytes());
            let before = newest.as_ref().map_or(known, |(trust, _)| trust);
            let next = before.next(step.roster.as_bytes(), &files, signer)?;
            newest = Some((next, step.roster.clone()));
        }
        Ok(newest)
    }
}

/// Whether each of these versions, if it says when it was issued, is signed by the threshold of its own roots as well: then
/// they can sign the next one. Asked before a version is published, and by an audit; a device goes by the version before alone.
pub fn check_own(
    files: &FileTree,
    versions: RangeInclusive<u64>,
    fleet: FleetId,
    signer: Signer<'_>,
) -> Result<(), RosterError> {
    for version in versions {
        let path = roster_path(version);
        let bytes = files.get(&path).ok_or_else(|| RosterError::Missing(path.clone()))?;
        let Trust { roster, .. } = Trust::pin(&path, bytes, fleet)?;
        let found = roster.signed(files, version, own_signature_path, signer).len();
        if roster.issued.is_some() && found < roster.threshold {
            return Err(RosterError::Own { path, found, needed: roster.threshold });
        }
    }
    Ok(())
}

/// The path of version `version` in the tree of `desired`.
pub fn roster_path(version: u64) -> String {
    format!("trust/{version}.json")
}

/// The path of the signature by root `index` of the version before (version 1: of its own).
pub fn signature_path(version: u64, index: usize) -> String {
    format!("trust/{version}.json.sig.{index}")
}

/// The path of the signature of version `version` by its own root `index`.
pub fn own_signature_path(version: u64, index: usize) -> String {
    format!("trust/{version}.json.own.{index}")
}

fn highest_version(files: &FileTree) -> Option<u64> {
    let version = |path: &String| path.strip_prefix("trust/")?.strip_suffix(".json")?.parse().ok();
    files.keys().filter_map(version).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> KeyText {
        format!("ssh-ed25519 AAAA{name}").parse().unwrap()
    }

    fn fleet() -> FleetId {
        "5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f10".parse().unwrap()
    }

    fn roster(version: u64, threshold: usize, roots: &[&str]) -> Vec<u8> {
        let roster = Roster {
            version,
            fleet: fleet(),
            issued: None,
            threshold,
            roots: roots.iter().map(|name| key(name)).collect(),
            publishers: vec![Publisher { key: key("pub"), not_after: Some("2030-01-01T00:00:00Z".parse().unwrap()) }],
            host: None,
        };
        crate::json::to_bytes(&roster)
    }

    /// In these tests a signature is the signer's name.
    fn signer(_: &[u8], armored: &str) -> Option<KeyText> {
        armored.strip_prefix("by ").map(key)
    }

    fn tree(files: &[(String, Vec<u8>)]) -> FileTree {
        files.iter().cloned().collect()
    }

    fn sig(version: u64, index: usize, by: &str) -> (String, Vec<u8>) {
        (signature_path(version, index), format!("by {by}").into_bytes())
    }

    fn follow(files: &[(String, Vec<u8>)], pinned: &[u8]) -> Result<u64, RosterError> {
        let pinned = Trust::pin("pinned", pinned, fleet()).unwrap();
        pinned.follow(&tree(files), &signer).map(|trust| trust.roster.version)
    }

    #[test]
    fn rosters_are_followed_over_several_versions_and_thresholds() {
        let (one, two, three) = (roster(1, 1, &["a"]), roster(2, 2, &["a", "b", "c"]), roster(3, 1, &["d"]));
        let files = [
            (roster_path(1), one.clone()),
            (roster_path(2), two),
            sig(2, 0, "a"),
            (roster_path(3), three),
            sig(3, 0, "a"),
            sig(3, 2, "c"),
        ];
        assert_eq!(follow(&files, &one).unwrap(), 3);
    }

    #[test]
    fn each_key_counts_once_and_only_in_its_own_place() {
        let (one, two) = (roster(1, 2, &["a", "b"]), roster(2, 1, &["a"]));
        for signatures in [
            vec![sig(2, 0, "a")],
            vec![sig(2, 0, "a"), sig(2, 1, "a")],
            vec![sig(2, 0, "b"), sig(2, 1, "a")],
            vec![sig(2, 0, "a"), sig(2, 2, "b")],
            vec![sig(2, 0, "x"), sig(2, 1, "y")],
        ] {
            let mut files = vec![(roster_path(1), one.clone()), (roster_path(2), two.clone())];
            files.extend(signatures);
            assert!(matches!(follow(&files, &one), Err(RosterError::Signatures { .. })), "{files:?}");
        }
    }

    #[test]
    fn a_replaced_missing_or_skipped_version_is_refused() {
        let (one, other) = (roster(1, 1, &["a"]), roster(1, 1, &["x"]));
        assert!(matches!(follow(&[(roster_path(1), other)], &one), Err(RosterError::Replaced { .. })));
        assert!(matches!(follow(&[], &one), Err(RosterError::Missing(_))));
        let gap = [(roster_path(1), one.clone()), (roster_path(3), roster(3, 1, &["a"])), sig(3, 0, "a")];
        assert!(matches!(follow(&gap, &one), Err(RosterError::Missing(_))));
        let wrong = [(roster_path(1), one.clone()), (roster_path(2), roster(5, 1, &["a"])), sig(2, 0, "a")];
        assert!(matches!(follow(&wrong, &one), Err(RosterError::Invalid { .. })));
    }

    #[test]
    fn a_version_that_says_when_it_was_issued_needs_the_threshold_of_its_own_roots_too() {
        let own = |index, by: &str| (own_signature_path(2, index), format!("by {by}").into_bytes());
        let issued = |version, threshold, roots: &[&str]| {
            let before: Roster = serde_json::from_slice(&roster(version, threshold, roots)).unwrap();
            crate::json::to_bytes(&Roster { issued: Some("2026-01-01T00:00:00Z".parse().unwrap()), ..before })
        };
        let check = |two: Vec<u8>, own: &[(String, Vec<u8>)]| {
            let files =
                [&[(roster_path(1), roster(1, 1, &["a"])), (roster_path(2), two), sig(2, 0, "a")], own].concat();
            assert_eq!(follow(&files, &roster(1, 1, &["a"])).unwrap(), 2, "a device asks for the version before alone");
            check_own(&tree(&files), 2..=2, fleet(), &signer)
        };
        let two = || issued(2, 2, &["b", "c", "d"]);
        check(two(), &[own(0, "b"), own(2, "d")]).unwrap();
        check(roster(2, 2, &["b", "c"]), &[]).unwrap();
        for too_few in [vec![], vec![own(0, "b")], vec![own(0, "b"), own(1, "b")], vec![own(0, "c"), own(1, "b")]] {
            let refused = check(two(), &too_few);
            assert!(matches!(refused, Err(RosterError::Own { needed: 2, .. })), "{too_few:?}");
        }
    }

    #[test]
    fn what_a_host_tells_is_followed_as_far_as_it_is_proven_and_never_back() {
        let step = |version: u64, bytes: Vec<u8>, by: &[(u32, &str)]| RosterStep {
            version,
            roster: String::from_utf8(bytes).unwrap(),
            signatures: by.iter().map(|(index, name)| (*index, format!("by {name}"))).collect(),
        };
        let known = |version| Trust::pin("known", &roster(version, 1, &["a"]), fleet()).unwrap();
        let all = RosterSteps {
            rosters: vec![
                step(1, roster(1, 1, &["x"]), &[]),
                step(2, roster(2, 1, &["b"]), &[(0, "a")]),
                step(3, roster(3, 1, &["c"]), &[(0, "b")]),
            ],
        };
        let follow = |steps: &RosterSteps, from| steps.follow(&known(from), &signer);
        let (newest, text) = follow(&all, 1).unwrap().unwrap();
        assert_eq!((newest.roster.version, text.into_bytes()), (3, roster(3, 1, &["c"])));
        assert!(
            matches!(follow(&all, 2), Err(RosterError::Signatures { version: 3, .. })),
            "it knows another version 2"
        );
        for from in [3, 4] {
            assert_eq!(follow(&all, from).unwrap(), None, "nothing leads back from {from}");
        }
        let without = |left_out: usize| {
            let mut steps = all.clone();
            steps.rosters.remove(left_out);
            follow(&steps, 1)
        };
        assert!(matches!(without(1), Err(RosterError::Invalid { .. })), "a version is left out");
        assert_eq!(without(2).unwrap().unwrap().0.roster.version, 2);
        let mut forged = all.clone();
        forged.rosters[2].signatures = [(0, "by a".to_owned())].into();
        assert!(matches!(follow(&forged, 1), Err(RosterError::Signatures { version: 3, found: 0, .. })));
    }

    #[test]
    fn what_a_roster_says_of_the_host_is_bounded() {
        let with = |host: RosterHost| {
            let plain: Roster = serde_json::from_slice(&roster(1, 1, &["a"])).unwrap();
            let bytes = crate::json::to_bytes(&Roster { host: Some(host), ..plain });
            Trust::pin("pinned", &bytes, fleet()).map(|trust| trust.roster.host)
        };
        let url = |text: &str| RosterHost { url: Some(text.to_owned()), ..RosterHost::default() };
        let good = url("https://wfm:8443/devices/{device}.git");
        assert_eq!(with(good.clone()).unwrap(), Some(good));
        let long = format!("https://wfm/{}/{{device}}.git", "x".repeat(MAX_URL));
        for bad in [
            url("https://wfm/press-01.git"),
            url("https://wfm/{device}/{device}.git"),
            url(&long),
            RosterHost { ca: Some("x".repeat(MAX_CA + 1)), ..RosterHost::default() },
            RosterHost { host_keys: vec![key("host"); MAX_KEYS + 1], ..RosterHost::default() },
        ] {
            assert!(matches!(with(bad), Err(RosterError::Invalid { .. })));
        }
    }

    #[test]
    fn an_expired_publisher_is_not_allowed() {
        let trust = Trust::pin("pinned", &roster(1, 1, &["a"]), fleet()).unwrap();
        assert!(trust.allows(&key("pub"), "2029-12-31T23:59:59Z".parse().unwrap()));
        assert!(!trust.allows(&key("pub"), "2030-01-01T00:00:00Z".parse().unwrap()));
        assert!(!trust.allows(&key("other"), "2029-01-01T00:00:00Z".parse().unwrap()));
    }

    #[test]
    fn a_roster_that_contradicts_itself_is_refused() {
        for bad in [roster(1, 0, &["a"]), roster(1, 2, &["a"]), roster(1, 1, &["a", "a"]), roster(0, 1, &["a"])] {
            assert!(Trust::pin("pinned", &bad, fleet()).is_err());
        }
    }
}
