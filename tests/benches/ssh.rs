//! The host over SSH: what a poll costs beside what others do, what kept sessions take of the host, and when a device that
//! waits learns of a change.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use repo_git::repo::branches;
use repo_git::{Remote, Waited, ssh};
use repo_testkit::faults::fault_proxy::FaultProxy;
use repo_testkit::ssh_key::{keygen, public};
use repo_testkit::{git, ports};

use crate::cost::{Running, of_calls_in_process, of_runs, pss_if_there};
use crate::fleet::{Fleet, id};
use crate::host::{CREATED, LIMITS, write_account};
use crate::stage::{Stage, run};
use crate::waiting::moved;
use crate::{DEVICES, Line, RUNS, median, shown};

/// Polls of one run in a kept session, and in sessions of their own.
const POLLS: u32 = 200;
const SESSIONS: u32 = 5;

/// How many of the devices a change is for.
const BUSY: usize = 100;

/// How many sessions are opened at the same time.
const OPENERS: usize = 4;

/// How long a publish may take to reach everyone.
const LOST: Duration = Duration::from_secs(120);

/// A fleet whose devices have SSH keys, and its host.
struct OverSsh {
    fleet: Fleet,
    running: Running,
    user: String,
    address: SocketAddr,
    host_key: String,
    keys: PathBuf,
}

/// What a client costs for a poll.
struct Poll {
    wall: Duration,
    cpu: Duration,
    bytes: u64,
    exchanges: f64,
}

impl OverSsh {
    fn new(stage: &Stage, devices: usize) -> Self {
        let (fleet, keys) = (Fleet::new(stage, "ssh", devices, BUSY), stage.make_dir("ssh-keys"));
        for number in 0..devices {
            let key = keys.join(id(number));
            keygen(&key, "ed25519", "");
            write_account(&fleet, number, "sshKeys", &serde_json::json!({ "key": public(&key), "created": CREATED }));
        }
        let settings = format!("serve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:0\n{LIMITS}");
        fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        run(&mut fleet.command(&["publish"]));
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free_port()));
        let mut command = fleet.command(&["serve", "--ssh", &address.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running(command.spawn().expect("it starts"));
        let output = BufReader::new(running.0.stdout.take().expect("its output"));
        let line = output.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("ssh://").map(str::to_owned));
        let line = line.expect("the host listens for SSH, too");
        let user = line.split('@').next().expect("a user").to_owned();
        let host_key = fs::read_to_string(fleet.home().join("ssh/ssh_host_ed25519_key.pub")).expect("its key");
        Self { fleet, running, user, address, host_key: host_key.trim().to_owned(), keys }
    }

    fn url(&self, through: SocketAddr, number: usize) -> String {
        format!("ssh://{}@{through}/devices/{}.git", self.user, id(number))
    }

    /// The syncer's own way.
    fn remote(&self, through: SocketAddr, number: usize) -> Remote {
        let url = ssh::Url::parse(&self.url(through, number)).expect("a URL");
        let settings = ssh::Settings {
            host_keys: ssh::HostKeys { keys: vec![self.host_key.clone()], ..ssh::HostKeys::default() },
            identities: vec![ssh::Identity::KeyFile { path: self.keys.join(id(number)), passphrase: None }],
            ..ssh::Settings::default()
        };
        let client = ssh::Client::new(&url, settings).expect("a client");
        Remote::ssh(url, client)
    }

    /// By stock git and ssh, with the options behind `more` besides.
    fn ls_remote(&self, through: SocketAddr, more: &str) -> Command {
        let known = self.keys.join("known_hosts");
        let host = format!("[{}]:{}", through.ip(), through.port());
        fs::write(&known, format!("{host} {}\n", self.host_key)).expect("written");
        let (key, known) = (self.keys.join(id(0)), known.display());
        let ssh =
            format!("ssh -F none -i {} -o IdentitiesOnly=yes -o UserKnownHostsFile={known} {more}", key.display());
        let mut command = git::command(&self.keys);
        command.env("GIT_SSH_COMMAND", ssh).args(["ls-remote", &self.url(through, 0)]);
        command
    }

    /// By libgit2 with its own SSH, in protocol version 0.
    fn libgit2(&self) -> usize {
        let mut callbacks = git2::RemoteCallbacks::new();
        let key = self.keys.join(id(0));
        callbacks.credentials(move |_, user, _| git2::Cred::ssh_key(user.unwrap_or_default(), None, &key, None));
        callbacks.certificate_check(|_, _| Ok(git2::CertificateCheckStatus::CertificateOk));
        let mut remote = git2::Remote::create_detached(self.url(self.address, 0)).expect("a remote");
        let connection = remote.connect_auth(git2::Direction::Fetch, Some(callbacks), None).expect("connected");
        connection.list().expect("refs").len()
    }

    /// The host and what it started: its own memory, that of all `sshd`, and that of all `ssh-serve`, in KiB.
    fn memory(&self) -> [u64; 3] {
        let mut all = [0; 3];
        let own = self.running.process();
        for process in own.tree() {
            let which = match process.name().as_deref() {
                _ if process.0 == own.0 => 0,
                Some("sshd") => 1,
                _ => 2,
            };
            all[which] += pss_if_there(process).unwrap_or(0);
        }
        all
    }
}

