//! The documents published with the specification: valid ones parse and round-trip, invalid ones are refused by field.

use std::num::NonZeroU32;

use repo_model::margo::deployment::Dialect;
use repo_model::margo::{
    ApplicationDeployment, ApplicationDescription, DeploymentStatus, DeviceCapabilities, ProfileType, Source, State,
    StateManifest,
};
use repo_model::value::ParamValue;

use super::{assert_refused, fixture};

#[test]
fn every_valid_deployment_round_trips_in_its_dialect() {
    for (name, dialect, kind) in [
        ("rc3-compose", Dialect::RC3, ProfileType::Compose),
        ("predraft-compose", Dialect::PRE_DRAFT, ProfileType::Compose),
        ("predraft-helm", Dialect::PRE_DRAFT, ProfileType::Helm),
    ] {
        let file = format!("valid/ApplicationDeployment-{name}.yaml");
        let (deployment, warnings) = ApplicationDeployment::read(&file, &fixture(&file)).unwrap();
        assert!(warnings.is_empty(), "{warnings}");
        assert_eq!((deployment.dialect, deployment.profile_type), (dialect, kind));
        let written = deployment.to_yaml();
        let (again, _) = ApplicationDeployment::read("written", &written).unwrap();
        assert_eq!(again, deployment);
        assert_eq!(again.to_yaml(), written);
    }
}

#[test]
fn the_rc3_example_reads_as_it_says() {
    let file = "valid/ApplicationDeployment-rc3-compose.yaml";
    let (deployment, _) = ApplicationDeployment::read(file, &fixture(file)).unwrap();
    assert_eq!(deployment.id.to_string(), "ad9b614e-8912-45f4-a523-372358765def");
    assert_eq!(deployment.device_id.as_deref(), Some("edge-01"));
    assert_eq!(deployment.namespace, "margo-poc");
    let component = &deployment.components[0];
    assert_eq!((component.wait, component.timeout), (true, Some(std::time::Duration::from_secs(300))));
    assert!(matches!(&component.source, Source::Oci { revision, .. } if revision == "1.0.9"));
    let parameter = &deployment.parameters["pollFrequency"];
    assert_eq!(parameter.value, ParamValue::String("120".to_owned()));
    assert_eq!(parameter.targets[0].variable(), "POLL_FREQUENCY");
}

#[test]
fn the_pre_draft_examples_read_as_they_say() {
    let file = "valid/ApplicationDeployment-predraft-compose.yaml";
    let (deployment, _) = ApplicationDeployment::read(file, &fixture(file)).unwrap();
    assert!(matches!(&deployment.components[0].source, Source::Https { key_location: Some(_), .. }));
    assert_eq!(deployment.parameters["siteId"].targets[0].variable(), "SITE_ID");
    assert_eq!(deployment.parameters["siteId"].targets[0].pointer, "ENV.SITE_ID");
    assert!(deployment.components[0].wait);
}

#[test]
fn the_application_description_round_trips() {
    let file = "valid/ApplicationDescription-helm-and-compose.yaml";
    let (description, warnings) = ApplicationDescription::read(file, &fixture(file)).unwrap();
    assert!(warnings.is_empty(), "{warnings}");
    assert_eq!(description.version, "1.2.1");
    let compose = description.profile("com-northstartida-digitron-orchestrator-compose-a").unwrap();
    let targets = description.parameters["idpUrl"].targets_in(compose);
    assert_eq!(targets.iter().map(|target| target.variable()).collect::<Vec<_>>(), ["IDP_URL"]);
    assert_eq!(description.parameters["pollFrequency"].default, Some(ParamValue::Integer(30)));
    assert_eq!(description.parameters["siteId"].default, None);
    let configuration = description.configuration.as_ref().unwrap();
    let mut settings = configuration.sections.iter().flat_map(|section| &section.settings);
    let setting = settings.find(|setting| setting.parameter == "idpUrl").unwrap();
    let schema = configuration.schemas.iter().find(|schema| schema.name == setting.schema).unwrap();
    assert!(setting.immutable && schema.regex_match.as_deref().is_some_and(|regex| regex.contains(r"[a-z]{2,6}\b")));
    let (again, _) = ApplicationDescription::read("written", &description.to_yaml()).unwrap();
    assert_eq!(again, description);
}

#[test]
fn the_json_examples_round_trip() {
    let manifest = StateManifest::parse(&fixture("valid/DesiredStateManifest.json")).unwrap();
    assert_eq!((manifest.manifest_version, manifest.deployments.len()), (101, 1));
    assert_eq!(StateManifest::parse(&manifest.to_bytes()).unwrap(), manifest);

    let file = "valid/DeploymentStatusManifest.json";
    let status = DeploymentStatus::read(file, &fixture(file)).unwrap();
    assert_eq!((status.status.state, &status.status.error), (State::Pending, &None), "an empty code is no error");
    assert_eq!(DeploymentStatus::read("written", &status.to_bytes()).unwrap(), status);

    let file = "valid/DeviceCapabilitiesManifest-predraft.json";
    let bytes = fixture(file);
    let capabilities = DeviceCapabilities::read(file, &bytes).unwrap();
    let value = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    assert_eq!(DeviceCapabilities::read("written", &capabilities.to_bytes()).unwrap(), capabilities);
    assert_eq!(value(&capabilities.to_bytes())["properties"]["roles"], value(&bytes)["properties"]["roles"]);
    assert_eq!(capabilities.memory.as_deref(), Some("59 Gi"));
}

#[test]
fn the_invalid_examples_are_refused_by_the_field_that_is_wrong() {
    let file = "invalid/ApplicationDeployment-wrong-kind.yaml";
    let problem = assert_refused(ApplicationDeployment::read(file, &fixture(file)), "kind", "SomethingErroneous");
    assert_eq!((problem.line, problem.column), (NonZeroU32::new(2), NonZeroU32::new(7)));
    let manifest = StateManifest::parse(&fixture("invalid/DesiredStateManifest-invalid-digest.json"));
    assert_refused(manifest, "bundle.digest", "`invalid-digest` is not a digest");
}
