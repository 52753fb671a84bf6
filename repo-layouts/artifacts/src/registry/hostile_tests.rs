//! Registries, token services and storage that mean ill, by their names behind a proxy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use repo_http::{Credential, Credentials, Proxy, Source};
use repo_model::error_chain;
use repo_testkit::faults::connect_proxy::ConnectProxy;
use repo_testkit::faults::scripted_host::{Asked, Host, Reply, answer};
use repo_testkit::pki::{Authority, Validity};

use super::*;
use crate::{Mirror, Mirrors};

const ARCHIVE: &[u8] = b"archive";
const NAMES: &[&str] = &["registry.example", "auth.example", "storage.example", "other.example"];

/// Where a registry that means ill may lead: nowhere.
const NOWHERE: &[&str] = &[
    "http://registry.example/x",
    "http://other.example/x",
    "//other.example/x",
    "https://127.0.0.1/x",
    "https://localhost:8443/x",
    "https://169.254.169.254/latest/meta-data",
    "https://[::1]/x",
    "https://[fe80::1]/x",
    "https://0.0.0.0/x",
    "https://user:secret@other.example/x",
    "file:///etc/passwd",
    "",
];

/// All hosts in one, which answer by their names, and the proxy that leads to them.
struct World {
    host: Host,
    proxy: ConnectProxy,
    settings: Settings,
}

/// What was asked of whom by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    method: String,
    host: String,
    path: String,
    authorization: String,
}

impl Seen {
    fn of(asked: &Asked) -> Self {
        let mut words = asked.head.split(' ').map(str::to_owned);
        let header = |name: &str| {
            let line = asked
                .head
                .lines()
                .find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)));
            line.map_or_else(String::new, |(_, value)| value.to_owned())
        };
        Self {
            method: words.next().unwrap(),
            path: words.next().unwrap(),
            host: header("host"),
            authorization: header("authorization"),
        }
    }
}

impl World {
    fn new(serve: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let authority = Authority::new("test authority");
        let identity = authority.server(NAMES, Validity::Now);
        let host = Host::with(authority, identity, false, move |asked| serve(&Seen::of(asked)));
        let proxy = ConnectProxy::leading_to(host.address());
        let settings = Settings {
            proxy: Some(Proxy { url: proxy.url(), account: None, except: Vec::new() }),
            extra_roots: vec![host.authority.certificate().as_bytes().to_vec()],
            accounts: [("registry.example".to_owned(), basic("s3cret"))].into(),
            max_layer: 1 << 20,
            ..Settings::default()
        };
        Self { host, proxy, settings }
    }

    fn registry(&self) -> Registry {
        Registry::new(self.settings.clone())
    }

    fn pull(&self) -> Result<Vec<u8>, RegistryError> {
        self.registry().pull(&reference(), Some(&lock()))
    }

    /// Why nothing can be pulled, in all its words.
    fn pull_fails(&self) -> String {
        let error = self.pull().unwrap_err();
        assert!(matches!(error, RegistryError::Unavailable { .. }), "{error:?}");
        let words = error_chain(&error);
        assert!(!format!("{words} {error:?}").contains("s3cret"), "{words}");
        words
    }

    fn seen(&self) -> Vec<Seen> {
        self.host.asked().iter().map(Seen::of).collect()
    }

    /// Who saw a credential, and which.
    fn shown(&self) -> Vec<(String, String)> {
        let shown = self.seen().into_iter().filter(|seen| !seen.authorization.is_empty());
        shown.map(|seen| (seen.host, seen.authorization)).collect()
    }
}

fn basic(secret: &str) -> Credentials {
    let credential = Credential::Basic { user: "line".to_owned(), secret: secret.to_owned() };
    Credentials::of(move || Ok(credential.clone()))
}

/// `line:s3cret`.
const BASIC: &str = "Basic bGluZTpzM2NyZXQ=";

