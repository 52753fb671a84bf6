//! Each limit at its edge: whoever passes it is told, and the others are served as before.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use repo_git::Repo;
use repo_testkit::{git, in_namespaces};
use rustix::fs::{Mode, OFlags};
use wfm_git_host::accounts::{Role, Store};

use super::{Answer, DEVICE, Login, OTHER, Site, Stream, eventually, pack, push_of};

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

/// The rest of an answer that says how long it is.
fn whole(stream: &mut Stream) -> Vec<u8> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let mut body = vec![0; Answer::parse(&head).header("content-length").unwrap().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    body
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

/// A repository whose fetches don't come to an end, because git reads a file that doesn't.
pub(super) struct Stuck {
    pipe: std::path::PathBuf,
}

impl Stuck {
    pub(super) fn in_repository_of(site: &Site, device: &str) -> Self {
        let info = site.lab.repo(device).join("info");
        std::fs::create_dir_all(&info).unwrap();
        let pipe = info.join("grafts");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        Self { pipe }
    }

    /// Waits until a git reads, and holds it there until what is given is dropped.
    pub(super) fn held(&self) -> rustix::fd::OwnedFd {
        let (opens, mut held) = (OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, None);
        let reads = || {
            held = rustix::fs::open(&self.pipe, opens, Mode::empty()).ok();
            held.is_some()
        };
        assert!(eventually(reads), "no git reads");
        held.unwrap()
    }
}

/// A request for the tip of `desired`.
pub(super) fn fetch_of(site: &Site, device: &str) -> Vec<u8> {
    let line = |text: &str| format!("{:04x}{text}", text.len() + 4);
    let want = format!("want {}\n", site.lab.tip(device, "desired").unwrap());
    format!("{}0001{}{}0000", line("command=fetch"), line("done\n"), line(&want)).into_bytes()
}

#[test]
fn accounts_that_take_their_answers_slowly_hold_up_nobody() {
    let site = Site::with("  limits: {processes: 2, processesPerAccount: 1}\n");
    let (device, other) = (site.device(), neighbour(&site));
    let request = large(&site, &device);
    let thieves = [&device, &site.login("aud", Role::Auditor, None)].map(|login| {
        [(); 3].map(|()| answered(&site, login, &request)) // and takes twelve bytes of each
    });
    let start = Instant::now();
    site.clone(&other, &format!("devices/{OTHER}.git"), "other");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    // What is slow isn't cut off, either: whoever begins to take it gets all of it.
    let mut slow = thieves.into_iter().flatten().next().unwrap();
    assert!(whole(&mut slow).len() > 12_000_000);
}

#[test]
fn an_account_has_its_share_of_the_processes_and_those_who_queue_take_turns() {
    let site = Site::with("  limits: {processes: 2, processesPerAccount: 1, queue: 2}\n");
    let (device, other) = (site.device(), neighbour(&site));
    let stuck = Stuck::in_repository_of(&site, DEVICE);
    let request = fetch_of(&site, DEVICE);
    let mut greedy = [(); 2].map(|()| begin(&site, "git-upload-pack", &device, request.len(), &request));
    let held = stuck.held();
    let start = Instant::now();
    site.clone(&other, &format!("devices/{OTHER}.git"), "other");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    std::fs::remove_file(&stuck.pipe).unwrap();
    drop(held);
    assert_eq!(greedy.each_mut().map(status), [200, 200], "the second had its turn after the first");
}

#[test]
fn when_all_processes_are_taken_others_wait_their_turn_and_no_longer() {
    let site = Site::with("  limits: {processes: 1, queue: 0}\n");
    let (device, other) = (site.device(), neighbour(&site));
    let stuck = Stuck::in_repository_of(&site, DEVICE);
    let request = fetch_of(&site, DEVICE);
    let mut slow = begin(&site, "git-upload-pack", &device, request.len(), &request);
    let held = stuck.held();
    let path = format!("/devices/{OTHER}.git/info/refs?service=git-upload-pack");
    // What needs no process is answered as ever.
    assert_eq!(site.request(&format!("GET {path} HTTP/1.1\r\nGit-Protocol: version=2"), Some(&other), b"").status, 200);
    let busy = site.get(&path, Some(&other));
    assert_eq!((busy.status, busy.header("retry-after").as_deref()), (503, Some("5")), "{}", busy.text());
    std::fs::remove_file(&stuck.pipe).unwrap();
    drop(held);
    assert_eq!(status(&mut slow), 200);
    assert!(eventually(|| site.get(&path, Some(&other)).status == 200));
}

#[test]
fn answers_for_which_there_is_no_room_are_refused_at_once_and_small_ones_need_none() {
    let site = Site::with("  limits: {spoolBytes: 8388608}\n");
    let (device, other) = (site.device(), neighbour(&site));
    let request = large(&site, &device);
    let head = format!("POST /devices/{DEVICE}.git/git-upload-pack HTTP/1.1\r\nGit-Protocol: version=2");
    let refused = site.request(&head, Some(&device), &request);
    assert_eq!((refused.status, refused.header("retry-after").as_deref()), (503, Some("5")), "{}", refused.text());
    site.clone(&other, &format!("devices/{OTHER}.git"), "other");
    let (_, log) = site.stop();
    assert!(log.contains("spoolBytes"), "{log}");
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
    assert!(eventually(refused), "one request is in flight");
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

/// Whoever has one IPv6 network has more addresses in it than there are connections.
#[test]
fn all_addresses_of_an_ipv6_network_are_one_stranger() {
    struct Client(Child);
    impl Drop for Client {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let networks = ["fd00:0:0:1::1", "fd00:0:0:1::2", "fd00:0:0:1::3", "fd00:0:0:2::1"];
    let site = Site::alone_at(&networks, "  limits: {strangersPerAddress: 2}\n");
    let (_, port) = site.address.rsplit_once(':').unwrap();
    // Whoever talks to one of its own addresses does so from the same one.
    let connect = |address: &str| {
        let script = format!("exec 3<>/dev/tcp/{address}/{port} && cat <&3");
        let mut bash = Command::new("bash");
        let mut inside =
            in_namespaces(site.pid(), &["--user", "--net", "--preserve-credentials"], bash.args(["-c", &script]));
        Client(inside.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    };
    let is_closed = |client: &mut Client| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            if let Some(status) = client.0.try_wait().unwrap() {
                assert!(status.success(), "it couldn't connect: {status}");
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    };
    let mut held = [networks[0], networks[1]].map(connect);
    assert!(!held.iter_mut().any(is_closed));
    assert!(is_closed(&mut connect(networks[2])), "a third address of the same network");
    assert!(!is_closed(&mut connect(networks[3])), "another network");
    assert!(!is_closed(&mut connect("127.0.0.1")), "an IPv4 address");
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
    assert_eq!(site.get(&refs(DEVICE), Some(&device)).status, 429, "both are in flight");
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
    Store::new(site.lab.home.accounts()).revoke(&device.name.parse().unwrap(), jiff::Timestamp::now()).unwrap();
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
    let whole = whole(&mut fetch);
    drop(fetch);
    assert!(whole.len() > 12_000_000);
    let is_counted = || count("wfm_sent_bytes_total") - sent >= whole.len() as i64;
    assert!(eventually(is_counted), "what the client has is counted");
    let body = vec![b'x'; 2 << 20];
    // A stranger's announcement is no traffic; what really came is.
    site.request(&format!("POST /devices/{DEVICE}.git/git-receive-pack HTTP/1.1"), Some(&device), &body);
    let received = count("wfm_received_bytes_total") - received;
    assert!((2 << 20..3 << 20).contains(&received), "{received}");
    assert!(count("wfm_devices{state=\"unknown\"}") >= 1);
    assert!(count("wfm_request_seconds_count{action=\"upload-pack\"}") >= 1);
}
