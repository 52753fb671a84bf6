//! Each limit at its edge: whoever passes it is told, and the others are served as before.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use repo_git::Repo;
use repo_testkit::git;
use wfm_git_publisher::accounts::{Role, Store};

use super::{DEVICE, Login, OTHER, Site, Stream, eventually, pack, push_of};

fn refs(device: &str) -> String {
    format!("/devices/{device}.git/info/refs?service=git-upload-pack")
}

/// Another device, which has to be served whatever the first one does.
fn neighbour(site: &Site) -> Login {
    site.login("dev-2", Role::Device, Some(OTHER))
}

/// A request with a body of this length, of which only the beginning is sent.
pub(super) fn begin(site: &Site, service: &str, login: &Login, length: usize, beginning: &[u8]) -> Stream {
    let head = format!(
        "POST /devices/{DEVICE}.git/{service} HTTP/1.1\r\nHost: x\r\nGit-Protocol: version=2\r\n\
         {}Content-Length: {length}\r\n\r\n",
        login.header()
    );
    site.say([head.as_bytes(), beginning].concat())
}

/// A request that gets what it shall: what requests and connections before it took up may be counted for a moment longer.
fn let_in(begin: impl Fn() -> Stream, is_let_in: impl Fn(&mut Stream) -> bool) -> Stream {
    let mut held = None;
    let tried = || {
        let mut stream = begin();
        held = is_let_in(&mut stream).then_some(stream);
        held.is_some()
    };
    assert!(eventually(tried), "it is never let in");
    held.unwrap()
}

/// A push that the host waits for the rest of, or for its turn.
fn held(site: &Site, device: &Login, length: usize, beginning: &[u8]) -> Stream {
    let is_silent = |stream: &mut Stream| {
        stream.sock.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let_in(|| begin(site, "git-receive-pack", device, length, beginning), is_silent)
}

/// A fetch that is answered; nobody takes the answer.
fn answered(site: &Site, login: &Login, request: &[u8]) -> Stream {
    let_in(|| begin(site, "git-upload-pack", login, request.len(), request), |stream| status(stream) == 200)
}

/// The status of the answer.
pub(super) fn status(stream: &mut Stream) -> u16 {
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).unwrap();
    String::from_utf8_lossy(&begin[9..]).parse().unwrap()
}

/// A `status` of some megabytes that don't compress, and the request for it.
pub(super) fn large(site: &Site, device: &Login) -> Vec<u8> {
    let clone = site.clone(device, "devices/press-01.git", "device");
    let commit = site.first_status_of(&clone, &repo_testkit::noise(12_000_000, 0));
    let here = site.lab.repo(DEVICE).display().to_string();
    git::git(&clone, &["push", "-q", &here, &format!("{commit}:refs/heads/status")]);
    let want = format!("want {commit}\n");
    let line = |text: &str| format!("{:04x}{text}", text.len() + 4);
    format!("{}0001{}{}0000", line("command=fetch"), line("done\n"), line(&want)).into_bytes()
}

/// A push of one commit with all that it has, as its bytes.
fn whole_push(site: &Site, clone: &std::path::Path, text: &str) -> Vec<u8> {
    let commit = site.first_status(clone, text);
    let objects = git::git(clone, &["rev-list", "--objects", "--no-object-names", &commit]);
    push_of(&commit, &pack(site, clone, &objects))
}

#[test]
fn one_account_leaves_processes_to_the_others() {
    let site = Site::with("  limits: {processes: 2, processesPerAccount: 1}\n");
    let (device, other) = (site.device(), neighbour(&site));
    let request = large(&site, &device);
    let slow = answered(&site, &device, &request);
    let mut second = begin(&site, "git-upload-pack", &device, request.len(), &request);
    assert_eq!(status(&mut second), 429, "it has its process, for as long as its answer isn't taken");
    site.clone(&other, &format!("devices/{OTHER}.git"), "other");
    drop(slow);
    let again = || status(&mut begin(&site, "git-upload-pack", &device, request.len(), &request)) == 200;
    assert!(eventually(again), "what a client that went away took up is free");
}

#[test]
fn when_all_processes_are_taken_others_wait_their_turn_and_no_longer() {
    let site = Site::with("  limits: {processes: 1, queue: 0}\n");
    let (device, other) = (site.device(), neighbour(&site));
    let request = large(&site, &device);
    let slow = answered(&site, &device, &request);
    let path = format!("/devices/{OTHER}.git/info/refs?service=git-upload-pack");
    // What needs no process is answered as ever.
    assert_eq!(site.request(&format!("GET {path} HTTP/1.1\r\nGit-Protocol: version=2"), Some(&other), b"").status, 200);
    let busy = site.get(&path, Some(&other));
    assert_eq!((busy.status, busy.header("retry-after").as_deref()), (503, Some("5")), "{}", busy.text());
    drop(slow);
    assert!(eventually(|| site.get(&path, Some(&other)).status == 200));
}

