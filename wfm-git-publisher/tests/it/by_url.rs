//! Packages by URL (Margo's pre-draft): locked by what the address gave first, and written through unchanged.

use std::sync::{Arc, Mutex};

use repo_model::Digest;
use repo_testkit::scripted_host::{Host, Reply, answer};

use crate::support::Lab;

#[test]
fn an_archive_by_url_is_locked_for_the_whole_fleet_when_it_is_first_published() {
    let apps = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/apps/hello");
    let archive = repo_artifacts::pack(&apps, "hello").expect("an archive");
    let digest = Digest::of(&archive).to_string();
    let served = Arc::new(Mutex::new(archive));
    let bytes = Arc::clone(&served);
    let host = Host::start(move |_| {
        Reply::Keep(answer("200 OK", &["Content-Type: application/gzip"], &bytes.lock().unwrap()))
    });
    let lab = Lab::with(&["press-01", "press-02"]);
    let url = host.url("/hello-1.0.0.tar.gz");
    let package = "applications/hello/1.0.0/margo.yaml";
    let text = lab.read(package);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("revision:"));
    let place = |line: &str| match line.trim_start().starts_with("repository:") {
        true => format!("          packageLocation: {url}\n"),
        false => format!("{line}\n"),
    };
    lab.write(package, lines.map(place).collect::<String>());
    lab.commit();
    // Nothing is locked that can't be had: its authority isn't trusted yet.
    let said = lab.run(&["publish"]);
    assert_ne!(said.code, Some(0));
    assert!(format!("{}{}", said.out, said.err).contains("no authority that is trusted"), "{}{}", said.out, said.err);
    let ca = lab.dir().join("plant-ca.pem");
    repo_git::durable::replace_file(&ca, host.authority.certificate().as_bytes(), 0o600).unwrap();
    let config = format!("registries:\n  \"{}\": {{caFile: {}}}\n", host.address(), ca.display());
    repo_git::durable::replace_file(&lab.home.config(), config.as_bytes(), 0o600).unwrap();
    lab.run(&["publish"]).good();
    // From now on the address means what it meant, whatever is there now.
    *served.lock().unwrap() = b"something else".to_vec();
    lab.edit("deployments/hello.yaml", "hello from the press", "greetings from the press");
    lab.commit();
    lab.run(&["publish"]).good();
    for device in ["press-01", "press-02"] {
        let envelope = lab.json(device, "desired", "envelope.json");
        let deployment = envelope["deployments"].as_object().unwrap().values().next().unwrap();
        assert_eq!(deployment["locks"]["hello"]["content"], digest.as_str());
        assert_eq!(deployment["locks"]["hello"]["manifest"], digest.as_str());
        let documents = lab.documents(device);
        let document = documents.values().next().unwrap();
        assert!(document.contains("packageLocation:") && document.contains(&url), "{document}");
        assert!(!document.contains("repository:") && !document.contains("revision:"), "{document}");
    }
}
