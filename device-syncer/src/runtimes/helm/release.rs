//! What helm knows of a release: where it stands, whose it is, and which input made it.

use std::collections::BTreeMap;
use std::fmt::Display;

use repo_model::{ComponentName, DeploymentId, Digest, IntoMap};
use serde::Deserialize;

use crate::runtimes::labels::{COMPONENT, DEPLOYMENT, is_plain};

/// Begins the description of a release that is complete; the input digest follows.
const DONE: &str = "device-syncer ";

/// Labels as helm's options take them.
pub(super) fn joined<N: Display, V: Display>(labels: impl IntoIterator<Item = (N, V)>) -> String {
    labels.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// Whether Kubernetes takes a text as a label's value.
pub(super) fn fits_label(text: &str) -> bool {
    let is_edge = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    is_plain(text) && is_edge(text.as_bytes().first()) && is_edge(text.as_bytes().last())
}

/// The description of a release that is complete.
pub(super) fn description(input: &Digest) -> String {
    format!("{DONE}{input}")
}

/// One line of `helm list`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) revision: String,
    pub(super) updated: String,
    pub(super) status: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) status: String,
    pub(super) labels: BTreeMap<String, String>,
    description: String,
}

impl Release {
    /// What helm prints by the template of the query.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (head, description) = text.split_once("\n\n")?;
        let mut lines = head.lines();
        lines.next()?.parse::<u32>().ok()?;
        let status = lines.next()?.to_owned();
        let labels =
            lines.filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).into_map();
        Some(Self { status, labels, description: description.to_owned() })
    }

    /// What it was made from, if helm came to its end.
    pub(super) fn input_digest(&self) -> Option<Digest> {
        self.description.strip_prefix(DONE).filter(|_| self.status == "deployed")?.trim().parse().ok()
    }

    /// Whether helm was in the middle of something, and refuses to begin anything else.
    pub(super) fn is_under_way(&self) -> bool {
        self.status.starts_with("pending-") || self.status == "uninstalling"
    }

    pub(super) fn deployment(&self) -> Option<DeploymentId> {
        self.labels.get(DEPLOYMENT)?.parse().ok()
    }

    /// Absent if the name didn't fit into a label.
    pub(super) fn component(&self) -> Option<ComponentName> {
        self.labels.get(COMPONENT)?.parse().ok()
    }
}

/// Whether helm says that there is no such release.
pub(super) fn is_absent(stderr: &str) -> bool {
    stderr.contains("release: not found")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::labels::{DEVICE, FLEET, value};

    #[test]
    fn a_value_that_kubernetes_does_not_take_is_a_hash() {
        assert_eq!(value("press-04.a_B", fits_label), "press-04.a_B");
        for text in ["", "line-2/press-04", "a~b", "-a", "a.", &"a".repeat(64)] {
            assert_eq!(value(text, fits_label).len(), 32, "{text}");
        }
    }

    #[test]
    fn a_release_has_an_input_only_once_helm_is_done() {
        let digest = Digest::of(b"input");
        let release = |status: &str, description: &str| {
            Release::parse(&format!("3\n{status}\n{FLEET}=f\n{DEVICE}=d\n\n{description}")).unwrap()
        };
        let good = release("deployed", &description(&digest));
        assert_eq!(good.input_digest(), Some(digest));
        assert_eq!(good.labels[DEVICE], "d");
        for (status, description) in [
            ("deployed", "Upgrade complete"),
            ("deployed", "Rollback to 2"),
            ("pending-upgrade", "Preparing upgrade"),
            ("failed", &description(&digest)),
            ("deployed", "device-syncer sha256:0"),
        ] {
            assert_eq!(release(status, description).input_digest(), None, "{status} {description}");
        }
        assert_eq!(Release::parse("3\ndeployed\n\n\n").unwrap().labels.len(), 0);
        assert_eq!(Release::parse(""), None);
    }
}
