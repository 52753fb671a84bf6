//! Connections whose request only waits: what happens on them meanwhile and afterwards.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use wfm_git_host::accounts::Role;

use super::limits::{begin, large};
use super::waits::move_freshness;
use super::{Answer, DEVICE, Site, Stream, eventually};

/// The next answer of a connection that stays.
pub(super) fn next(stream: &mut Stream) -> Answer {
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

#[test]
fn a_connection_stays_or_ends_after_the_waiting_as_was_asked() {
    let site = Site::with("  limits: {waitSeconds: 1}\n");
    let device = site.device();
    let path = site.wait_path();
    let asked = [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
    ];
    let streams = asked.map(|(version, connection, _)| {
        let head = format!("GET {path} HTTP/{version}\r\nHost: x\r\n{connection}{}\r\n", device.header());
        site.say(&head)
    });
    for (mut stream, (version, connection, stays)) in streams.into_iter().zip(asked) {
        assert_eq!(next(&mut stream).status, 204, "{version} {connection}");
        assert!(if stays { stays_open(&mut stream) } else { closes(&mut stream) }, "{version} {connection}");
        if stays {
            for (path, status) in [(path.as_str(), 204), ("/account", 200), (&path, 204)] {
                stream.write_all(device.ask(path).as_bytes()).unwrap();
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
    let (wait, account) = (device.ask(&site.wait_path()), device.ask("/account"));
    let mut at_once = site.say(format!("{wait}{account}"));
    let mut later = site.say(&wait);
    assert!(eventually(|| site.waiters(&auditor) == 2));
    // The first bytes alone say nothing yet.
    for part in [&account[..1], &account[1..20], &account[20..]] {
        later.write_all(part.as_bytes()).unwrap();
        later.flush().unwrap();
        assert!(stays_open(&mut later));
    }
    assert_eq!(site.waiters(&auditor), 2);
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
    let mut stream = begin(&site, "git-upload-pack", &device, request.len(), &request);
    stream.write_all(device.ask(&site.wait_path()).as_bytes()).unwrap();
    stream.flush().unwrap();
    // Nobody takes the answer until nothing more of it fits in between.
    std::thread::sleep(Duration::from_secs(2));
    assert!(next(&mut stream).body.len() > 12_000_000);
    assert_eq!(next(&mut stream).status, 204);
}

#[test]
fn who_goes_away_while_it_waits_makes_room_at_once() {
    let site = Site::with("  limits: {requestsPerAccount: 2}\n");
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let connections = || site.metric("wfm_connections", &auditor);
    let before = connections();
    for ends_well in [true, false] {
        let wait = device.ask(&site.wait_path());
        let held = [site.say(&wait), site.say(&wait)];
        assert!(eventually(|| site.waiters(&auditor) == 2));
        assert_eq!(site.get(&site.wait_path(), Some(&device)).status, 429);
        for mut stream in held {
            if ends_well {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
        }
        assert!(eventually(|| site.waiters(&auditor) == 0 && connections() <= before));
    }
}

#[test]
fn a_connection_that_stays_is_told_that_the_host_stops_and_is_closed() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let mut stream = site.say(device.ask(&site.wait_path()));
    assert!(eventually(|| site.waiters(&auditor) == 1));
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
    let mut stream = site.say(device.ask(&site.wait_path()));
    let said = i64::try_from(device.ask(&site.wait_path()).len()).unwrap();
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
    assert_eq!(site.waiters(&auditor), 1);
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
    let wait = auditor.ask(&site.wait_path());
    let mut held = Vec::new();
    let mut hold = || {
        held.extend((0..SOME).map(|_| site.say(&wait)));
        assert!(eventually(|| site.waiters(&auditor) == i64::try_from(held.len()).unwrap()));
        super::large::memory(site.pid())
    };
    // What the host needs anyway it has after the first ones.
    let (first, all) = (hold(), hold());
    let each = all.saturating_sub(first) / SOME;
    assert!(each < 20_000, "{each} bytes");
}
