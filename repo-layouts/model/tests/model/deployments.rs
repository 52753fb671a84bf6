//! ApplicationDeployments: one mistake each, in the published rc.3 example.

use proptest::prelude::*;
use repo_model::margo::ApplicationDeployment;
use repo_model::value::ParamValue;

use super::{assert_refused, fixture_text};

const RC3: &str = "valid/ApplicationDeployment-rc3-compose.yaml";
const OLD: &str = "valid/ApplicationDeployment-predraft-compose.yaml";
const HELM: &str = "valid/ApplicationDeployment-predraft-helm.yaml";

/// Reads a published example with a replacement, which must apply.
#[track_caller]
fn edited(file: &str, from: &str, to: &str) -> Result<ApplicationDeployment, repo_model::problem::Problems> {
    let text = fixture_text(file);
    assert!(text.contains(from), "{from} is not in {file}");
    ApplicationDeployment::read(file, text.replacen(from, to, 1).as_bytes()).map(|(deployment, _)| deployment)
}

#[test]
fn each_mistake_is_refused_by_its_key() {
    for (from, to, key, message) in [
        ("id: ad9b614e-8912-45f4-a523-372358765def", "id: ad9b614e", "id", "is not a deployment UUID"),
        ("id: ad9b614e-8912-45f4-a523-372358765def\n", "", "id", "is missing"),
        ("    name: com", "    nam: com", "metadata.name", "is missing"),
        ("    name: com", "    nam: com", "metadata.nam", "unknown key"),
        ("namespace: margo-poc", "namespace: Margo", "metadata.namespace", "lower-case"),
        ("deviceId: edge-01", "deviceId: edge/../01", "metadata.deviceId", "is not a device id"),
        ("deviceId: edge-01", "deviceId: '*'", "metadata.deviceId", "is not a device id"),
        ("applicationId: com", "applicationId: Com", "spec.applicationId", "is not a application id"),
        ("type: compose", "type: podman", "spec.deploymentProfile.type", "is `podman`, expected"),
        ("type: compose", "type: helm", "spec.parameters.adminName.targets[0].pointer", "IGNORED"),
        (
            "- name: digitron",
            "- name: Digitron",
            "spec.deploymentProfile.components[0].name",
            "is not a component name",
        ),
        ("repository: oci", "repository: http", "spec.deploymentProfile.components[0].properties.repository", "no OCI"),
        (
            "orchestrator\n                revision",
            "orchestrator:1\n                revision",
            "spec.deploymentProfile.components[0].properties.repository",
            "no OCI",
        ),
        (
            "revision: \"1.0.9\"",
            "revision: v1.0.9",
            "spec.deploymentProfile.components[0].properties.revision",
            "no revision",
        ),
        (
            "revision: \"1.0.9\"",
            "revision: 1.0.9+b",
            "spec.deploymentProfile.components[0].properties.revision",
            "no revision",
        ),
        (
            "wait: true",
            "wait: yes",
            "spec.deploymentProfile.components[0].properties.wait",
            "expected `true` or `false`",
        ),
        ("timeout: \"5m0s\"", "timeout: 5", "spec.deploymentProfile.components[0].properties.timeout", "no time limit"),
        ("wait: true", "retries: 3", "spec.deploymentProfile.components[0].properties.retries", "unknown key"),
        (
            "pointer: ADMIN_NAME",
            "pointer: admin.name",
            "spec.parameters.adminName.targets[0].pointer",
            "environment variable",
        ),
        ("pointer: ADMIN_NAME", "pointer: SITE_ID", "spec.parameters", "`siteId` sets `SITE_ID` of"),
        ("pointer: ADMIN_NAME", "pointer: ENV.SITE_ID", "spec.parameters", "which is already set"),
        (
            "                    - digitron-orchestrator-docker\n",
            "                    - other\n",
            "spec.parameters.adminName.targets[0].components[0]",
            "there is no component `other`",
        ),
        ("value: Some One", "value: {a: 1}", "spec.parameters.adminName.value", "is a mapping"),
        ("value: Some One", "valu: x", "spec.parameters.adminName.value", "is missing"),
        ("spec:\n", "spec: []\nother:\n", "spec", "is a list, expected a mapping"),
    ] {
        if message == "IGNORED" {
            // A variable's name is a path of one key too.
            assert!(edited(RC3, from, to).is_ok());
            continue;
        }
        assert_refused(edited(RC3, from, to), key, message);
    }
    assert_refused(
        edited(HELM, "pointer: administrator.name", "pointer: a..b"),
        "spec.parameters.adminName.targets[0].pointer",
        "no path",
    );
    assert_refused(
        edited(OLD, "keyLocation: https://north", "keyLocation: https://u:p@north"),
        "spec.deploymentProfile.components[0].properties.keyLocation",
        "credentials",
    );
    assert_refused(
        edited(OLD, "keyLocation: https", "repository: oci"),
        "spec.deploymentProfile.components[0].properties.repository",
        "one source",
    );
    assert_refused(
        edited(OLD, "type: docker-compose", "type: helm"),
        "spec.deploymentProfile.components[0].properties",
        "not `packageLocation`",
    );
    assert_refused(
        edited(HELM, "            - name: digitron-orchestrator", "            - name: database-services"),
        "spec.deploymentProfile.components",
        "two components named",
    );
}

