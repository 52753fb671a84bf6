//! Stock git reads: clone, fetch with and without depth, ls-remote, in every version of the protocol.

use repo_model::FileTree;
use repo_model::roster::{ROSTER_NAMESPACE, Roster, Trust, roster_path, signature_path};
use repo_testkit::git;
use wfm_git_host::accounts::Role;

use super::{DEVICE, OTHER, Site, eventually, printed, said};

#[test]
fn stock_git_clones_fetches_and_lists_in_every_protocol_version() {
    let site = Site::new();
    let device = site.device();
    let url = site.url("devices/press-01.git");
    for version in ["0", "1", "2"] {
        let protocol = format!("protocol.version={version}");
        let git = |args: &[&str]| site.git(site.lab.dir(), Some(&device)).args(["-c", &protocol]).args(args).output();
        let listed = printed(&git(&["ls-remote", "--symref", &url]).unwrap());
        let desired = site.lab.tip(DEVICE, "desired").unwrap();
        for line in [
            "ref: refs/heads/desired\tHEAD".to_owned(),
            format!("{desired}\tHEAD"),
            format!("{desired}\trefs/heads/desired"),
            format!("{}\trefs/heads/freshness", site.lab.tip(DEVICE, "freshness").unwrap()),
        ] {
            assert!(listed.lines().any(|found| found == line), "v{version}: {line} in {listed}");
        }
        let name = format!("clone-{version}");
        let cloned = git(&["clone", "-q", &url, &name]).unwrap();
        assert!(cloned.status.success(), "v{version}: {}", said(&cloned));
        let clone = site.lab.dir().join(&name);
        assert_eq!(git::git(&clone, &["rev-parse", "HEAD"]), desired);
        git::git(&clone, &["fsck", "--strict"]);
    }
}

#[test]
fn a_shallow_fetch_brings_the_tip_alone_and_deepens() {
    let site = Site::new();
    let device = site.device();
    for text in ["one", "two"] {
        site.lab.edit("deployments/hello.yaml", "greeting:", &format!("greeting: {text} #"));
        site.lab.commit();
        site.lab.publish_all();
    }
    for version in ["0", "2"] {
        let protocol = format!("protocol.version={version}");
        let clone = site.lab.dir().join(format!("shallow-{version}"));
        let git = |dir: &std::path::Path, args: &[&str]| {
            let output = site.git(dir, Some(&device)).args(["-c", &protocol]).args(args).output().unwrap();
            assert!(output.status.success(), "v{version} {args:?}: {}", said(&output));
        };
        let url = site.url("devices/press-01.git");
        git(site.lab.dir(), &["clone", "-q", "--depth", "1", &url, &clone.display().to_string()]);
        assert_eq!(git::git(&clone, &["rev-list", "--count", "HEAD"]), "1");
        git(&clone, &["fetch", "-q", "--depth", "2"]);
        assert_eq!(git::git(&clone, &["rev-list", "--count", "HEAD"]), "2");
        git(&clone, &["fetch", "-q", "--unshallow"]);
        assert_eq!(git::git(&clone, &["rev-list", "--count", "HEAD"]), "3");
    }
}

#[test]
fn a_malformed_wait_is_400_and_another_method_405_where_there_is_something() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let id = site.lab.tip(DEVICE, "desired").expect("it is published");
    let wait = |name: &str, query: &str| format!("/devices/{name}.git/wait{query}");
    for query in [
        String::new(),
        "?".to_owned(),
        format!("?desired={id}"),
        format!("?desired={id}&freshness="),
        format!("?desired={id}&freshness={}", &id[..39]),
        format!("?desired={id}&freshness={id}&freshness={id}"),
        format!("?desired={id}&desired={id}&freshness={id}"),
    ] {
        let answer = site.get(&wait(DEVICE, &query), Some(&device));
        assert_eq!((answer.status, answer.text().lines().count()), (400, 1), "{query}: {}", answer.text());
        assert_eq!(site.get(&wait(OTHER, &query), Some(&device)).status, 404, "{query}");
    }
    // The dumb protocol isn't there.
    for path in ["info/refs", "info/refs?service=git-upload-archive", "HEAD", "objects/info/packs"] {
        assert_eq!(site.get(&format!("/devices/{DEVICE}.git/{path}"), Some(&device)).status, 404, "{path}");
    }
    let at_device = |path: &str| format!("/devices/{DEVICE}.git/{path}");
    for (method, path, allowed) in [
        ("POST", at_device("info/refs?service=git-upload-pack"), "get"),
        ("PUT", at_device(&format!("wait?desired={id}&freshness={id}")), "get"),
        ("POST", at_device("wait"), "get"),
        ("GET", at_device("git-upload-pack"), "post"),
        ("GET", at_device("git-receive-pack"), "post"),
        ("POST", "/account".to_owned(), "get, head"),
        ("GET", "/account/renew".to_owned(), "post"),
        ("POST", "/healthz".to_owned(), "get, head"),
        ("DELETE", "/readyz".to_owned(), "get, head"),
    ] {
        let answer = site.request(&format!("{method} {path} HTTP/1.1"), Some(&device), b"");
        assert_eq!((answer.status, answer.header("allow").as_deref()), (405, Some(allowed)), "{method} {path}");
    }
    for (login, status) in [(&device, 404), (&auditor, 405)] {
        assert_eq!(site.request("POST /metrics HTTP/1.1", Some(login), b"").status, status);
    }
}

