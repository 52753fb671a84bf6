//! The host is killed, stopped, or not alone.

use std::io::Write;

use repo_git::Repo;
use repo_testkit::git;

use super::{DEVICE, Report, Site, eventually, said, terminate};
use crate::support::Lab;

#[test]
fn a_host_killed_while_it_receives_goes_on_from_the_old_status() {
    let mut site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let key = Lab::device_key(DEVICE);
    let commit = Report { device: DEVICE, kind: "status", parents: &[], signer: Some(&key) }.commit(&site, &clone, "1");
    let before = git::refs(&site.lab.repo(DEVICE));
    let mut stream = site.connect();
    let line = format!("{} {commit} refs/heads/status\0report-status\n", "0".repeat(40));
    let head = format!(
        "POST /devices/press-01.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\
         Authorization: Bearer {}\r\n\r\n{:04x}{line}0000PACK",
        device.secret,
        line.len() + 4
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.flush().unwrap();
    site.restart();
    assert_eq!(git::refs(&site.lab.repo(DEVICE)), before);
    let refspec = format!("{commit}:refs/heads/status");
    let pushed = site.run(&clone, &device, &["push", &site.url("devices/press-01.git"), &refspec]);
    assert!(pushed.status.success(), "{}", said(&pushed));
    git::git(&site.lab.repo(DEVICE), &["fsck", "--strict"]);
}

#[test]
fn a_host_that_stops_lets_a_push_end() {
    let site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let key = Lab::device_key(DEVICE);
    let commit = Report { device: DEVICE, kind: "status", parents: &[], signer: Some(&key) }.commit(&site, &clone, "1");
    // The push has to wait for another writer of the repository, and meanwhile the host is told to stop.
    let repo = Repo::open(&site.lab.repo(DEVICE)).unwrap();
    let lock = repo.lock().unwrap();
    let (url, refspec) = (site.url("devices/press-01.git"), format!("{commit}:refs/heads/status"));
    let mut push = site.git(&clone, Some(&device));
    push.args(["push", &url, &refspec]).stderr(std::process::Stdio::piped());
    let push = push.spawn().unwrap();
    let lock_file = site.lab.repo(DEVICE).join("writer.lock");
    assert!(eventually(|| holders(&lock_file, site.pid())), "the push doesn't wait");
    terminate(site.pid());
    assert!(eventually(|| std::net::TcpStream::connect(&site.address).is_err()), "the host still accepts");
    drop(lock);
    let pushed = push.wait_with_output().unwrap();
    assert!(pushed.status.success(), "{}", said(&pushed));
    assert_eq!(site.lab.tip(DEVICE, "status"), Some(commit));
    let (_, log) = site.stop();
    assert!(log.contains("the host stopped"), "{log}");
}

/// Whether a process has a file open.
fn holders(path: &std::path::Path, pid: u32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|target| target == path)
}

#[test]
fn publishers_and_devices_at_work_at_once_lose_nothing() {
    let site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let key = Lab::device_key(DEVICE);
    let publish = || site.lab.command(&["publish"]).output().unwrap();
    let mut parent = None::<String>;
    std::thread::scope(|scope| {
        let publishers = [0, 1].map(|_| {
            scope.spawn(|| {
                for _ in 0..4 {
                    publish();
                }
            })
        });
        for number in 0..8 {
            let parents: Vec<&str> = parent.as_deref().into_iter().collect();
            let report = Report { device: DEVICE, kind: "status", parents: &parents, signer: Some(&key) };
            let commit = report.commit(&site, &clone, &number.to_string());
            let refspec = format!("{commit}:refs/heads/status");
            let pushed = site.run(&clone, &device, &["push", &site.url("devices/press-01.git"), &refspec]);
            assert!(pushed.status.success(), "{}", said(&pushed));
            parent = Some(commit);
        }
        publishers.into_iter().for_each(|one| one.join().unwrap());
    });
    assert_eq!(site.lab.tip(DEVICE, "status"), parent);
    git::git(&site.lab.repo(DEVICE), &["fsck", "--strict"]);
}
