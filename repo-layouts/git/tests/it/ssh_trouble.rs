//! What a network and a host can do to a conversation over SSH: each has its name, ends in time, and leaves nothing behind.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use repo_git::ssh::{Client, Settings};
use repo_git::{CommitId, FetchError, FetchLimits, PushError, Remote, RemoteError, Repo};
use repo_http::Timeouts;
use repo_testkit::faults::fault_proxy::{Direction, Fault, FaultProxy};
use repo_testkit::ports::free_listener;
use repo_testkit::sshd::{Options, Sshd};

use crate::ssh::{client, remote, settings, upstream};
use crate::support::{Corner, commit, listing, reason, set, store, tree, update};

const SECOND: Duration = Duration::from_secs(1);

/// A host with 600 KB to fetch, and a proxy before it.
struct Stand {
    corner: Corner,
    host: Sshd,
    proxy: FaultProxy,
    tip: CommitId,
}

fn within(stall: u64) -> Timeouts {
    let stall = Duration::from_secs(stall);
    Timeouts { stall, answer: stall, connect: 5 * SECOND, ..Timeouts::default() }
}

impl Stand {
    fn new() -> Self {
        let host = Sshd::start(Options::default());
        let up = upstream(&host, "one");
        let files = std::iter::once(("f".to_owned(), repo_testkit::noise(600 << 10, 1))).collect();
        let tip = store(&up, &files, &[], "one");
        set(&up, "desired", tip);
        let proxy = FaultProxy::start(host.address());
        host.client("device");
        Self { corner: Corner::new(), host, proxy, tip }
    }

    fn settings(&self) -> Settings {
        settings(&self.host, &self.host.repository("x").ancestors().nth(2).expect("its directory").join("device"))
    }

    fn client(&self, timeouts: Timeouts) -> Client {
        client(&self.host, self.proxy.address(), Settings { timeouts, ..self.settings() })
    }

    /// The way through the proxy.
    fn there(&self, timeouts: Timeouts) -> Remote {
        remote(&self.host, self.proxy.address(), &self.client(timeouts), "one")
    }

    fn fetch(&self, there: &Remote, into: &Repo, total: Duration) -> Result<(), FetchError> {
        let limits = FetchLimits { timeout: total, ..FetchLimits::default() };
        there.fetch(into, &[self.tip], &[], false, &limits).map(drop)
    }
}

#[test]
fn a_fetch_that_breaks_off_leaves_nothing_and_the_next_one_is_whole() {
    let stand = Stand::new();
    let down = stand.corner.repo("down.git");
    let before = listing(down.path());
    let minute = Duration::from_secs(60);
    for (fault, timeouts, total, reasons) in [
        (Fault::CutAfter(Direction::Down, 200_000), within(30), minute, &["ConnectionCut"][..]),
        (Fault::ResetAfter(Direction::Down, 200_000), within(30), minute, &["ConnectionCut"]),
        (Fault::StallAfter(Direction::Down, 200_000), within(1), minute, &["ConnectionStalled"]),
        (Fault::Throttle(100_000), within(30), 2 * SECOND, &["TotalTimeout"]),
        (Fault::HalfOpen, Timeouts { connect: SECOND, ..within(1) }, minute, &["ConnectTimeout"]),
        (Fault::Refuse, within(30), minute, &["ConnectionRefused"]),
    ] {
        stand.proxy.set(fault);
        let begin = Instant::now();
        let there = stand.there(timeouts);
        let found = reason(stand.fetch(&there, &down, total).expect_err("a fault"));
        assert!(reasons.contains(&found), "{fault:?}: {found}");
        assert!(begin.elapsed() < 10 * SECOND, "{fault:?}: {:?}", begin.elapsed());
        assert_eq!(listing(down.path()), before, "{fault:?}");
        stand.proxy.set(Fault::Refuse);
        stand.proxy.set(Fault::None);
        // The same client goes on as if nothing had been.
        there.refs(&[]).expect("the next call");
    }
    stand.fetch(&stand.there(within(30)), &down, minute).expect("the next one is whole");
    set(&down, "desired", stand.tip);
    stand.corner.fsck(&down);
}

#[test]
fn an_answer_that_comes_in_one_burst_behind_much_for_another_is_heard_at_once() {
    let stand = Stand::new();
    let there = &stand.there(within(30));
    there.refs(&[]).expect("listed");
    let minute = Duration::from_secs(60);
    for round in 0..6 {
        let before = stand.proxy.counts().down;
        stand.proxy.set(Fault::StallAfter(Direction::Down, before + 100_000));
        let begin = Instant::now();
        let stand = &stand;
        thread::scope(|threads| {
            let down = stand.corner.repo(&format!("{round}.git"));
            let fetched = threads.spawn(move || stand.fetch(there, &down, minute));
            assert!(stand.proxy.wait_until(minute, |counts| counts.down >= before + 100_000));
            let listed = threads.spawn(|| there.refs(&[]).expect("listed"));
            thread::sleep(SECOND / 2);
            stand.proxy.set(Fault::None);
            fetched.join().expect("no panic").expect("fetched");
            listed.join().expect("no panic");
        });
        assert!(begin.elapsed() < 10 * SECOND, "round {round}: {:?}", begin.elapsed());
    }
}

