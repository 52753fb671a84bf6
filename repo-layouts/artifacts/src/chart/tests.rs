use std::sync::{Arc, Mutex};

use repo_http::{Credential, Credentials};
use repo_model::Digest;
use repo_model::envelope::Lock;
use repo_model::margo::parameter::parse_path;
use repo_testkit::chart::{archive, pack, push};
use repo_testkit::faults::scripted_host::{Host, Reply, answer};
use serde_json::json;

use super::*;
use crate::{Reference, Registry, RegistryError, Settings};

const VALUES: &str = "image: {tag: \"1.0\"}\nresources: {}\n";

fn hello() -> Vec<u8> {
    pack("hello", "1.2.3", &[("values.yaml", VALUES), ("templates/a.yaml", "a: b\n")])
}

fn registry_host() -> String {
    std::env::var("MARGO_TEST_REGISTRY").expect("MARGO_TEST_REGISTRY is set: run the tests by `./justw test`")
}

#[test]
fn a_chart_says_its_name_its_version_and_its_values() {
    let chart = Chart::read(&hello()).unwrap();
    assert_eq!((chart.name.as_str(), chart.version.as_str()), ("hello", "1.2.3"));
    assert_eq!(chart.values, json!({"image": {"tag": "1.0"}, "resources": {}}));
    let declares = |chart: &Chart, pointer: &str| chart.declares(&parse_path(pointer).unwrap());
    assert!(declares(&chart, "image.tag") && declares(&chart, "resources.limits.cpu") && declares(&chart, "global.a"));
    assert!(!declares(&chart, "image.tga") && !declares(&chart, "other"));
    assert_eq!(Chart::read(&pack("hello", "1.2.3", &[])).unwrap().values, json!({}));
    let anchors = pack("hello", "1.0.0", &[("values.yaml", "a: &a {x: 1}\nb: {<<: *a, y: on}\n")]);
    assert!(declares(&Chart::read(&anchors).unwrap(), "b.x"));
}

#[test]
fn what_belongs_to_subcharts_is_theirs_to_know() {
    let parent =
        "apiVersion: v2\nname: p\nversion: 1.0.0\ndependencies:\n- {name: redis, version: 1.x.x, alias: cache}\n";
    let files = [("p/Chart.yaml", parent), ("p/charts/tools/Chart.yaml", ""), ("p/charts/zip-1.0.0.tgz", "")];
    let chart = Chart::read(&archive(files.map(|(path, text)| (path.to_owned(), text)))).unwrap();
    for pointer in ["cache.any", "tools.any"] {
        assert!(chart.declares(&parse_path(pointer).unwrap()), "{pointer}");
    }
    // An empty `values.yaml` declares nothing, but everything may be set below nothing.
    assert!(chart.declares(&parse_path("redis.any").unwrap()));
}

#[test]
fn what_helm_makes_before_anything_else_is_found_in_every_subchart_packed_or_not() {
    let file = |path: &str| (path.to_owned(), path.to_owned());
    let read = |files: &[(String, String)], packed: &str, inner: &[u8]| {
        let mut tar = tar::Builder::new(Vec::new());
        let files = files.iter().map(|(path, text)| (path.as_str(), text.as_bytes()));
        for (path, bytes) in files.chain([(packed, inner)].into_iter().filter(|(path, _)| !path.is_empty())) {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            tar.append(&header, bytes).unwrap();
        }
        let gzip = repo_model::gzip::compress(&tar.into_inner().unwrap(), repo_model::gzip::BEST);
        Chart::crds(&gzip).map_err(|error| repo_model::error_chain(&error))
    };
    let inner = archive([("z/crds/e.yaml".to_owned(), "packed"), ("z/templates/f.yaml".to_owned(), "no")]);
    let found = [
        "p/crds/a.yaml",
        "./q/crds/deep/er/b.YML",
        "p/charts/sub/crds/c.json",
        "p/charts/sub/charts/crds/crds/d.yaml",
        "./crds/in-a-chart-named-dot.yaml",
    ];
    let not = [
        "p/crds/README.md",
        "p/templates/crds/a.yaml",
        "p/charts/sub/templates/crds/a.yaml",
        "p/charts/crds/a.yaml",
        "p/files/crds/a.yaml",
    ];
    let files: Vec<_> = found.iter().chain(&not).map(|path| file(path)).collect();
    let expected: Vec<_> = found.iter().copied().chain(["packed"]).map(str::to_owned).collect();
    assert_eq!(read(&files, "p/charts/z-1.tgz", &inner), Ok(expected));
    for (path, said) in [("p\\crds\\a.yaml", "backslash"), ("p/../crds/a.yaml", "`..`")] {
        assert!(read(&[file(path)], "", &[]).unwrap_err().contains(said), "{path}");
    }
    assert!(read(&[], "p/crds/a.yaml", &[0xff]).unwrap_err().contains("not UTF-8"));
    let mut nested = inner;
    for _ in 0..5 {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(nested.len() as u64);
        tar.append_data(&mut header, "p/charts/z.tgz", &*nested).unwrap();
        nested = repo_model::gzip::compress(&tar.into_inner().unwrap(), repo_model::gzip::BEST);
    }
    assert!(repo_model::error_chain(&Chart::crds(&nested).unwrap_err()).contains("archives of subcharts"));
}

