//! Against a real registry, and with another client as the witness.

use repo_testkit::chart;

use super::manifest::OCI_INDEX;
use super::*;
use crate::{ARTIFACT_TYPE, LAYER_TYPE};

fn host() -> String {
    std::env::var("MARGO_TEST_REGISTRY").expect("MARGO_TEST_REGISTRY is set: run `./justw test`")
}

#[test]
fn an_archive_is_stored_as_any_oci_client_looks_for_it() {
    let (host, path) = (host(), format!("archives/{}/oci", std::process::id()));
    let registry = Registry::new(Settings::default());
    let reference = Reference::parse(&format!("oci://{host}/{path}"), "1.0.0").unwrap();
    let lock = registry.push(&reference, b"archive".to_vec()).unwrap();
    let (body, layer) = chart::pull(&host, &path, "1.0.0", LAYER_TYPE);
    assert_eq!((Digest::of(&body), layer), (lock.manifest, b"archive".to_vec()));
    let manifest: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(manifest["mediaType"], OCI_IMAGE);
    assert_eq!(manifest["artifactType"], ARTIFACT_TYPE);
    assert_eq!(registry.resolve(&reference).unwrap(), lock);
    // What is there isn't sent again, and means the same.
    assert_eq!(registry.push(&reference, b"archive".to_vec()).unwrap(), lock);
    assert_eq!(registry.pull(&reference, Some(&lock)).unwrap(), b"archive");
}

#[test]
fn the_same_archive_has_the_manifest_that_it_always_had() {
    let (config, layer) = (Digest::of(b"{}"), Digest::of(b"archive"));
    let body = serde_json::to_string(&Manifest::of_archive(layer, 7)).unwrap();
    let expected = format!(
        concat!(
            r#"{{"schemaVersion":2,"mediaType":"{}","#,
            r#""config":{{"mediaType":"application/vnd.oci.empty.v1+json","digest":"{}","size":2}},"#,
            r#""layers":[{{"mediaType":"{}","digest":"{}","size":7}}],"artifactType":"{}"}}"#
        ),
        OCI_IMAGE, config, LAYER_TYPE, layer, ARTIFACT_TYPE
    );
    assert_eq!(body, expected);
}

#[test]
fn an_index_is_no_artefact_and_what_a_tag_of_an_image_may_mean() {
    let host = host();
    let path = format!("archives/{}/index", std::process::id());
    let reference = Reference::parse(&format!("oci://{host}/{path}"), "1.0.0").unwrap();
    let registry = Registry::new(Settings::default());
    registry.push(&reference, b"archive".to_vec()).unwrap();
    let session = registry.session(&reference, Purpose::Push).unwrap();
    let index = br#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    session.push_manifest("2.0.0", "application/vnd.oci.image.index.v1+json", index).unwrap();
    let of_index = Reference::parse(&format!("oci://{host}/{path}"), "2.0.0").unwrap();
    let error = registry.resolve(&of_index).unwrap_err().to_string();
    assert!(error.contains("it is an index of several artefacts"), "{error}");
    let image = ImageReference::parse(&format!("{host}/{path}:2.0.0")).unwrap();
    assert_eq!(registry.resolve_image(&image).unwrap(), Digest::of(index));
}

#[test]
fn the_size_of_an_image_is_that_of_its_layers_for_the_platform() {
    let host = host();
    let path = format!("archives/{}/size", std::process::id());
    let reference = Reference::parse(&format!("oci://{host}/{path}"), "1.0.0").unwrap();
    let registry = Registry::new(Settings::default());
    let lock = registry.push(&reference, b"archive".to_vec()).unwrap();
    let session = registry.session(&reference, Purpose::Push).unwrap();
    let index = format!(
        r#"{{"schemaVersion":2,"mediaType":"{OCI_INDEX}","manifests":[{{"mediaType":"{OCI_IMAGE}","digest":"{}",
        "size":{},"platform":{{"os":"linux","architecture":"arm64"}}}}]}}"#,
        lock.manifest,
        session.manifest("1.0.0", IMAGES).unwrap().len()
    );
    session.push_manifest("2.0.0", OCI_INDEX, index.as_bytes()).unwrap();
    let size = |name: String, architecture| {
        let image = ImageReference::parse(&format!("{host}/{path}{name}")).unwrap();
        registry.image_layers(&image, architecture).unwrap().map(|layers| layers.size())
    };
    assert_eq!(size(":1.0.0".to_owned(), "amd64"), Some(7));
    assert_eq!(size(format!("@{}", lock.manifest), "amd64"), Some(7));
    assert_eq!(size(":2.0.0".to_owned(), "arm64"), Some(7));
    assert_eq!(size(":2.0.0".to_owned(), "amd64"), None, "nothing for this platform");
    let hostile = br#"{"schemaVersion":2,"layers":[{"mediaType":"x","digest":"y","size":-5},
        {"mediaType":"x","digest":"y","size":9223372036854775807},{"mediaType":"x","digest":"y","size":9223372036854775807},
        {"mediaType":"x","digest":"y","size":9}]}"#;
    let hostile: Sized = serde_json::from_slice(hostile).unwrap();
    assert_eq!((ImageLayers::new(hostile.sizes(), None).size(), hostile.configuration()), (u64::MAX, None));
}
