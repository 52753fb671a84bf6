//! Waiting for a change instead of polling.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::{Expected, RefMove, Repo};
use wfm_git_publisher::accounts::Store;

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

pub(crate) fn waiters(site: &Site, auditor: &Login) -> u64 {
    let text = site.get("/metrics", Some(auditor)).text();
    text.lines().find_map(|line| line.strip_prefix("wfm_waiting ")).and_then(|text| text.parse().ok()).unwrap()
}

#[test]
fn a_publish_by_another_process_ends_the_waiting() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", wfm_git_publisher::accounts::Role::Auditor, None));
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
fn a_move_of_a_ref_is_seen_within_100_ms() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", wfm_git_publisher::accounts::Role::Auditor, None));
    let repo = Repo::open(&site.lab.repo(DEVICE)).unwrap();
    let tips = ["desired", "freshness"].map(|branch| repo.tip(branch).unwrap());
    let mut taken = Vec::new();
    // The middle one of several counts: this machine may be busy with other tests.
    for round in 0..9 {
        std::thread::scope(|scope| {
            let waiter = waiting(scope, &site, &device);
            assert!(eventually(|| waiters(&site, &auditor) == 1));
            let step = RefMove { name: "refs/heads/freshness".into(), expected: Expected::Any, new: tips[round % 2] };
            repo.move_refs(&[step]).unwrap();
            let moved = Instant::now();
            let (answer, answered) = waiter.join().unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
            taken.push(answered.saturating_duration_since(moved));
        });
    }
    taken.sort();
    assert!(taken[4] < Duration::from_millis(100), "{taken:?}");
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
    let (device, auditor) = (site.device(), site.login("aud", wfm_git_publisher::accounts::Role::Auditor, None));
    std::thread::scope(|scope| {
        let waiter = waiting(scope, &site, &device);
        assert!(eventually(|| waiters(&site, &auditor) == 1));
        let start = Instant::now();
        Store::new(&site.lab.home).revoke(&device.name.parse().unwrap(), Timestamp::now()).unwrap();
        let (answer, answered) = waiter.join().unwrap();
        assert_eq!(answer.status, 401);
        assert!(answered.duration_since(start) < Duration::from_secs(1));
    });
}

#[test]
fn a_host_that_stops_sends_the_waiting_away() {
    let site = Site::new();
    let (device, auditor) = (site.device(), site.login("aud", wfm_git_publisher::accounts::Role::Auditor, None));
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
    let (device, auditor) = (site.device(), site.login("aud", wfm_git_publisher::accounts::Role::Auditor, None));
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
    let (device, auditor) = (site.device(), site.login("aud", wfm_git_publisher::accounts::Role::Auditor, None));
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
