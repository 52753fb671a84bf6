//! Packages by URL (Margo's pre-draft): locked by what the address gave first, and written through unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use repo_model::Digest;
use repo_testkit::faults::scripted_host::{Host, Reply, answer};

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
    lab.leave_images();
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

/// Runs a tool that makes keys and signatures, in this directory.
fn tool(dir: &Path, program: &str, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new(program);
    let output = command.args(args).current_dir(dir).stdin(Stdio::null()).output().expect("gpg and ssh-keygen");
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// GnuPG with a key ring in this directory.
fn gpg(dir: &Path, args: &[&str]) -> Vec<u8> {
    let first = ["--homedir", "ring", "--batch", "--yes", "--quiet", "--passphrase", "", "--pinentry-mode", "loopback"];
    tool(dir, "gpg", &[&first, args].concat())
}

#[test]
#[allow(clippy::disallowed_methods, reason = "test files need no durability")]
fn an_archive_with_a_key_is_published_only_with_its_vendors_signature() {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/apps/hello");
    let archive = repo_artifacts::pack(&apps, "hello").expect("an archive");
    let digest = Digest::of(&archive).to_string();
    let dir = tempfile::Builder::new().prefix("gpg").tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("ring")).unwrap();
    fs::write(dir.join("archive"), &archive).unwrap();
    for name in ["vendor", "stranger"] {
        gpg(dir, &["--quick-gen-key", name, "ed25519", "sign", "never"]);
    }
    let signed_by =
        |name: &str| gpg(dir, &["--armor", "--local-user", name, "--detach-sign", "--output", "-", "archive"]);
    let served = Arc::new(Mutex::new(BTreeMap::from([
        ("/hello-1.tar.gz".to_owned(), archive.clone()),
        ("/hello-2.tar.gz".to_owned(), archive.clone()),
        ("/key".to_owned(), gpg(dir, &["--armor", "--export", "vendor"])),
    ])));
    let files = Arc::clone(&served);
    let host = Host::start(move |asked| {
        let path = asked.head.split(' ').nth(1).unwrap_or_default();
        Reply::Keep(match files.lock().unwrap().get(path) {
            Some(bytes) => answer("200 OK", &[], bytes),
            None => answer("404 Not Found", &[], b""),
        })
    });
    let serve = |path: &str, bytes: Vec<u8>| _ = served.lock().unwrap().insert(path.to_owned(), bytes);
    let lab = Lab::with(&["press-01"]);
    lab.leave_images();
    let package = "applications/hello/1.0.0/margo.yaml";
    let text = lab.read(package);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("revision:"));
    let (archive_url, key_url) = (host.url("/hello-1.tar.gz"), host.url("/key"));
    let place = |line: &str| match line.trim_start().starts_with("repository:") {
        true => format!("          packageLocation: {archive_url}\n          keyLocation: {key_url}\n"),
        false => format!("{line}\n"),
    };
    lab.write(package, lines.map(place).collect::<String>());
    lab.commit();
    let ca = lab.dir().join("plant-ca.pem");
    fs::write(&ca, host.authority.certificate()).unwrap();
    fs::write(lab.home.config(), format!("registries:\n  \"{}\": {{caFile: {}}}\n", host.address(), ca.display()))
        .unwrap();
    let refused = |expected: &str| {
        let said = lab.run(&["publish"]).failed(1);
        assert!(said.contains(expected), "{expected} in {said}");
    };
    refused("/hello-1.tar.gz.asc`");
    serve("/hello-1.tar.gz.asc", signed_by("stranger"));
    refused("it was made by the key");
    serve("/hello-1.tar.gz.asc", signed_by("vendor"));
    serve("/hello-1.tar.gz", repo_artifacts::pack(&apps, "other").expect("an archive"));
    refused("these aren't the bytes that were signed");
    serve("/hello-1.tar.gz", archive);
    lab.run(&["publish"]).good();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    let deployment = envelope["deployments"].as_object().unwrap().values().next().unwrap();
    assert_eq!(deployment["locks"]["hello"]["content"], digest.as_str());
    let document = lab.documents("press-01").into_values().next().unwrap();
    assert!(document.contains(&format!("keyLocation: {key_url}\n")), "{document}");
    // The next release comes with another key: an SSH one, with another signature beside it.
    tool(dir, "ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", "new"]);
    tool(dir, "ssh-keygen", &["-q", "-Y", "sign", "-f", "new", "-n", "file", "archive"]);
    serve("/key", fs::read(dir.join("new.pub")).unwrap());
    serve("/hello-2.tar.gz.sig", fs::read(dir.join("archive.sig")).unwrap());
    lab.run(&["publish"]).good();
    lab.edit(package, "hello-1.tar.gz", "hello-2.tar.gz");
    lab.commit();
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains(&format!("the key at {key_url} is SHA256:")), "{said}");
    assert!(said.contains("hint: ask the vendor by another way") && said.contains("--allow-new-key"), "{said}");
    lab.run(&["publish", "--allow-new-key"]).good();
    assert!(lab.documents("press-01").into_values().next().unwrap().contains("hello-2.tar.gz"));
    let _ = Command::new("gpgconf").args(["--homedir", "ring", "--kill", "all"]).current_dir(dir).status();
}
