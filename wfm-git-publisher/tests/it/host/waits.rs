//! Waiting for a change instead of polling.

use std::io::Read;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::{Expected, RefMove, Repo};
use wfm_git_host::accounts::{Role, Store};

use super::{Answer, DEVICE, Login, Site, eventually};

/// A request that waits, in a thread; when its answer came.
fn waiting<'a>(
    scope: &'a std::thread::Scope<'a, '_>,
    site: &'a Site,
    login: &'a Login,
) -> std::thread::ScopedJoinHandle<'a, (Answer, Instant)> {
    let head = format!("GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}\r\n", site.wait_path(), login.header());
    let mut stream = site.say(head);
    scope.spawn(move || {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        (Answer::parse(&answer), Instant::now())
    })
}

/// Moves a branch of the device, as a publish would.
pub(super) fn move_freshness(site: &Site) {
    let repo = Repo::open(&site.lab.repo(DEVICE)).unwrap();
    let new = repo.tip("desired").unwrap();
    repo.move_refs(&[RefMove { name: "refs/heads/freshness".into(), expected: Expected::Any, new }]).unwrap();
}

#[test]
fn a_publish_by_another_process_ends_the_waiting() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", Role::Auditor, None));
    std::thread::scope(|scope| {
        let waiter = waiting(scope, &site, &device);
        assert!(eventually(|| site.waiters(&auditor) == 1));
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
        assert!(eventually(|| site.waiters(&auditor) == i64::from(MANY)));
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
            assert!(eventually(|| site.waiters(&auditor) == 1));
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
    assert_eq!(site.get(&site.wait_path(), Some(&device)).status, 204);
    assert!(start.elapsed() >= Duration::from_secs(1));
    let refs = site.get("/devices/press-01.git/info/refs?service=git-upload-pack", Some(&device));
    assert_eq!(refs.header("wfm-wait").as_deref(), Some("1"));
    assert_eq!(site.get("/devices/press-01.git/wait?desired=x", Some(&device)).status, 400);
    assert_eq!(site.get(&site.wait_path().replace(DEVICE, "packer-01"), Some(&device)).status, 404);
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
            assert!(eventually(|| site.waiters(&auditor) == 1));
            Store::new(site.lab.home.accounts()).revoke(&device.name.parse().unwrap(), Timestamp::now()).unwrap();
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
        assert!(eventually(|| site.waiters(&auditor) == 1));
        site.terminate();
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
        assert!(eventually(|| site.waiters(&auditor) == 1));
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
        assert!(eventually(|| site.waiters(&auditor) == 1));
        std::fs::rename(&here, site.lab.dir().join("away.git")).unwrap();
        std::fs::rename(&backup, &here).unwrap();
        assert_eq!(waiter.join().unwrap().0.status, 200);
        let waiter = waiting(scope, &site, &device);
        assert!(eventually(|| site.waiters(&auditor) == 1));
        let moved = Instant::now();
        site.lab.publish_all();
        let (answer, answered) = waiter.join().unwrap();
        assert_eq!(answer.status, 200);
        // A look now and then alone would take longer.
        assert!(answered.duration_since(moved) < Duration::from_secs(5));
    });
}