#[test]
fn a_push_that_breaks_off_moved_the_branch_or_did_not_and_the_next_one_knows() {
    let stand = Stand::new();
    let local = stand.corner.repo("local.git");
    let files = std::iter::once(("f".to_owned(), repo_testkit::noise(600 << 10, 2))).collect();
    let one = store(&local, &files, &[], "one");
    let update = [update("status", None, one, false)];
    for (fault, timeouts) in [
        (Fault::CutAfter(Direction::Up, 200_000), within(30)),
        (Fault::StallAfter(Direction::Up, 200_000), within(1)),
        (Fault::ResetAfter(Direction::Up, 200_000), within(30)),
    ] {
        stand.proxy.set(fault);
        let result = stand.there(timeouts).push(&local, &update);
        assert!(matches!(result, Err(PushError::Remote(RemoteError::Ssh(_)))), "{fault:?}: {result:?}");
        stand.proxy.set(Fault::Refuse);
        stand.proxy.set(Fault::None);
    }
    let there = stand.there(within(30));
    there.push(&local, &update).expect("pushed, or it was there");
    assert_eq!(there.refs(&[]).expect("listed")["refs/heads/status"], one);
}

#[test]
fn a_session_that_died_between_calls_is_replaced_within_the_next_one() {
    let mut stand = Stand::new();
    let client = stand.client(Timeouts::default());
    let there = remote(&stand.host, stand.proxy.address(), &client, "one");
    there.refs(&[]).expect("listed");
    stand.host.restart();
    there.refs(&[]).expect("the host was started again");
    assert_eq!(client.sessions(), 2);
    stand.proxy.set(Fault::Refuse);
    stand.proxy.set(Fault::None);
    let local = stand.corner.repo("local.git");
    let one = commit(&local, "status", &[("f", "1")]);
    there.push(&local, &[update("status", None, one, false)]).expect("the connection was cut");
    assert_eq!(client.sessions(), 3);
    // The router between forgets it: nothing is said, and nothing comes.
    stand.proxy.set(Fault::ForgetIdle(2 * SECOND));
    thread::sleep(3 * SECOND);
    let begin = Instant::now();
    let down = stand.corner.repo("down.git");
    stand.fetch(&there, &down, 30 * SECOND).expect("forgotten on the way");
    assert!(begin.elapsed() < 9 * SECOND, "{:?}", begin.elapsed());
    assert_eq!(client.sessions(), 4);
}

#[test]
fn keepalives_hold_a_session_open_where_idle_ones_are_forgotten() {
    let stand = Stand::new();
    let keepalive = 3 * SECOND;
    let client = client(&stand.host, stand.proxy.address(), Settings { keepalive, ..stand.settings() });
    let there = remote(&stand.host, stand.proxy.address(), &client, "one");
    there.refs(&[]).expect("listed");
    // What 20 minutes are to a router are 6 s here.
    stand.proxy.set(Fault::ForgetIdle(6 * SECOND));
    thread::sleep(10 * SECOND);
    let begin = Instant::now();
    there.refs(&[]).expect("listed");
    assert!(begin.elapsed() < 2 * SECOND, "{:?}", begin.elapsed());
    assert_eq!(client.sessions(), 1);
}

#[test]
fn an_idle_session_answers_what_the_host_asks_of_it() {
    let mut stand = Stand::new();
    stand.host.set(|options| options.lines = vec!["ClientAliveInterval 1\nClientAliveCountMax 1".to_owned()]);
    let client = stand.client(Timeouts::default());
    let there = remote(&stand.host, stand.proxy.address(), &client, "one");
    there.refs(&[]).expect("listed");
    thread::sleep(8 * SECOND);
    there.refs(&[]).expect("listed");
    assert_eq!(client.sessions(), 1, "the host would have ended it after some seconds");
}

#[test]
fn a_host_that_allows_one_channel_at_a_time_is_polled_too() {
    let mut stand = Stand::new();
    stand.host.set(|options| options.lines = vec!["MaxSessions 1".to_owned()]);
    let client = stand.client(Timeouts::default());
    let there = remote(&stand.host, stand.proxy.address(), &client, "one");
    for _ in 0..4 {
        there.refs(&[]).expect("listed");
    }
    stand.fetch(&there, &stand.corner.repo("down.git"), 30 * SECOND).expect("fetched");
}

#[test]
fn a_frozen_host_is_given_up_in_time_and_found_again() {
    let stand = Stand::new();
    let there = stand.there(within(2));
    there.refs(&[]).expect("listed");
    stand.host.freeze();
    let begin = Instant::now();
    let error = there.refs(&[]).expect_err("frozen");
    let elapsed = begin.elapsed();
    stand.host.thaw();
    assert!(["AnswerTimeout", "ConnectTimeout", "ConnectionStalled"].contains(&error.reason()), "{error}");
    assert!(elapsed < 9 * SECOND, "{elapsed:?}");
    there.refs(&[]).expect("found again");
}

