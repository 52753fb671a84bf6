//! Remotes over SSH, against stock OpenSSH with plain Git.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use repo_git::ssh::{Client, HostKeys, Identity, Settings, Url};
use repo_git::{FetchError, FetchLimits, PushResult, Remote, RemoteError, Repo};
use repo_http::Timeouts;
use repo_testkit::faults::fault_proxy::FaultProxy;
use repo_testkit::git;
use repo_testkit::sshd::{Options, Sshd};

use crate::support::{Corner, commit, limits, set, store, tree, update};

/// Knows the host by its key, and asks with this one.
pub(crate) fn settings(host: &Sshd, key: &Path) -> Settings {
    let host_keys = HostKeys { keys: vec![host.host_key("ed25519")], ..HostKeys::default() };
    Settings { host_keys, identities: vec![key_file(key)], ..Settings::default() }
}

pub(crate) fn key_file(path: &Path) -> Identity {
    Identity::KeyFile { path: path.to_owned(), passphrase: None }
}

/// A client for the host, there or through a proxy.
pub(crate) fn client(host: &Sshd, at: SocketAddr, settings: Settings) -> Client {
    let url = Url::parse(&host.url(at, "one")).expect("a URL");
    Client::new(&url, settings).expect("a client")
}

pub(crate) fn remote(host: &Sshd, at: SocketAddr, client: &Client, name: &str) -> Remote {
    Remote::ssh(Url::parse(&host.url(at, name)).expect("a URL"), client.clone())
}

/// The repository `one` of a host, with settings.
pub(crate) fn there(host: &Sshd, settings: Settings) -> Remote {
    remote(host, host.address(), &client(host, host.address(), settings), "one")
}

pub(crate) fn upstream(host: &Sshd, name: &str) -> Repo {
    Repo::open(&host.create(name)).expect("a repository")
}

#[test]
fn everything_works_with_every_protocol_version() {
    let corner = Corner::new();
    for accept_env in [true, false] {
        let host = Sshd::start(Options { accept_env, ..Options::default() });
        let (up, local) = (upstream(&host, "one"), corner.repo(&format!("local-{accept_env}.git")));
        let there = there(&host, settings(&host, &host.client("device")));
        assert!(there.refs(&["refs/heads/"]).expect("listed").is_empty());

        let one = commit(&local, "status", &[("f", "1")]);
        let made = [update("status", None, one, false), update("heartbeat", None, one, true)];
        assert_eq!(there.push(&local, &made).expect("pushed"), [PushResult::Done, PushResult::Done]);
        let down = corner.repo(&format!("down-{accept_env}.git"));
        there.fetch(&down, &[one], &[], true, &limits()).expect("the tip alone");
        set(&down, "status", one);
        let two = commit(&local, "status", &[("f", "2")]);
        let beat = store(&local, &tree(&[("g", "1")]), &[], "beat");
        let moved = [update("status", Some(one), two, false), update("heartbeat", Some(one), beat, true)];
        assert_eq!(there.push(&local, &moved).expect("pushed"), [PushResult::Done, PushResult::Done]);
        corner.fsck(&up);
        let refs = there.refs(&["refs/heads/"]).expect("listed");
        let expected = [("refs/heads/heartbeat".to_owned(), beat), ("refs/heads/status".to_owned(), two)];
        assert_eq!(refs.into_iter().collect::<Vec<_>>(), expected);

        let fetched = there.fetch(&down, &[two], &[one], false, &limits()).expect("what is new");
        assert!(fetched.objects <= 3, "{fetched:?}");
        set(&down, "status", two);
        corner.fsck(&down);
        assert_eq!(there.waits(), None);
        assert_eq!(host.sessions(), 1, "one session for everything: {}", host.log());
    }
}

#[test]
fn polls_share_a_session_and_use_one_channel_each() {
    let host = Sshd::start(Options::default());
    let proxy = FaultProxy::start(host.address());
    let up = upstream(&host, "one");
    let tip = store(&up, &tree(&[("f", "1")]), &[], "one");
    set(&up, "desired", tip);
    let client = client(&host, proxy.address(), settings(&host, &host.client("device")));
    let there = remote(&host, proxy.address(), &client, "one");
    there.refs(&["refs/heads/"]).expect("listed");
    for _ in 0..3 {
        assert_eq!(there.refs(&["refs/heads/"]).expect("listed")["refs/heads/desired"], tip);
    }
    let before = proxy.counts();
    there.refs(&["refs/heads/"]).expect("listed");
    let after = proxy.counts();
    assert_eq!((client.sessions(), after.connections), (1, before.connections));
    // Environment, command, request, and the next channel in advance.
    assert!(after.exchanges - before.exchanges <= 6, "{before:?} {after:?}");
    assert!(after.up + after.down - before.up - before.down < 4000, "{before:?} {after:?}");
    // More than one remote shares it, too.
    upstream(&host, "two");
    assert!(remote(&host, proxy.address(), &client, "two").refs(&[]).expect("listed").is_empty());
    assert_eq!(client.sessions(), 1);
}