#[test]
fn a_bad_chart_says_why_it_is_one() {
    let read = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), *text));
        repo_model::error_chain(&Chart::read(&archive(files)).unwrap_err())
    };
    let good = ("x/Chart.yaml", "name: x\nversion: 1.0.0\n");
    for (files, said) in [
        (&[("Chart.yaml", "name: x\nversion: 1.0.0\n")][..], "no file `Chart.yaml`"),
        (&[("x/values.yaml", "")], "no file `Chart.yaml`"),
        (&[good, good], "twice"),
        (&[("x/Chart.yaml", "name: x\n")], "no `version`"),
        (&[("x/Chart.yaml", "name: [")], "can't read `Chart.yaml`"),
        (&[("x/Chart.yaml", "name: x\nversion: 1.0.0\ntype: library\n")], "library chart"),
        (&[good, ("x/values.yaml", "- a\n")], "isn't a mapping"),
        (&[good, ("x/values.yaml", "a: {")], "can't read `values.yaml`"),
        (&[good, ("../etc/passwd", "")], "contains `..`"),
        (&[good, ("/etc/passwd", "")], "absolute"),
    ] {
        assert!(read(files).contains(said), "{files:?}: {}", read(files));
    }
    let bomb = "0".repeat(8 << 20);
    assert!(read(&[good, ("x/values.yaml", &bomb)]).contains("unpacked bytes"));
    let many: Vec<_> = (0..5000).map(|index| (format!("x/{index}"), "")).collect();
    assert!(matches!(Chart::read(&archive(many)), Err(ChartError::Archive(ArchiveError::TooBig { .. }))));
    assert!(matches!(Chart::read(b"<html>"), Err(ChartError::Archive(ArchiveError::Read(_)))));
    assert!(matches!(Chart::read(&hello()[..100]), Err(ChartError::Archive(ArchiveError::Read(_)))));
}

#[test]
fn a_chart_in_a_registry_is_locked_and_pulled_whatever_its_tag_says_later() {
    let (host, path) = (registry_host(), format!("charts/{}/hello", std::process::id()));
    let (repository, registry) = (format!("oci://{host}/{path}"), Registry::new(Settings::default()));
    for (tag, provenance) in [("1.2.3", None), ("1.2.3_build.7", Some(&b"signed"[..]))] {
        push(&host, &path, tag, &hello(), provenance);
        let reference = ChartReference::oci(&repository, tag).unwrap();
        let lock = registry.resolve_chart(&reference).unwrap();
        assert_eq!(lock.content, Digest::of(&hello()));
        assert_eq!(registry.pull_chart(&reference, None).unwrap(), hello());
        push(&host, &path, tag, &pack("hello", "1.2.3", &[("values.yaml", "other: 1\n")]), None);
        assert_ne!(registry.resolve_chart(&reference).unwrap(), lock);
        assert_eq!(registry.pull_chart(&reference, Some(&lock)).unwrap(), hello());
        let other = Lock { content: Digest::of(b"other"), ..lock };
        let changed = registry.pull_chart(&reference, Some(&other));
        assert!(matches!(changed, Err(RegistryError::Changed { .. })), "{changed:?}");
        let as_archive = registry.resolve(&Reference::parse(&repository, tag).unwrap());
        assert!(matches!(as_archive, Err(RegistryError::Invalid { kind: "compose archive", .. })), "{as_archive:?}");
    }
    let missing = registry.resolve_chart(&ChartReference::oci(&repository, "9.9.9").unwrap());
    assert!(matches!(missing, Err(RegistryError::NotFound { .. })), "{missing:?}");
}

