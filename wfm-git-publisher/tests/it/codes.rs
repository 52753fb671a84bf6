//! The page of codes, docs/codes.md: its tables and the schemas have each word that the program knows, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use repo_model::ErrorCode;
use repo_model::report::{ConditionType, Doubt, Reason};
use serde_json::{Value, json};
use wfm_git_publisher::audit::finding;
use wfm_git_publisher::plan::{Code, FLEET_DOUBTFUL};
use wfm_git_publisher::status::OWN_DOUBTS;

use crate::support::{cells, page};

/// The table of a section as code and meaning. What to do may be no empty cell.
fn table(section: &str) -> Vec<(String, String)> {
    let rows = cells(&page("codes.md"), section).into_iter().map(|row| {
        let [code, means, what] = row.as_slice() else { panic!("not three cells: {row:?}") };
        assert!(!what.is_empty(), "what is to be done about {code}?");
        (code.clone(), means.clone())
    });
    rows.collect()
}

fn said<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    all.into_iter().map(|(code, means)| (format!("`{code}`"), means.to_owned())).collect()
}

#[test]
fn the_page_has_each_code_with_what_it_means_and_what_to_do() {
    let of_code = |(code, means): &(Code, &'static str)| (code.as_str(), *means);
    assert_eq!(table("What can't be published"), said(Code::TABLE.iter().map(of_code)));
    assert_eq!(table("What can't be looked at"), said(OWN_DOUBTS.iter().copied()));
    assert_eq!(
        table("What a device could not do, or waits for"),
        said(ErrorCode::TABLE.iter().map(|(code, means)| (code.as_str(), *means)))
    );
    let doubts = Doubt::TABLE.iter().map(|(word, means, _)| (*word, *means));
    assert_eq!(table("What can't be believed of a device"), said(doubts));
    assert_eq!(table("What an audit finds"), said(finding::TABLE.iter().map(|kind| (kind.code, kind.meaning))));
    let reasons = table("What is so of a device as a whole");
    let reason =
        |(kind, reason): &(ConditionType, Reason)| (format!("`{}`", reason.as_str()), format!("`{}`", kind.as_str()));
    assert_eq!(reasons, Reason::TABLE.iter().map(reason).collect::<Vec<_>>());
    let doubtful = table("What is wrong in the fleet's files");
    assert_eq!(doubtful.iter().map(|(code, _)| code.as_str()).collect::<Vec<_>>(), [format!("`{FLEET_DOUBTFUL}`")]);
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn no_device_is_doubted_by_a_word_that_the_page_and_the_contract_do_not_have() {
    let mut found = BTreeSet::new();
    for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        let source = text.split("#[cfg(test)]").next().unwrap();
        for made in source.split("Doubt::new(").skip(1) {
            let word = made.split([',', ')']).next().unwrap().trim();
            // What somebody else called so keeps its word.
            if word != "why.code.clone(" {
                let is_constant = word.bytes().all(|c| c.is_ascii_uppercase() || c == b'_');
                assert!(is_constant, "{}: `{word}` is no constant", file.display());
                found.insert(word.to_lowercase().replace('_', "-"));
            }
        }
    }
    let contract: BTreeSet<_> = Doubt::TABLE.iter().map(|(word, ..)| (*word).to_owned()).collect();
    let own: BTreeSet<_> = OWN_DOUBTS.iter().map(|(word, _)| (*word).to_owned()).collect();
    assert_eq!(found.difference(&contract).cloned().collect::<BTreeSet<_>>(), own);
}

#[test]
fn the_schemas_of_what_is_printed_have_each_code_of_what_can_not_be_published() {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let openapi = read(include_str!("../../openapi.json"));
    let output = read(include_str!("../../output.schema.json"));
    let codes: Vec<_> = Code::TABLE.iter().map(|(code, _)| code.as_str()).collect();
    for blocked in [&openapi["components"]["schemas"]["Blocked"], &output["$defs"]["blocked"]] {
        assert_eq!(blocked["properties"]["code"]["enum"], json!(codes), "{blocked:#}");
    }
}
