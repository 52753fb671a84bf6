//! Waiting for a change instead of polling.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::{Expected, RefMove, Repo};
use wfm_git_publisher::accounts::{Role, Store};

use super::limits::{Stream, large};
use super::{Answer, DEVICE, Login, Site, eventually};

fn path(site: &Site) -> String {
    let tip = |branch| site.lab.tip(DEVICE, branch).unwrap();
    format!("/devices/{DEVICE}.git/wait?desired={}&freshness={}", tip("desired"), tip("freshness"))
}

/// A request that waits, in a thread; when its answer came.
fn waiting<'a>(
    scope: &'a std::thread::Scope<'a, '_>,
    site: &'a Site,
    login: &'a Login,
) -> std::thread::ScopedJoinHandle<'a, (Answer, Instant)> {
    let path = path(site);
    let mut stream = site.connect();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        login.secret
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.flush().unwrap();
    scope.spawn(move || {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        (Answer::parse(&answer), Instant::now())
    })
}

/// The head of a request on a connection that stays.
fn head(path: &str, login: &Login) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", login.secret)
}

/// A connection on which this was sent.
fn saying(site: &Site, said: &str) -> Stream {
    let mut stream = site.connect();
    stream.write_all(said.as_bytes()).unwrap();
    stream.flush().unwrap();
    stream
}

/// The next answer of a connection that stays.
fn next(stream: &mut Stream) -> Answer {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let mut answer = Answer::parse(&head);
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    answer.body = vec![0; length];
    stream.read_exact(&mut answer.body).unwrap();
    answer
}

/// Whether the host closes the connection.
fn closes(stream: &mut Stream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0))
}

/// Whether the host keeps the connection open for a while, and says nothing.
fn stays_open(stream: &mut Stream) -> bool {
    stream.sock.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let silent = stream.read(&mut [0]).is_err();
    stream.sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    silent
}

/// Moves a branch of the device, as a publish would.
fn move_freshness(site: &Site) {
    let repo = Repo::open(&site.lab.repo(DEVICE)).unwrap();
    let new = repo.tip("desired").unwrap();
    repo.move_refs(&[RefMove { name: "refs/heads/freshness".into(), expected: Expected::Any, new }]).unwrap();
}

pub(crate) fn waiters(site: &Site, auditor: &Login) -> i64 {
    site.metric("wfm_waiting", auditor)
}

#[test]
fn a_publish_by_another_process_ends_the_waiting() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    std::thread::scope(|scope| {
        let waiter = waiting(scope, &site, &device);
        assert!(eventually(|| waiters(&site, &auditor) == 1));
        site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: new #");
        site.lab.commit();
        site.lab.publish_all();
        let (answer, _) = waiter.join().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(json["desired"].as_str(), site.lab.tip(DEVICE, "desired").as_deref());
        assert_eq!(answer.header("wfm-jitter").as_deref(), Some("0"));
    });
}

#[test]
fn many_who_wait_are_called_one_after_the_other() {
    const MANY: u32 = 200;
    let limits = "connectionsPerAccount: 500, requestsPerAccount: 500, strangersPerAddress: 500";
    let site = Site::with(&format!("  limits: {{{limits}}}\n"));
    let auditor = site.login("aud", Role::Auditor, None);
    let (called, mut due): (Instant, Vec<_>) = std::thread::scope(|scope| {
        let all: Vec<_> = (0..MANY).map(|_| waiting(scope, &site, &auditor)).collect();
        assert!(eventually(|| waiters(&site, &auditor) == i64::from(MANY)));
        let called = Instant::now();
        move_freshness(&site);
        let due = all.into_iter().map(|waiter| {
            let (answer, answered) = waiter.join().unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
            answered + Duration::from_millis(answer.header("wfm-jitter").unwrap().parse().unwrap())
        });
        (called, due.collect())
    });
    // The latest moment at which each may come: at most 300 in a second, whatever else this machine does.
    due.sort();
    for (number, due) in (0..).zip(due) {
        let earliest = Duration::from_secs(1) * number / 300;
        assert!(due + Duration::from_millis(1) >= called + earliest, "the {number}th: {:?}", due - called);
    }
}

