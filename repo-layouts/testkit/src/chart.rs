//! Charts as `helm package` and `helm push` make them, for tests that have no helm: by another client of registries
//! than ours, so that each is a witness of the other.

use std::fs;
use std::path::Path;

use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use repo_artifacts::{CHART_CONFIG_TYPE, CHART_LAYER_TYPE, CHART_PROVENANCE_TYPE};
use repo_model::gzip;

/// The `.tgz` of a chart: these files beside a `Chart.yaml` that says name and version.
pub fn pack(name: &str, version: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let chart = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
    let files = files.iter().copied();
    archive([("Chart.yaml", &*chart)].into_iter().chain(files).map(|(path, text)| (format!("{name}/{path}"), text)))
}

/// The `.tgz` of a chart in a directory.
///
/// # Panics
/// If it can't be read.
pub fn pack_dir(chart: &Path) -> Vec<u8> {
    let name = chart.file_name().expect("a chart's directory").to_string_lossy().into_owned();
    let mut files = Vec::new();
    read_dir(chart, &name, &mut files);
    files.sort();
    archive(files.iter().map(|(path, text)| (path.clone(), text.as_str())))
}

fn read_dir(dir: &Path, prefix: &str, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = format!("{prefix}/{}", path.file_name().expect("a name").to_string_lossy());
        match path.is_dir() {
            true => read_dir(&path, &name, files),
            false => files.push((name, fs::read_to_string(&path).expect("text"))),
        }
    }
}

/// A gzipped tar with these files, named as they are.
pub fn archive<'a>(files: impl IntoIterator<Item = (String, &'a str)>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        header.set_cksum();
        tar.append(&header, text.as_bytes()).expect("a chart in memory");
    }
    gzip::compress(&tar.into_inner().expect("a chart in memory"), gzip::BEST)
}

/// Pushes a chart to a registry on loopback, with a provenance file beside it if there is one.
///
/// # Panics
/// If the registry doesn't take it.
pub fn push(host: &str, path: &str, tag: &str, chart: &[u8], provenance: Option<&[u8]>) {
    let image = Reference::with_tag(host.to_owned(), path.to_owned(), tag.to_owned());
    let layer = |bytes: &[u8], kind: &str| ImageLayer::new(bytes.to_vec(), kind.to_owned(), None);
    let mut layers = vec![layer(chart, CHART_LAYER_TYPE)];
    layers.extend(provenance.map(|bytes| layer(bytes, CHART_PROVENANCE_TYPE)));
    let config = Config::new(b"{\"apiVersion\":\"v2\"}".to_vec(), CHART_CONFIG_TYPE.to_owned(), None);
    let manifest = OciImageManifest::build(&layers, &config, None);
    let pushed = ask(Client::push(&client(), &image, &layers, config, &RegistryAuth::Anonymous, Some(manifest)));
    pushed.expect("the registry takes the chart");
}

/// The manifest with a tag and its one layer of a type, as another client than ours finds them in a registry on loopback.
///
/// # Panics
/// If it doesn't find them.
pub fn pull(host: &str, path: &str, tag: &str, layer_type: &str) -> (Vec<u8>, Vec<u8>) {
    let image = Reference::with_tag(host.to_owned(), path.to_owned(), tag.to_owned());
    let (client, accepted) = (client(), [OCI_IMAGE_MEDIA_TYPE]);
    let (manifest, _) = ask(client.pull_manifest_raw(&image, &RegistryAuth::Anonymous, &accepted)).expect("a manifest");
    let mut pulled = ask(client.pull(&image, &RegistryAuth::Anonymous, vec![layer_type])).expect("an artefact");
    assert_eq!(pulled.layers.len(), 1, "one layer of {layer_type}");
    (manifest.to_vec(), pulled.layers.remove(0).data.to_vec())
}

fn client() -> Client {
    // Someone else may have installed one already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::new(ClientConfig { protocol: ClientProtocol::Http, ..ClientConfig::default() })
}

fn ask<T>(question: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(question)
}
