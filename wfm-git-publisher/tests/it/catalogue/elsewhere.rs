//! Packages that are in registries and in Git repositories.

use repo_testkit::git::git;
use serde_json::json;
use wfm_git_host::accounts::Role;

use super::*;
use crate::host::Site;
use crate::registry::Registry;

const DESCRIPTION: &str = "application/vnd.margo.app.description.v1+yaml";

/// A layer of a package's manifest.
fn layer(registry: &Registry, kind: &str, bytes: &[u8], annotations: Value) -> Value {
    json!({ "mediaType": kind, "digest": registry.put_blob(bytes), "size": bytes.len(), "annotations": annotations })
}

fn manifest(layers: &[Value]) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.margo.app.v1+json",
        "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": format!("sha256:{}", "0".repeat(64)), "size": 2 },
        "layers": layers,
    })
}

/// The package's files as `oras push` and Margo's specification lay them out: one by its title, one by its key alone.
fn layers(registry: &Registry, version: &str) -> Vec<Value> {
    let title = |path: &str| json!({ "org.opencontainers.image.title": path });
    let icon = json!({ "org.margo.app.resource": "metadata.catalog.application.icon" });
    vec![
        layer(registry, "text/plain", LICENCE, title("resources/license.txt")),
        layer(registry, DESCRIPTION, description(version).as_bytes(), title("margo.yaml")),
        layer(registry, "image/png", &[0x89, b'P', b'N', b'G', 0, 13, 10], icon),
        layer(registry, "application/yaml", b"services: {}\n", title("./compose/counter/compose.yaml")),
    ]
}

#[test]
fn a_package_in_a_registry_is_the_same_as_its_folder() {
    let (lab, registry) = (Lab::new(), Registry::start());
    let pushed = manifest(&layers(&registry, "1.0.0")).to_string();
    let digest = registry.put_manifest("1.0.0", pushed.as_bytes());
    let tagged = format!("oci://{}/apps/counter:1.0.0", registry.host);
    let added = super::json(&lab, &["app", "add", &tagged]);
    assert_eq!((&added["wasThere"], &added["revision"]), (&false.into(), &digest.to_string().into()));
    let log = git(&lab.fleet, &["log", "-1", "--format=%b"]);
    assert_eq!(log, format!("From: {tagged} ({digest})"));
    assert_eq!(committed(&lab, "applications/counter/1.0.0/resources/license.txt"), LICENCE);
    let fixed = format!("oci://{}/apps/counter@{digest}", registry.host);
    for same in [fixed.as_str(), text(&package(&lab, "vendor", "1.0.0"))] {
        assert_eq!(super::json(&lab, &["app", "add", same])["wasThere"], true, "{same}");
    }
    // A tag should be the version (Margo, *Application Registry*); and an update is seen where it is.
    registry.put_manifest("latest", manifest(&layers(&registry, "1.1.0")).to_string().as_bytes());
    let latest = format!("oci://{}/apps/counter:latest", registry.host);
    assert!(lab.run(&["app", "diff", "counter@1.0.0", &latest]).good().contains("~ version: 1.0.0 → 1.1.0"));
    let ran = lab.run(&["app", "add", &latest, "--dry-run"]);
    assert!(ran.err.contains("is version 1.1.0, and its tag is `latest`"), "{}", ran.err);
    ran.good();
}

#[test]
fn what_a_registry_has_otherwise_than_it_should_be_is_refused() {
    let (lab, registry) = (Lab::new(), Registry::start());
    let title = |path: &str| json!({ "org.opencontainers.image.title": path });
    let with = |more: Value| {
        let mut all = layers(&registry, "1.0.0");
        all.push(more);
        manifest(&all)
    };
    let mut other_type = manifest(&layers(&registry, "1.0.0"));
    other_type["artifactType"] = "application/vnd.oci.image.config.v1+json".into();
    let mut large = layer(&registry, "text/plain", b"x", title("large"));
    large["size"] = (64 << 20).into();
    let mut lying = layer(&registry, "text/plain", b"x", title("lying"));
    lying["digest"] = format!("sha256:{}", "1".repeat(64)).into();
    let unpack = json!({ "org.opencontainers.image.title": "resources", "io.deis.oras.content.unpack": "true" });
    let bad: [(Value, &str); 9] = [
        (other_type, "is not a Margo application package: it is of type"),
        (json!({ "schemaVersion": 2, "manifests": [] }), "it is an index of several artefacts"),
        (with(layer(&registry, "text/plain", b"x", title("../../x"))), "has a path that leads elsewhere"),
        (with(layer(&registry, "text/plain", b"x", title(".gitattributes"))), "would have git change files"),
        (with(layer(&registry, "text/plain", b"x", title("margo.yaml"))), "there are two of this file"),
        (with(layer(&registry, "text/plain", b"x", json!({}))), "nothing says which file it is"),
        (with(layer(&registry, "text/plain", b"x", unpack)), "is a folder packed as one"),
        (with(large), "its files have more than 33554432 bytes"),
        (with(lying), "doesn't exist in its registry"),
    ];
    for (manifest, why) in bad {
        registry.put_manifest("1.0.0", manifest.to_string().as_bytes());
        let said = refused(&lab, &["app", "add", &format!("oci://{}/apps/counter:1.0.0", registry.host)]);
        assert!(said.contains(why), "{why}: {said}");
    }
    assert!(lab.run(&["app", "add", "oci://r.example/counter"]).failed(2).contains("name a tag"));
}

