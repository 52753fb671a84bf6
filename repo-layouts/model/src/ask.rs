//! What the fleet asks one device for (`policy.ask` of the envelope), and the answer on `heartbeat` (`answers/<number>.json`).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::words::words;
use crate::{ComponentName, DeploymentName, FileTree};

/// How long an answer stands on `heartbeat`.
pub const LIFE: SignedDuration = SignedDuration::from_hours(24);

/// How many answers a device gives within that time, refusals apart.
pub const MOST: usize = 4;

/// The largest answer, in bytes.
pub const MAX_BYTES: usize = 256 << 10;

/// The most characters of a reason.
pub const MAX_REASON: usize = 400;

/// Where answers lie in the tree of `heartbeat`.
pub const DIRECTORY: &str = "answers/";

/// Where the answer to this number lies in the tree of `heartbeat`.
pub fn answer_path(number: u64) -> String {
    format!("{DIRECTORY}{number}.json")
}

/// Whether an answer lies there.
pub fn is_answer(path: &str) -> bool {
    path.starts_with(DIRECTORY)
}

/// One thing that the fleet asks for. A higher number is another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// 1 to 2^53−1.
    pub number: u64,
    /// A word of [`AskedWord`], or one of a newer fleet.
    pub what: String,
    /// The operator's id of the deployment that it is about; absent where it is about all of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentName>,
}

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}", self.number, self.what)?;
        self.deployment.iter().try_for_each(|deployment| write!(f, " {deployment}"))?;
        f.write_str(")")
    }
}

words! {
    /// What a fleet may ask for.
    AskedWord {
        Logs "logs" "The newest lines that the containers of a deployment print."
        Diagnostics "diagnostics" "What `device-syncer diagnostics` prints."
        Retry "retry" "That what was given up is tried again, of one deployment or all."
        Sync "sync" "That the device asks its host, and reports, at once."
    }
}

words! {
    /// What became of a number, in the device's words.
    Outcome {
        Done "done" "It was done; what was asked for stands beside this."
        Refused "refused" "The site doesn't allow it, there were too many, or the device doesn't know the word."
        Failed "failed" "It couldn't be done."
    }
}

/// What a device answers. All texts of it are harmless lines, without secrets, as far as the device knows its secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub number: u64,
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentName>,
    /// When it was given, by the device's clock.
    pub time: Timestamp,
    /// A word of [`Outcome`], or one of a newer syncer.
    pub outcome: String,
    /// Why it was refused, or failed; one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The newest lines of each component, the oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<BTreeMap<ComponentName, Vec<String>>>,
    /// The document that `device-syncer diagnostics` prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<serde_json::Value>,
}

/// Whether an answer that was given then still stands.
pub fn stands(given: Timestamp, now: Timestamp) -> bool {
    now.duration_since(given).abs() < LIFE
}

impl Answer {
    /// Whether something was done for it: only that counts towards [`MOST`].
    pub fn is_refusal(&self) -> bool {
        self.outcome == Outcome::Refused
    }
}

/// Reads the answers in a tree of `heartbeat`, and says why others count as absent.
pub fn read_answers(files: &FileTree) -> (BTreeMap<u64, Answer>, Vec<String>) {
    let (mut answers, mut problems) = (BTreeMap::new(), Vec::new());
    for (path, bytes) in files.iter().filter(|(path, _)| is_answer(path)) {
        match read_answer(path, bytes) {
            Ok(answer) => _ = answers.insert(answer.number, answer),
            Err(problem) => problems.push(format!("`{path}` {problem}")),
        }
    }
    (answers, problems)
}

fn read_answer(path: &str, bytes: &[u8]) -> Result<Answer, String> {
    if bytes.len() > MAX_BYTES {
        return Err(format!("has {} bytes, more than the {MAX_BYTES} allowed", bytes.len()));
    }
    let answer: Answer = serde_json::from_slice(bytes).map_err(|error| format!("can't be read: {error}"))?;
    if path == answer_path(answer.number) { Ok(answer) } else { Err(format!("answers number {}", answer.number)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(number: u64, reason: &str) -> Vec<u8> {
        let answer = serde_json::json!({"number": number, "what": "sync", "time": "2026-11-21T12:00:00Z", "outcome": "failed",
            "reason": reason});
        crate::json::to_bytes(&answer)
    }

    #[test]
    fn an_answer_that_is_too_long_or_lies_elsewhere_is_none_and_the_others_count() {
        let files = FileTree::from([
            (answer_path(3), answer(3, "it doesn't answer")),
            (answer_path(4), answer(4, &"x".repeat(MAX_BYTES))),
            (answer_path(5), answer(6, "")),
            (answer_path(7), b"{}".to_vec()),
            ("current-state.json".to_owned(), b"{}".to_vec()),
        ]);
        let (answers, problems) = read_answers(&files);
        assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [3]);
        assert_eq!(problems.len(), 3, "{problems:?}");
    }
}
