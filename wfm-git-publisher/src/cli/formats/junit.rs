//! JUnit's XML, which GitLab and most other pipelines show as results of tests.

use std::collections::BTreeMap;
use std::fmt::Write;

use repo_model::text;

use super::super::escaped;
use super::{Finding, Found};

/// A test case for each file: each device and each deployment has one, and what is about more than one of them fails fleet.yaml's.
pub(super) fn suite(found: &Found) -> String {
    let mut files: BTreeMap<&str, Vec<&Finding>> = found.files.iter().map(|file| (file.as_str(), Vec::new())).collect();
    found.findings.iter().for_each(|one| files.entry(&one.problem.file).or_default().push(one));
    let failures = files.values().filter(|of_file| of_file.iter().any(|one| one.is_error())).count();
    let mut cases = String::new();
    files.iter().for_each(|(file, of_file)| case(&mut cases, found.command, file, of_file));
    let name = format!("wfm-git-publisher {}", found.command);
    let counts = format!("name=\"{name}\" tests=\"{}\" failures=\"{failures}\" errors=\"0\"", files.len());
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n<testsuite {counts} skipped=\"0\">\n{cases}\
         </testsuite>\n</testsuites>\n"
    )
}

/// One case has one failure, because not every reader takes more; it has all errors in it.
fn case(cases: &mut String, command: &str, file: &str, found: &[&Finding]) {
    let name = escaped(&text::line(file));
    let _ = write!(cases, "<testcase classname=\"{command}\" name=\"{name}\" file=\"{name}\">");
    let (errors, warnings): (Vec<&Finding>, Vec<&Finding>) = found.iter().partition(|one| one.is_error());
    if let Some(first) = errors.first() {
        let message = first.text().lines().next().unwrap_or_default().to_owned();
        let (message, all) = (escaped(&message), escaped(&lines(&errors)));
        let _ = write!(cases, "<failure type=\"{}\" message=\"{message}\">{all}</failure>", first.rule);
    }
    if !warnings.is_empty() {
        let _ = write!(cases, "<system-out>{}</system-out>", escaped(&lines(&warnings)));
    }
    cases.push_str("</testcase>\n");
}

fn lines(found: &[&Finding]) -> String {
    let line = |one: &&Finding| {
        let place = one.problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{place}: {}", text::line(&one.problem.file), one.text())
    };
    found.iter().map(line).collect::<Vec<_>>().join("\n")
}
