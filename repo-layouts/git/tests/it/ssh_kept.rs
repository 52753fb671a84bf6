//! A host that answers many requests in one conversation, and lets devices wait in it: the contract's *Host over SSH*, by
//! a stand-in behind a real sshd.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use repo_git::ssh::{Client, Settings};
use repo_git::{CommitId, FetchLimits, Remote, Repo, Waited};
use repo_http::Timeouts;
use repo_testkit::faults::fault_proxy::{Fault, FaultProxy};
use repo_testkit::sshd::{Options, Sshd};

use crate::ssh::{client, remote, settings, upstream};
use crate::support::{Corner, commit, listing, set, store, tree, update};

const SECOND: Duration = Duration::from_secs(1);

/// Answers `ls-refs`, `fetch` and `wait` in one conversation; what stands in the file `refuse` is said instead, and with
/// the file `leave` it ends the conversation, as a host may when nobody asks.
const STAND_IN: &str = r#"
import os, select, subprocess, sys, time
repo, buffer = sys.argv[1], b''
command = os.environ['SSH_ORIGINAL_COMMAND']
if 'receive-pack' in command:
    os.execvp('git', ['git', 'receive-pack', repo])
def fill(timeout=None):
    global buffer
    while not select.select([0], [], [], timeout or 0.02)[0]:
        if timeout:
            return False
        if os.path.exists(repo + '/leave'):
            os.remove(repo + '/leave')
            sys.exit(0)
    data = os.read(0, 65536)
    if not data:
        sys.exit(0)
    buffer += data
    return True
def request():
    global buffer
    at = 0
    while True:
        while len(buffer) < at + 4:
            fill()
        length = int(buffer[at:at + 4], 16)
        while len(buffer) < at + max(length, 4):
            fill()
        at += max(length, 4)
        if length == 0:
            raw, buffer = buffer[:at], buffer[at:]
            return raw
def say(*lines):
    text = ''.join('%04x%s\n' % (len(line) + 5, line) for line in lines)
    os.write(1, text.encode() + b'0000')
def tip():
    try:
        return open(repo + '/refs/heads/desired').read().strip()
    except OSError:
        return '0' * 40
def wait(raw):
    words = raw.decode().split()
    desired = words[words.index([w for w in words if w.endswith('desired')][0]) + 1][:40]
    seconds = int(words[words.index([w for w in words if w.endswith('seconds')][0]) + 1].split('0000')[0] or 1)
    until = time.time() + seconds
    while time.time() < until:
        if tip() != desired:
            return say('moved jitter=7')
        if buffer or fill(0.02):
            break
    say('nothing')
def refuse():
    if os.path.exists(repo + '/refuse'):
        line = 'ERR ' + open(repo + '/refuse').read()
        os.write(1, ('%04x%s' % (len(line) + 4, line)).encode())
        sys.exit(1)
refuse()
say('version 2', 'agent=stand-in', 'ls-refs', 'fetch=shallow', 'object-format=sha1', 'wait=30')
while True:
    raw = request()
    refuse()
    if raw == b'0000':
        sys.exit(0)
    if b'command=wait' in raw:
        wait(raw)
        continue
    git = ['git', 'upload-pack', '--stateless-rpc', repo]
    os.write(1, subprocess.run(git, input=raw, stdout=subprocess.PIPE, env={**os.environ, 'GIT_PROTOCOL': 'version=2'}).stdout)
"#;

struct Stand {
    corner: Corner,
    host: Sshd,
    proxy: FaultProxy,
    client: Client,
    there: Remote,
    up: Repo,
    tip: CommitId,
}

