//! Remotes over HTTPS, against stock `git http-backend` behind lighttpd.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use repo_git::{CommitId, FetchError, FetchLimits, PushResult, Remote, RemoteError, Repo, Waited};
use repo_http::{Agent, Credentials, Settings, Source, Timeouts, Url};
use repo_testkit::faults::fault_proxy::FaultProxy;
use repo_testkit::faults::scripted_host::{Host, Reply, answer};
use repo_testkit::foreign_host::{ForeignHost, Options};

use crate::support::{Corner, commit, limits, set, store, tree, update};

const MINUTE: Duration = Duration::from_secs(60);

/// An agent that trusts the host.
pub(crate) fn agent(host: &ForeignHost, timeouts: Timeouts) -> Agent {
    let authority = std::fs::read_to_string(host.ca()).expect("its authority");
    Agent::new(&Settings { authorities: vec![authority], timeouts, ..Settings::default() }).expect("an agent")
}

/// A repository of the host, and the way there.
pub(crate) fn remote(host: &ForeignHost, base: &str, name: &str) -> Remote {
    let url = Url::parse(&format!("{base}/{name}.git")).expect("a URL");
    Remote::https(url, agent(host, Timeouts::default()), Credentials::none())
}

pub(crate) fn upstream(host: &ForeignHost, name: &str) -> Repo {
    Repo::open(&host.create(name)).expect("a repository")
}

#[test]
fn everything_works_with_every_protocol_version() {
    let corner = Corner::new();
    for oldest_protocol in [false, true] {
        let host = ForeignHost::start(Options { oldest_protocol, ..Options::default() });
        let (up, local) = (upstream(&host, "one"), corner.repo(&format!("local-{oldest_protocol}.git")));
        let there = remote(&host, &host.url(), "one");
        assert!(there.refs(&["refs/heads/"]).expect("listed").is_empty());

        let one = commit(&local, "status", &[("f", "1")]);
        let made = [update("status", None, one, false), update("heartbeat", None, one, true)];
        assert_eq!(there.push(&local, &made).expect("pushed"), [PushResult::Done, PushResult::Done]);
        let two = commit(&local, "status", &[("f", "2")]);
        let beat = store(&local, &tree(&[("g", "1")]), &[], "beat");
        let moved = [update("status", Some(one), two, false), update("heartbeat", Some(one), beat, true)];
        assert_eq!(there.push(&local, &moved).expect("pushed"), [PushResult::Done, PushResult::Done]);
        corner.fsck(&up);
        let refs = there.refs(&["refs/heads/"]).expect("listed");
        let expected = [("refs/heads/heartbeat".to_owned(), beat), ("refs/heads/status".to_owned(), two)];
        assert_eq!(refs.into_iter().collect::<Vec<_>>(), expected);

        let down = corner.repo(&format!("down-{oldest_protocol}.git"));
        there.fetch(&down, &[one], &[], true, &limits()).expect("the tip alone");
        set(&down, "status", one);
        let fetched = there.fetch(&down, &[two], &[one], false, &limits()).expect("what is new");
        assert!(fetched.objects <= 3, "{fetched:?}");
        set(&down, "status", two);
        corner.fsck(&down);
    }
}

#[test]
fn a_poll_is_one_request_on_a_kept_connection() {
    let corner = Corner::new();
    let host = ForeignHost::start(Options::default());
    let proxy = FaultProxy::start(host.address());
    let up = upstream(&host, "one");
    let tip = store(&up, &tree(&[("f", "1")]), &[], "one");
    set(&up, "desired", tip);
    let there = remote(&host, &host.url_by(proxy.address()), "one");
    let refs = there.refs(&["refs/heads/"]).expect("listed");
    let after_first = proxy.counts();
    for _ in 0..10 {
        assert_eq!(there.refs(&["refs/heads/"]).expect("listed"), refs);
    }
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.exchanges - after_first.exchanges), (1, 10), "{counts:?}");
    let moved = store(&up, &tree(&[("f", "2")]), &[tip], "two");
    set(&up, "desired", moved);
    assert_eq!(there.refs(&["refs/heads/"]).expect("listed")["refs/heads/desired"], moved);
    drop(corner);
}