#[test]
fn a_command_that_is_killed_in_the_middle_of_a_pack_leaves_nothing() {
    let mut stand = Stand::new();
    let up = Repo::open(&stand.host.repository("one")).expect("a repository");
    // More than all buffers on the way hold.
    let files = std::iter::once(("f".to_owned(), repo_testkit::noise(10 << 20, 3))).collect();
    stand.tip = store(&up, &files, &[], "big");
    set(&up, "desired", stand.tip);
    let down = stand.corner.repo("down.git");
    let before = listing(down.path());
    let there = stand.there(within(10));
    there.refs(&[]).expect("listed");
    stand.proxy.set(Fault::Throttle(1_000_000));
    let host = &stand.host;
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SECOND);
            let begin = Instant::now();
            while host.kill_commands("git") + host.kill_commands("git-upload-pack") == 0 {
                assert!(begin.elapsed() < 10 * SECOND, "no command is found");
            }
        });
        let found = reason(stand.fetch(&there, &down, 30 * SECOND).expect_err("killed"));
        assert!(["ConnectionCut", "HostError"].contains(&found), "{found}");
    });
    assert_eq!(listing(down.path()), before);
    stand.proxy.set(Fault::None);
    stand.fetch(&there, &down, 30 * SECOND).expect("the next one is whole");
}

#[test]
fn a_host_that_talks_without_end_is_ended() {
    let mut stand = Stand::new();
    for (command, reasons) in [
        // On its standard error, as an answer, as one that never says anything, and one that isn't there.
        ("sh -c 'yes noise >&2'", &["TooLarge"][..]),
        ("yes '003e0123456789012345678901234567890123456789 refs/heads/abcde'", &["TooLarge", "GitProtocolBroken"]),
        ("yes", &["GitProtocolBroken"]),
        ("sleep 600", &["AnswerTimeout"]),
        ("/nonexistent", &["NotFound"]),
        ("sh -c 'echo FATAL: DENIED by fallthru >&2; exit 1'", &["Forbidden"]),
        ("printf '0047ERR busy: too many requests at this moment; retry-after=5          '", &["TooManyRequests"]),
        ("true", &["HostError"]),
    ] {
        stand.host.set(|options| options.force_command = Some(command.to_owned()));
        let begin = Instant::now();
        let error = stand.there(within(3)).refs(&[]).expect_err("no answer");
        assert!(reasons.contains(&error.reason()), "{command}: {} {error:?}", error.reason());
        assert!(begin.elapsed() < 8 * SECOND, "{command}: {:?}", begin.elapsed());
        let seconds = error.retry_after().map(|wait| wait.as_secs());
        assert_eq!(seconds, command.contains("busy").then_some(5), "{command}");
    }
}

/// A server that says the same to everybody and then keeps silent.
fn speaker(say: &'static [u8]) -> SocketAddr {
    let listener = free_listener();
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream: TcpStream = stream.expect("a connection");
                let _ = stream.write_all(say);
                let mut heard = [0; 1024];
                while !say.is_empty() && stream.read(&mut heard).is_ok_and(|count| count > 0) {
                    if say.len() > 100 {
                        for _ in 0..1000 {
                            let _ = stream.write_all(say);
                        }
                    }
                }
                if say.is_empty() {
                    thread::sleep(10 * SECOND);
                }
            });
        }
    });
    address
}

#[test]
fn what_is_no_ssh_server_has_its_name() {
    let stand = Stand::new();
    let long: &'static [u8] = Box::leak([b'a'; 4096].into());
    for (say, reasons) in [
        (&b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..], &["NotTheHost"][..]),
        (b"Exceeded MaxStartups\r\n", &["TooManyRequests"]),
        (b"Not allowed at this time\r\n", &["TooManyRequests"]),
        (b"SSH-2.0-nobody\r\n", &["ConnectTimeout", "ConnectionCut"]),
        (b"", &["ConnectTimeout"]),
        (long, &["NotTheHost"]),
    ] {
        let at = speaker(say);
        let timeouts = Timeouts { connect: 2 * SECOND, ..Timeouts::default() };
        let client = client(&stand.host, at, Settings { timeouts, ..stand.settings() });
        let begin = Instant::now();
        let error = remote(&stand.host, at, &client, "one").refs(&[]).expect_err("no SSH");
        let said = String::from_utf8_lossy(&say[..say.len().min(20)]).into_owned();
        assert!(reasons.contains(&error.reason()), "{said}: {} {error:?}", error.reason());
        assert!(begin.elapsed() < 5 * SECOND, "{said}: {:?}", begin.elapsed());
    }
    let at: SocketAddr = stand.proxy.address();
    assert_ne!(at, stand.host.address());
    let nowhere = repo_git::ssh::Url::parse("ssh://git@nowhere.invalid/one.git").expect("a URL");
    let client = Client::new(&nowhere, stand.settings()).expect("a client");
    assert_eq!(Remote::ssh(nowhere, client).refs(&[]).expect_err("no such name").reason(), "NameUnknown");
    let text = store(&stand.corner.repo("x.git"), &tree(&[("f", "1")]), &[], "one");
    assert_ne!(text, stand.tip);
}
