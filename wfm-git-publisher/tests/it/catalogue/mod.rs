//! The catalogue: packages that come into the fleet as they are, what is shown of them, and what can't come or go.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

mod add;
mod archives;
mod devices;
mod elsewhere;
mod remove;
mod show;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::Lab;

/// A vendor's package, with files beside its description.
pub(crate) fn description(version: &str) -> String {
    format!(
        "apiVersion: margo.org/v1-alpha1\nkind: ApplicationDescription\nid: counter\nmetadata:\n  name: Counter\n  \
         description: Counts\n  version: {version}\n  catalog:\n    application: {{icon: ./resources/icon.png, licenseFile: \
         resources/license.txt}}\n    organization: [{{name: Northstar, site: http://northstar.example}}]\n\
         deploymentProfiles:\n- id: small\n  type: compose\n  components:\n  - name: counter\n    properties: {{repository: \
         \"oci://r.example/counter\", revision: {version}}}\n  deviceConstraints: {{capacityRequirements: {{memory: 2Gi}}}}\n\
         parameters:\n  start: {{value: 1, targets: [{{pointer: START, components: [counter]}}]}}\n\
         configuration:\n  sections:\n  - name: General\n    settings: [{{parameter: start, name: Start, schema: number}}]\n  \
         schema: [{{name: number, dataType: integer, minValue: 0}}]\n"
    )
}

/// What a package may hold that git likes to change.
pub(crate) const LICENCE: &[u8] = b"free\r\nas in $Id$ \xff\r\nand no end of line";

/// Writes the package into a folder beside the fleet.
pub(crate) fn package(lab: &Lab, name: &str, version: &str) -> PathBuf {
    let dir = lab.dir().join(name);
    write(&dir, "margo.yaml", description(version));
    write(&dir, "resources/license.txt", LICENCE);
    write(&dir, "resources/icon.png", [0x89, b'P', b'N', b'G', 0, 13, 10]);
    write(&dir, "compose/counter/compose.yaml", "services: {}\n");
    dir
}

pub(crate) fn write(dir: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Where the fleet stands, and whether anything in the work tree isn't committed.
pub(crate) fn stands(lab: &Lab) -> (String, String) {
    let git = |args: &[&str]| repo_testkit::git::git(&lab.fleet, args);
    (git(&["rev-parse", "HEAD"]), git(&["status", "--porcelain", "--ignored", "--untracked-files=all"]))
}

/// Runs a command that must fail, and leave the fleet as it is.
#[track_caller]
pub(crate) fn refused(lab: &Lab, args: &[&str]) -> String {
    let before = stands(lab);
    let said = lab.run(args).failed(1);
    assert_eq!(stands(lab), before, "{args:?}");
    said
}

#[track_caller]
pub(crate) fn json(lab: &Lab, args: &[&str]) -> Value {
    serde_json::from_str(&lab.run(&[args, &["--output", "json"]].concat()).good()).unwrap()
}

/// The bytes of a committed file, as stock Git has them.
pub(crate) fn committed(lab: &Lab, path: &str) -> Vec<u8> {
    repo_testkit::git::show(&lab.fleet, "HEAD", path).unwrap_or_else(|| panic!("{path} isn't committed"))
}

/// Packs a folder with stock tar.
pub(crate) fn tar(dir: &Path, archive: &Path, what: &[&str]) {
    let mut tar = Command::new("tar");
    let status = tar.arg("-C").arg(dir).arg("-czf").arg(archive).args(what).status().unwrap();
    assert!(status.success());
}
