//! `audit sbom`: which charts, archives and images ran where and when.

use cyclonedx_bom::prelude::{Bom, SpecVersion, Validate};
use repo_model::Digest;
use serde_json::Value;

use super::forge::{BAD, Forge, GOOD, Sign};
use super::honest::IMAGE;

fn bill(forge: &Forge, more: &[&str]) -> Value {
    let text = forge.command("sbom", &[&["--output", "json"], more].concat()).good();
    let read = Bom::parse_from_json(text.as_bytes()).unwrap();
    assert!(read.validate_version(SpecVersion::V1_5).passed(), "{:?}", read.validate_version(SpecVersion::V1_5));
    serde_json::from_str(&text).unwrap()
}

/// The components of a type.
fn of<'a>(bill: &'a Value, kind: &str) -> Vec<&'a Value> {
    bill["components"].as_array().unwrap().iter().filter(|one| one["type"] == kind).collect()
}

/// Where and when a component ran.
fn ran(component: &Value) -> Vec<&str> {
    let properties = component["properties"].as_array().unwrap().iter();
    properties.filter(|one| one["name"] == "margo-gitops:ran").map(|one| one["value"].as_str().unwrap()).collect()
}

fn needs<'a>(bill: &'a Value, reference: &str) -> Vec<&'a str> {
    let all = bill["dependencies"].as_array().unwrap().iter();
    let of = all.filter(|one| one["ref"] == reference).flat_map(|one| one["dependsOn"].as_array().unwrap());
    of.map(|one| one.as_str().unwrap()).collect()
}

#[test]
fn a_bill_of_materials_has_each_archive_and_image_once_with_where_and_when_it_ran() {
    let forge = Forge::new();
    let whole = bill(&forge, &[]);
    assert_eq!((&whole["bomFormat"], &whole["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(of(&whole, "device").len(), 2);
    let (archives, images) = (of(&whole, "application"), of(&whole, "container"));
    assert_eq!((archives.len(), images.len()), (1, 1), "{whole:#}");
    // By its publisher's lock, which stock Git shows, too.
    let envelope: Value = serde_json::from_str(&forge.git(&["show", "desired:envelope.json"])).unwrap();
    let described = envelope["deployments"].as_object().unwrap().values().next().unwrap();
    let digest = described["locks"]["hello"]["content"].as_str().unwrap();
    assert_eq!(archives[0]["hashes"][0]["content"], digest.trim_start_matches("sha256:"));
    assert_eq!(archives[0]["version"], "1.0.0");
    // By its device's.
    let (name, tag) = IMAGE.rsplit_once(':').unwrap();
    assert_eq!((&images[0]["name"], &images[0]["version"]), (&name.into(), &tag.into()));
    assert_eq!(images[0]["hashes"][0]["content"], Digest::of(IMAGE.as_bytes()).hex());
    assert!(images[0]["purl"].as_str().unwrap().starts_with("pkg:oci/busybox@sha256"), "{:#}", images[0]);
    // Five states of hello and one of second on each device; the newest go on.
    for component in [archives[0], images[0]] {
        let ran = ran(component);
        let count = |begin: &str| ran.iter().filter(|text| text.starts_with(begin)).count();
        assert_eq!((count("press-01 hello/hello "), count("press-01 second/hello ")), (5, 1), "{ran:?}");
        assert_eq!((count("packer-01 hello/hello "), ran.len()), (5, 12), "{ran:?}");
        assert_eq!(ran.iter().filter(|text| text.ends_with("/..")).count(), 2, "{ran:?}");
    }
    let (archive, image) = (archives[0]["bom-ref"].as_str().unwrap(), images[0]["bom-ref"].as_str().unwrap());
    assert_eq!((needs(&whole, "device:press-01"), needs(&whole, archive)), (vec![archive], vec![image]));
    let some = bill(&forge, &["--device", GOOD, "--to", "2001-01-01T00:00:00Z"]);
    assert_eq!((of(&some, "device").len(), of(&some, "container").len()), (1, 0), "{some:#}");

    let page = forge.command("sbom", &["--device", BAD]).good();
    let rows = |what: &str| page.lines().filter(|line| line.contains(what) && line.contains("sha256:")).count();
    assert_eq!((rows("  archive  "), rows("  image  "), rows(GOOD)), (6, 6, 0), "{page}");
    assert!(page.contains("What isn't here:\n- images that a chart renders to"), "{page}");
}

#[test]
fn a_bill_of_materials_has_nothing_of_a_report_that_is_forged_and_says_so() {
    let forge = Forge::new();
    forge.text("status", 0, Sign::By("stranger", "git"), |text| text);
    let ran_then = forge.command("sbom", &["--output", "json"]);
    assert_eq!(ran_then.code, Some(1));
    assert!(ran_then.err.contains("the audit finds something wrong"), "{}", ran_then.err);
    let bill: Value = serde_json::from_str(&ran_then.out).unwrap();
    let properties = bill["metadata"]["properties"].as_array().unwrap();
    assert!(properties.iter().any(|one| one["value"] == "something is wrong"), "{properties:?}");
    let ran = ran(of(&bill, "container")[0]);
    assert_eq!(ran.iter().filter(|text| text.starts_with("press-01 hello/hello ")).count(), 4, "{ran:?}");
}
