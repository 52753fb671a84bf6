//! What strangers and broken devices do to the host, and that the others don't notice.

use repo_model::Trailer;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use repo_testkit::deltas::{self, Shape, high_water};
use repo_testkit::git;
use serde_json::json;
use tokio::net::TcpSocket;

use super::{Answer, DEVICE, Login, OTHER, Report, Site, pack, printed, push_of, said};
use crate::support::Lab;

const REFS: &str = "/devices/press-01.git/info/refs?service=git-upload-pack";

#[test]
fn five_thousand_connections_of_a_stranger_keep_no_device_out() {
    raise_file_limit();
    let site = Site::new();
    let device = site.device();
    let address: std::net::SocketAddr = site.address.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _held = runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..5_000 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            // A full queue is the host's way to say no, too.
            if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(2), socket.connect(address)).await {
                held.push(stream);
            }
        }
        held
    });
    let start = Instant::now();
    assert_eq!(site.get(REFS, Some(&device)).status, 200);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let auditor = site.login("aud", wfm_git_host::accounts::Role::Auditor, None);
    assert!(site.metric("wfm_refused_connections_total", &auditor) >= 4_000);
    assert!(site.metric("wfm_connections", &auditor) < 600);
}

pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}

#[test]
fn headers_without_end_are_cut_off() {
    let site = Site::new();
    let mut stream = site.say("GET / HTTP/1.1\r\nHost: x\r\n");
    let mut sent = 0;
    let line = format!("X-Filler: {}\r\n", "x".repeat(1000));
    while sent < 10_000_000 && stream.write_all(line.as_bytes()).and_then(|()| stream.flush()).is_ok() {
        sent += line.len();
    }
    // What lay in the sockets' buffers counts, too.
    assert!(sent < 8_000_000, "{sent} bytes were taken");
    assert_eq!(site.get("/healthz", None).status, 200);
    let many: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    let answer = site.request(&format!("GET /healthz HTTP/1.1\r\n{}", many.trim_end()), None, b"");
    assert_eq!(answer.status, 431);
}