#[test]
fn credentials_are_asked_for_and_everything_else_stays_in_the_dark() {
    let site = Site::new();
    let device = site.device();
    let refs = |name: &str| format!("/devices/{name}.git/info/refs?service=git-upload-pack");
    for path in [refs(DEVICE), refs("nobody"), "/".to_owned(), "/metrics".to_owned(), "/account".to_owned()] {
        let answer = site.get(&path, None);
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.header("www-authenticate").as_deref(), Some("basic realm=\"wfm\""), "{path}");
    }
    assert_eq!(site.get(&refs(DEVICE), Some(&device)).status, 200);
    let hidden = site.get(&refs(OTHER), Some(&device));
    let missing = site.get(&refs("nobody"), Some(&device));
    assert_eq!((hidden.status, hidden.text()), (404, missing.text()));
    let date = |headers: &str| headers.lines().filter(|line| !line.starts_with("date:")).count();
    assert_eq!(date(&hidden.headers), date(&missing.headers));
    for path in ["/control.git/info/refs?service=git-upload-pack", "/fleet.git/git-upload-pack", "/metrics"] {
        assert_eq!(site.get(path, Some(&device)).status, 404, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(site.get(path, None).status, 200, "{path}");
    }
}

#[test]
fn anybody_is_told_the_rosters_after_a_version_and_they_prove_themselves() {
    let site = Site::new();
    let (lab, first) = (&site.lab, git::git(&site.lab.home.control(), &["show", "control:trust/1.json"]));
    for days in ["300", "200"] {
        lab.run(&["trust", "propose", "--not-after", days]).good();
        lab.run(&["trust", "sign", "--key", &lab.home.root_key().display().to_string()]).good();
        lab.run(&["trust", "publish"]).good();
    }
    let told = |from: u64| {
        let answer = site.get(&format!("/trust?from={from}"), None);
        assert_eq!((answer.status, answer.header("content-type").as_deref()), (200, Some("application/json")));
        let text: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        text["rosters"].as_array().unwrap().clone()
    };
    assert_eq!([0, 1, 2, 3, u64::MAX].map(|from| told(from).len()), [3, 2, 1, 0, 0]);
    let first = first + "\n";
    let mut files = FileTree::from([(roster_path(1), first.clone().into_bytes())]);
    for step in told(1) {
        let version = step["version"].as_u64().unwrap();
        files.insert(roster_path(version), step["roster"].as_str().unwrap().as_bytes().to_vec());
        let signature = step["signatures"]["0"].as_str().unwrap().as_bytes().to_vec();
        files.insert(signature_path(version, 0), signature);
    }
    let fleet = serde_json::from_str::<Roster>(&first).unwrap().fleet;
    let signer = |bytes: &[u8], armored: &str| {
        repo_git::sign::verify(ROSTER_NAMESPACE, bytes, armored).ok().and_then(|key| key.to_string().parse().ok())
    };
    let followed = Trust::pin("first", first.as_bytes(), fleet).unwrap().follow(&files, &signer).unwrap();
    assert_eq!(followed.roster.version, 3);
    for wrong in ["/trust", "/trust?from=", "/trust?from=-1", "/trust?from=x", "/trust?to=1"] {
        assert_eq!(site.get(wrong, None).status, 400, "{wrong}");
    }
    assert_eq!(site.request("POST /trust?from=1 HTTP/1.1", None, b"").status, 405);
}

