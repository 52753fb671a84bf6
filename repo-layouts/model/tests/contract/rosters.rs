//! How far rosters lead from one that is known, with one thing changed each, and whether a publisher may publish them.

use std::collections::BTreeMap;

use repo_model::FileTree;
use repo_model::roster::{RosterStep, RosterSteps, Signer, Trust, check_own, own_signature_path, roster_path};
use serde_json::{Value, json};

use super::gate::OTHER;
use super::{fleet, key};

/// What a host tells of a version. In the place of a signature stands the key that made it.
#[derive(Clone)]
struct Draft {
    version: u64,
    roster: String,
    signatures: Vec<(u32, char)>,
    own: Vec<(u32, char)>,
}

/// What is changed, up to which version it leads (`None`: it is refused), and whether their own roots prove them.
type Case = (&'static str, Option<u64>, bool, fn(&mut Vec<Draft>));

impl Draft {
    fn change(&mut self, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_str(&self.roster).unwrap();
        change(&mut value);
        self.roster = format!("{value}\n");
    }
}

fn roster(version: u64, threshold: u64, roots: &[char]) -> String {
    let roots: Vec<_> = roots.iter().copied().map(key).collect();
    let roster = json!({"version": version, "fleet": fleet(), "issued": "2026-11-27T12:00:00Z", "threshold": threshold, "roots": roots,
        "publishers": [{"key": key('P'), "notAfter": "2028-01-01T00:00:00Z"}]});
    format!("{roster}\n")
}

fn keys(signatures: &[(u32, char)]) -> BTreeMap<u32, String> {
    signatures.iter().map(|(index, name)| (*index, key(*name).to_string())).collect()
}

const CASES: &[Case] = &[
    ("nothing", Some(3), true, |_| ()),
    ("none newer", Some(1), true, Vec::clear),
    ("the first of them alone", Some(2), true, |all| all.truncate(1)),
    ("the first of them is missing", None, true, |all| drop(all.remove(0))),
    ("the same one twice", None, true, |all| all.insert(1, all[0].clone())),
    ("another number in the roster", None, true, |all| all[1].change(|roster| roster["version"] = 4.into())),
    ("another number beside the roster", None, true, |all| all[1].version = 4),
    ("another fleet's", None, false, |all| all[0].change(|roster| roster["fleet"] = OTHER.into())),
    ("no signature", None, true, |all| all[0].signatures.clear()),
    ("its own roots alone", None, true, |all| all[0].signatures = vec![(0, 'B'), (1, 'C')]),
    ("one root too few", None, true, |all| all[1].signatures = vec![(1, 'C')]),
    ("one root twice", None, true, |all| all[1].signatures = vec![(0, 'B'), (1, 'B')]),
    ("two roots in each other's places", None, true, |all| all[1].signatures = vec![(0, 'D'), (2, 'B')]),
    ("a root of the version before the last", None, true, |all| all[1].signatures = vec![(0, 'A'), (1, 'C')]),
    ("one root more than it takes", Some(3), true, |all| all[1].signatures.push((1, 'C'))),
    ("somebody else's beside enough of them", Some(3), true, |all| all[1].signatures.push((1, 'X'))),
    ("a place that no root has", Some(3), true, |all| all[1].signatures.push((3, 'X'))),
    ("a threshold of none", None, false, |all| all[0].change(|roster| roster["threshold"] = 0.into())),
    ("a threshold of more than there are", None, false, |all| all[0].change(|roster| roster["threshold"] = 4.into())),
    ("a root that is listed twice", None, false, |all| {
        all[0].change(|roster| roster["roots"][2] = roster["roots"][1].clone());
    }),
    ("64 publishers", Some(3), true, |all| {
        all[1].change(|roster| roster["publishers"] = vec![roster["publishers"][0].clone(); 64].into());
    }),
    ("65 publishers", None, false, |all| {
        all[1].change(|roster| roster["publishers"] = vec![roster["publishers"][0].clone(); 65].into());
    }),
    ("a key that nobody knows", Some(3), true, |all| all[0].change(|roster| roster["future"] = 1.into())),
    ("`threshold` twice", None, false, |all| all[0].roster = all[0].roster.replacen('{', "{\"threshold\":1,", 1)),
    ("where the host is", Some(3), true, |all| {
        all[0].change(|roster| roster["host"] = json!({"url": "https://wfm.example/{device}.git"}));
    }),
    ("one repository for all devices", None, false, |all| {
        all[0].change(|roster| roster["host"] = json!({"url": "https://wfm.example/all.git"}));
    }),
    ("too few of its own roots", Some(3), false, |all| all[1].own = vec![(1, 'C')]),
    ("none of its own roots, and one of before", Some(3), false, |all| all[0].own = vec![(0, 'A')]),
    ("the same of a version that doesn't say when it was issued", Some(3), true, |all| {
        all[0].own = vec![(0, 'A')];
        all[0].change(|roster| drop(roster.as_object_mut().unwrap().remove("issued")));
    }),
];

/// The vectors of `rosters.json`.
pub(crate) fn vectors() -> Value {
    let known = roster(1, 1, &['A', 'B']);
    let plain = [
        (2, vec![(0, 'A')], vec![(0, 'B'), (1, 'C')]),
        (3, vec![(0, 'B'), (2, 'D')], vec![(0, 'B'), (1, 'C'), (2, 'D')]),
    ];
    let plain = plain.map(|(version, signatures, own)| Draft {
        version,
        roster: roster(version, 2, &['B', 'C', 'D']),
        signatures,
        own,
    });
    let trust = Trust::pin(&roster_path(1), known.as_bytes(), fleet()).unwrap();
    let signer: Signer<'_> = &|_, signature| signature.parse().ok();
    let mut wrong = Vec::new();
    let cases: Vec<_> = CASES
        .iter()
        .map(|(what, newest, proven, change)| {
            let mut drafts = plain.to_vec();
            change(&mut drafts);
            let step = |one: &Draft| RosterStep {
                version: one.version,
                roster: one.roster.clone(),
                signatures: keys(&one.signatures),
            };
            let steps = RosterSteps { rosters: drafts.iter().map(step).collect() };
            let found = steps.follow(&trust, signer).map(|newest| newest.map_or(1, |(trust, _)| trust.roster.version));
            let is_proven = is_proven(&drafts, signer);
            if found.as_ref().ok() != newest.as_ref() || is_proven != *proven {
                wrong.push(format!("{what}: {found:?}, {is_proven}; expected {newest:?}, {proven}"));
            }
            let told = drafts.iter().map(|one| {
                json!({"version": one.version, "roster": one.roster, "signatures": keys(&one.signatures), "own": keys(&one.own)})
            });
            json!({"what": what, "newest": newest, "proven": proven, "rosters": told.collect::<Vec<_>>()})
        })
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
    json!({"known": known, "cases": cases})
}

/// Whether each of them may be published, for what its own roots say.
fn is_proven(drafts: &[Draft], signer: Signer<'_>) -> bool {
    let mut files = FileTree::new();
    for one in drafts {
        files.insert(roster_path(one.version), one.roster.clone().into_bytes());
        let own = keys(&one.own).into_iter();
        files.extend(own.map(|(at, key)| (own_signature_path(one.version, at as usize), key.into_bytes())));
    }
    drafts.iter().all(|one| check_own(&files, one.version..=one.version, fleet(), signer).is_ok())
}
