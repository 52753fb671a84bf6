//! The words, beside the bytes: each table of the contract is the code's, row by row.

use repo_model::envelope::FEATURES;
use repo_model::margo::ErrorCode;
use repo_model::report::{ConditionType, Doubt, Drift, Health, Reason};
use repo_model::{Branch, Trailer};

use super::root;

fn contract() -> String {
    std::fs::read_to_string(root().join("repo-layouts/README.md")).unwrap()
}

/// The contract's text between these two.
fn between(begin: &str, end: &str) -> String {
    let text = contract();
    let rest = text.split_once(begin).unwrap_or_else(|| panic!("no {begin:?}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no {end:?} after {begin:?}")).0.to_owned()
}

/// The rows of the table with this head, each as its cells.
fn table(head: &str) -> Vec<Vec<String>> {
    let text = contract();
    let rows = text.split_once(&format!("{head}\n")).unwrap_or_else(|| panic!("no {head:?}")).1;
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.lines().take_while(|line| line.starts_with('|')).skip(1).map(cells).collect()
}

#[test]
fn the_table_of_doubts_is_the_code() {
    let expected =
        Doubt::TABLE.iter().map(|(code, what, follows)| [&format!("`{code}`"), *what, *follows].map(str::to_owned));
    assert_eq!(table("| Doubt | What | What follows |"), expected.collect::<Vec<_>>());
}

#[test]
fn the_table_of_error_codes_is_the_enum() {
    let rows = table("| Code | Meaning | Where it stands |").into_iter().map(|row| row[..2].to_vec());
    let expected = ErrorCode::TABLE.iter().map(|(code, meaning)| vec![format!("`{code}`"), (*meaning).to_owned()]);
    assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn the_table_of_conditions_is_the_enum() {
    let rows = table("| Type | Reason | So for as long as |");
    let word = |cell: &str| cell.trim_matches('`').to_owned();
    let kinds: Vec<_> = rows.iter().map(|row| ConditionType::parse(&word(&row[0])).expect("a type")).collect();
    let is_of_code = |word: &str| ErrorCode::TABLE.iter().any(|(code, _)| code.pascal_case() == word);
    let of_code = |row: &Vec<String>| row[1].contains("code") || is_of_code(&word(&row[1]));
    let plain = rows.iter().zip(&kinds).filter(|(row, _)| !of_code(row));
    let expected = Reason::TABLE.iter().map(|(kind, reason)| (format!("`{reason}`"), kind));
    assert_eq!(plain.map(|(row, kind)| (row[1].clone(), kind)).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let mut in_order = kinds;
    in_order.dedup();
    assert_eq!(in_order, ConditionType::TABLE.iter().map(|(kind, _)| *kind).collect::<Vec<_>>());
}

#[test]
fn the_words_for_health_and_drift_are_the_enums() {
    let rows = table("| Key | Values |");
    let row = |key: &str| rows.iter().find(|row| row[0] == format!("`{key}`")).expect("a row")[1].clone();
    let words = |cell: &str| cell.split("; ").map(|part| part.split('`').nth(1).expect("a word").to_owned()).collect();
    let (health, drift): (Vec<_>, Vec<_>) = (words(&row("health")), words(&row("drift")));
    assert_eq!(health, Health::TABLE.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>());
    assert_eq!(drift, Drift::TABLE.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>());
}

#[test]
fn what_stands_in_the_way_is_what_the_contract_says() {
    let said = between("the others go when they are no longer\nso. ", " stand in the way");
    let named: Vec<_> = said.split('`').filter_map(ConditionType::parse).collect();
    let all = ConditionType::TABLE.iter().map(|(kind, _)| *kind);
    assert_eq!(named, all.filter(|kind| kind.is_in_the_way()).collect::<Vec<_>>());
}

#[test]
fn the_branches_are_those_of_the_layout() {
    let layout = between("## Device repository\n\n```\n", "```");
    let names: Vec<_> =
        layout.lines().filter(|line| !line.starts_with(' ')).map(|line| line.split(' ').next()).collect();
    assert_eq!(names, Branch::OF_DEVICE.map(|branch| Some(branch.as_str())));
    let kinds = Branch::TABLE.iter().map(|(branch, _)| branch.as_str()).collect::<Vec<_>>();
    assert_eq!(between("the trailer `Kind: ", "`"), kinds.join("|"));
}

#[test]
fn the_trailers_are_those_that_the_contract_names_in_its_order() {
    let desired = between("\nTrailers, in this order: ", " A device MUST require");
    let status = between("\nTrailers: ", "\n\n");
    let control = between("before anything of it is done, with the\ntrailers ", "A lost one");
    let text = desired + &status + &control;
    let named = text.split('`').skip(1).step_by(2).map(|word| word.split(':').next().unwrap_or(word));
    let mut named: Vec<_> = named.filter_map(Trailer::parse).collect();
    let mut seen = std::collections::BTreeSet::new();
    named.retain(|trailer| seen.insert(*trailer));
    assert_eq!(named, Trailer::TABLE.iter().map(|(trailer, _)| *trailer).collect::<Vec<_>>());
}

#[test]
fn this_version_knows_all_that_it_says_a_device_may_be_too_old_for() {
    let numbers = |version: &str| -> Vec<u64> { version.split('.').map(|part| part.parse().unwrap()).collect() };
    let ours = numbers(env!("CARGO_PKG_VERSION"));
    let newer: Vec<_> = FEATURES.iter().filter(|feature| numbers(feature.since) > ours).collect();
    assert!(newer.is_empty(), "its own devices would never get these: {newer:?}");
}