fn ours(over: &OverSsh) -> Poll {
    let poll = |remote: &Remote| assert!(remote.refs(&["refs/heads/"]).expect("refs").len() >= 3);
    let direct = over.remote(over.address, 0);
    poll(&direct);
    let runs: Vec<_> = (0..RUNS).map(|_| of_calls_in_process(POLLS, || poll(&direct))).collect();
    let (wall, cpu): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let proxy = FaultProxy::start(over.address);
    let counted = over.remote(proxy.address(), 0);
    (0..2).for_each(|_| poll(&counted));
    let before = proxy.counts();
    (0..POLLS).for_each(|_| poll(&counted));
    let after = proxy.counts();
    assert_eq!(before.connections, after.connections, "the session is kept");
    Poll {
        wall: median(&wall),
        cpu: median(&cpu),
        bytes: (after.up + after.down - before.up - before.down) / u64::from(POLLS),
        exchanges: (after.exchanges - before.exchanges) as f64 / f64::from(POLLS),
    }
}

fn polls(over: &OverSsh) -> Vec<Line> {
    let line = |who: &str, what: &str, value: String| Line::new(format!("poll over SSH by {who}: {what}"), value, RUNS);
    let Poll { wall, cpu, bytes, exchanges } = ours(over);
    let mut lines = vec![
        line("device-syncer", "wall-clock", shown(wall)).goal("≤ 4 ms"),
        line("device-syncer", "CPU of the client", shown(cpu)).goal("≤ 0.70 ms"),
        line("device-syncer", "bytes", bytes.to_string()),
        line("device-syncer", "round trips", format!("{exchanges:.2}")).goal("1"),
    ];
    let mut others = |who: &str, runs: Vec<(Duration, Duration)>| {
        let (wall, cpu): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        lines.push(line(who, "wall-clock, CPU", format!("{} {}", shown(median(&wall)), shown(median(&cpu)))));
    };
    let by_git = |more: &str| {
        let command = over.ls_remote(over.address, more);
        (0..RUNS).map(|_| of_runs(SESSIONS, &command)).collect::<Vec<_>>()
    };
    others("git ls-remote, a session for each", by_git(""));
    let control = over.keys.join("control");
    let master = format!("-o ControlMaster=auto -o ControlPersist=60 -o ControlPath={}", control.display());
    others("git ls-remote, ControlMaster", by_git(&master));
    let _ = Command::new("ssh")
        .args(["-F", "none", "-O", "exit", "-o"])
        .arg(format!("ControlPath={}", control.display()))
        .arg("x")
        .output();
    let by_libgit2 = || of_calls_in_process(SESSIONS, || assert!(over.libgit2() >= 3));
    others("libgit2, a session for each", (0..RUNS).map(|_| by_libgit2()).collect());
    lines
}