impl Stand {
    fn new() -> Self {
        let mut host = Sshd::start(Options::default());
        let up = upstream(&host, "one");
        let tip = store(&up, &tree(&[("f", "1")]), &[], "one");
        set(&up, "desired", tip);
        let script = up.path().join("stand-in.py");
        fs::write(&script, STAND_IN).expect("written");
        let command = format!("exec python3 {} {}", script.display(), up.path().display());
        host.set(|options| options.force_command = Some(command));
        let proxy = FaultProxy::start(host.address());
        let timeouts = Timeouts { stall: 20 * SECOND, answer: 20 * SECOND, ..Timeouts::default() };
        let settings = Settings { timeouts, ..settings(&host, &host.client("device")) };
        let client = client(&host, proxy.address(), settings);
        let there = remote(&host, proxy.address(), &client, "one");
        Self { corner: Corner::new(), host, proxy, client, there, up, tip }
    }

    fn refuse(&self, text: Option<&str>) {
        let path: PathBuf = self.up.path().join("refuse");
        match text {
            Some(text) => fs::write(path, text).expect("written"),
            None => fs::remove_file(path).expect("was there"),
        }
    }

    fn wait(&self, seconds: u64) -> Waited {
        self.there.wait(Some(self.tip), None, None, Duration::from_secs(seconds)).expect("waited")
    }
}

#[test]
fn a_poll_is_one_exchange_in_a_conversation_that_stays_open() {
    let stand = Stand::new();
    assert_eq!(stand.there.waits(), None);
    stand.there.refs(&["refs/heads/"]).expect("listed");
    assert_eq!(stand.there.waits(), Some(30 * SECOND));
    let before = stand.proxy.counts();
    for _ in 0..3 {
        assert_eq!(stand.there.refs(&["refs/heads/"]).expect("listed")["refs/heads/desired"], stand.tip);
    }
    let after = stand.proxy.counts();
    assert_eq!(after.exchanges - before.exchanges, 3, "{before:?} {after:?}");
    assert!(after.up + after.down - before.up - before.down < 3 * 500, "{before:?} {after:?}");
    assert_eq!(stand.client.sessions(), 1);
}

#[test]
fn a_wait_ends_when_a_branch_moves_or_time_is_up_or_somebody_asks() {
    let mut stand = Stand::new();
    assert_eq!(stand.wait(1), Waited::Unsupported, "nobody has asked the host yet");
    stand.there.refs(&[]).expect("listed");
    let begin = Instant::now();
    assert_eq!(stand.wait(1), Waited::Nothing);
    assert!(begin.elapsed() >= SECOND);
    let (there, tip) = (stand.there.clone(), stand.tip);
    let waiting = thread::spawn(move || there.wait(Some(tip), None, None, 20 * SECOND));
    thread::sleep(SECOND / 2);
    let begin = Instant::now();
    stand.there.refs(&[]).expect("a request ends the wait");
    assert_eq!(waiting.join().expect("no panic").expect("waited"), Waited::Nothing);
    assert!(begin.elapsed() < 2 * SECOND, "{:?}", begin.elapsed());
    let (there, tip) = (stand.there.clone(), stand.tip);
    let waiting = thread::spawn(move || there.wait(Some(tip), None, None, 20 * SECOND));
    thread::sleep(SECOND / 2);
    let next = store(&stand.up, &tree(&[("f", "2")]), &[stand.tip], "two");
    set(&stand.up, "desired", next);
    let moved = Waited::Moved { jitter: Duration::from_millis(7) };
    assert_eq!(waiting.join().expect("no panic").expect("waited"), moved);
    stand.tip = next;
    // Fetching and pushing have channels of their own on the same session.
    let down = stand.corner.repo("down.git");
    stand.there.fetch(&down, &[next], &[], true, &FetchLimits::default()).expect("fetched");
    let local = stand.corner.repo("local.git");
    let one = commit(&local, "status", &[("f", "1")]);
    stand.there.push(&local, &[update("status", None, one, false)]).expect("pushed");
    assert_eq!(stand.there.refs(&[]).expect("listed")["refs/heads/status"], one);
    assert_eq!((stand.wait(1), stand.client.sessions()), (Waited::Nothing, 1));
}