fn reference() -> Reference {
    Reference::parse("oci://registry.example/apps/hello", "1.0.0").unwrap()
}

fn manifest() -> Vec<u8> {
    serde_json::to_vec(&Manifest::of_archive(Digest::of(ARCHIVE), ARCHIVE.len())).unwrap()
}

fn lock() -> Lock {
    Lock { manifest: Digest::of(&manifest()), content: Digest::of(ARCHIVE) }
}

fn ok(body: &[u8]) -> Reply {
    Reply::Keep(answer("200 OK", &[], body))
}

fn status(status: &str, body: &str) -> Reply {
    Reply::Keep(answer(status, &["Content-Type: application/json"], body.as_bytes()))
}

fn to(location: &str) -> Reply {
    Reply::Keep(answer("307 Temporary Redirect", &[&format!("Location: {location}")], b""))
}

fn challenge(realm: &str) -> Reply {
    let header =
        format!("WWW-Authenticate: Bearer realm=\"{realm}\",service=\"a registry\",scope=\"registry:catalog:*\"");
    Reply::Keep(answer("401 Unauthorized", &[&header], b""))
}

/// A registry that means well: tokens of its service, blobs in its storage.
fn good(seen: &Seen) -> Reply {
    let may = seen.authorization == "Bearer t0ken";
    match (seen.host.as_str(), seen.path.split('?').next().unwrap_or_default()) {
        ("auth.example", "/token") if seen.authorization == BASIC => ok(br#"{"token": "t0ken", "expires_in": 300}"#),
        ("storage.example", _) if !seen.authorization.is_empty() => status("400 Bad Request", ""),
        ("storage.example", "/blob") => ok(ARCHIVE),
        ("registry.example", _) if !may => challenge("https://auth.example/token"),
        ("registry.example", path) if path.contains("/manifests/") => ok(&manifest()),
        ("registry.example", path) if path.contains("/blobs/sha256") => to("https://storage.example/blob?sig=1"),
        _ => status("404 Not Found", ""),
    }
}

/// A registry without tokens, whose manifests are good and whose blobs are what `blob` says.
fn with_blob(blob: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> World {
    let mut world = World::new(move |seen| match seen.path.as_str() {
        "/v2/" => ok(b"{}"),
        path if path.contains("/manifests/") => ok(&manifest()),
        _ => blob(seen),
    });
    world.settings.accounts.clear();
    world
}

#[test]
fn an_account_is_shown_to_the_token_service_and_a_token_to_its_registry_only() {
    let world = World::new(good);
    let registry = world.registry();
    for _ in 0..2 {
        assert_eq!(registry.pull(&reference(), Some(&lock())).unwrap(), ARCHIVE);
    }
    let asked: Vec<_> = world.seen().into_iter().map(|seen| format!("{}{}", seen.host, seen.path)).collect();
    let token = "auth.example/token?scope=repository%3Aapps%2Fhello%3Apull&service=a%20registry";
    let (manifest, blob) = (format!("manifests/{}", lock().manifest), format!("blobs/{}", lock().content));
    let of_registry = |what: &str| format!("registry.example/v2/apps/hello/{what}");
    let pull = [of_registry(&manifest), of_registry(&blob), "storage.example/blob?sig=1".to_owned()];
    let begin = ["registry.example/v2/".to_owned(), token.to_owned()];
    assert_eq!(asked, [&begin[..], &pull, &pull].concat());
    assert!(world.shown().iter().all(|(host, shown)| match host.as_str() {
        "auth.example" => shown == BASIC,
        host => host == "registry.example" && shown == "Bearer t0ken",
    }));
    assert!(
        world.proxy.asked().iter().all(|asked| NAMES.iter().any(|name| asked.contains(&format!("CONNECT {name}:443"))))
    );
}

#[test]
fn a_token_counts_for_its_account_and_until_the_registry_refuses_it() {
    let valid = Arc::new(Mutex::new("one".to_owned()));
    let now = Arc::clone(&valid);
    let mut world = World::new(move |seen| {
        let token = now.lock().unwrap().clone();
        match seen.host.as_str() {
            "auth.example" => ok(format!(r#"{{"access_token": "{token}", "expires_in": 300}}"#).as_bytes()),
            _ if seen.authorization != format!("Bearer {token}") => challenge("https://auth.example/token"),
            _ => ok(&manifest()),
        }
    });
    let secret = Arc::new(Mutex::new("first"));
    let current = Arc::clone(&secret);
    let account =
        move || Ok(Credential::Basic { user: "line".to_owned(), secret: (*current.lock().unwrap()).to_owned() });
    world.settings.accounts = [("registry.example".to_owned(), Credentials::of(account))].into();
    let registry = world.registry();
    let tokens = |times: usize| {
        registry.resolve(&reference()).unwrap();
        assert_eq!(world.seen().iter().filter(|seen| seen.host == "auth.example").count(), times);
    };
    tokens(1);
    tokens(1);
    *valid.lock().unwrap() = "two".to_owned();
    tokens(2);
    *secret.lock().unwrap() = "second";
    tokens(3);
}

#[test]
fn a_registry_that_wants_a_password_gets_it_and_one_that_wants_nothing_doesnt() {
    for (header, shown) in [("WWW-Authenticate: Basic realm=\"x\"", BASIC), ("X: y", "")] {
        let world = World::new(move |seen| match seen.path.as_str() {
            "/v2/" => Reply::Keep(answer("401 Unauthorized", &[header], b"")),
            _ => ok(&manifest()),
        });
        world.registry().resolve(&reference()).unwrap();
        assert_eq!(world.seen().last().unwrap().authorization, shown);
    }
}

#[test]
fn a_registry_leads_to_https_only_and_never_to_this_machine_or_link() {
    for location in NOWHERE {
        let world = with_blob(|_| to(location));
        let words = world.pull_fails();
        assert!(words.contains("redirects to"), "{location}: {words}");
        assert!(world.seen().iter().all(|seen| seen.host == "registry.example"), "{location}");
    }
    let world = with_blob(|seen| to(&seen.path));
    assert!(world.pull_fails().contains("too many others"));
    assert!(world.seen().len() < 10);
}

#[test]
fn a_registry_that_leads_away_and_back_gets_no_credential_for_it() {
    let world = World::new(|seen| match (seen.host.as_str(), seen.path.as_str()) {
        ("storage.example", _) => to("https://registry.example/v2/apps/secret/manifests/1"),
        (_, "/v2/apps/secret/manifests/1") => ok(&manifest()),
        (_, path) if path.contains("/manifests/") && !seen.authorization.is_empty() => to("https://storage.example/"),
        _ => good(seen),
    });
    world.registry().resolve(&reference()).unwrap();
    let last = world.seen().pop().unwrap();
    assert_eq!((last.path.as_str(), last.authorization.as_str()), ("/v2/apps/secret/manifests/1", ""));
}

#[test]
fn a_token_service_is_asked_by_https_only_and_never_on_this_machine_or_link() {
    for realm in NOWHERE {
        let world = World::new(|_| challenge(realm));
        let words = world.pull_fails();
        assert!(words.contains("redirects to"), "{realm}: {words}");
        assert_eq!(world.shown(), [], "{realm}");
    }
}

#[test]
fn a_token_service_that_leads_elsewhere_isnt_followed() {
    for location in ["https://other.example/token", "https://auth.example/token2", "http://other.example/"] {
        let world = World::new(|seen| match seen.host.as_str() {
            "auth.example" => to(location),
            _ => good(seen),
        });
        assert!(world.pull_fails().contains("redirects to"), "{location}");
        assert_eq!(world.shown(), [("auth.example".to_owned(), BASIC.to_owned())]);
    }
}

#[test]
fn what_is_no_token_is_shown_to_nobody() {
    let large = format!(r#"{{"token": "{}"}}"#, "x".repeat(1 << 20));
    for said in
        ["", "<html>", "[1", r#"{"token": "a\r\nX-Evil: b"}"#, r#"{"token": {"a": 1}}"#, r#"{"errors": []}"#, &large]
    {
        let said = said.to_owned();
        let world = World::new(move |seen| match seen.host.as_str() {
            "auth.example" => ok(said.as_bytes()),
            _ => good(seen),
        });
        world.pull_fails();
        assert_eq!(world.shown(), [("auth.example".to_owned(), BASIC.to_owned())]);
    }
    let refused = World::new(|seen| match seen.host.as_str() {
        "auth.example" => status("403 Forbidden", r#"{"errors": [{"code": "DENIED", "message": "not\nyou\u001b"}]}"#),
        _ => good(seen),
    });
    let words = refused.pull_fails();
    assert!(words.contains("`https://auth.example/token` answers 403: DENIED: not"), "{words}");
}

#[test]
fn other_bytes_than_those_that_are_locked_are_never_taken() {
    let part = |world: &World, lock: Option<&Lock>| match world.registry().pull(&reference(), lock) {
        Err(RegistryError::Changed { part, .. }) => part,
        other => panic!("{other:?}"),
    };
    let other = World::new(|seen| match seen.path.as_str() {
        "/v2/" => ok(b""),
        _ => ok(br#"{"schemaVersion": 2, "config": {"mediaType": "x", "digest": "y", "size": 1}, "layers": []}"#),
    });
    assert_eq!(part(&other, Some(&lock())), "manifest");
    assert_eq!(part(&with_blob(|_| ok(b"other")), Some(&lock())), "layer");
    assert_eq!(part(&with_blob(|_| ok(b"other")), None), "layer");
    let lying = World::new(|seen| match seen.path.as_str() {
        "/v2/" => ok(b""),
        _ => {
            let digest = format!("Docker-Content-Digest: {}", Digest::of(b"other"));
            Reply::Keep(answer("200 OK", &[&digest], &manifest()))
        }
    });
    assert_eq!(part(&lying, None), "manifest");
}

#[test]
fn a_manifest_or_layer_without_end_ends_compressed_or_not() {
    fn bomb(bytes: usize) -> Reply {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        std::io::Write::write_all(&mut encoder, &vec![b' '; bytes]).unwrap();
        Reply::Keep(answer("200 OK", &["Content-Encoding: gzip"], &encoder.finish().unwrap()))
    }
    let invalid = |world: &World, words: &str| {
        let error = world.pull().unwrap_err();
        assert!(matches!(&error, RegistryError::Invalid { reason, .. } if reason.contains(words)), "{error:?}");
    };
    let endless = || {
        let head: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = [b"100000\r\n", &vec![b' '; 1 << 20][..], b"\r\n"].concat();
        Reply::End([head, &chunk.repeat(3)].concat())
    };
    for manifest in [|| bomb(16 << 20), || ok(&vec![b' '; 5 << 20])] {
        let world = World::new(move |seen| if seen.path == "/v2/" { ok(b"") } else { manifest() });
        invalid(&world, "its manifest has more than 4194304 bytes");
    }
    invalid(&with_blob(move |_| endless()), "its layer has more than 1048576 bytes");
    invalid(&with_blob(|_| bomb(16 << 20)), "its layer has more than 1048576 bytes");
}

#[test]
fn a_registry_that_is_slow_or_silent_is_left_when_the_operation_ends() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
    for reply in [|head: &[u8]| Reply::Trickle(head.to_vec(), vec![0; 100_000]), |_: &[u8]| Reply::Stall(Vec::new())] {
        let mut world = with_blob(move |_| reply(head));
        world.settings.timeouts.total = Duration::from_secs(2);
        let began = std::time::Instant::now();
        let words = world.pull_fails();
        assert!(words.contains("too slow") && began.elapsed() < Duration::from_secs(20), "{words}");
    }
    let cut = with_blob(|_| Reply::End(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec()));
    assert!(cut.pull_fails().contains("broke the connection off"));
}

#[test]
fn what_a_registry_says_when_it_refuses_decides_whether_it_may_come() {
    let refuses = |line: &'static str, body: &'static str| {
        let world = World::new(move |seen| if seen.path == "/v2/" { ok(b"") } else { status(line, body) });
        world.registry().resolve(&reference()).unwrap_err()
    };
    for (line, body) in [
        ("404 Not Found", r#"{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "no", "detail": {"Tag": "1"}}]}"#),
        ("404 Not Found", r#"{"errors": [{"code": "DENIED"}, {"code": "NAME_UNKNOWN", "message": null}]}"#),
        ("403 Forbidden", r#"{"errors": [{"code": "NAME_UNKNOWN"}]}"#),
        ("404 Not Found", "<html>nothing here</html>"),
        ("404 Not Found", ""),
    ] {
        let error = refuses(line, body);
        assert!(matches!(error, RegistryError::NotFound { .. }), "{line} {body}: {error:?}");
    }
    for (line, body, words) in [
        ("401 Unauthorized", r#"{"errors": [{"code": "NAME_UNKNOWN", "message": "who?"}]}"#, "401: NAME_UNKNOWN: who?"),
        (
            "403 Forbidden",
            r#"{"errors": [{"code": "DENIED", "message": "a\u001b[31m\nb"}]}"#,
            "403: DENIED: a\\u{1b}[31m",
        ),
        ("404 Not Found", r#"{"errors": [{"code": "UNSUPPORTED"}]}"#, "404: UNSUPPORTED"),
        ("429 Too Many Requests", r#"{"errors": [{"code": "TOOMANYREQUESTS", "message": "later"}]}"#, "later"),
        ("500 Oh", r#"{"errors": [{"code": "MANIFEST_UNKNOWN"}]}"#, "answers 500"),
        ("502 Bad Gateway", "\u{fffd}{\"errors\": 1", "answers 502"),
        ("204 No Content", "", "answers 204"),
    ] {
        let error = refuses(line, body);
        assert!(matches!(error, RegistryError::Unavailable { .. }), "{line} {body}: {error:?}");
        let said = error_chain(&error);
        assert!(said.contains(words) && !said.contains('\u{1b}'), "{line}: {said}");
    }
    let garbage = World::new(|seen| if seen.path == "/v2/" { ok(b"") } else { ok(b"{\"schemaVersion\": [[[[") });
    let error = garbage.registry().resolve(&reference()).unwrap_err();
    assert!(matches!(error, RegistryError::Invalid { .. }), "{error:?}");
}

/// A registry that takes pushes and sends uploads to `place`.
fn taking(place: &'static str) -> World {
    World::new(move |seen| match (seen.method.as_str(), seen.host.as_str()) {
        ("HEAD", _) => status("404 Not Found", ""),
        ("POST", _) => Reply::Keep(answer("202 Accepted", &[&format!("Location: {place}")], b"")),
        ("PUT", "storage.example") if !seen.authorization.is_empty() => status("400 Bad Request", ""),
        ("PUT", _) => Reply::Keep(answer("201 Created", &["Location: /x"], b"")),
        _ => good(seen),
    })
}

#[test]
fn an_upload_that_leads_elsewhere_takes_no_credential_along() {
    let world = taking("https://storage.example/upload?id=1");
    assert_eq!(world.registry().push(&reference(), ARCHIVE.to_vec()).unwrap(), lock());
    let scope = "scope=repository%3Aapps%2Fhello%3Apull%2Cpush";
    assert!(world.seen().iter().any(|seen| seen.host == "auth.example" && seen.path.contains(scope)));
    let stored: Vec<_> = world.seen().into_iter().filter(|seen| seen.method == "PUT").collect();
    let blob = stored.iter().find(|seen| seen.path.contains(&lock().content.to_string())).unwrap();
    assert_eq!((blob.host.as_str(), blob.authorization.as_str()), ("storage.example", ""));
    assert!(blob.path.starts_with("/upload?id=1&digest=sha256:"));
    assert_eq!(stored.last().unwrap().authorization, "Bearer t0ken");
    let at_home = taking("/v2/apps/hello/blobs/uploads/1");
    at_home.registry().push(&reference(), ARCHIVE.to_vec()).unwrap();
    assert!(at_home.seen().iter().filter(|seen| seen.method == "PUT").all(|seen| seen.authorization == "Bearer t0ken"));
    for nowhere in NOWHERE {
        let world = taking(nowhere);
        let error = world.registry().push(&reference(), ARCHIVE.to_vec()).unwrap_err();
        assert!(matches!(error, RegistryError::Unavailable { .. }), "{nowhere}: {error:?}");
        assert!(world.seen().iter().all(|seen| seen.method != "PUT"), "{nowhere}");
    }
}

#[test]
fn a_registry_that_stored_something_else_is_not_believed() {
    let world = World::new(|seen| match seen.method.as_str() {
        "HEAD" => ok(b""),
        "PUT" => Reply::Keep(answer("201 Created", &[&format!("Docker-Content-Digest: {}", Digest::of(b"x"))], b"")),
        _ => good(seen),
    });
    let error = world.registry().push(&reference(), ARCHIVE.to_vec()).unwrap_err();
    assert!(matches!(error, RegistryError::Changed { .. }), "{error:?}");
}

#[test]
fn plain_http_is_spoken_with_registries_that_are_named_and_past_the_proxy() {
    let storage = Host::plain(|_| ok(ARCHIVE));
    let at_storage = format!("http://{}/blob", storage.address());
    let host = Host::plain(move |asked| match Seen::of(asked).path.as_str() {
        "/v2/" => ok(b""),
        path if path.contains("/manifests/") => ok(&manifest()),
        _ => to(&at_storage),
    });
    let repository = format!("oci://{}/apps/hello", host.address());
    let reference = Reference::parse(&repository, "1.0.0").unwrap();
    let proxy = ConnectProxy::leading_to(host.address());
    let with_proxy = Some(Proxy { url: proxy.url(), account: None, except: Vec::new() });
    let mut settings = Settings { proxy: with_proxy, ..Settings::default() };
    let unnamed = Registry::new(settings.clone()).pull(&reference, None).unwrap_err();
    assert!(error_chain(&unnamed).contains("redirects to"), "{unnamed:?}");
    assert!(storage.asked().is_empty());
    settings.plain_http = [storage.address().to_string()].into();
    assert_eq!(Registry::new(settings).pull(&reference, None).unwrap(), ARCHIVE);
    assert!(proxy.asked().is_empty());
}

#[test]
fn an_account_that_cant_be_read_is_said_and_nobody_is_asked() {
    let mut world = World::new(good);
    let gone = Credentials::basic("line".to_owned(), Source::File("/nowhere/password".into()));
    world.settings.accounts = [("registry.example".to_owned(), gone)].into();
    assert!(world.pull_fails().contains("/nowhere/password"));
    assert!(world.seen().is_empty());
}

/// What a mirror may be like that isn't as it should be.
const BAD_MIRRORS: [&str; 7] =
    ["away", "lacks it", "other manifest", "other layer", "no JSON", "too large", "leads here"];

/// The registry has a mirror that is like this; it is asked itself unless `only`.
fn behind_a_mirror(like: &'static str, only: bool) -> World {
    let mut world = World::new(move |seen| match (seen.host.as_str(), like, seen.path.contains("/manifests/")) {
        ("other.example", _, _) if seen.path == "/v2/" => ok(b"{}"),
        ("other.example", "away", _) => status("503 Service Unavailable", "no space left on device"),
        ("other.example", "lacks it", _) => status("404 Not Found", r#"{"errors": [{"code": "MANIFEST_UNKNOWN"}]}"#),
        ("other.example", "other manifest", true) => {
            ok(&serde_json::to_vec(&Manifest::of_archive(Digest::of(b"other"), 5)).unwrap())
        }
        ("other.example", "other layer", false) => ok(b"another"),
        ("other.example", "no JSON", true) => ok(b"<html>"),
        ("other.example", "too large", false) => ok(&vec![0; 2 << 20]),
        ("other.example", "leads here", _) => to("https://localhost:8443/x"),
        ("other.example", _, true) => ok(&manifest()),
        ("other.example", _, false) => ok(ARCHIVE),
        _ => good(seen),
    });
    let mirror = Mirror::parse("other.example/vendor").unwrap();
    world.settings.mirrors = Mirrors { of: [("registry.example".to_owned(), vec![mirror])].into(), only };
    world
}

#[test]
fn a_mirror_is_asked_first_by_the_digest_alone_and_sees_no_account_of_the_registry() {
    let world = behind_a_mirror("good", false);
    assert_eq!(world.pull().unwrap(), ARCHIVE);
    let asked: Vec<_> = world.seen().into_iter().map(|seen| format!("{}{}", seen.host, seen.path)).collect();
    let (manifest, blob) = (format!("manifests/{}", lock().manifest), format!("blobs/{}", lock().content));
    let there = |what: &str| format!("other.example/v2/vendor/apps/hello/{what}");
    assert_eq!(asked, ["other.example/v2/".to_owned(), there(&manifest), there(&blob)]);
    assert_eq!(world.shown(), []);

    let mut world = behind_a_mirror("good", false);
    world.settings.accounts.insert("other.example".to_owned(), basic("an0ther"));
    world.pull().unwrap();
    assert!(!world.shown().iter().any(|(_, shown)| shown == BASIC), "its own account, not the registry's");
}

#[test]
fn a_mirror_that_is_not_as_it_should_be_is_passed_over_and_never_the_last_word() {
    for like in BAD_MIRRORS {
        let world = behind_a_mirror(like, false);
        assert_eq!(world.pull().unwrap(), ARCHIVE, "{like}");
        let by_mirror = world.shown().into_iter().filter(|(host, _)| host == "other.example").count();
        assert_eq!(by_mirror, 0, "{like}");

        let world = behind_a_mirror(like, true);
        let error = world.pull().unwrap_err();
        assert!(matches!(error, RegistryError::Nowhere { .. }), "{like}: {error:?}");
        assert!(error.to_string().contains("other.example/vendor/apps/hello"), "{like}: {error}");
        assert!(world.seen().iter().all(|seen| seen.host == "other.example"), "{like}: the registry isn't asked");
    }
}

#[test]
fn what_a_tag_means_a_mirror_says_only_where_it_stands_for_the_registry() {
    let lie = Lock {
        manifest: Digest::of(&serde_json::to_vec(&Manifest::of_archive(Digest::of(b"other"), 5)).unwrap()),
        content: Digest::of(b"other"),
    };
    let world = behind_a_mirror("other manifest", false);
    assert_eq!(world.registry().resolve(&reference()).unwrap(), lock());
    let image = ImageReference::parse("registry.example/apps/hello:1.0.0").unwrap();
    assert_eq!(world.registry().resolve_image(&image).unwrap(), lock().manifest);
    assert!(world.seen().iter().all(|seen| seen.host != "other.example"), "it isn't even asked");
    assert!(!world.registry().mirrors_stand_for(&image));

    let world = behind_a_mirror("other manifest", true);
    assert_eq!(world.registry().resolve(&reference()).unwrap(), lie, "the site put it there");
    assert_eq!(world.registry().resolve_image(&image).unwrap(), lie.manifest);
    assert!(world.registry().mirrors_stand_for(&image));
    assert_eq!(world.registry().names_of(&image), ["other.example/vendor/apps/hello"]);
}