/// Opens the session of each of these devices.
fn open(over: &OverSsh, numbers: std::ops::Range<usize>) -> Vec<Remote> {
    let mut remotes: Vec<_> = numbers.map(|number| over.remote(over.address, number)).collect();
    thread::scope(|scope| {
        let share = remotes.len().div_ceil(OPENERS).max(1);
        for part in remotes.chunks_mut(share) {
            scope.spawn(move || {
                for remote in part {
                    let begin = Instant::now();
                    while let Err(error) = remote.refs(&["refs/heads/"]) {
                        assert!(begin.elapsed() < LOST, "{error}");
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            });
        }
    });
    remotes
}

/// Waits again and again, as a device does; tells when another `desired` was heard of.
fn wait(repository: &Path, remote: &Remote, number: usize, heard: &mpsc::Sender<(usize, SystemTime)>) {
    let tips = || branches(repository, ["desired", "freshness"]).expect("readable");
    let mut known = tips();
    loop {
        let Ok(waited) = remote.wait(known[0], known[1], None, Duration::from_secs(300)) else { return };
        let (at, now) = (SystemTime::now(), tips());
        if matches!(waited, Waited::Moved { .. }) && now[0] != known[0] && heard.send((number, at)).is_err() {
            return;
        }
        known = now;
    }
}

/// How long after its branch moved each device heard of it.
fn published(over: &OverSsh, heard: &mpsc::Receiver<(usize, SystemTime)>, change: usize) -> Vec<Duration> {
    over.fleet.change(change);
    let mut publish = over.fleet.command(&["publish"]);
    let publishing = thread::spawn(move || run(&mut publish));
    let all: Vec<_> = (0..BUSY).map(|_| heard.recv_timeout(LOST).expect("everyone hears of it")).collect();
    publishing.join().expect("published");
    let late = |(number, at): &(usize, SystemTime)| at.duration_since(moved(&over.fleet, *number)).unwrap_or_default();
    all.iter().map(late).collect()
}

fn waits(over: &OverSsh, devices: usize) -> Vec<Line> {
    let mebibytes = |kibibytes: u64| format!("{:.1} MiB", kibibytes as f64 / 1024.0);
    let (empty, mut remotes, mut lines) = (over.memory(), Vec::new(), Vec::new());
    let (sender, heard) = mpsc::channel();
    for step in [devices / 5, devices] {
        for (number, remote) in (remotes.len()..step).zip(open(over, remotes.len()..step)) {
            let (theirs, sender, repository) = (remote.clone(), sender.clone(), over.fleet.repository(number));
            thread::spawn(move || wait(&repository, &theirs, number, &sender));
            remotes.push(remote);
        }
        thread::sleep(Duration::from_secs(3));
        let all = over.memory();
        let line = |what: &str, value: String| Line::new(format!("{step} sessions wait: {what} (PSS)"), value, 1);
        let each = |which: usize| format!("{} KiB", (all[which].saturating_sub(empty[which])) / step as u64);
        lines.extend([
            line("the host, sshd and ssh-serve together", mebibytes(all.iter().sum())),
            line("the host's own for one", each(0)),
            line("sshd for one", each(1)),
            line("ssh-serve for one", each(2)),
        ]);
    }
    let mut latencies: Vec<_> = (0..RUNS).flat_map(|change| published(over, &heard, change)).collect();
    latencies.sort();
    let percentile = |percent: usize| shown(latencies[(latencies.len() - 1) * percent / 100]);
    let when = format!("{devices} sessions wait: publish → device ({RUNS} changes for {BUSY} of them)");
    lines.push(Line::new(format!("{when}, p50"), percentile(50), latencies.len()).goal("≤ 100 ms"));
    lines.push(Line::new(format!("{when}, p99"), percentile(99), latencies.len()));
    drop(heard);
    remotes.iter().for_each(Remote::interrupt);
    lines
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let over = OverSsh::new(stage, DEVICES);
    let mut lines = polls(&over);
    lines.extend(waits(&over, DEVICES));
    lines
}
