//! The site's hook: a program of the site's that says whether a change may be made now (`gates.hook` of `device.yaml`).

use std::collections::BTreeMap;

use repo_model::margo::status::State;
use repo_model::{DeploymentId, Digest};
use serde::Serialize;

use super::failure::one_line;

/// What the hook said no to, of changes that aren't asked for again yet.
#[derive(Debug, Clone, Default)]
pub struct HookGate {
    /// By deployment: the change's name, and the hook's words.
    pub closed: BTreeMap<DeploymentId, (Digest, String)>,
}

impl HookGate {
    /// Why this change waits, if it does.
    pub fn why_closed(&self, deployment: DeploymentId, change: Digest) -> Option<String> {
        let (of, words) = self.closed.get(&deployment)?;
        (*of == change).then(|| format!("the site's hook says: {words}"))
    }
}

/// A change that the hook is asked for, as it reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookAsk {
    /// The operator's id, or Margo's where that isn't known any more.
    pub deployment: String,
    pub deployment_id: DeploymentId,
    pub change: HookChange,
    /// Names all of the change.
    pub set: Digest,
}

/// What would be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookChange {
    /// Something is installed, updated, or put back as it was.
    Apply,
    /// Something goes, and nothing is applied.
    Remove,
    /// What runs is restarted as it is, because the fleet asks for it.
    Restart,
}

/// What became of a change that it let through, as it reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookEnd {
    pub deployment: String,
    pub deployment_id: DeploymentId,
    /// What was let through.
    pub set: Digest,
    /// Margo's state of the deployment now.
    pub state: State,
    /// The error code that goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// What it gets on its standard input.
#[derive(Debug, Serialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase<'a> {
    /// Whether this may be done now.
    Ask(&'a HookAsk),
    /// What was let through has ended.
    Done(&'a HookEnd),
}

/// The first line of what a hook wrote, as it may be signed and shown.
pub fn words(output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output);
    let line = output.lines().next().unwrap_or_default().trim();
    if line.is_empty() { "no".to_owned() } else { one_line(line) }
}

#[cfg(test)]
mod tests {
    use repo_model::text;

    use super::*;
    use crate::decision::failure::LINE;

    #[test]
    fn a_hooks_first_line_is_shown_as_one_visible_line() {
        assert_eq!(words(b""), "no");
        assert_eq!(words(b"\n\nline 2"), "no");
        assert_eq!(words(b" line 2 is filling \r\nmore\n"), "line 2 is filling");
        let hostile = words("\u{1b}[2J\u{202e}".repeat(200).as_bytes());
        assert!(hostile.chars().count() <= LINE && text::line(&hostile) == hostile, "{hostile}");
        assert!(words(&[0xff; 5000]).chars().count() <= LINE);
    }
}
