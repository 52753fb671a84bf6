//! ApplicationDescriptions: one mistake each, in the published example, and the types of schemas.

use repo_model::margo::ApplicationDescription;
use repo_model::margo::configuration::{DataType, ItemType};
use repo_model::problem::Problems;
use repo_model::value::ParamValue;

use super::{assert_refused, fixture_text};

const FILE: &str = "valid/ApplicationDescription-helm-and-compose.yaml";

#[track_caller]
fn edited(from: &str, to: &str) -> Result<(ApplicationDescription, Problems), Problems> {
    let text = fixture_text(FILE);
    assert!(text.contains(from), "{from}");
    ApplicationDescription::read(FILE, text.replacen(from, to, 1).as_bytes())
}

#[test]
fn each_mistake_is_refused_by_its_key() {
    for (from, to, key, message) in [
        ("kind: ApplicationDescription", "kind: Other", "kind", "is `Other`"),
        ("margo.org/v1-alpha1", "margo.org/v2", "apiVersion", "is `margo.org/v2`"),
        ("id: com-northstartida-digitron-orchestrator\n", "id: Com\n", "id", "is not a application id"),
        ("id: com-northstartida-digitron-orchestrator\n", "", "id", "is missing"),
        ("  version: 1.2.1", "  vers: 1.2.1", "metadata.version", "is missing"),
        ("deploymentProfiles:", "profiles:", "deploymentProfiles", "is missing"),
        ("orchestrator-compose-a", "orchestrator-helm-a", "deploymentProfiles", "two profiles"),
        ("requiredResources", "requiredResource", "deploymentProfiles[0].requiredResource", "unknown key"),
        ("- pointer: idp.name", "- pointer: idp..name", "parameters.idpName.targets[0].pointer", "no path"),
        ("- pointer: IDP_NAME", "- pointer: IDP-NAME", "parameters.idpName.targets[1].pointer", "environment variable"),
        ("- pointer: IDP_NAME", "- pointer: IDP_PROVIDER", "parameters", "`idpProvider` sets `IDP_PROVIDER`"),
        (
            "components: [\"digitron-orchestrator\"]",
            "components: [\"x\"]",
            "parameters.idpName.targets[0].components[0]",
            "there is no component `x`",
        ),
        (
            "- parameter: siteId",
            "- parameter: site",
            "configuration.sections[0].settings[1].parameter",
            "there is no parameter `site`",
        ),
        (
            "schema: optionalText",
            "schema: optional",
            "configuration.sections[0].settings[1].schema",
            "there is no schema `optional`",
        ),
        ("dataType: double", "dataType: float", "configuration.schema[5].dataType", "is `float`"),
        ("minValue: 0.5", "minValue: a", "configuration.schema[5].minValue", "must be a number"),
        ("- name: email\n      dataType", "- name: url\n      dataType", "configuration", "two schemas named `url`"),
    ] {
        assert_refused(edited(from, to), key, message);
    }
}

#[test]
fn vendors_may_write_more_in_the_catalogue_and_leave_defaults_empty() {
    let (description, _) = edited("    application:", "    vendorsOwn: {a: [1]}\n    application:").unwrap();
    assert_eq!(description.catalog.unwrap()["vendorsOwn"]["a"][0], 1);
    let (description, warnings) = edited("value: \"test\"", "value:").unwrap();
    assert_eq!((&description.parameters["idpName"].default, warnings.0.len()), (&None, 1));
    let (description, warnings) = edited("value: 30", "value: 1e3").unwrap();
    assert_eq!(description.parameters["pollFrequency"].default, Some(ParamValue::Double(1000.0)));
    assert!(warnings.0[0].to_string().contains("parameters.pollFrequency.value"), "{warnings}");
    let (description, _) =
        edited("id: com-northstartida-digitron-orchestrator\nmetadata:\n", "metadata:\n  id: com-a\n").unwrap();
    let (again, _) = ApplicationDescription::read("written", &description.to_yaml()).unwrap();
    assert!(again.id_in_metadata && again == description);
}

#[test]
fn a_data_type_fits_its_values() {
    use ParamValue::*;
    let values = [String("1".into()), Integer(1), Double(1.0), Boolean(true), Array(vec![Integer(1)])];
    let fits = |item, array| values.iter().map(|value| DataType { item, array }.fits(value)).collect::<Vec<_>>();
    assert_eq!(fits(ItemType::String, false), [true, false, false, false, false]);
    assert_eq!(fits(ItemType::Integer, false), [false, true, false, false, false]);
    assert_eq!(fits(ItemType::Double, false), [false, true, true, false, false]);
    assert_eq!(fits(ItemType::Boolean, false), [false, false, false, true, false]);
    assert_eq!(fits(ItemType::Integer, true), [false, false, false, false, true]);
    assert_eq!(fits(ItemType::String, true), [false, false, false, false, false]);
}