/// A vendor's repository, with what would do something if it were checked out.
fn repository(lab: &Lab) -> PathBuf {
    let dir = lab.dir().join("upstream");
    let top = package(lab, "upstream/packages/counter", "1.0.0");
    assert!(top.join("margo.yaml").exists());
    git(&dir, &["init", "--quiet", "--initial-branch=main"]);
    write(&dir, ".gitattributes", "*.txt filter=run text\n");
    git(&dir, &["config", "filter.run.smudge", "false"]);
    git(&dir, &["-c", "core.autocrlf=false", "-c", "core.attributesFile=/dev/null", "add", "packages"]);
    git(&dir, &["add", ".gitattributes"]);
    git(&dir, &["commit", "--quiet", "--message", "one"]);
    git(&dir, &["tag", "-a", "v1.0.0", "-m", "one"]);
    dir
}

#[test]
fn a_package_in_a_git_repository_is_taken_from_one_commit_and_nothing_is_checked_out() {
    let lab = Lab::new();
    let upstream = repository(&lab);
    // What is committed there, which line ends it has is the vendor's business.
    let licence = repo_testkit::git::show(&upstream, "HEAD", "packages/counter/resources/license.txt").unwrap();
    let commit = git(&upstream, &["rev-parse", "HEAD"]);
    write(&upstream, "packages/counter/resources/license.txt", "later terms");
    git(&upstream, &["commit", "--quiet", "--all", "--message", "two"]);
    let at = |rev: &str| format!("git+file://{}@{rev}//packages/counter", upstream.display());
    let added = super::json(&lab, &["app", "add", &at("v1.0.0")]);
    assert_eq!(added["revision"], commit);
    assert_eq!(git(&lab.fleet, &["log", "-1", "--format=%b"]), format!("From: {} ({commit})", at("v1.0.0")));
    assert_eq!(committed(&lab, "applications/counter/1.0.0/resources/license.txt"), licence);
    assert_eq!(super::json(&lab, &["app", "add", &at(&commit)])["wasThere"], true);
    assert!(refused(&lab, &["app", "add", &at("main")]).contains("with other files: resources/license.txt"));
    assert_eq!(stands(&lab).1, "");
    let left = fs::read_dir(lab.path(".git"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("app"));
    assert_eq!(left.count(), 0, "nothing is left behind");
    for (origin, why) in [
        (format!("git+file://{}@v1.0.0", upstream.display()), "margo.yaml: is missing"),
        (format!("git+file://{}@v1.0.0//nowhere", upstream.display()), "there is no folder `nowhere`"),
        (at("v9"), "git can't fetch"),
        ("git+file:///nowhere@v1".to_owned(), "git can't fetch"),
    ] {
        let said = refused(&lab, &["app", "add", &origin]);
        assert!(said.contains(why), "{why}: {said}");
    }
    // Links and submodules are no files of a package.
    let folder = upstream.join("packages/counter");
    std::os::unix::fs::symlink("/etc/passwd", folder.join("passwd")).unwrap();
    git(&upstream, &["add", "packages"]);
    git(&upstream, &["update-index", "--add", "--cacheinfo", &format!("160000,{commit},packages/counter/module")]);
    git(&upstream, &["commit", "--quiet", "--message", "three"]);
    let said = refused(&lab, &["app", "add", &at("main")]);
    for path in ["packages/counter/passwd: is a link", "packages/counter/module: is a link or a submodule"] {
        assert!(said.contains(path), "{path}: {said}");
    }
    for option in ["--upload-pack=touch", "-v", "+main:refs/heads/x"] {
        lab.run(&["app", "add", &at(option)]).failed(2);
    }
}

#[test]
fn a_repository_over_https_is_asked_with_the_operators_own_credentials_and_nobody_is_prompted() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let hosted = lab.home.hosted_fleet();
    git(lab.dir(), &["clone", "--quiet", "--bare", "fleet", text(&hosted)]);
    let site = Site::on(lab, "");
    let login = site.login("olga", Role::Operator, None);
    let settings = site.lab.dir().join("olga.gitconfig");
    let origin = format!("git+{}@main//applications/hello/1.0.0", site.url("fleet.git"));
    let diff = |header: &str| {
        let trust = format!("[http]\n  sslCAInfo = {}\n{header}", site.ca.display());
        fs::write(&settings, trust).unwrap();
        let mut command = site.lab.command(&["app", "diff", "hello@1.0.0", &origin]);
        crate::support::Ran::of(command.env("GIT_CONFIG_GLOBAL", &settings).output().unwrap())
    };
    let said = diff("").failed(1);
    assert!(said.contains("git can't fetch") && !said.contains(&login.secret), "{said}");
    let header = format!("  extraHeader = \"Authorization: Basic {}\"\n", login.basic());
    assert_eq!(diff(&header).good(), "hello@1.0.0 → hello@1.0.0\n  nothing is different\n");
    // No other protocol, wherever a setting leads.
    let elsewhere = format!("{header}[url \"file://{}\"]\n  insteadOf = {}\n", hosted.display(), site.url("fleet.git"));
    assert!(diff(&elsewhere).failed(1).contains("transport 'file' not allowed"));
}