#[test]
fn a_compose_archive_is_no_chart() {
    let repository = format!("oci://{}/charts/{}/archive", registry_host(), std::process::id());
    let registry = Registry::new(Settings::default());
    registry.push(&Reference::parse(&repository, "1.0.0").unwrap(), b"archive".to_vec()).unwrap();
    let error = registry.resolve_chart(&ChartReference::oci(&repository, "1.0.0").unwrap()).unwrap_err();
    assert!(error.to_string().contains("is not a chart: it is of type"), "{error}");
}

/// A chart repository at `/stable`, with an account for everything below `/private`.
fn chart_repository(chart: &Arc<Mutex<Vec<u8>>>) -> Host {
    let served = Arc::clone(chart);
    Host::start(move |asked| {
        let chart = served.lock().unwrap().clone();
        let path = asked.head.split(' ').nth(1).unwrap_or_default();
        let may = !path.starts_with("/private/") || asked.head.contains("Basic bGluZTpzM2NyZXQ=");
        Reply::Keep(match path.trim_start_matches("/private") {
            _ if !may => answer("401 Unauthorized", &[], b""),
            "/stable/index.yaml" => answer("200 OK", &["Content-Type: text/yaml"], index(&asked.head).as_bytes()),
            "/empty/index.yaml" => answer("200 OK", &[], b"<html>please log in</html>"),
            "/stable/hello-1.2.3.tgz" | "/elsewhere/hello.tgz" => answer("200 OK", &[], &chart),
            _ => answer("404 Not Found", &[], b""),
        })
    })
}