#[test]
fn a_host_that_comes_back_with_another_protocol_is_greeted_anew() {
    let mut host = ForeignHost::start(Options::default());
    let up = upstream(&host, "one");
    let tip = store(&up, &tree(&[("f", "1")]), &[], "one");
    set(&up, "desired", tip);
    let there = remote(&host, &host.url(), "one");
    for oldest_protocol in [false, true, false] {
        host.set(|options| options.oldest_protocol = oldest_protocol);
        assert_eq!(there.refs(&["refs/heads/"]).expect("listed")["refs/heads/desired"], tip);
    }
}

#[test]
fn of_concurrent_pushes_from_one_state_one_wins() {
    let corner = Corner::new();
    let host = ForeignHost::start(Options::default());
    let (up, local) = (upstream(&host, "one"), corner.repo("local.git"));
    let base = commit(&local, "status", &[("f", "0")]);
    remote(&host, &host.url(), "one").push(&local, &[update("status", None, base, false)]).expect("pushed");
    let rivals: Vec<CommitId> =
        (0..6).map(|n| store(&local, &tree(&[("f", &format!("r{n}"))]), &[base], "rival")).collect();
    let results: Vec<PushResult> = std::thread::scope(|scope| {
        let push = |new: CommitId| {
            let (local, to) = (local.clone(), remote(&host, &host.url(), "one"));
            scope.spawn(move || to.push(&local, &[update("status", Some(base), new, false)]).expect("judged").remove(0))
        };
        let pushes: Vec<_> = rivals.iter().map(|rival| push(*rival)).collect();
        pushes.into_iter().map(|push| push.join().expect("no panic")).collect()
    });
    let won: Vec<usize> = (0..6).filter(|n| results[*n] == PushResult::Done).collect();
    assert_eq!(won.len(), 1, "{results:?}");
    assert!(results.iter().all(|r| matches!(r, PushResult::Done | PushResult::Stale { .. })), "{results:?}");
    assert_eq!(up.tip("status").expect("there"), Some(rivals[won[0]]));
}

#[test]
fn a_refusal_comes_with_what_the_hook_said() {
    let corner = Corner::new();
    let host = ForeignHost::start(Options::default());
    let (up, local) = (upstream(&host, "one"), corner.repo("local.git"));
    let hooks = up.path().join("hooks");
    std::fs::create_dir_all(&hooks).expect("made");
    let hook = hooks.join("update");
    std::fs::write(&hook, "#!/bin/sh\necho 'only press-01 may do this' >&2\nexit 1\n").expect("written");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("set");
    let one = commit(&local, "status", &[("f", "1")]);
    let result = remote(&host, &host.url(), "one").push(&local, &[update("status", None, one, false)]);
    let refused = result.expect("judged").remove(0);
    let PushResult::Refused { text } = refused else { panic!("{refused:?}") };
    assert!(text.contains("hook declined") && text.contains("only press-01 may do this"), "{text}");
    assert_eq!(up.tip("status").expect("readable"), None);
}

#[test]
fn an_account_is_read_again_for_each_conversation() {
    let corner = Corner::new();
    let account = Some(("press-01".to_owned(), "c4nary".to_owned()));
    let host = ForeignHost::start(Options { account, ..Options::default() });
    let up = upstream(&host, "one");
    set(&up, "desired", store(&up, &tree(&[("f", "1")]), &[], "one"));
    let file = corner.path("secret");
    let keep = |text: &str| {
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
    };
    let url = Url::parse(&format!("{}/one.git", host.url())).expect("a URL");
    let credentials = Credentials::basic("press-01".to_owned(), Source::File(file.clone()));
    let there = Remote::https(url, agent(&host, Timeouts::default()), credentials);
    let reason = || there.refs(&[]).map_or_else(|error| error.reason(), |_| "fine");
    assert_eq!(reason(), "CredentialUnreadable");
    keep("wrong\n");
    assert_eq!(reason(), "Unauthorized");
    keep("c4nary\n");
    assert_eq!(reason(), "fine");
    let text = format!("{there:?} {:?}", there.refs(&[]));
    keep("wr0ng\n");
    let error = there.refs(&[]).expect_err("refused");
    assert!(error.needs_a_person() && !format!("{text} {error} {error:?}").contains("c4nary"));
    keep("c4nary\n");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("set");
    assert_eq!(reason(), "CredentialUnreadable");
}