/// Moves a ref as another process, until the last nine moves were told soon: this machine may be busy with other tests.
/// `is_soon` gets how long they took, in order.
fn assert_told(site: &Site, is_soon: impl Fn(&[Duration]) -> bool) {
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let repo = Repo::open(&site.lab.repo(DEVICE)).unwrap();
    let tips = ["desired", "freshness"].map(|branch| repo.tip(branch).unwrap());
    let (begin, mut taken) = (Instant::now(), Vec::new());
    for round in 0.. {
        std::thread::scope(|scope| {
            let waiter = waiting(scope, site, &device);
            assert!(eventually(|| waiters(site, &auditor) == 1));
            let step = RefMove { name: "refs/heads/freshness".into(), expected: Expected::Any, new: tips[round % 2] };
            repo.move_refs(&[step]).unwrap();
            let moved = Instant::now();
            let (answer, answered) = waiter.join().unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
            taken.push(answered.saturating_duration_since(moved));
        });
        let mut last: Vec<_> = taken.iter().rev().take(9).copied().collect();
        last.sort();
        if last.len() == 9 && is_soon(&last) {
            return;
        }
        assert!(last.len() < 9 || begin.elapsed() < Duration::from_secs(60), "{taken:?}");
    }
}

#[test]
fn a_move_of_a_ref_is_seen_within_100_ms() {
    assert_told(&Site::new(), |taken| taken[4] < Duration::from_millis(100));
}

#[test]
fn a_move_of_a_ref_is_seen_soon_where_the_file_system_tells_nothing() {
    let site = Site::unwatched();
    // By looking every 100 ms, the first one too, and long before the look at everything.
    assert_told(&site, |taken| taken[4] < Duration::from_millis(400) && taken[8] < Duration::from_secs(3));
    let (_, log) = site.stop();
    assert!(log.contains("moves of refs are only seen by looking"), "{log}");
}

#[test]
fn what_differs_already_is_answered_at_once_and_what_doesnt_after_the_longest_wait() {
    let site = Site::with("  limits: {waitSeconds: 1}\n");
    let device = site.device();
    let zeros = "0".repeat(40);
    let behind = format!("/devices/{DEVICE}.git/wait?desired={zeros}&freshness={zeros}");
    let answer = site.get(&behind, Some(&device));
    assert_eq!(answer.status, 200);
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(json["freshness"].as_str(), site.lab.tip(DEVICE, "freshness").as_deref());
    let start = Instant::now();
    assert_eq!(site.get(&path(&site), Some(&device)).status, 204);
    assert!(start.elapsed() >= Duration::from_secs(1));
    let refs = site.get("/devices/press-01.git/info/refs?service=git-upload-pack", Some(&device));
    assert_eq!(refs.header("wfm-wait").as_deref(), Some("1"));
    assert_eq!(site.get("/devices/press-01.git/wait?desired=x", Some(&device)).status, 404);
    assert_eq!(site.get(&path(&site).replace(DEVICE, "packer-01"), Some(&device)).status, 404);
}

#[test]
fn a_revoked_device_is_out_within_a_second_although_it_waits() {
    let site = Site::new();
    let auditor = site.login("aud", Role::Auditor, None);
    // One of several has to be: this machine may be busy with other tests.
    let is_out_in_time = |number: u32| {
        let device = site.login(&format!("dev-{number}"), Role::Device, Some(DEVICE));
        std::thread::scope(|scope| {
            let waiter = waiting(scope, &site, &device);
            assert!(eventually(|| waiters(&site, &auditor) == 1));
            Store::new(&site.lab.home).revoke(&device.name.parse().unwrap(), Timestamp::now()).unwrap();
            let revoked = Instant::now();
            let (answer, answered) = waiter.join().unwrap();
            assert_eq!(answer.status, 401);
            answered.saturating_duration_since(revoked) < Duration::from_secs(1)
        })
    };
    assert!((0..5).any(is_out_in_time), "each took longer than a second");
}

#[test]
fn a_host_that_stops_sends_the_waiting_away() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    std::thread::scope(|scope| {
        let waiter = waiting(scope, &site, &device);
        assert!(eventually(|| waiters(&site, &auditor) == 1));
        super::terminate(site.pid());
        let (answer, _) = waiter.join().unwrap();
        assert_eq!((answer.status, answer.header("retry-after").as_deref()), (503, Some("2")));
    });
}

/// `run` with a host in it, until dropped; where it listens.
struct Running(std::process::Child, String);

