//! What a network and a host can do to a conversation: each has its name, ends in time, and leaves nothing behind.

use std::time::{Duration, Instant};

use repo_git::{CommitId, FetchError, FetchLimits, PushError, Remote, RemoteError, Repo};
use repo_http::{Credentials, Timeouts, Url};
use repo_testkit::deltas::{Shape, bomb};
use repo_testkit::faults::fault_proxy::{Direction, Fault, FaultProxy};
use repo_testkit::foreign_host::{Answer, ForeignHost, Options, Shown};

use crate::https::{agent, remote, upstream};
use crate::support::{Corner, commit, listing, reason, set, store, tree, update};

/// A host with 200 KB to fetch, and a proxy before it.
struct Stand {
    corner: Corner,
    host: ForeignHost,
    proxy: FaultProxy,
    tip: CommitId,
}

/// Limits that only silence meets.
fn within(stall: u64) -> Timeouts {
    Timeouts { stall: Duration::from_secs(stall), ..Timeouts::default() }
}

impl Stand {
    fn new() -> Self {
        let host = ForeignHost::start(Options::default());
        let up = upstream(&host, "one");
        let text: String = (0..30_000).map(|n: u32| format!("{:x}\n", n.wrapping_mul(2_654_435_761))).collect();
        let tip = store(&up, &tree(&[("f", &text)]), &[], "one");
        set(&up, "desired", tip);
        let proxy = FaultProxy::start(host.address());
        Self { corner: Corner::new(), host, proxy, tip }
    }

    /// The way through the proxy.
    fn there(&self, timeouts: Timeouts) -> Remote {
        let url = Url::parse(&format!("{}/one.git", self.host.url_by(self.proxy.address()))).expect("a URL");
        Remote::https(url, agent(&self.host, timeouts), Credentials::none())
    }

    fn fetch(&self, into: &Repo, timeouts: Timeouts) -> Result<(), FetchError> {
        let limits = FetchLimits { timeout: timeouts.total, ..FetchLimits::default() };
        self.there(timeouts).fetch(into, &[self.tip], &[], false, &limits).map(drop)
    }
}

#[test]
fn a_fetch_that_breaks_off_leaves_nothing_and_the_next_one_is_whole() {
    let stand = Stand::new();
    let down = stand.corner.repo("down.git");
    let before = listing(down.path());
    let (long, second) = (Timeouts::default(), Duration::from_secs(1));
    for (fault, timeouts, reasons) in [
        (Fault::CutAfter(Direction::Down, 50_000), long, &["ConnectionCut"][..]),
        (Fault::ResetAfter(Direction::Down, 50_000), long, &["ConnectionCut"]),
        (Fault::StallAfter(Direction::Down, 50_000), within(1), &["ConnectionStalled"]),
        (Fault::Throttle(20_000), Timeouts { total: 2 * second, ..long }, &["TotalTimeout", "AnswerTimeout"]),
        (
            Fault::HalfOpen,
            Timeouts { connect: second, ..within(1) },
            &["ConnectTimeout", "ConnectionStalled", "AnswerTimeout"],
        ),
        (Fault::Refuse, long, &["ConnectionRefused"]),
    ] {
        stand.proxy.set(fault);
        let begin = Instant::now();
        let found = reason(stand.fetch(&down, timeouts).expect_err("a fault"));
        assert!(reasons.contains(&found), "{fault:?}: {found}");
        assert!(begin.elapsed() < Duration::from_secs(25), "{fault:?}: {:?}", begin.elapsed());
        assert_eq!(listing(down.path()), before, "{fault:?}");
        stand.proxy.set(Fault::Refuse);
        stand.proxy.set(Fault::None);
    }
    stand.fetch(&down, long).expect("the next one is whole");
    set(&down, "desired", stand.tip);
    stand.corner.fsck(&down);
}

#[test]
fn the_time_of_a_fetch_ends_what_is_made_of_its_answer_too() {
    let mut stand = Stand::new();
    let up = stand.host.repository("one");
    // Within every limit but that of time: it is here in an instant, and takes seconds to resolve.
    stand.tip = bomb(&up, Shape::Fan(80), None).parse().expect("a commit");
    let down = stand.corner.repo("down.git");
    let before = listing(down.path());
    let begin = Instant::now();
    let total = Duration::from_secs(1);
    let found = reason(stand.fetch(&down, Timeouts { total, ..Timeouts::default() }).expect_err("it takes longer"));
    assert!(["TotalTimeout", "AnswerTimeout"].contains(&found), "{found}");
    assert!(begin.elapsed() < Duration::from_secs(25), "{:?}", begin.elapsed());
    assert_eq!(listing(down.path()), before);
}

