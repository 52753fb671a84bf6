//! Who a host over SSH is and who asks it: each kind of key, each place where one is kept, and what is said when it is wrong.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use base64ct::{Base64, Encoding};
use repo_git::RemoteError;
use repo_git::ssh::{Client, HostKeys, Identity, Problem, Settings, SettingsError, SshError, Url};
use repo_http::Source;
use repo_testkit::ssh_key::{fingerprint, keygen, public};
use repo_testkit::sshd::{Options, SshAgent, Sshd};

use crate::ssh::{client, key_file, remote, settings, there};

fn error_of(host: &Sshd, settings: Settings) -> SshError {
    match there(host, settings).refs(&[]).expect_err("not let in") {
        RemoteError::Ssh(error) => *error,
        other => panic!("{other:?}"),
    }
}

/// As known_hosts names a server that doesn't listen on port 22.
fn name(host: &Sshd) -> String {
    format!("[127.0.0.1]:{}", host.address().port())
}

fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

fn known_in(files: &[PathBuf]) -> HostKeys {
    HostKeys { known_hosts: files.to_vec(), ..HostKeys::default() }
}

#[test]
fn every_kind_of_key_is_let_in_also_with_a_passphrase_or_by_an_agent() {
    let host = Sshd::start(Options::default());
    host.create("one");
    let dir = tempfile::tempdir().expect("a directory");
    let secret = file(dir.path(), "secret", "open sesame\n");
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let agent = SshAgent::start();
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let plain = host.key(kind, kind, "");
        host.authorize(&plain);
        let agents =
            || Settings { identities: vec![Identity::Agent { socket: agent.socket() }], ..settings(&host, &plain) };
        agent.add(&plain);
        let locked = host.key(&format!("{kind}-locked"), kind, "open sesame");
        host.authorize(&locked);
        let passphrase = Some(Source::File(secret.clone()));
        let with =
            Settings { identities: vec![Identity::KeyFile { path: locked, passphrase }], ..settings(&host, &plain) };
        for (what, settings) in [("plain", settings(&host, &plain)), ("locked", with), ("agent", agents())] {
            there(&host, settings).refs(&[]).unwrap_or_else(|error| panic!("{kind} {what}: {error}"));
        }
    }
}

#[test]
fn a_refused_key_is_named_and_the_host_is_left_alone_for_longer_each_time() {
    let mut host = Sshd::start(Options::default());
    let (good, bad) = (host.client("good"), host.key("bad", "ed25519", ""));
    let client = client(&host, host.address(), settings(&host, &bad));
    let there = remote(&host, host.address(), &client, "one");
    let mut waits = BTreeSet::new();
    for minutes in [1.0, 2.0, 4.0, 7.5, 7.5, 7.5] {
        let error = there.refs(&[]).expect_err("refused");
        assert_eq!((error.reason(), error.needs_a_person()), ("SshKeyRefused", true));
        let wait = error.retry_after().expect("how long").as_secs_f64() / 60.0;
        assert!((minutes..=2.0 * minutes).contains(&wait), "{minutes} to twice that: {wait}");
        waits.insert(error.retry_after());
        let text = error.to_string();
        for word in [host.user(), &fingerprint(&bad), "127.0.0.1", &bad.display().to_string()] {
            assert!(text.contains(word), "{text}");
        }
    }
    assert_eq!(waits.len(), 6, "devices that were refused together come again apart");
    // The host ends it after too many keys, and all that were offered are named.
    host.set(|options| options.lines = vec!["MaxAuthTries 2".to_owned()]);
    let others: Vec<_> = (0..3).map(|n| host.key(&format!("bad{n}"), "ed25519", "")).collect();
    let identities = others.iter().map(|key| key_file(key)).collect();
    let error = error_of(&host, Settings { identities, ..settings(&host, &good) });
    assert_eq!(error.reason(), "SshKeyRefused", "{error:?}");
    assert!(error.to_string().contains(&fingerprint(&others[0])), "{error}");
    // A good one among others is found.
    host.set(|options| options.lines.clear());
    host.create("one");
    let identities = [&others[0], &others[1], &good].map(|key| key_file(key)).to_vec();
    crate::ssh::there(&host, Settings { identities, ..settings(&host, &good) }).refs(&[]).expect("let in");
}