#[test]
fn auditors_and_operators_read_everything() {
    let site = Site::new();
    for (name, role) in [("aud", Role::Auditor), ("op", Role::Operator)] {
        let login = site.login(name, role, None);
        for repository in ["devices/press-01.git", "devices/packer-01.git", "control.git"] {
            let clone = site.clone(&login, repository, &format!("{name}-{}", repository.replace('/', "-")));
            git::git(&clone, &["fsck", "--strict"]);
        }
        let metrics = site.get("/metrics", Some(&login));
        assert!(metrics.text().contains("wfm_requests_total{"), "{}", metrics.text());
    }
}

#[test]
fn what_was_never_told_is_not_given_out_in_any_version() {
    let site = Site::new();
    let device = site.device();
    let first = site.lab.tip(DEVICE, "desired").unwrap();
    site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: other #");
    site.lab.commit();
    site.lab.publish_all();
    let blob = site.lab.git(DEVICE, &["rev-parse", "desired:envelope.json"]);
    let foreign = site.lab.tip(OTHER, "desired").unwrap();
    let dir = site.lab.dir().join("wanting");
    git::git(site.lab.dir(), &["init", "-q", "--bare", "wanting"]);
    for version in ["0", "1", "2"] {
        for want in [&blob, &first, &foreign] {
            let protocol = format!("protocol.version={version}");
            let url = site.url("devices/press-01.git");
            let args = ["-c", &protocol, "fetch", "-q", "--depth=1", &url, want];
            let fetched = site.run(&dir, &device, &args);
            assert!(!fetched.status.success(), "v{version} {want}");
        }
    }
    // The newest state is there for the taking, of course.
    let tip = site.lab.tip(DEVICE, "desired").unwrap();
    let fetched = site.run(&dir, &device, &["fetch", "-q", &site.url("devices/press-01.git"), &tip]);
    assert!(fetched.status.success(), "{}", said(&fetched));
}

#[test]
fn what_another_process_publishes_is_told_at_once() {
    let site = Site::new();
    let device = site.device();
    let url = site.url("devices/press-01.git");
    for text in ["a", "b", "c", "d"] {
        site.lab.edit("deployments/hello.yaml", "greeting:", &format!("greeting: {text} #"));
        site.lab.commit();
        site.lab.publish_all();
        let tip = site.lab.tip(DEVICE, "desired").unwrap();
        let listed = printed(&site.run(site.lab.dir(), &device, &["ls-remote", &url, "refs/heads/desired"]));
        assert_eq!(listed, format!("{tip}\trefs/heads/desired"));
    }
}

#[test]
fn a_revoked_account_is_out_within_a_second() {
    let site = Site::new();
    let device = site.device();
    let path = "/devices/press-01.git/info/refs?service=git-upload-pack";
    assert_eq!(site.get(path, Some(&device)).status, 200);
    let store = wfm_git_host::accounts::Store::new(site.lab.home.accounts());
    store.revoke(&device.name.parse().unwrap(), jiff::Timestamp::now()).unwrap();
    let start = std::time::Instant::now();
    assert!(eventually(|| site.get(path, Some(&device)).status == 401));
    // A second, and as much again on a machine that is busy with other tests.
    assert!(start.elapsed() < std::time::Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn the_log_names_account_and_repository_and_never_a_secret() {
    let site = Site::new();
    let device = site.device();
    site.clone(&device, "devices/press-01.git", "logged");
    let (_, log) = site.stop();
    assert!(log.contains("dev-1") && log.contains("devices/press-01.git"), "{log}");
    assert!(!log.contains(&device.secret) && !log.contains(&device.basic()), "{log}");
}

#[test]
fn an_answer_that_the_client_has_already_is_not_sent_again() {
    let site = Site::new();
    let device = site.device();
    let ask = |known: &str| {
        let body = b"0014command=ls-refs\n0001001bref-prefix refs/heads/\n0000";
        let head = format!("POST /devices/{DEVICE}.git/git-upload-pack HTTP/1.1\r\nGit-Protocol: version=2\r\n");
        let head = format!("{head}{known}Content-Type: application/x-git-upload-pack-request");
        site.request(&head, Some(&device), body)
    };
    let first = ask("");
    let name = first.header("wfm-refs").expect("a name");
    assert!(first.status == 200 && first.text().contains("refs/heads/desired"));
    let again = ask(&format!("Wfm-Refs: {name}\r\n"));
    assert_eq!((again.status, again.text().as_str()), (204, ""));
    assert!(again.header("wfm-wait").is_some());
    site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: new #");
    site.lab.commit();
    site.lab.publish_all();
    let moved = ask(&format!("Wfm-Refs: {name}\r\n"));
    assert_eq!(moved.status, 200);
    assert!(moved.text().contains(&site.lab.tip(DEVICE, "desired").unwrap()) && moved.header("wfm-refs") != Some(name));
}