#[test]
fn a_push_is_done_or_stale_or_refused_in_the_words_of_the_host() {
    let corner = Corner::new();
    let host = Sshd::start(Options::default());
    let (up, local) = (upstream(&host, "one"), corner.repo("local.git"));
    let there = there(&host, settings(&host, &host.client("device")));
    let one = commit(&local, "status", &[("f", "1")]);
    assert_eq!(there.push(&local, &[update("status", None, one, false)]).expect("pushed"), [PushResult::Done]);
    let two = commit(&local, "status", &[("f", "2")]);
    let result = &there.push(&local, &[update("status", None, two, false)]).expect("answered")[0];
    assert!(matches!(result, PushResult::Stale { .. }), "{result:?}");
    let hooks = up.path().join("hooks");
    std::fs::create_dir_all(&hooks).expect("made");
    std::fs::write(hooks.join("update"), "#!/bin/sh\necho only on sundays >&2\nexit 1\n").expect("written");
    std::fs::set_permissions(hooks.join("update"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    let result = &there.push(&local, &[update("status", Some(one), two, false)]).expect("answered")[0];
    assert!(matches!(result, PushResult::Refused { text } if text.contains("only on sundays")), "{result:?}");
    assert_eq!(git::tip(up.path(), "status"), Some(one.to_string()));
}

#[test]
fn a_big_push_and_a_big_fetch_go_through() {
    let corner = Corner::new();
    let host = Sshd::start(Options::default());
    let (up, local) = (upstream(&host, "one"), corner.repo("local.git"));
    let there = there(&host, settings(&host, &host.client("device")));
    let bytes = repo_testkit::noise(3 << 20, 1);
    let files = std::iter::once(("f".to_owned(), bytes)).collect();
    let one = store(&local, &files, &[], "big");
    assert_eq!(there.push(&local, &[update("status", None, one, false)]).expect("pushed"), [PushResult::Done]);
    let down = corner.repo("down.git");
    let fetched = there.fetch(&down, &[one], &[], true, &limits()).expect("fetched");
    assert!(fetched.bytes > 3 << 20, "{fetched:?}");
    set(&down, "status", one);
    corner.fsck(&down);
    corner.fsck(&up);
}

#[test]
fn limits_hold_over_ssh_too() {
    let corner = Corner::new();
    let host = Sshd::start(Options::default());
    let up = upstream(&host, "one");
    let files = std::iter::once(("f".to_owned(), repo_testkit::noise(300 << 10, 1))).collect();
    let tip = store(&up, &files, &[], "one");
    set(&up, "desired", tip);
    let there = there(&host, settings(&host, &host.client("device")));
    let down = corner.repo("down.git");
    let before = crate::support::listing(down.path());
    let small = FetchLimits { bytes: 100 << 10, ..limits() };
    let error = there.fetch(&down, &[tip], &[], false, &small).expect_err("too many bytes");
    assert!(matches!(error, FetchError::TooManyBytes { .. }), "{error:?}");
    assert_eq!(crate::support::listing(down.path()), before);
    // A commit that the host doesn't have.
    let local = corner.repo("local.git");
    let other = commit(&local, "x", &[("g", "1")]);
    let error = there.fetch(&down, &[other], &[], false, &limits()).expect_err("not there");
    assert!(matches!(error, FetchError::NotSent(id) if id == other), "{error:?}");
    there.fetch(&down, &[tip], &[], false, &limits()).expect("and it goes on");
}

#[test]
fn a_repository_that_is_not_there_is_not_found() {
    let host = Sshd::start(Options::default());
    let there = there(&host, settings(&host, &host.client("device")));
    let corner = Corner::new();
    let local = corner.repo("local.git");
    let one = commit(&local, "status", &[("f", "1")]);
    for _ in 0..2 {
        let error = there.refs(&[]).expect_err("no repository");
        assert_eq!((error.reason(), error.needs_a_person()), ("NotFound", true), "{error}");
    }
    let error = there.push(&local, &[update("status", None, one, false)]).expect_err("no repository");
    assert!(error.to_string().contains("does not appear to be a git repository"), "{error}");
    host.create("one");
    there.refs(&[]).expect("there it is, on the same session");
    assert_eq!(host.sessions(), 1);
}

#[test]
fn an_interrupt_ends_a_conversation_at_once_and_the_next_one_works() {
    let mut host = Sshd::start(Options::default());
    upstream(&host, "one");
    let key = host.client("device");
    let there = there(&host, settings(&host, &key));
    there.refs(&[]).expect("listed");
    host.set(|options| options.force_command = Some("sleep 600".to_owned()));
    let begin = Instant::now();
    let other = there.clone();
    let asking = std::thread::spawn(move || other.refs(&[]));
    std::thread::sleep(Duration::from_millis(700));
    there.interrupt();
    let error = asking.join().expect("no panic").expect_err("interrupted");
    assert_eq!((error.reason(), error.needs_a_person()), ("ConnectionCut", false));
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    host.set(|options| options.force_command = None);
    there.refs(&[]).expect("the next one works");
}

#[test]
fn a_client_for_another_host_is_not_used() {
    let host = Sshd::start(Options::default());
    let client = client(&host, host.address(), settings(&host, &host.client("device")));
    let there = Remote::ssh(Url::parse("ssh://git@elsewhere.example/one.git").expect("a URL"), client);
    let error = there.refs(&[]).expect_err("another host");
    assert!(matches!(error, RemoteError::Ssh(_)));
    assert_eq!((error.reason(), error.needs_a_person()), ("SettingsUnusable", true));
}

#[test]
fn many_threads_share_one_session() {
    let host = Sshd::start(Options::default());
    let up = upstream(&host, "one");
    set(&up, "desired", store(&up, &tree(&[("f", "1")]), &[], "one"));
    let client = client(&host, host.address(), settings(&host, &host.client("device")));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let there = remote(&host, host.address(), &client, "one");
            std::thread::spawn(move || (0..3).all(|_| there.refs(&[]).expect("listed").len() == 1))
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().expect("no panic")));
    assert_eq!((client.sessions(), client.timeouts()), (1, Timeouts::default()));
}
