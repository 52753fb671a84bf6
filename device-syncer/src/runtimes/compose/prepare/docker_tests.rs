//! What real Compose can read while it resolves, the check of the raw files left out.

use repo_model::{DeploymentId, Digest};
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::runtimes::compose::testing::{archive, settings};
use crate::runtimes::sandbox::Sandbox;
use crate::runtimes::{ComposeSettings, Lasting};

struct World {
    dir: tempfile::TempDir,
    runtime: ComposeRuntime,
    component: Component,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = std::env::var_os("DOCKER_CONFIG").expect("DOCKER_CONFIG is set: run the tests by `./justw test`");
        let environment = [("DOCKER_CONFIG".into(), config)].into();
        let settings = ComposeSettings { environment, ..settings(dir.path()) };
        let component = Component {
            deployment: DeploymentId::from(Uuid::nil()),
            deployment_name: "test".parse().unwrap(),
            component: "app".parse().unwrap(),
            project: "p".to_owned(),
            repository: "oci://registry.invalid/app".to_owned(),
            revision: "1.0.0".to_owned(),
            lock: None,
            images: Default::default(),
            kind: Kind::Compose { parameters: BTreeMap::new(), secrets: Default::default() },
            input_digest: Digest::of(b"1"),
            fleet_digest: Digest::of(b"1"),
            wait: false,
            timeout: QUERY,
        };
        let lasting = Lasting::new(&settings.cache_dir);
        Self { runtime: ComposeRuntime::new(settings, lasting.into()).unwrap(), dir, component }
    }

    fn resolve(&self, files: &[(&str, &str)]) -> Result<Resolved, RuntimeError> {
        let staging = Staging::new(&self.runtime.settings.cache_dir, "p", &archive(files)).unwrap();
        let parameters = BTreeMap::from([("NAME".to_owned(), "you".to_owned())]);
        self.runtime.resolve(&self.component, &parameters, &staging, &Redactor::default(), &|| false)
    }
}

#[test]
fn what_the_check_of_raw_files_lets_through_still_reads_nothing_of_the_host() {
    let mut world = World::new();
    let write = |name: &str, text: &str, mode| {
        let path = world.dir.path().join(name);
        repo_git::durable::replace_file(&path, text.as_bytes(), mode).unwrap();
        path.display().to_string()
    };
    let parsed = write("parsed", "services: {a: {image: canary}}\n", 0o600);
    let quoted = write("home/quoted", "{\"secret\": \"canary\"}\n", 0o600);
    let open = write("open", "A=canary\n", 0o644);
    let read = |key: &str, path: &str| match key {
        "include" => format!("include: ['{path}']\nservices: {{b: {{image: i}}}}\n"),
        "extends" => format!("services: {{b: {{extends: {{file: '{path}', service: a}}}}}}\n"),
        key => format!("services: {{b: {{image: i, {key}: ['{path}']}}}}\n"),
    };
    for (key, path) in [
        ("env_file", &*quoted),
        ("env_file", &*open),
        ("env_file", "/etc/passwd"),
        ("env_file", "/proc/self/environ"),
        ("label_file", &*open),
        ("extends", &*parsed),
        ("include", &*parsed),
        ("include", "/etc/passwd"),
    ] {
        let error = world.resolve(&[("compose.yaml", &read(key, path))]).unwrap_err();
        let text = repo_model::error_chain(&error);
        assert_eq!(error.code(), "artifact-invalid", "{key} {path}: {text}");
        for words in ["canary", "root:", "NAME", path] {
            assert!(!text.contains(words), "{key} {path}: {words} in {text}");
        }
        assert!(text.contains("docker compose config"), "{text}");
    }

    // And it would have been read.
    let settings = world.runtime.settings.sandbox.clone();
    world.runtime.sandbox = Sandbox::with(settings, Confinement::OPEN);
    for (key, path) in [("env_file", &open), ("label_file", &open), ("extends", &parsed), ("include", &parsed)] {
        let resolved = world.resolve(&[("compose.yaml", &read(key, path))]).unwrap();
        assert!(resolved.document().to_string().contains("canary"), "{key}");
    }
    let error = world.resolve(&[("compose.yaml", &read("env_file", &quoted))]).unwrap_err().to_string();
    assert!(!error.contains("canary"), "even then it isn't quoted: {error}");
}

#[test]
fn all_files_of_the_archive_that_compose_reads_are_read() {
    let world = World::new();
    let files = [
        (
            "compose.yaml",
            "\u{feff}include: [sub/inner.yaml]\r\nservices:\r\n  a:\r\n    image: 'i:${DOT}'\r\n    env_file: [conf/a.env]\r\n    \
             label_file: l.label\r\n    extends: {file: base.yaml, service: b}\r\n    environment: {NAME: '${NAME}'}\r\n    \
             volumes: ['./data:/d']\r\n    configs: [c]\r\nconfigs: {c: {file: ./c.txt}}\r\n",
        ),
        ("base.yaml", "services: {b: {image: i, environment: {BASE: '1'}}}\n"),
        ("sub/inner.yaml", "services: {c: {image: 'i:${SUB}', volumes: ['./q:/q']}}\n"),
        ("sub/.env", "SUB=5\n"),
        (".env", "DOT=4\r\n"),
        ("conf/a.env", "# comment\r\nA='b c'\r\n"),
        ("l.label", "l=m\n"),
        ("c.txt", "z"),
    ];
    repo_artifacts::compose::check(&archive(&files)).unwrap();
    let mut resolved = world.resolve(&files).unwrap();
    resolved.rebase(Path::new(sandbox::DIRECTORY), Path::new("/p/files"));
    let (document, a) = (resolved.document(), &resolved.document()["services"]["a"]);
    assert_eq!(a["environment"], json!({"A": "b c", "BASE": "1", "NAME": "you"}));
    assert_eq!((&a["image"], &a["labels"]), (&json!("i:4"), &json!({"l": "m"})));
    assert_eq!(a["volumes"][0]["source"], "/p/files/data");
    assert_eq!(document["configs"]["c"]["file"], "/p/files/c.txt");
    let c = &document["services"]["c"];
    assert_eq!((&c["image"], &c["volumes"][0]["source"]), (&json!("i:5"), &json!("/p/files/sub/q")));

    let error = world.resolve(&[("compose.yaml", "services: {a: {image: '${MISSING:?must be set}'}}")]).unwrap_err();
    assert!(error.to_string().contains("MISSING") && error.to_string().contains("must be set"), "{error}");
    let error = world.resolve(&[("compose.yaml", "services: {a: {image: i, nonsense: 1}}")]).unwrap_err();
    assert!(error.to_string().contains("validating compose.yaml: services.a"), "{error}");
}
