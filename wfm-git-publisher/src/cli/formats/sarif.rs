//! SARIF 2.1.0, by which GitHub and others show results of checks in the files that they are about.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Value, json};

use super::{Finding, Found};

/// The log of one run. A path is relative to the root of the fleet repository, as those readers want it.
pub(super) fn log(found: &Found) -> Value {
    let rules: BTreeSet<_> = found.findings.iter().map(|one| one.rule).collect();
    let rules: Vec<_> = rules.into_iter().collect();
    let results: Vec<_> = found.findings.iter().map(|one| result(one, &rules)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "wfm-git-publisher",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|rule| json!({ "id": rule })).collect::<Vec<_>>(),
            } },
            // So that a run of `plan` doesn't replace what one of `validate` found.
            "automationDetails": { "id": format!("wfm-git-publisher/{}/", found.command) },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(finding: &Finding, rules: &[&str]) -> Value {
    let problem = &finding.problem;
    let mut place = json!({ "artifactLocation": { "uri": uri(&problem.file) } });
    if let Some(line) = problem.line {
        place["region"] = json!({ "startLine": line });
        if let Some(column) = problem.column {
            place["region"]["startColumn"] = json!(column);
        }
    }
    json!({
        "ruleId": finding.rule,
        "ruleIndex": rules.iter().position(|rule| *rule == finding.rule),
        "level": if finding.is_error() { "error" } else { "warning" },
        "message": { "text": message(&finding.text()) },
        "locations": [{ "physicalLocation": place }],
    })
}

/// A text in which nobody finds a link: `[words](address)` is one in SARIF (3.11.6).
fn message(text: &str) -> String {
    if text.contains("](") { text.replace('[', "\\[").replace(']', "\\]") } else { text.to_owned() }
}

/// A path as a relative reference (RFC 3986).
fn uri(path: &str) -> String {
    path.bytes().fold(String::new(), |mut uri, byte| {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(char::from(byte)),
            _ => _ = write!(uri, "%{byte:02X}"),
        }
        uri
    })
}
