//! The host is killed, stopped, or not alone.

use repo_git::Repo;
use repo_testkit::git;
use repo_testkit::pki::{Authority, Validity};
use rustix::fs::{Mode, OFlags};
use wfm_git_host::accounts::Role;

use super::{DEVICE, Login, Report, Site, eventually, push_of, said};
use crate::support::Lab;

#[test]
fn a_host_killed_while_it_receives_goes_on_from_the_old_status() {
    let mut site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let commit = site.first_status(&clone, "1");
    let before = git::refs(&site.lab.repo(DEVICE));
    let head = format!(
        "POST /devices/press-01.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n{}\r\n",
        device.header()
    );
    let _stream = site.say([head.as_bytes(), &push_of(&commit, b"PACK")].concat());
    site.restart();
    assert_eq!(git::refs(&site.lab.repo(DEVICE)), before);
    let refspec = format!("{commit}:refs/heads/status");
    let pushed = site.run(&clone, &device, &["push", &site.url("devices/press-01.git"), &refspec]);
    assert!(pushed.status.success(), "{}", said(&pushed));
    git::git(&site.lab.repo(DEVICE), &["fsck", "--strict"]);
}

#[test]
fn what_a_git_of_a_killed_host_left_locked_stops_no_push() {
    let mut site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let commit = site.first_status(&clone, "1");
    let (url, refspec) = (site.url("devices/press-01.git"), format!("{commit}:refs/heads/status"));
    // Git reads this file before it moves a ref, and here it never ends.
    let repository = site.lab.repo(DEVICE);
    let pipe = repository.join("info/grafts");
    std::fs::create_dir_all(repository.join("info")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut push = site.git(&clone, Some(&device)).args(["push", &url, &refspec]).spawn().unwrap();
    let mut held = None;
    // A pipe opens for writing without waiting once somebody reads it.
    let opens = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let reads = || {
        held = rustix::fs::open(&pipe, opens, Mode::empty()).ok();
        held.is_some()
    };
    assert!(eventually(reads), "git doesn't read the file");
    let noted = std::fs::read_to_string(repository.join("writer.group")).unwrap();
    let git = noted.parse::<i32>().unwrap();
    let command = std::fs::read(format!("/proc/{git}/cmdline")).unwrap();
    assert!(String::from_utf8_lossy(&command).contains("receive-pack"), "it is git that is noted");
    site.kill();
    let git = rustix::process::Pid::from_raw(git).unwrap();
    rustix::process::kill_process_group(git, rustix::process::Signal::KILL).unwrap();
    assert!(!push.wait().unwrap().success());
    std::fs::remove_file(&pipe).unwrap();
    // As if it had come as far as this.
    let left = repository.join("refs/heads/status.lock");
    std::fs::write(&left, "").unwrap();
    site.restart();
    let pushed = site.run(&clone, &device, &["push", &site.url("devices/press-01.git"), &refspec]);
    assert!(pushed.status.success(), "{}", said(&pushed));
    assert!(!left.exists());
    git::git(&repository, &["fsck", "--strict"]);
}

#[test]
fn a_host_that_stops_lets_a_push_end() {
    let site = Site::new();
    let device = site.device();
    let clone = site.clone(&device, "devices/press-01.git", "device");
    let commit = site.first_status(&clone, "1");
    // The push has to wait for another writer of the repository, and meanwhile the host is told to stop.
    let repo = Repo::open(&site.lab.repo(DEVICE)).unwrap();
    let lock = repo.lock().unwrap();
    let (url, refspec) = (site.url("devices/press-01.git"), format!("{commit}:refs/heads/status"));
    let mut push = site.git(&clone, Some(&device));
    push.args(["push", &url, &refspec]).stderr(std::process::Stdio::piped());
    let push = push.spawn().unwrap();
    let lock_file = site.lab.repo(DEVICE).join("writer.lock");
    assert!(eventually(|| holders(&lock_file, site.pid())), "the push doesn't wait");
    site.terminate();
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

/// Days that the certificate has left, as the host tells.
fn days(site: &Site, auditor: &Login) -> i64 {
    site.metric("wfm_certificate_expires_seconds", auditor) / 86_400
}

#[test]
fn the_end_of_a_certificate_is_told_before_it_comes() {
    // The fleet's own renews itself, so nobody has to hear of it.
    let site = Site::new();
    let auditor = site.login("aud", Role::Auditor, None);
    assert!((88..=90).contains(&days(&site, &auditor)));
    let (lab, log) = site.stop();
    assert!(!log.contains("ends soon"), "{log}");

    let (authority, names) = (Authority::new("plant"), ["127.0.0.1", "localhost"]);
    let place = |name: &str| lab.dir().join(name);
    let show = |validity| {
        let identity = authority.server(&names, validity);
        repo_git::durable::replace_file(&place("host.key"), identity.key.as_bytes(), 0o600).unwrap();
        repo_git::durable::replace_file(&place("host.pem"), identity.certificate.as_bytes(), 0o644).unwrap();
    };
    show(Validity::Now);
    std::fs::write(place("plant.pem"), authority.certificate()).unwrap();
    let dir = lab.dir().display();
    let lines = format!("  certificateFile: {dir}/host.pem\n  keyFile: {dir}/host.key\n  caFile: {dir}/plant.pem\n");
    let site = Site::on(lab, &lines);
    let auditor = site.login("aud-2", Role::Auditor, None);
    let left = days(&site, &auditor);
    assert!((27..=30).contains(&left), "{left}");
    let ran = site.lab.run(&["status", "--output", "json"]);
    assert!(ran.err.contains("host.pem` ends at "), "{}", ran.err);
    let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert!(told["certificateExpires"].is_string(), "{told}");
    let (_, log) = site.stop();
    assert!(log.contains("the host's certificate ends soon"), "{log}");
}