#[test]
fn a_conversation_that_ended_is_opened_again_within_the_same_call() {
    let mut stand = Stand::new();
    stand.there.refs(&[]).expect("listed");
    stand.host.kill_commands("python3");
    stand.there.refs(&[]).expect("only the command had ended");
    let leave = stand.up.path().join("leave");
    fs::write(&leave, "").expect("written");
    while leave.exists() {
        thread::sleep(SECOND / 100);
    }
    thread::sleep(SECOND / 5);
    stand.there.refs(&[]).expect("the host had ended it in good order");
    assert_eq!(stand.client.sessions(), 1);
    stand.host.restart();
    assert_eq!(stand.wait(1), Waited::Nothing);
    assert_eq!(stand.client.sessions(), 2);
    stand.host.restart();
    stand.there.refs(&[]).expect("the host was started again");
    assert_eq!(stand.client.sessions(), 3);
    stand.host.kill();
    assert_eq!(stand.there.refs(&[]).expect_err("gone").reason(), "ConnectionCut");
    assert_eq!(stand.there.wait(Some(stand.tip), None, None, SECOND).expect_err("gone").reason(), "ConnectionCut");
    stand.host.restart();
    assert_eq!(stand.wait(1), Waited::Nothing);
}

#[test]
fn a_session_that_was_forgotten_on_the_way_is_noticed_by_a_poll_within_seconds() {
    let stand = Stand::new();
    stand.there.refs(&[]).expect("listed");
    thread::sleep(8500 * SECOND / 1000);
    stand.proxy.set(Fault::ForgetIdle(SECOND / 100));
    thread::sleep(SECOND / 5);
    stand.proxy.set(Fault::None);
    let begin = Instant::now();
    let asked = stand.there.refs(&[]);
    let elapsed = begin.elapsed();
    asked.expect("on a new session");
    assert!(elapsed < 9 * SECOND, "{elapsed:?}");
    assert_eq!(stand.client.sessions(), 2);
}

#[test]
fn what_a_host_refuses_has_the_names_that_it_has_over_https() {
    let stand = Stand::new();
    for (said, reason, person, seconds) in [
        ("not-found: there is nothing here", "NotFound", true, None),
        ("forbidden: only its own device", "Forbidden", true, None),
        ("busy: too many requests; retry-after=5", "TooManyRequests", false, Some(5)),
        ("stopping: the host is being stopped; retry-after=2", "HostError", false, Some(2)),
        ("unauthorized: the account has ended", "Unauthorized", true, None),
        ("internal: a disk is full", "HostError", false, None),
        ("bad-request: no such command", "RequestRefused", false, None),
    ] {
        // At the beginning of a conversation, and in one that is open.
        stand.there.refs(&[]).expect("listed");
        stand.refuse(Some(said));
        for _ in 0..2 {
            let error = stand.there.refs(&[]).expect_err("refused");
            let found = (error.reason(), error.needs_a_person(), error.retry_after().map(|wait| wait.as_secs()));
            assert_eq!(found, (reason, person, seconds), "{error}");
        }
        stand.refuse(None);
    }
    assert_eq!(stand.client.sessions(), 1);
}

#[test]
fn an_interrupt_ends_a_wait_at_once() {
    let stand = Stand::new();
    stand.there.refs(&[]).expect("listed");
    let before = listing(stand.up.path());
    let (there, tip) = (stand.there.clone(), stand.tip);
    let begin = Instant::now();
    let waiting = thread::spawn(move || there.wait(Some(tip), None, None, 20 * SECOND));
    thread::sleep(SECOND / 2);
    stand.there.interrupt();
    let error = waiting.join().expect("no panic").expect_err("interrupted");
    assert_eq!(error.reason(), "ConnectionCut");
    assert!(begin.elapsed() < 2 * SECOND, "{:?}", begin.elapsed());
    assert_eq!(stand.wait(1), Waited::Nothing);
    assert_eq!(listing(stand.up.path()), before);
}