impl Running {
    fn start(site: &Site) -> Self {
        use std::io::BufRead;
        let mut command = site.lab.command(&["run"]);
        let mut child = command.env("RUST_LOG", "info").stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.ok()?.split_once("address=")?.1.to_owned())).unwrap();
        // Whatever else it says has to go somewhere.
        std::thread::spawn(move || lines.count());
        Self(child, address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_publisher_that_runs_hosts_too_and_tells_those_who_wait() {
    let mut site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    site.kill();
    // An hour from now nothing has to be renewed: what moves is what is committed.
    site.lab.publish_at(Timestamp::now().as_second());
    let running = Running::start(&site);
    site.address.clone_from(&running.1);
    std::thread::scope(|scope| {
        let waiter = waiting(scope, &site, &device);
        assert!(eventually(|| waiters(&site, &auditor) == 1));
        let before = site.lab.tip(DEVICE, "desired");
        site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: from the loop #");
        site.lab.commit();
        let (answer, _) = waiter.join().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_ne!(site.lab.tip(DEVICE, "desired"), before);
    });
}

#[test]
fn a_repository_that_is_put_back_from_a_backup_is_noticed_and_watched_again() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let (here, backup) = (site.lab.repo(DEVICE), site.lab.dir().join("backup.git"));
    crate::support::copy(&here, &backup);
    site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: newer #");
    site.lab.commit();
    site.lab.publish_all();
    std::thread::scope(|scope| {
        let waiter = waiting(scope, &site, &device);
        assert!(eventually(|| waiters(&site, &auditor) == 1));
        std::fs::rename(&here, site.lab.dir().join("away.git")).unwrap();
        std::fs::rename(&backup, &here).unwrap();
        assert_eq!(waiter.join().unwrap().0.status, 200);
        let waiter = waiting(scope, &site, &device);
        assert!(eventually(|| waiters(&site, &auditor) == 1));
        let moved = Instant::now();
        site.lab.publish_all();
        let (answer, answered) = waiter.join().unwrap();
        assert_eq!(answer.status, 200);
        // A look now and then alone would take longer.
        assert!(answered.duration_since(moved) < Duration::from_secs(5));
    });
}

#[test]
fn a_connection_stays_or_ends_after_the_waiting_as_was_asked() {
    let site = Site::with("  limits: {waitSeconds: 1}\n");
    let device = site.device();
    let (path, secret) = (path(&site), &device.secret);
    let asked = [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
    ];
    let streams = asked.map(|(version, connection, _)| {
        let head =
            format!("GET {path} HTTP/{version}\r\nHost: x\r\n{connection}Authorization: Bearer {secret}\r\n\r\n");
        saying(&site, &head)
    });
    for (mut stream, (version, connection, stays)) in streams.into_iter().zip(asked) {
        assert_eq!(next(&mut stream).status, 204, "{version} {connection}");
        assert!(if stays { stays_open(&mut stream) } else { closes(&mut stream) }, "{version} {connection}");
        if stays {
            for (path, status) in [(path.as_str(), 204), ("/account", 200), (&path, 204)] {
                stream.write_all(head(path, &device).as_bytes()).unwrap();
                assert_eq!(next(&mut stream).status, status, "{path}");
            }
        }
    }
    let body = site.request(&format!("GET {path} HTTP/1.1"), Some(&device), b"with a body");
    assert_eq!(body.status, 204);
}

#[test]
fn what_is_asked_behind_a_request_that_waits_is_answered_after_it() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let (wait, account) = (head(&path(&site), &device), head("/account", &device));
    let mut at_once = saying(&site, &format!("{wait}{account}"));
    let mut later = saying(&site, &wait);
    assert!(eventually(|| waiters(&site, &auditor) == 2));
    // The first bytes alone say nothing yet.
    for part in [&account[..1], &account[1..20], &account[20..]] {
        later.write_all(part.as_bytes()).unwrap();
        later.flush().unwrap();
        assert!(stays_open(&mut later));
    }
    assert_eq!(waiters(&site, &auditor), 2);
    move_freshness(&site);
    for stream in [&mut at_once, &mut later] {
        let (first, second) = (next(stream), next(stream));
        assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text(), second.text());
        let json: serde_json::Value = serde_json::from_slice(&first.body).unwrap();
        assert_eq!(json["freshness"].as_str(), site.lab.tip(DEVICE, "freshness").as_deref());
        assert!(second.text().contains("dev-1"), "{}", second.text());
        stream.write_all(account.as_bytes()).unwrap();
        assert_eq!(next(stream).status, 200);
    }
}