#[test]
fn a_poll_survives_a_connection_that_died_while_nobody_looked() {
    let stand = Stand::new();
    let there = stand.there(within(5));
    there.refs(&[]).expect("listed");
    stand.proxy.set(Fault::Refuse);
    assert_eq!(there.refs(&[]).expect_err("nobody listens").reason(), "ConnectionRefused");
    stand.proxy.set(Fault::None);
    there.refs(&[]).expect("a new connection");
    stand.proxy.set(Fault::HalfOpen);
    assert_eq!(there.refs(&[]).expect_err("the peer is gone").reason(), "ConnectionStalled");
    stand.proxy.set(Fault::None);
    there.refs(&[]).expect("a new connection again");
}

#[test]
fn a_push_that_breaks_off_moved_the_branch_or_did_not_and_the_next_one_knows() {
    let stand = Stand::new();
    let local = stand.corner.repo("local.git");
    let text: String = (0..30_000).map(|n: u32| format!("{:x}\n", n.wrapping_mul(2_246_822_519))).collect();
    let one = commit(&local, "status", &[("f", &text)]);
    let update = [update("status", None, one, false)];
    for (fault, timeouts) in [
        (Fault::CutAfter(Direction::Up, 50_000), Timeouts::default()),
        (Fault::StallAfter(Direction::Up, 50_000), within(1)),
        (Fault::ResetAfter(Direction::Up, 50_000), Timeouts::default()),
    ] {
        stand.proxy.set(fault);
        let result = stand.there(timeouts).push(&local, &update);
        assert!(matches!(result, Err(PushError::Remote(RemoteError::Http(_)))), "{fault:?}: {result:?}");
        stand.proxy.set(Fault::Refuse);
        stand.proxy.set(Fault::None);
    }
    let there = stand.there(Timeouts::default());
    there.push(&local, &update).expect("pushed, or it was there");
    assert_eq!(there.refs(&[]).expect("listed")["refs/heads/status"], one);
}

#[test]
fn what_a_host_answers_instead_has_its_name() {
    let mut host = ForeignHost::start(Options::default());
    let up = upstream(&host, "one");
    set(&up, "desired", store(&up, &tree(&[("f", "1")]), &[], "one"));
    let there = remote(&host, &host.url(), "one");
    there.refs(&[]).expect("listed");
    for (status, header, reason, person) in [
        (401, "WWW-Authenticate: Basic realm=\"x\"", "Unauthorized", true),
        (403, "X: y", "Forbidden", true),
        (404, "X: y", "NotFound", true),
        (429, "Retry-After: 9", "TooManyRequests", false),
        (500, "X: y", "HostError", false),
        (503, "Retry-After: 9", "HostError", false),
        (200, "Content-Type: text/html", "NotTheHost", false),
        (302, "Location: https://login.example/", "Redirected", true),
    ] {
        let answer = Answer { status, headers: vec![header.to_owned()], body: "<html>no</html>".to_owned() };
        host.set(|options| options.answer = Some(answer));
        let error = there.refs(&[]).expect_err("not Git's answer");
        assert_eq!((error.reason(), error.needs_a_person()), (reason, person), "{error}");
        assert_eq!(error.retry_after().is_some(), header.starts_with("Retry-After"));
    }
    host.set(|options| options.answer = None);
    there.refs(&[]).expect("and it is back");
    let nowhere = remote(&host, &host.url(), "nowhere").refs(&[]).expect_err("no such repository");
    assert_eq!(nowhere.reason(), "NotFound");
}

#[test]
fn certificates_that_are_not_believed_have_their_names() {
    let mut host = ForeignHost::start(Options::default());
    upstream(&host, "one");
    for (shown, reason) in [
        (Shown::Expired, "CertificateExpired"),
        (Shown::OtherName, "CertificateWrongName"),
        (Shown::OtherAuthority, "CertificateUnknownAuthority"),
    ] {
        host.set(|options| options.certificate = shown);
        let error = remote(&host, &host.url(), "one").refs(&[]).expect_err("not believed");
        assert_eq!((error.reason(), error.needs_a_person()), (reason, true), "{error}");
    }
    host.set(|options| *options = Options { client_certificate: true, ..Options::default() });
    let error = remote(&host, &host.url(), "one").refs(&[]).expect_err("no certificate of ours");
    assert_eq!(error.reason(), "ClientCertificateRefused", "{error:?}");
}