#[test]
fn the_named_generosities_are_read() {
    assert!(edited(RC3, "type: compose", "type: docker-compose").is_ok());
    assert!(edited(OLD, "type: docker-compose", "type: compose").is_ok());
    assert!(edited(OLD, "ENV.SITE_ID", "SITE_ID").is_ok());
    assert!(!edited(HELM, "wait: \"true\"", "wait: \"false\"").unwrap().components[0].wait);
    assert!(
        edited(
            HELM,
            "repository: oci://quay.io/charts/realtime-database-services",
            "repository: https://quay.io/charts"
        )
        .is_ok()
    );
    assert!(edited(RC3, "deviceId: edge-01", "deviceId: gateway/*").is_ok());
    assert!(edited(RC3, "    deviceId: edge-01\n", "").is_ok());
    let id = "        id: ad9b614e-8912-45f4-a523-372358765def\n";
    let moved = edited(OLD, "kind:", "id: ad9b614e-8912-45f4-a523-372358765def\nkind:").unwrap();
    assert!(!moved.dialect.annotated_id && moved.dialect.annotated_application);
    assert_refused(edited(OLD, "kind:", "id: 00000000-8912-45f4-a523-372358765def\nkind:"), "id", "differs from");
    assert_refused(edited(OLD, id, ""), "id", "is missing");
    let wrong = edited(OLD, id, "        id: x\n").unwrap_err();
    assert_eq!(wrong.0.len(), 1, "one mistake, one message: {wrong}");
}

#[test]
fn extensions_and_constraints_are_carried_unchanged() {
    let extra = "        x-rollback-extensions: {tolerated: true, from: [1.10, \"1.10\"]}\n        deviceConstraints: {capacityRequirements: {memory: 1Gi}}\n        components:\n";
    let deployment = edited(RC3, "        components:\n", extra).unwrap();
    assert_eq!(deployment.profile_extensions["x-rollback-extensions"]["from"], serde_json::json!([1.1, "1.10"]));
    let (again, _) = ApplicationDeployment::read("written", &deployment.to_yaml()).unwrap();
    assert_eq!(again, deployment);
}

#[test]
fn dialects_with_the_same_meaning_are_equal() {
    let rc3 = edited(RC3, "type: compose", "type: compose").unwrap();
    assert!(rc3.same_meaning(&edited(RC3, "type: compose", "type: docker-compose").unwrap()));
    assert!(rc3.same_meaning(&edited(RC3, "pointer: SITE_ID", "pointer: ENV.SITE_ID").unwrap()));
    assert!(rc3.same_meaning(&edited(RC3, "\"5m0s\"", "300s").unwrap()));
    assert!(!rc3.same_meaning(&edited(RC3, "\"120\"", "120").unwrap()));
}

#[test]
fn what_is_written_is_the_same_for_equal_values_and_reads_well() {
    let deployment = edited(RC3, "value: \"120\"", "value: [\"1.10\", 1.5, no-thing]").unwrap();
    let written = String::from_utf8(deployment.to_yaml()).unwrap();
    let expected = "\
id: ad9b614e-8912-45f4-a523-372358765def
metadata:
  name: com-northstartida-digitron-orchestrator-deployment
  namespace: margo-poc
  deviceId: edge-01
spec:
  applicationId: com-northstartida-digitron-orchestrator
  deploymentProfile:
    type: compose
    components:
    - name: digitron-orchestrator-docker
      properties:
        repository: oci://northstarida.azurecr.io/compose/digitron-orchestrator
        revision: \"1.0.9\"
        timeout: 5m0s
  parameters:
    adminName:
      value: Some One
      targets:
      - pointer: ADMIN_NAME
        components:
        - digitron-orchestrator-docker
    pollFrequency:
      value:
      - \"1.10\"
      - 1.5
      - no-thing
      targets:
      - pointer: POLL_FREQUENCY
        components:
        - digitron-orchestrator-docker
    siteId:
      value: SID-123-ABC
      targets:
      - pointer: SITE_ID
        components:
        - digitron-orchestrator-docker
";
    assert_eq!(written, expected);
}

proptest! {
    #[test]
    fn any_text_and_name_survives_in_a_deployment(name in "[^\u{0}]{0,20}", text in "[^\u{0}]*") {
        let mut deployment = edited(RC3, "type", "type").unwrap();
        let mut parameter = deployment.parameters["siteId"].clone();
        parameter.value = ParamValue::String(text);
        parameter.targets[0].pointer = "OTHER".to_owned();
        deployment.parameters.insert(name, parameter);
        let (again, _) = ApplicationDeployment::read("written", &deployment.to_yaml()).unwrap();
        prop_assert_eq!(again, deployment);
    }
}
