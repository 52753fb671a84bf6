//! What the Kubernetes API shows of a device's releases.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::history;
use crate::cluster::{Cluster, Record};
use crate::git::{git, show};

/// Invariants 3 and 7 over all releases of the device.
pub(super) fn check(host: &Path, cluster: &Cluster, converged: bool, broken: &mut Vec<String>) {
    let Some(envelope) = show(host, "refs/heads/desired", "envelope.json") else { return };
    let envelope: Value = serde_json::from_slice(&envelope).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let records = cluster.records(&text(&envelope["fleet"]), &text(&envelope["device"]["id"]));
    let known = history::published(host);
    for record in records.iter().filter(|record| !known.contains(&record.deployment)) {
        broken.push(format!("7: a release of something that was never published: {record:?}"));
    }
    if converged {
        wanted(host, &records, broken);
        at_rest(&records, broken);
    }
}

/// 3: once converged, no release is left of what isn't wanted any more.
fn wanted(host: &Path, records: &[Record], broken: &mut Vec<String>) {
    let paths = git(host, &["ls-tree", "-r", "--name-only", "refs/heads/desired"]);
    let wanted: BTreeSet<_> = paths.lines().collect();
    for record in records.iter().filter(|record| !wanted.contains(&*format!("deployments/{}.yaml", record.deployment)))
    {
        broken.push(format!("3: a release of what isn't wanted: {record:?}"));
    }
}

/// 3: once converged, each release is in one namespace, and its newest revision alone is deployed. One that helm was killed in stays
/// in its books as it was.
fn at_rest(records: &[Record], broken: &mut Vec<String>) {
    let mut releases: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        releases.entry(&record.release).or_default().push(record);
    }
    for (release, mut revisions) in releases {
        revisions.sort_by_key(|one| one.revision);
        let deployed: Vec<_> =
            revisions.iter().filter(|one| one.status == "deployed").map(|one| one.revision).collect();
        let is_twice = revisions.iter().any(|one| one.namespace != revisions[0].namespace);
        let newest = revisions.last().map(|one| one.revision);
        if is_twice || deployed.as_slice() != newest.as_slice() {
            broken.push(format!("3: release {release} isn't at rest: {revisions:?}"));
        }
    }
}
