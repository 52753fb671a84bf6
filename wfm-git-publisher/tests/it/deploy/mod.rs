//! `deploy` and `deploy edit`: what a person answers becomes a file that an editor could have written, or nothing is written.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

mod edit;
mod options;
mod refusals;
mod terminal;

use repo_testkit::git::git;
use serde_json::Value;

use crate::catalogue::refused;
use crate::support::Lab;

/// A package that asks four things in two sections, one of them without a default, and has a parameter that it doesn't ask for. Its
/// vendor would like to be taken for more than a comment.
const PUMP: &str = r#"
id: pump
metadata: {name: "Pump\nid: evil", version: 1.0.0, description: "Pumps\u001b[2J\r\ntargets: []"}
deploymentProfiles:
  - id: small
    type: compose
    deviceConstraints: {capacityRequirements: {memory: 2Gi}}
    components: [{name: pump, properties: {repository: "oci://r.example/pump", revision: 1.0.0}}]
parameters:
  interval: {value: 5, targets: [{pointer: INTERVAL, components: [pump]}]}
  mode: {value: slow, targets: [{pointer: MODE, components: [pump]}]}
  ports: {targets: [{pointer: PORTS, components: [pump]}]}
  channel: {targets: [{pointer: CHANNEL, components: [pump]}]}
  hidden: {value: "x", targets: [{pointer: HIDDEN, components: [pump]}]}
configuration:
  sections:
    - name: General
      settings:
        - {parameter: interval, name: Interval, description: "Seconds between\u2028two strokes", schema: seconds}
        - {parameter: mode, name: Mode, schema: modes}
    - name: Network
      settings:
        - {parameter: channel, name: Channel, immutable: true, schema: channel}
        - {parameter: ports, name: Ports, schema: ports}
  schema:
    - {name: seconds, dataType: integer, minValue: 1, maxValue: 3600}
    - {name: modes, dataType: string, options: [slow, fast]}
    - {name: channel, dataType: string, allowEmpty: false}
    - {name: ports, dataType: "array[integer]"}
"#;

const FILE: &str = "deployments/pump.yaml";

/// Three enrolled devices of two sites, and the package.
fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "press-02", "packer-01"]);
    for device in ["press-01", "press-02"] {
        lab.edit(&format!("devices/{device}.yaml"), "site: graz", "site: linz");
    }
    lab.write("applications/pump/1.0.0/margo.yaml", PUMP);
    lab.commit();
    lab
}

fn count(lab: &Lab) -> String {
    git(&lab.fleet, &["rev-list", "--count", "HEAD"])
}

/// What is committed of a file.
fn committed(lab: &Lab, file: &str) -> String {
    String::from_utf8(crate::catalogue::committed(lab, file)).unwrap()
}

fn json(lab: &Lab, args: &[&str]) -> Value {
    crate::catalogue::json(lab, args)
}
