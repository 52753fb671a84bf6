//! The rules of the contract's documents, from outside the crate.

mod configuration;
mod deployments;
mod edges;
mod examples;
mod helm;
mod json_documents;
mod reading;
mod reports;
mod requirements;
mod values;

use repo_model::problem::{Problem, Problems};

/// The bytes of a file in `fixtures/margo`.
fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../../fixtures/margo/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn fixture_text(name: &str) -> String {
    String::from_utf8(fixture(name)).expect("fixtures are UTF-8")
}

/// The only error, which must be about `key` and say `message`.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Problems>, key: &str, message: &str) -> Problem {
    let problems = result.expect_err("must be refused");
    let found = problems.errors().find(|problem| problem.key == key && problem.message.contains(message));
    found.cloned().unwrap_or_else(|| panic!("no error at `{key}` with `{message}` in:\n{problems}"))
}