#[test]
fn what_was_asked_before_is_answered_in_full_before_the_connection_waits() {
    let site = Site::with("  limits: {waitSeconds: 1}\n");
    let device = site.device();
    let request = large(&site, &device);
    let mut stream = super::limits::begin(&site, "git-upload-pack", &device, request.len(), &request);
    stream.write_all(head(&path(&site), &device).as_bytes()).unwrap();
    stream.flush().unwrap();
    // Nobody takes the answer until nothing more of it fits in between.
    std::thread::sleep(Duration::from_secs(2));
    let (mut answers, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let status = loop {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the host closed it");
        answers.extend(&buffer[..count]);
        let rest = &answers[answers.len().saturating_sub(1000)..];
        let end = rest.windows(7).position(|seven| seven == b"\r\n0\r\n\r\n").map(|end| &rest[end + 7..]);
        if let Some(second) = end.filter(|second| second.ends_with(b"\r\n\r\n")) {
            break Answer::parse(second).status;
        }
    };
    assert!(status == 204 && answers.len() > 12_000_000, "{status} after {} bytes", answers.len());
}

#[test]
fn who_goes_away_while_it_waits_makes_room_at_once() {
    let site = Site::with("  limits: {requestsPerAccount: 2}\n");
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let connections = || site.metric("wfm_connections", &auditor);
    let before = connections();
    for ends_well in [true, false] {
        let wait = head(&path(&site), &device);
        let held = [saying(&site, &wait), saying(&site, &wait)];
        assert!(eventually(|| waiters(&site, &auditor) == 2));
        assert_eq!(site.get(&path(&site), Some(&device)).status, 429);
        for mut stream in held {
            if ends_well {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
        }
        assert!(eventually(|| waiters(&site, &auditor) == 0 && connections() <= before));
    }
}

#[test]
fn a_connection_that_stays_is_told_that_the_host_stops_and_is_closed() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let mut stream = saying(&site, &head(&path(&site), &device));
    assert!(eventually(|| waiters(&site, &auditor) == 1));
    let start = Instant::now();
    site.stop();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(next(&mut stream).status, 503);
    assert!(closes(&mut stream));
}

#[test]
fn of_what_is_said_while_a_request_waits_only_little_is_kept_and_each_byte_is_counted_once() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let received = || site.metric("wfm_received_bytes_total", &auditor);
    let before = received();
    let asking = received() - before;
    let mut stream = saying(&site, &head(&path(&site), &device));
    let said = i64::try_from(head(&path(&site), &device).len()).unwrap();
    let counted = |asked: i64| received() - before - (1 + asked) * asking;
    let mut asked = 0;
    let all_is_there = || {
        asked += 1;
        counted(asked) == said
    };
    assert!(eventually(all_is_there));
    stream.write_all(b"G").unwrap();
    stream.flush().unwrap();
    stream.sock.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let lines = format!("X-Filler: {}\r\n", "x".repeat(1000)).repeat(256);
    stream.write_all(format!("ET / HTTP/1.1\r\n{lines}").as_bytes()).unwrap();
    stream.flush().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    // The rest lies in the sockets' buffers.
    let kept = counted(asked + 1) - said;
    assert!(kept < 1 << 15, "{kept} bytes were taken");
    assert_eq!(waiters(&site, &auditor), 1);
    move_freshness(&site);
    assert_eq!(next(&mut stream).status, 200);
    assert_eq!(next(&mut stream).status, 431);
}

#[test]
fn a_device_that_waits_takes_less_than_20_kb_of_the_host() {
    const SOME: u64 = 150;
    let limits = "connectionsPerAccount: 500, requestsPerAccount: 500";
    let site = Site::with(&format!("  limits: {{{limits}}}\n"));
    let auditor = site.login("aud", Role::Auditor, None);
    let wait = head(&path(&site), &auditor);
    let mut held = Vec::new();
    let mut hold = || {
        held.extend((0..SOME).map(|_| saying(&site, &wait)));
        assert!(eventually(|| waiters(&site, &auditor) == i64::try_from(held.len()).unwrap()));
        super::large::memory(site.pid())
    };
    // What the host needs anyway it has after the first ones.
    let (first, all) = (hold(), hold());
    let each = all.saturating_sub(first) / SOME;
    assert!(each < 20_000, "{each} bytes");
}
