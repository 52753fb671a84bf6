//! Many who come over SSH from one address at the same time.

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use repo_git::{Remote, ssh};
use repo_http::Timeouts;
use repo_testkit::{copy, git};
use wfm_git_host::accounts::Store;

use super::ssh::{SshSite, public};
use super::{DEVICE, eventually, printed, said};

/// How many devices a large site has.
const DEVICES: usize = 200;

/// More silent connections than an address may have.
const SILENT: usize = 600;

/// As many clients that say their version and then nothing as may have an sshd at the same time.
const STOPPED: usize = 100;

/// A device with a key and a repository of its own.
fn device(site: &SshSite, name: &str) -> PathBuf {
    let (lab, key) = (&site.site.lab, site.key(name));
    copy(&lab.repo(DEVICE), &lab.repo(name));
    let store = Store::new(lab.home.accounts());
    assert!(store.add_ssh_key_for_device(&name.parse().unwrap(), public(&key)).unwrap());
    key
}

/// The way of a device's syncer, with patience for a busy machine.
fn remote(site: &SshSite, name: &str, key: &Path) -> (ssh::Client, Remote) {
    let host_key = std::fs::read_to_string(site.site.lab.home.ssh().join("ssh_host_ed25519_key.pub")).unwrap();
    let settings = ssh::Settings {
        host_keys: ssh::HostKeys { keys: vec![host_key.trim().to_owned()], ..ssh::HostKeys::default() },
        identities: vec![ssh::Identity::KeyFile { path: key.to_owned(), passphrase: None }],
        timeouts: Timeouts { connect: Duration::from_secs(120), ..Timeouts::default() },
        ..ssh::Settings::default()
    };
    let url = ssh::Url::parse(&site.url(&format!("devices/{name}.git"))).unwrap();
    let client = ssh::Client::new(&url, settings).unwrap();
    (client.clone(), Remote::ssh(url, client))
}

#[test]
fn two_hundred_devices_behind_one_address_come_at_once_and_each_gets_its_answer() {
    let site = SshSite::new();
    let names: Vec<String> = (0..DEVICES).map(|number| format!("site-{number:03}")).collect();
    let remotes: Vec<_> = names.iter().map(|name| remote(&site, name, &device(&site, name))).collect();
    let expected = site.site.lab.tip(DEVICE, "desired").unwrap();
    let (begin, all_are_in) = (Barrier::new(DEVICES), Barrier::new(DEVICES));
    let ask = |(client, remote): &(ssh::Client, Remote)| {
        begin.wait();
        let began = Instant::now();
        let first = remote.refs(&["refs/heads/desired"]);
        let took = began.elapsed();
        all_are_in.wait();
        for refs in [first, remote.refs(&["refs/heads/desired"])] {
            assert_eq!(refs.unwrap()["refs/heads/desired"].to_string(), expected);
        }
        assert_eq!(client.sessions(), 1);
        took
    };
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        let asked: Vec<_> = remotes.iter().map(|remote| scope.spawn(|| ask(remote))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    took.sort_unstable();
    println!("let in after {:?} (half of them), {:?} (the last)", took[DEVICES / 2], took[DEVICES - 1]);
}

#[test]
fn more_silent_clients_than_an_address_may_have_delay_no_device_behind_it() {
    let site = SshSite::new();
    let (key, (_, port)) = (site.device(DEVICE), &site.at);
    let ask = || {
        let begin = Instant::now();
        let answer = site.ask(&key, &["git-upload-pack '/devices/press-01.git'"]);
        assert!(answer.status.success(), "{}", said(&answer));
        begin.elapsed()
    };
    let alone = ask();
    let connect = || TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let _silent: Vec<_> = (0..SILENT).map(|_| connect()).collect();
    let at_once = ask();
    // Meanwhile those who wait for the server's word have as many sshds as they may, and others wait for theirs.
    std::thread::sleep(Duration::from_secs(5));
    let later = ask();
    println!("alone {alone:?}, beside {SILENT} silent ones {at_once:?}, and 5 s later {later:?}");
    assert!(at_once.max(later) < alone + Duration::from_secs(3), "{at_once:?}, {later:?}");
}

#[test]
fn clients_that_say_their_version_and_stop_delay_no_device_behind_their_address() {
    let site = SshSite::new();
    let key = site.device(DEVICE);
    let ask = || {
        let begin = Instant::now();
        let answer = site.ask(&key, &["git-upload-pack '/devices/press-01.git'"]);
        assert!(answer.status.success(), "{}", said(&answer));
        begin.elapsed()
    };
    let alone = ask();
    let stop = || {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", site.at.1)).unwrap();
        stream.write_all(b"SSH-2.0-stops\r\n").unwrap();
        stream
    };
    let _stopped: Vec<_> = (0..STOPPED).map(|_| stop()).collect();
    let at_once = ask();
    std::thread::sleep(Duration::from_secs(5));
    let later = ask();
    println!("alone {alone:?}, beside {STOPPED} that stopped {at_once:?}, and 5 s later {later:?}");
    assert!(
        at_once < alone + Duration::from_secs(6) && later < alone + Duration::from_secs(3),
        "{at_once:?}, {later:?}"
    );
}

#[test]
fn a_client_that_waits_for_the_servers_word_gets_it() {
    use std::io::Read;
    let site = SshSite::new();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", site.at.1)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut version = [0; 8];
    stream.read_exact(&mut version).unwrap();
    assert_eq!(&version, b"SSH-2.0-");
}

/// How many sessions the host serves: one `ssh-serve` each.
fn served(site: &SshSite) -> usize {
    let socket = site.site.lab.home.ssh().join("host.sock").display().to_string();
    let is_one = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&&b"ssh-serve"[..]) && words.get(2) == Some(&socket.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().flatten().map(is_one).filter(|is_one| *is_one).count()
}

#[test]
fn a_client_that_stops_in_a_request_or_takes_no_answer_is_ended_after_half_a_minute() {
    let site = SshSite::new();
    let (key, repository) = (site.device(DEVICE), site.site.lab.repo(DEVICE));
    // More than sshd, the pipes and the network between hold.
    std::fs::write(site.site.lab.dir().join("large"), repo_testkit::noise(64 << 20, 1)).unwrap();
    let large = site.site.lab.dir().join("large").display().to_string();
    let blob = git::git(&repository, &["hash-object", "-w", &large]);
    let list = site.site.lab.dir().join("list");
    std::fs::write(&list, format!("100644 blob {blob}\tlarge\n")).unwrap();
    let mut tree = git::command(&repository);
    tree.arg("mktree").stdin(std::fs::File::open(&list).unwrap());
    let tree = printed(&tree.output().unwrap()).trim().to_owned();
    let commit = git::git(&repository, &["commit-tree", &tree, "-m", "large"]);
    git::git(&repository, &["update-ref", "refs/heads/desired", &commit]);

    let (mut silent, _) = site.session(&key, "devices/press-01.git");
    let (mut greedy, _) = site.session(&key, "devices/press-01.git");
    let begin = Instant::now();
    silent.input.as_mut().unwrap().write_all(b"0014comm").unwrap();
    greedy.send(&["command=fetch\n", "|", &format!("want {commit}\n"), "done\n"]);
    std::thread::sleep(Duration::from_secs(20));
    assert_eq!(served(&site), 2, "both have their time");
    assert!(eventually(|| served(&site) == 0), "{:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    assert!(site.ask(&key, &["git-upload-pack '/devices/press-01.git'"]).status.success());
}