#[test]
fn who_shows_no_account_in_time_is_sent_away() {
    let site = Site::new();
    let mut stream = site.connect();
    let start = Instant::now();
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    stream.flush().unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let mut plain = std::net::TcpStream::connect(&site.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let start = Instant::now();
    let _ = plain.read_to_end(&mut rest);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_body_that_is_announced_too_large_is_refused_at_once_and_one_that_becomes_so_on_the_way() {
    let site = Site::with("  limits: {pushBytes: 65536}\n");
    let device = site.device();
    let head = format!("POST /devices/press-01.git/git-receive-pack HTTP/1.1\r\nHost: x\r\n{}", device.header());
    let mut stream = site.say(format!("{head}Content-Length: 10000000000\r\n\r\n"));
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    let mut stream = site.say(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    let mut sent = 0;
    while sent < 100_000_000 && stream.write_all(chunk.as_bytes()).and_then(|()| stream.flush()).is_ok() {
        sent += chunk.len();
    }
    assert!(sent < 20_000_000, "{sent} bytes were taken");
}

#[test]
fn an_account_with_too_many_requests_that_wait_is_told_to_try_later() {
    let site = Site::with("  limits: {requestsPerAccount: 2, waitSeconds: 300}\n");
    let device = site.device();
    let path = site.wait_path();
    let _held = [(); 2].map(|()| site.say(device.ask(&path)));
    let auditor = site.login("aud", wfm_git_host::accounts::Role::Auditor, None);
    assert!(super::eventually(|| site.waiters(&auditor) == 2));
    let refused = site.get(&path, Some(&device));
    assert!(refused.status == 429 && refused.header("retry-after").is_some(), "{}", refused.headers);
    // Those that wait may be left over from a device that lost power, and keep it from nothing else.
    assert_eq!(site.get(REFS, Some(&device)).status, 200);
    let other = site.login("dev-2", wfm_git_host::accounts::Role::Device, Some(OTHER));
    assert_eq!(site.get(&REFS.replace(DEVICE, OTHER), Some(&other)).status, 200);
}

/// A push as a device makes it, with any pack.
fn raw_push(site: &Site, login: &Login, new: &str, pack: &[u8]) -> Answer {
    site.request("POST /devices/press-01.git/git-receive-pack HTTP/1.1", Some(login), &push_of(new, pack))
}

#[test]
fn no_pack_reaches_into_another_devices_repository() {
    let site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let key = Lab::device_key(DEVICE);
    let report = Report { device: DEVICE, kind: "status", parents: &[], signer: Some(&key) };
    // A tree that names a blob of the other device, which the host has, but not here.
    let foreign = site.lab.git(OTHER, &["rev-parse", "desired:envelope.json"]);
    let entries = site.lab.dir().join("entries");
    std::fs::write(&entries, format!("100644 blob {foreign}\tsyncer.json\n")).unwrap();
    let input = std::fs::File::open(&entries).unwrap();
    let tree = printed(&git::command(&clone).args(["mktree", "--missing"]).stdin(input).output().unwrap());
    let commit = report.commit_tree(&site, &clone, &tree);
    let answer = raw_push(&site, &device, &commit, &pack(&site, &clone, &format!("{commit}\n{tree}")));
    assert!(answer.text().contains("ng refs/heads/status"), "{}", answer.text());
    // A commit that isn't in the pack at all.
    let desired = site.lab.tip(OTHER, "desired").unwrap();
    let blob = git::git(&clone, &["rev-parse", "HEAD:envelope.json"]);
    let answer = raw_push(&site, &device, &desired, &pack(&site, &clone, &blob));
    assert!(answer.text().contains("ng refs/heads/status"), "{}", answer.text());
    assert_eq!(site.lab.tip(DEVICE, "status"), None);
}

#[test]
fn a_broken_pack_is_refused_and_leaves_nothing() {
    let site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let commit = site.first_status(&clone, "1");
    let tree = git::git(&clone, &["rev-parse", &format!("{commit}^{{tree}}")]);
    let blob = git::git(&clone, &["rev-parse", &format!("{commit}:syncer.json")]);
    let good = pack(&site, &clone, &format!("{commit}\n{tree}\n{blob}"));
    let before = site.lab.git(DEVICE, &["count-objects", "-v"]);
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    let mut claims = good.clone();
    claims[8..12].copy_from_slice(&10_000u32.to_be_bytes());
    for bad in [&flipped, &claims, &good[..good.len() / 2].to_vec()] {
        let answer = raw_push(&site, &device, &commit, bad);
        assert!(answer.text().contains("ng refs/heads/status"), "{}: {}", answer.status, answer.text());
    }
    for bad in [&b"no pack at all"[..], b"PACK\0\0\0\x09\0\0\0\x01"] {
        assert_eq!(raw_push(&site, &device, &commit, bad).status, 400);
    }
    assert_eq!(site.lab.git(DEVICE, &["count-objects", "-v"]), before);
    assert!(raw_push(&site, &device, &commit, &good).text().contains("ok refs/heads/status"));
}

#[test]
fn a_pack_bomb_is_refused_within_bounds_of_memory_and_time() {
    let site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let bomb = site.first_status_of(&clone, &vec![0; 200 << 20]);
    let start = Instant::now();
    let pushed =
        site.run(&clone, &device, &["push", &site.url("devices/press-01.git"), &format!("{bomb}:refs/heads/status")]);
    assert!(!pushed.status.success() && said(&pushed).contains("bytes"), "{}", said(&pushed));
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
    let peak = high_water(&format!("/proc/{}/status", site.pid())).unwrap();
    assert!(peak < 100_000_000, "the host took {peak} bytes");
    assert_eq!(site.lab.tip(DEVICE, "status"), None);
}

#[test]
fn a_small_push_of_large_deltas_is_refused_before_git_has_it_and_its_neighbours_notice_nothing() {
    let site = Site::new();
    let (device, other) = (site.device(), site.login("dev-2", wfm_git_host::accounts::Role::Device, Some(OTHER)));
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let before = site.lab.git(DEVICE, &["count-objects", "-v"]);
    let start = Instant::now();
    // 60 GB in 200 KB.
    let answer = raw_push(&site, &device, &"1".repeat(40), &deltas::pack(Shape::Chain(2000)));
    assert!(answer.text().contains("ng refs/heads/status the deltas of the pack come to more"), "{}", answer.text());
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    let fetched = site.clone(&other, "devices/packer-01.git", "neighbour");
    assert_eq!(git::git(&fetched, &["rev-parse", "HEAD"]), site.lab.tip(OTHER, "desired").unwrap());
    // Stock git shows why in the device's terminal.
    let bomb = deltas::bomb(&clone.join(".git"), Shape::Chain(24), None);
    let url = site.url("devices/press-01.git");
    let pushed = site.run(&clone, &device, &["push", &url, &format!("{bomb}:refs/heads/status")]);
    assert!(!pushed.status.success() && said(&pushed).contains("deltas of the pack come to more"), "{}", said(&pushed));
    let peak = high_water(&format!("/proc/{}/status", site.pid())).unwrap();
    assert!(peak < 100_000_000, "the host took {peak} bytes");
    assert_eq!(site.lab.git(DEVICE, &["count-objects", "-v"]), before);
    let good = site.first_status(&clone, "1");
    let pushed = site.run(&clone, &device, &["push", &url, &format!("{good}:refs/heads/status")]);
    assert!(pushed.status.success(), "{}", said(&pushed));
}

#[test]
fn what_is_hidden_takes_as_long_as_what_is_missing() {
    let site = Site::new();
    let device = site.device();
    let mut stream = site.connect();
    let mut time = |name: &str| {
        let head = device.ask(&REFS.replace(DEVICE, name));
        let start = Instant::now();
        stream.write_all(head.as_bytes()).unwrap();
        stream.flush().unwrap();
        let mut answer = vec![0; 4096];
        let mut read = 0;
        while !answer[..read].ends_with(b"nothing here\n") {
            read += stream.read(&mut answer[read..]).unwrap();
        }
        (start.elapsed(), read)
    };
    let (mut hidden, mut missing) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        hidden.push(time(OTHER));
        missing.push(time("packer-99"));
    }
    hidden.sort();
    missing.sort();
    assert!(hidden.iter().chain(&missing).all(|(_, length)| *length == hidden[0].1), "the answers differ");
    let (one, two) = (hidden[150].0.as_secs_f64(), missing[150].0.as_secs_f64());
    assert!(one / two < 1.5 && two / one < 1.5, "{one} s for what is hidden, {two} s for what is missing");
}

#[test]
fn what_is_hidden_is_answered_like_what_is_missing_whatever_is_asked() {
    let site = Site::new();
    let device = site.device();
    let zeros = "0".repeat(40);
    let v2 = "\r\nGit-Protocol: version=2";
    let asked: [(&str, String, &[u8]); 8] = [
        ("GET", "info/refs?service=git-upload-pack".to_owned(), b""),
        ("GET", "info/refs?service=git-receive-pack".to_owned(), b""),
        ("POST", "info/refs?service=git-upload-pack".to_owned(), b"x"),
        ("POST", "git-upload-pack".to_owned(), b"0014command=ls-refs\n0000"),
        ("POST", "git-receive-pack".to_owned(), b"0000"),
        ("GET", "git-receive-pack".to_owned(), b""),
        ("GET", format!("wait?desired={zeros}&freshness={zeros}"), b""),
        ("POST", format!("wait?desired={zeros}&freshness={zeros}"), b"x"),
    ];
    for (method, what, body) in asked {
        let ask = |repository: &str| {
            let head = format!("{method} /devices/{repository}.git/{what} HTTP/1.1{v2}");
            let answer = site.request(&head, Some(&device), body);
            let headers = answer.headers.lines().filter(|line| !line.starts_with("date:")).map(str::to_owned);
            (answer.status, headers.collect::<Vec<_>>(), answer.body)
        };
        assert_eq!(ask(OTHER), ask("packer-99"), "{method} {what}");
        assert_eq!(ask(OTHER).0, 404, "{method} {what}");
    }
}

/// A device whose key was stolen signs whatever it likes; `status` shows it, and nothing else happens.
#[test]
fn what_a_stolen_device_says_makes_no_row_and_steers_no_terminal() {
    const ROW: &str = "press-02  hello  ready  1.0.0  healthy  installed  5s";
    let site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let evil = format!("0.1.0-\u{1b}[2J\u{9b}31m\r\n{ROW}\t\u{202e}\u{2066}\u{200b}\u{2028}{ROW}");
    let condition = |reason: &str| json!({"type": evil, "reason": reason, "message": "x".repeat(1 << 20)});
    let mut conditions = vec![condition(&evil), condition("second")];
    conditions.resize(500, json!({"type": "Stale", "reason": "Expired", "message": ROW}));
    let syncer = json!({
        "layout": 1, "version": evil, "instance": "00000000-0000-0000-0000-000000000000", "holds": [],
        "adopted": {
            "serial": 1, "manifestVersion": 1, "trust": 1, "commit": evil,
            "envelope": site.lab.trailer(DEVICE, Trailer::EnvelopeDigest),
        },
        "conditions": conditions,
    });
    let manifest = site.lab.json(DEVICE, "desired", "manifest.json");
    let state = json!({
        "layout": 1, "time": "2026-01-01T00:00:00Z", "serial": 1,
        "deployments": {manifest["deployments"][0]["deploymentId"].as_str().unwrap(): {"components": {"hello": {
            "state": evil, "health": evil, "drift": "none", "attempts": 0,
        }}}},
    });
    let key = Lab::device_key(DEVICE);
    let push = |kind: &str, path: &str, text: String| {
        let report = Report { device: DEVICE, kind, parents: &[], signer: Some(&key) };
        let commit = report.commit_file(&site, &clone, path, text.as_bytes());
        let refspec = format!("{commit}:refs/heads/{kind}");
        printed(&site.run(&clone, &device, &["push", "-q", &site.url("devices/press-01.git"), &refspec]));
    };
    push("status", "syncer.json", syncer.to_string());
    push("heartbeat", "current-state.json", state.to_string());

    let is_harmless = |text: &str| {
        !text.contains(|c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{200b}\u{2028}".contains(c)))
    };
    let table = site.lab.run(&["status"]).good();
    assert!(is_harmless(&table), "{table:?}");
    let (rows, sum) = table.split_once("\n\n").expect("a table, and a line that sums up");
    assert_eq!(sum, "2 devices: 1 doubtful, 1 unknown; 1 not enrolled\n", "one that is broken into counts as no other");
    for line in rows.lines() {
        assert!(["DEVICE", DEVICE, OTHER, "press-02"].iter().any(|id| line.starts_with(&format!("{id} "))), "{line}");
        assert!(!line.starts_with("press-02") || line.ends_with("  not enrolled"), "{line}");
        assert!(!line.contains(ROW) && line.len() < 20_000, "{line}");
    }
    assert!(table.lines().count() < 50 && table.contains("481 more"), "{table}");
    assert!(table.contains("doubtful: adopted-mismatch: "), "it names no commit: {table}");
    let text = site.lab.run(&["status", "--output", "json"]).good();
    assert!(is_harmless(&text));
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    let shown = shown["devices"].as_array().unwrap().iter().find(|one| one["device"] == DEVICE).unwrap();
    assert_eq!(shown["conditions"].as_array().unwrap().len(), 500);
    assert_eq!(shown["conditions"][0]["reason"], *evil, "programs get what was said, exactly");

    // Its version is quoted where it is too old for something.
    let file = site.lab.read("devices/press-01.yaml");
    site.lab.write("devices/press-01.yaml", format!("{file}suspended: true\n"));
    site.lab.commit();
    for command in [&["plan"][..], &["plan", "--format", "markdown"], &["publish"], &["explain", DEVICE]] {
        let ran = site.lab.run(command);
        let said = ran.out + &ran.err;
        assert!(said.contains("its syncer is version") && is_harmless(&said), "{command:?}: {said:?}");
        assert!(!said.lines().any(|line| line.starts_with(ROW)), "{command:?}: {said}");
    }
}