#[test]
fn a_key_that_can_not_be_used_says_why() {
    let host = Sshd::start(Options::default());
    let (good, locked) = (host.client("good"), host.key("locked", "ed25519", "open sesame"));
    host.authorize(&locked);
    let dir = tempfile::tempdir().expect("a directory");
    let private = |name: &str, text: &str, mode| {
        let path = file(dir.path(), name, text);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("set");
        path
    };
    let good_text = std::fs::read_to_string(&good).expect("a key");
    let wrong = Source::File(private("wrong", "open barley\n", 0o600));
    let with = |path: &Path, passphrase: Option<&Source>| Identity::KeyFile {
        path: path.to_owned(),
        passphrase: passphrase.cloned(),
    };
    for (identity, words) in [
        (with(&dir.path().join("none"), None), "there is no such file"),
        (with(&private("open", &good_text, 0o640), None), "chmod 600"),
        (with(&private("pem", "-----BEGIN RSA PRIVATE KEY-----\n", 0o600), None), "ssh-keygen -p"),
        (with(&locked, None), "needs a passphrase"),
        (with(&locked, Some(&wrong)), "passphrase is wrong"),
        (with(&locked, Some(&Source::Environment("MARGO_TEST_UNSET".to_owned()))), "MARGO_TEST_UNSET"),
    ] {
        let error = error_of(&host, Settings { identities: vec![identity], ..settings(&host, &good) });
        assert_eq!((error.reason(), error.needs_a_person()), ("SshKeyUnreadable", true), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!format!("{error:?}").contains("barley"));
    }
    let agent = SshAgent::start();
    for (socket, words) in [(agent.socket(), "has no key"), (dir.path().join("nobody"), "doesn't answer")] {
        let identities = vec![Identity::Agent { socket }];
        let error = error_of(&host, Settings { identities, ..settings(&host, &good) });
        assert_eq!((error.reason(), error.needs_a_person()), ("SshAgentUnavailable", true), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn an_agent_that_hangs_is_left_and_another_key_is_tried() {
    let host = Sshd::start(Options::default());
    host.create("one");
    let (key, dir) = (host.client("device"), tempfile::tempdir().expect("a directory"));
    let socket = dir.path().join("agent");
    let _nobody_accepts = std::os::unix::net::UnixListener::bind(&socket).expect("listens");
    let hangs = Identity::Agent { socket };
    let begin = std::time::Instant::now();
    let error = error_of(&host, Settings { identities: vec![hangs.clone()], ..settings(&host, &key) });
    assert_eq!(error.reason(), "SshAgentUnavailable", "{error}");
    assert!(error.to_string().contains("doesn't answer"), "{error}");
    let identities = vec![hangs, key_file(&key)];
    crate::ssh::there(&host, Settings { identities, ..settings(&host, &key) }).refs(&[]).expect("let in by the file");
    assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
}

/// An agent that lists one key, and never answers anything else.
fn never_signs(socket: &Path, key: &Path) {
    let agent = std::os::unix::net::UnixListener::bind(socket).expect("listens");
    let blob = Base64::decode_vec(public(key).split(' ').nth(1).expect("a key")).expect("a key");
    let text = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
    let listed = text(&[&[12, 0, 0, 0, 1], &text(&blob)[..], &text(b"device")].concat());
    let lists = move |mut stream: std::os::unix::net::UnixStream| {
        let mut request = [0; 5];
        while stream.read_exact(&mut request).is_ok() && request == [0, 0, 0, 1, 11] {
            stream.write_all(&listed).expect("listens");
        }
        std::thread::sleep(std::time::Duration::from_secs(600));
    };
    std::thread::spawn(move || {
        for stream in agent.incoming().flatten() {
            let lists = lists.clone();
            std::thread::spawn(move || lists(stream));
        }
    });
}

#[test]
fn an_agent_that_lists_its_keys_and_never_signs_is_left_and_another_key_is_tried() {
    let host = Sshd::start(Options::default());
    host.create("one");
    let (key, dir) = (host.client("device"), tempfile::tempdir().expect("a directory"));
    let socket = dir.path().join("agent");
    never_signs(&socket, &key);
    let hangs = Identity::Agent { socket };
    let begin = std::time::Instant::now();
    let error = error_of(&host, Settings { identities: vec![hangs.clone()], ..settings(&host, &key) });
    assert_eq!(error.reason(), "SshAgentUnavailable", "{error}");
    assert!(error.to_string().contains("doesn't sign"), "{error}");
    let identities = vec![hangs, key_file(&key)];
    there(&host, Settings { identities, ..settings(&host, &key) }).refs(&[]).expect("let in by the file");
    assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn a_host_is_known_by_its_key_its_fingerprint_or_a_file_also_with_hashed_names() {
    let options = Options { host_keys: ["rsa", "ecdsa", "ed25519"].map(str::to_owned).to_vec(), ..Options::default() };
    let host = Sshd::start(options);
    host.create("one");
    let key = host.client("device");
    let dir = tempfile::tempdir().expect("a directory");
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let line = host.host_key(kind);
        let own = file(dir.path(), &format!("{kind}.pub"), &line);
        let plain = file(dir.path(), &format!("{kind}.plain"), &format!("# mine\n{} {line}\n", name(&host)));
        let hashed = file(dir.path(), &format!("{kind}.hashed"), &format!("{} {line}\n", name(&host)));
        let done = std::process::Command::new("ssh-keygen").args(["-q", "-H", "-f"]).arg(&hashed).output();
        assert!(done.is_ok_and(|output| output.status.success()));
        assert!(std::fs::read_to_string(&hashed).expect("hashed").starts_with("|1|"));
        let other = file(dir.path(), "other", &format!("elsewhere.example {}\n", host.host_key("ed25519")));
        for host_keys in [
            HostKeys { keys: vec![line.clone()], ..HostKeys::default() },
            HostKeys { fingerprints: vec![fingerprint(&own)], ..HostKeys::default() },
            known_in(&[plain]),
            known_in(&[dir.path().join("none"), other, hashed]),
        ] {
            let said = format!("{kind} {host_keys:?}");
            let settings = Settings { host_keys, ..settings(&host, &key) };
            crate::ssh::there(&host, settings).refs(&[]).unwrap_or_else(|error| panic!("{said}: {error}"));
        }
    }
}

#[test]
fn an_unknown_a_changed_and_a_revoked_key_are_told_apart() {
    let mut host = Sshd::start(Options::default());
    host.create("one");
    let key = host.client("device");
    let dir = tempfile::tempdir().expect("a directory");
    let (line, name) = (host.host_key("ed25519"), name(&host));
    keygen(&dir.path().join("other"), "ed25519", "");
    let other = public(&dir.path().join("other"));
    let shown = fingerprint(&file(dir.path(), "shown.pub", &line));
    let files = std::cell::Cell::new(0);
    let with = |text: &str| {
        files.set(files.get() + 1);
        known_in(&[file(dir.path(), &format!("known-{}", files.get()), text)])
    };
    for (host_keys, reason) in [
        (with(""), "SshHostKeyUnknown"),
        (with(&format!("elsewhere.example {line}\n")), "SshHostKeyUnknown"),
        // An authority's key says nothing about the host's own, even if it is the same.
        (with(&format!("@cert-authority {name} {line}\n")), "SshHostKeyUnknown"),
        (with(&format!("{name} {other}\n")), "SshHostKeyChanged"),
        (HostKeys { keys: vec![other.clone()], ..HostKeys::default() }, "SshHostKeyChanged"),
        (
            HostKeys { fingerprints: vec![fingerprint(&dir.path().join("other"))], ..HostKeys::default() },
            "SshHostKeyChanged",
        ),
        (with(&format!("@revoked * {line}\n{name} {line}\n")), "SshHostKeyRevoked"),
        (HostKeys { keys: vec![line.clone()], ..with(&format!("@revoked {name} {line}\n")) }, "SshHostKeyRevoked"),
    ] {
        let error = error_of(&host, Settings { host_keys, ..settings(&host, &key) });
        assert_eq!((error.reason(), error.needs_a_person()), (reason, true), "{error}");
        assert!(error.to_string().contains(&shown), "{error}");
    }
    assert_eq!(host.sessions(), 0, "no key of ours is offered to a host that isn't known");
    // A host that gets another key while it is used.
    let there = there(&host, settings(&host, &key));
    there.refs(&[]).expect("listed");
    host.change_host_keys();
    let error = there.refs(&[]).expect_err("another key");
    assert_eq!(error.reason(), "SshHostKeyChanged");
    assert!(error.to_string().contains(&shown), "the known one is named, too: {error}");
    let unreadable = known_in(&[dir.path().to_owned()]);
    let error = error_of(&host, Settings { host_keys: unreadable, ..settings(&host, &key) });
    assert_eq!(error.reason(), "SshKnownHostsUnreadable");
    let open = with(&format!("{name} {line}\n"));
    std::fs::set_permissions(&open.known_hosts[0], std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("set");
    let error = error_of(&host, Settings { host_keys: open, ..settings(&host, &key) });
    assert!(error.reason() == "SshKnownHostsUnreadable" && error.to_string().contains("chmod go-w"), "{error}");
}

#[test]
fn without_a_common_algorithm_both_lists_are_told() {
    let mut host = Sshd::start(Options::default());
    let key = host.client("device");
    for (line, ours, theirs) in [
        ("KexAlgorithms diffie-hellman-group14-sha1", "curve25519-sha256", "diffie-hellman-group14-sha1"),
        ("Ciphers aes256-cbc", "aes256-ctr", "aes256-cbc"),
        ("Ciphers aes256-ctr\nMACs hmac-sha1", "hmac-sha2-256", "hmac-sha1"),
    ] {
        host.set(|options| options.lines = vec![line.to_owned()]);
        let error = error_of(&host, settings(&host, &key));
        assert_eq!((error.reason(), error.needs_a_person()), ("SshNoCommonAlgorithm", true), "{error}");
        let text = error.to_string();
        assert!(text.contains(ours) && text.contains(theirs) && !text.contains("kex-strict"), "{text}");
    }
    host.set(|options| {
        options.host_keys = vec!["rsa".to_owned()];
        options.lines = vec!["HostKeyAlgorithms ssh-rsa".to_owned()];
    });
    let host_keys = HostKeys { keys: vec![host.host_key("rsa")], ..HostKeys::default() };
    let identities = vec![key_file(&key)];
    let error = error_of(&host, Settings { host_keys, identities, ..Settings::default() });
    let Problem::NoCommonAlgorithm { what, theirs, .. } = &error.problem else { panic!("{error:?}") };
    assert_eq!((*what, theirs.as_str()), ("kind of host key", "ssh-rsa"));
}

#[test]
fn settings_that_can_not_be_used_are_refused_before_anybody_is_asked() {
    let url = Url::parse("ssh://git@host.example/one.git").expect("a URL");
    let make = |host_keys, identities| Client::new(&url, Settings { host_keys, identities, ..Settings::default() });
    let identities = || vec![Identity::Agent { socket: "/nowhere".into() }];
    assert!(matches!(make(HostKeys::default(), identities()), Err(SettingsError::NoHostKey)));
    let keys = |line: &str| HostKeys { keys: vec![line.to_owned()], ..HostKeys::default() };
    assert!(matches!(make(keys("ssh-ed25519 AAAA"), identities()), Err(SettingsError::HostKey { .. })));
    let pins = |text: &str| HostKeys { fingerprints: vec![text.to_owned()], ..HostKeys::default() };
    for text in ["SHA256:x", "MD5:00", "uNiVztksCsDhcc0u9e8BrKxXsYSnLdk5fTPZHJVvhvA"] {
        assert!(matches!(make(pins(text), identities()), Err(SettingsError::Fingerprint { .. })), "{text}");
    }
    let good = pins("SHA256:uNiVztksCsDhcc0u9e8BrKxXsYSnLdk5fTPZHJVvhvA");
    assert!(matches!(make(good.clone(), Vec::new()), Err(SettingsError::NoIdentity)));
    make(good, identities()).expect("a client");
}