#[test]
fn requests_and_connections_of_everyone_have_an_end() {
    let site = Site::with("  limits: {requests: 1, connectionsPerAccount: 3}\n");
    let (device, other) = (site.device(), neighbour(&site));
    let half = held(&site, &device, 1000, b"0000");
    let refused = || {
        let answer = site.get(&refs(OTHER), Some(&other));
        answer.status == 503 && answer.header("retry-after").is_some()
    };
    assert!(eventually(refused), "one request is under way");
    drop(half);
    assert!(eventually(|| site.get(&refs(OTHER), Some(&other)).status == 200));

    let connect = || {
        let mut stream = site.say(device.ask(&refs(DEVICE)));
        (status(&mut stream), stream)
    };
    // The connection that was dropped may count a moment longer.
    let mut held = Vec::new();
    assert!(eventually(|| {
        held.extend(Some(connect()).filter(|(status, _)| *status == 200));
        held.len() == 3
    }));
    assert_eq!(connect().0, 429, "a fourth connection of the account");
    assert_eq!(site.get(&refs(OTHER), Some(&other)).status, 200);
}

#[test]
fn connections_of_an_address_have_an_end() {
    let site = Site::with("  limits: {connectionsPerAddress: 2}\n");
    let is_closed = || {
        let mut third = TcpStream::connect(&site.address).unwrap();
        third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        matches!(third.read(&mut [0]), Ok(0))
    };
    let held: Vec<_> = (0..2).map(|_| TcpStream::connect(&site.address).unwrap()).collect();
    assert!(eventually(is_closed));
    drop(held);
    assert!(eventually(|| !is_closed()));
}

#[test]
fn pushes_whose_clients_went_away_count_for_their_account_until_they_are_done() {
    let site = Site::with("  limits: {requestsPerAccount: 2}\n");
    let (device, other) = (site.device(), neighbour(&site));
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let repo = Repo::open(&site.lab.repo(DEVICE)).unwrap();
    let lock = repo.try_lock(Duration::from_secs(5)).unwrap();
    let push = |text| {
        let body = whole_push(&site, &clone, text);
        held(&site, &device, body.len(), &body)
    };
    // Whoever goes away before all of a push has come has pushed nothing.
    let clients = [push("1"), push("2")];
    assert_eq!(site.get(&refs(DEVICE), Some(&device)).status, 429, "both are under way");
    drop(clients);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(site.get(&refs(DEVICE), Some(&device)).status, 429, "they still are");
    assert_eq!(site.get(&refs(OTHER), Some(&other)).status, 200);
    drop(lock);
    assert!(eventually(|| site.get(&refs(DEVICE), Some(&device)).status == 200));
}

#[test]
fn who_is_revoked_in_the_middle_of_a_push_or_a_fetch_is_out_within_a_second() {
    let site = Site::new();
    let device = site.device();
    let request = large(&site, &device);
    let mut fetch = answered(&site, &device, &request);
    let before = site.lab.tip(DEVICE, "status");
    let push = whole_push(&site, &site.lab.dir().join("device"), "late");
    let mut half = begin(&site, "git-receive-pack", &device, push.len(), &push[..push.len() / 2]);
    Store::new(&site.lab.home).revoke(&device.name.parse().unwrap(), jiff::Timestamp::now()).unwrap();
    let start = Instant::now();
    assert_eq!(status(&mut half), 401);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    let _ = half.write_all(&push[push.len() / 2..]).and_then(|()| half.flush());
    let mut rest = Vec::new();
    let broken = fetch.read_to_end(&mut rest);
    assert!(broken.is_err() || !rest.ends_with(b"0\r\n\r\n"), "the fetch ended as if it were whole");
    assert!(rest.len() < 12_000_000, "{} bytes went out", rest.len());
    assert_eq!(site.lab.tip(DEVICE, "status"), before);
}

#[test]
fn what_passes_is_counted_however_large_it_is() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    let count = |name: &str| site.metric(name, &auditor);
    let request = large(&site, &device);
    let (sent, received) = (count("wfm_sent_bytes_total"), count("wfm_received_bytes_total"));
    let mut fetch = begin(&site, "git-upload-pack", &device, request.len(), &request);
    let mut whole = Vec::new();
    while !whole.ends_with(b"0\r\n\r\n") {
        let mut buffer = [0; 8192];
        let count = fetch.read(&mut buffer).unwrap();
        whole.extend(&buffer[..count]);
    }
    drop(fetch);
    assert!(whole.len() > 12_000_000);
    assert!(count("wfm_sent_bytes_total") - sent >= whole.len() as i64);
    let body = vec![b'x'; 2 << 20];
    // A stranger's announcement is no traffic; what really came is.
    site.request(&format!("POST /devices/{DEVICE}.git/git-receive-pack HTTP/1.1"), Some(&device), &body);
    let received = count("wfm_received_bytes_total") - received;
    assert!((2 << 20..3 << 20).contains(&received), "{received}");
    assert!(count("wfm_devices{state=\"silent\"}") >= 1);
    assert!(count("wfm_request_seconds_count{action=\"upload-pack\"}") >= 1);
}