#[test]
fn limits_hold_and_nothing_is_left_behind() {
    let corner = Corner::new();
    let host = ForeignHost::start(Options::default());
    let up = upstream(&host, "one");
    let text: String = (0..20_000).map(|n: u32| format!("{:x}\n", n.wrapping_mul(2_654_435_761))).collect();
    let tip = store(&up, &tree(&[("f", &text), ("g", "1")]), &[], "one");
    set(&up, "desired", tip);
    let there = remote(&host, &host.url(), "one");
    let (down, before) = (corner.repo("down.git"), crate::support::listing(&corner.path("down.git")));
    let fetch = |limits: FetchLimits| there.fetch(&down, &[tip], &[], false, &limits).expect_err("over the limit");
    let error = fetch(FetchLimits { objects: 2, ..limits() });
    assert!(matches!(error, FetchError::TooManyObjects { found: 4, limit: 2 }), "{error}");
    let error = fetch(FetchLimits { bytes: 1000, ..limits() });
    assert!(matches!(error, FetchError::TooManyBytes { limit: 1000 }), "{error}");
    let error = fetch(FetchLimits { object_bytes: 1000, ..limits() });
    assert!(matches!(error, FetchError::ObjectTooLarge { limit: 1000 }), "{error}");
    let missing: CommitId = "0123456789012345678901234567890123456789".parse().expect("an id");
    let error = there.fetch(&down, &[missing], &[], false, &limits()).expect_err("it isn't there");
    assert!(matches!(error, FetchError::NotSent(id) if id == missing), "{error:?}");
    assert_eq!(crate::support::listing(&corner.path("down.git")), before);
    there.fetch(&down, &[tip], &[], false, &limits()).expect("fetched");
}

#[test]
fn a_host_that_offers_waiting_is_waited_at_and_any_other_is_not() {
    let advertisement = b"001e# service=git-upload-pack\n0000000eversion 2\n000cls-refs\n0000".to_vec();
    let host = Host::start(move |asked| {
        let kind = |kind: &str| format!("Content-Type: application/x-git-upload-pack-{kind}");
        if asked.head.contains("/info/refs") {
            Reply::Keep(answer("200 OK", &[&kind("advertisement")], &advertisement))
        } else if asked.head.starts_with("POST") {
            Reply::Keep(answer("200 OK", &[&kind("result"), "Wfm-Wait: 2"], b"0000"))
        } else if asked.head.contains("desired=0123") {
            let json = "Content-Type: application/json";
            Reply::Keep(answer("200 OK", &[json, "Wfm-Jitter: 250"], b"{\"desired\":null,\"freshness\":null}"))
        } else if asked.head.contains("freshness=0123") {
            Reply::Keep(answer("204 No Content", &[], b""))
        } else {
            Reply::Keep(answer("404 Not Found", &[], b""))
        }
    });
    let settings = Settings { authorities: vec![host.authority.certificate().to_owned()], ..Settings::default() };
    let url = Url::parse(&host.url("/devices/a.git")).expect("a URL");
    let there = Remote::https(url, Agent::new(&settings).expect("an agent"), Credentials::none());
    let id = Some("0123456789012345678901234567890123456789".parse().expect("an id"));
    assert_eq!((there.waits(), there.wait(id, None, None, MINUTE).expect("known")), (None, Waited::Unsupported));
    there.refs(&[]).expect("listed");
    assert_eq!(there.waits(), Some(Duration::from_secs(2)));
    assert_eq!(
        there.wait(id, None, None, MINUTE).expect("moved"),
        Waited::Moved { jitter: Duration::from_millis(250) }
    );
    assert_eq!(there.wait(None, id, None, MINUTE).expect("nothing"), Waited::Nothing);
    assert_eq!(there.wait(None, None, None, MINUTE).expect("not any more"), Waited::Unsupported);
    assert_eq!(there.waits(), None);
    assert!(matches!(there.refs(&[]), Ok(refs) if refs.is_empty()));
    assert_eq!(host.asked().iter().filter(|asked| asked.connection > 0).count(), 0, "one connection");
}

#[test]
fn another_kind_of_address_is_refused_by_name() {
    for url in ["https://host/a.git", "http://host/a.git", "ssh://host/a.git"] {
        let error = Remote::open(url).expect_err("not without an agent");
        assert!(matches!(error, RemoteError::Unsupported { .. }), "{error}");
    }
}