fn index(head: &str) -> String {
    let host =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("host: ").map(str::to_owned)).unwrap();
    let digest = Digest::of(&hello()).to_string();
    let hex = digest.trim_start_matches("sha256:");
    format!(
        "apiVersion: v1
generated: 2026-01-01T00:00:00Z
entries:
  hello:
  - {{apiVersion: v2, name: hello, version: 1.2.3, urls: [hello-1.2.3.tgz], digest: {hex}, annotations: {{a: b}}}}
  - {{name: hello, version: v1.2.4, urls: [/elsewhere/hello.tgz], digest: \"sha256:{hex}\"}}
  - {{name: hello, version: 1.2.5+b.1, urls: [\"https://{host}/elsewhere/hello.tgz\", \"https://x.example/\"]}}
  - {{name: hello, version: 2.0.0, urls: [hello-1.2.3.tgz], digest: {other}}}
  - {{name: hello, version: 2.0.1, urls: []}}
  - {{name: hello, version: 2.0.2, urls: [\"http://{host}/elsewhere/hello.tgz\"]}}
  - {{name: hello, version: 2.0.3, urls: [gone.tgz]}}
  nothing:
",
        other = "0".repeat(64)
    )
}

fn registry(host: &Host) -> Registry {
    let extra_roots = vec![host.authority.certificate().as_bytes().to_vec()];
    Registry::new(Settings { extra_roots, ..Settings::default() })
}

fn version(host: &Host, version: &str) -> ChartReference {
    ChartReference::repository(&host.url("/stable"), "hello", version).unwrap()
}

#[test]
fn a_version_in_a_chart_repository_is_locked_by_the_charts_own_digest() {
    let served = Arc::new(Mutex::new(hello()));
    let host = chart_repository(&served);
    let registry = registry(&host);
    let digest = Digest::of(&hello());
    for text in ["1.2.3", "1.2.4", "1.2.5_b.1"] {
        let reference = version(&host, text);
        let lock = registry.resolve_chart(&reference).unwrap();
        assert_eq!(lock, Lock { manifest: digest, content: digest });
        assert_eq!(registry.pull_chart(&reference, Some(&lock)).unwrap(), hello());
        assert_eq!(registry.pull_chart(&reference, None).unwrap(), hello());
    }
    // The lock decides, not what the index says now.
    let lock = Lock { manifest: digest, content: digest };
    assert_eq!(registry.pull_chart(&version(&host, "2.0.0"), Some(&lock)).unwrap(), hello());
    *served.lock().unwrap() = pack("hello", "1.2.3", &[]);
    let changed = registry.pull_chart(&version(&host, "1.2.3"), Some(&lock));
    assert!(matches!(changed, Err(RegistryError::Changed { part: "chart", .. })), "{changed:?}");
    let unlocked = registry.pull_chart(&version(&host, "1.2.3"), None).unwrap_err();
    assert!(unlocked.to_string().contains("the index says"), "{unlocked}");
}

#[test]
fn whatever_is_wrong_with_a_chart_repository_has_its_name() {
    let served = Arc::new(Mutex::new(hello()));
    let host = chart_repository(&served);
    let registry = registry(&host);
    let resolve = |version_: &str| registry.resolve_chart(&version(&host, version_)).unwrap_err();
    assert!(matches!(resolve("2.0.0"), RegistryError::Invalid { kind: "chart", .. }));
    assert!(matches!(resolve("2.0.1"), RegistryError::Invalid { kind: "chart repository", .. }));
    assert!(matches!(resolve("2.0.2"), RegistryError::Invalid { kind: "chart repository", .. }));
    assert!(matches!(resolve("2.0.3"), RegistryError::NotFound { .. }));
    let missing = resolve("3.0.0").to_string();
    assert!(missing.contains("hello 3.0.0 of https://"), "{missing}");
    let at = |path: &str, chart: &str| ChartReference::repository(&host.url(path), chart, "1.2.3").unwrap();
    assert!(matches!(registry.resolve_chart(&at("/stable", "nothing")), Err(RegistryError::NotFound { .. })));
    assert!(matches!(registry.resolve_chart(&at("/empty", "hello")), Err(RegistryError::Invalid { .. })));
    assert!(matches!(registry.resolve_chart(&at("/", "hello")), Err(RegistryError::NotFound { .. })));
    let strange = Registry::new(Settings::default()).resolve_chart(&at("/stable", "hello"));
    assert!(matches!(strange, Err(RegistryError::Unavailable { .. })), "{strange:?}");
    *served.lock().unwrap() = b"<html>please log in</html>".to_vec();
    assert!(matches!(resolve("1.2.5_b.1"), RegistryError::Invalid { kind: "chart", .. }));
}

#[test]
fn a_private_chart_repository_sees_its_account() {
    let host = chart_repository(&Arc::new(Mutex::new(hello())));
    let reference = ChartReference::repository(&host.url("/private/stable/"), "hello", "1.2.3").unwrap();
    let anonymous = registry(&host).resolve_chart(&reference);
    assert!(matches!(anonymous, Err(RegistryError::Unavailable { .. })), "{anonymous:?}");
    let credential = Credential::Basic { user: "line".to_owned(), secret: "s3cret".to_owned() };
    let account = (host.address().to_string(), Credentials::of(move || Ok(credential.clone())));
    let extra_roots = vec![host.authority.certificate().as_bytes().to_vec()];
    let settings = Settings { extra_roots, accounts: [account].into(), ..Settings::default() };
    assert!(Registry::new(settings).resolve_chart(&reference).is_ok());
}

#[test]
fn only_a_repository_a_name_and_a_version_name_a_chart() {
    for (url, chart, version) in [
        ("http://charts.example", "a", "1.0.0"),
        ("https://user@charts.example", "a", "1.0.0"),
        ("https://charts.example/?x=1", "a", "1.0.0"),
        ("https://charts.example", "", "1.0.0"),
        ("https://charts.example", "a", ""),
    ] {
        assert!(ChartReference::repository(url, chart, version).is_err(), "{url} {chart} {version}");
    }
    assert!(ChartReference::oci("https://charts.example/a", "1.0.0").is_err());
    let shown = ChartReference::oci("oci://charts.example/a", "1.0.0_b").unwrap().to_string();
    assert_eq!(shown, "oci://charts.example/a:1.0.0_b");
}
