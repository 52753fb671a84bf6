//! Each fault at each of the three servers over SSH: plain OpenSSH with Git, gitolite, and our own host. Whatever it is, what
//! runs keeps running, and the device comes to what is published as soon as it can.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use repo_git::{Remote, ssh};
use repo_testkit::device::Device;
use repo_testkit::faults::chaos_rounds;
use repo_testkit::faults::fault_proxy::{Direction, Fault, FaultProxy};
use repo_testkit::fleet::{DEPLOYMENT, Fleet};
use repo_testkit::ssh_key::keygen;
use repo_testkit::{comes_within, git, terminate};
use serde_json::{Value, json};

use crate::crash::random;
use crate::hosted::read;
use crate::ssh_gitolite::Customer;
use crate::ssh_hosted::HostedOverSsh;
use crate::ssh_site::SshSite;

/// Behind letting somebody in, and within the pack of a change.
const IN_THE_PACK: u64 = 12_000;

/// Settings by which a silent server is noticed within seconds.
const IMPATIENT: &str = "{timeouts: {connect: 5s, answer: 3s, stall: 2s, total: 10s}}";

/// One of the servers, with a fleet that is published to it, and a device that joined there.
pub(crate) trait Server {
    fn fleet(&self) -> &Fleet;
    fn device(&self) -> &Device;
    /// Where sshd listens.
    fn address(&self) -> SocketAddr;
    fn host_key(&self) -> String;
    /// The device's repository there.
    fn repository(&self) -> PathBuf;
    /// Brings there what is committed.
    fn publish(&mut self);
    /// Kills it, with all sessions.
    fn kill(&mut self);
    fn start(&mut self);
    fn change_host_key(&mut self);
    fn refuse_key(&mut self);
    fn admit_key(&mut self);
    /// Lets the device push nothing, and read all.
    fn refuse_reports(&mut self);
    fn take_reports(&mut self);
}

/// A server, behind a network that can break.
struct Stand<'a> {
    server: &'a mut dyn Server,
    proxy: FaultProxy,
    greetings: u32,
}

impl<'a> Stand<'a> {
    fn new(server: &'a mut dyn Server) -> Self {
        let proxy = FaultProxy::start(server.address());
        server.fleet().change("applications/hello/1.0.0/margo.yaml", "maxLength: 100", "maxLength: 100000");
        let stand = Self { server, proxy, greetings: 0 };
        stand.join(|join| {
            let direct = join["url"].as_str().expect("a URL").to_owned();
            let [there, here] = [stand.server.address(), stand.proxy.address()].map(|at| at.to_string());
            assert!(direct.contains(&there), "{direct}");
            join["url"] = direct.replace(&there, &here).into();
        });
        stand
    }

    /// Joins again with a join file that is changed like this.
    fn join(&self, change: impl Fn(&mut Value)) {
        let device = self.server.device();
        let mut join = read(&device.home().join("join.json"));
        change(&mut join);
        let path = self.server.fleet().root().join("join-again.json");
        std::fs::write(&path, join.to_string()).expect("written");
        let output = device.syncer(&["init", "--join", &path.display().to_string()]);
        assert!(output.status.success(), "{output:?}");
    }

    /// Publishes another greeting, of some 20 KB, so that a pack can break off in its middle; returns how it begins.
    fn greet(&mut self) -> String {
        self.greetings += 1;
        let greeting = format!("greeting-{}-", self.greetings);
        let mut state = u64::from(self.greetings);
        let long: String = (0..60_000).map(|_| char::from(b'a' + random(&mut state, 26) as u8)).collect();
        let (path, fleet) = (DEPLOYMENT, self.server.fleet());
        let before = fleet.read(path);
        let line = before.lines().find(|line| line.starts_with("  greeting: ")).expect("a greeting").to_owned();
        let tip = git::tip(&self.server.repository(), "desired");
        fleet.change(path, &line, &format!("  greeting: {greeting}{long}"));
        self.server.publish();
        self.until("it is published", |stand| git::tip(&stand.server.repository(), "desired") != tip);
        greeting
    }

    fn runs(&self, greeting: &str) -> bool {
        self.server.device().environments().iter().any(|environment| environment.contains(greeting))
    }

    fn once(&self) -> bool {
        self.server.device().syncer(&["once"]).status.success()
    }

    /// A pass that brings this.
    fn comes_to(&self, greeting: &str) {
        self.server.device().pass();
        assert!(self.runs(greeting), "{greeting}");
        assert_eq!(self.trouble(), None);
    }

    /// Why the device can't reach its host.
    fn trouble(&self) -> Option<String> {
        let text = std::fs::read(self.server.device().home().join("contact.json")).ok()?;
        let trouble: Value = serde_json::from_slice(&text).ok()?;
        Some(format!("{} {}", trouble["type"].as_str()?, trouble["reason"].as_str()?))
    }

    fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        assert!(comes_within(Duration::from_secs(120), || so(self)), "{what}: {:?}", self.trouble());
    }

    /// What the device believes, and what it has reported.
    fn believed(&self) -> String {
        git::git(&self.server.device().clone_dir(), &["rev-parse", "refs/syncer/state"])
    }

    /// The syncer's own way to the server, with this key.
    fn client(&self, key: PathBuf, keepalive: Duration) -> (ssh::Client, Remote) {
        let join = read(&self.server.device().home().join("join.json"));
        let url = ssh::Url::parse(join["url"].as_str().expect("a URL")).expect("over SSH");
        let settings = ssh::Settings {
            host_keys: ssh::HostKeys { keys: vec![self.server.host_key()], ..ssh::HostKeys::default() },
            identities: vec![ssh::Identity::KeyFile { path: key, passphrase: None }],
            keepalive,
            ..ssh::Settings::default()
        };
        let client = ssh::Client::new(&url, settings).expect("a client");
        (client.clone(), Remote::ssh(url, client))
    }
}

/// Meets a server with all faults, one after the other.
fn every_fault(server: &mut dyn Server) {
    let mut stand = Stand::new(server);
    clone_poll_and_fetch(&mut stand);
    packs_that_break_off(&mut stand);
    server_killed_in_a_pack(&mut stand);
    session_dead_after_sleep(&mut stand);
    idle_for_long(&stand);
    wrong_keys(&stand);
    key_refused(&mut stand);
    reports_refused(&mut stand);
    host_key_changed(&mut stand);
}

fn clone_poll_and_fetch(stand: &mut Stand<'_>) {
    let first = stand.greet();
    stand.comes_to(&first);
    // A report of the pass itself may follow, and then there is nothing to do.
    stand.server.device().pass();
    let marks = stand.server.device().marks();
    let before = git::tip(&stand.server.repository(), "status");
    stand.server.device().pass();
    assert_eq!((marks, before), (stand.server.device().marks(), git::tip(&stand.server.repository(), "status")));
    let second = stand.greet();
    stand.comes_to(&second);
    for branch in ["desired", "freshness", "status", "heartbeat"] {
        assert!(git::tip(&stand.server.repository(), branch).is_some(), "{branch}");
    }
    git::git(&stand.server.repository(), &["fsck", "--strict", "--no-dangling"]);
}

fn packs_that_break_off(stand: &mut Stand<'_>) {
    stand.server.device().set("host", IMPATIENT);
    for fault in [Fault::CutAfter, Fault::ResetAfter, Fault::StallAfter] {
        let fault = fault(Direction::Down, IN_THE_PACK);
        let (before, greeting) = (stand.believed(), stand.greet());
        stand.proxy.set(fault);
        let begin = Instant::now();
        assert!(!stand.once(), "{fault:?}");
        assert!(begin.elapsed() < Duration::from_secs(30), "{fault:?}: {:?}", begin.elapsed());
        assert!(stand.trouble().is_some_and(|trouble| trouble.starts_with("Unreachable ")), "{:?}", stand.trouble());
        assert_eq!(stand.believed(), before, "{fault:?}");
        assert!(!stand.runs(&greeting));
        stand.proxy.set(Fault::None);
        stand.comes_to(&greeting);
    }
    stand.server.device().set("host", "{}");
}

fn server_killed_in_a_pack(stand: &mut Stand<'_>) {
    let (before, greeting) = (stand.believed(), stand.greet());
    stand.proxy.set(Fault::StallAfter(Direction::Down, IN_THE_PACK));
    let passed = stand.proxy.counts().down;
    let mut pass = stand.server.device().once().spawn().expect("the syncer starts");
    let limit = Duration::from_secs(60);
    assert!(stand.proxy.wait_until(limit, |counts| counts.down >= passed + IN_THE_PACK), "the pack begins");
    stand.server.kill();
    // With what it had sent, and is still on its way.
    stand.proxy.set(Fault::Refuse);
    assert!(!pass.wait().expect("it ends").success());
    assert_eq!(stand.believed(), before);
    stand.server.start();
    stand.proxy.set(Fault::None);
    stand.comes_to(&greeting);
}

/// A syncer's loop, which ends when dropped.
struct Loop(std::process::Child);

impl Drop for Loop {
    fn drop(&mut self) {
        terminate(&self.0);
        let _ = self.0.wait();
    }
}

/// As after a sleep, or when a router forgot the connection: nobody says that it is over.
fn session_dead_after_sleep(stand: &mut Stand<'_>) {
    let first = stand.greet();
    let mut run = stand.server.device().command(&["run"]);
    let _device = Loop(run.stderr(std::process::Stdio::null()).spawn().expect("the syncer starts"));
    stand.until("it is applied", |stand| stand.runs(&first));
    let before = stand.proxy.counts().connections;
    stand.proxy.set(Fault::ForgetIdle(Duration::from_millis(1)));
    std::thread::sleep(Duration::from_millis(500));
    stand.proxy.set(Fault::None);
    let second = stand.greet();
    stand.until("it is applied", |stand| stand.runs(&second));
    assert!(stand.proxy.counts().connections > before, "by another session");
}

/// What a minute is to a router, is a second here; where `MARGO_CHAOS_ROUNDS` is set (`./justw chaos`) it is a minute: 20
/// minutes idle, on a path that forgets after 5 and with keepalives each minute, as devices send them.
fn idle_for_long(stand: &Stand<'_>) {
    let minute = Duration::from_secs(if chaos_rounds().is_some() { 60 } else { 1 });
    let key = stand.server.device().home().join("ssh.key");
    let (client, remote) = stand.client(key, minute);
    remote.refs(&[]).expect("listed");
    stand.proxy.set(Fault::ForgetIdle(5 * minute));
    std::thread::sleep(20 * minute);
    remote.refs(&[]).expect("listed");
    assert_eq!(client.sessions(), 1, "keepalives held it open");
    stand.proxy.set(Fault::None);
}

fn wrong_keys(stand: &Stand<'_>) {
    for number in 0..3 {
        let key = stand.server.fleet().root().join(format!("stranger-{number}-{}", stand.greetings));
        keygen(&key, "ed25519", "");
        let (_, remote) = stand.client(key, Duration::from_secs(60));
        assert_eq!(remote.refs(&[]).expect_err("a stranger").reason(), "SshKeyRefused");
    }
    // From the same address.
    stand.server.device().pass();
}

fn key_refused(stand: &mut Stand<'_>) {
    stand.server.refuse_key();
    stand.until("the key ends", |stand| !stand.once() && stand.trouble().as_deref() == Some("Stalled SshKeyRefused"));
    assert!(stand.runs("greeting-"), "what runs keeps running");
    stand.server.admit_key();
    stand.until("it is let in", Stand::once);
    assert_eq!(stand.trouble(), None);
}

fn reports_refused(stand: &mut Stand<'_>) {
    let greeting = stand.greet();
    stand.server.refuse_reports();
    let before = git::tip(&stand.server.repository(), "status");
    assert!(!stand.once());
    assert!(stand.runs(&greeting), "it is applied all the same");
    assert_eq!(git::tip(&stand.server.repository(), "status"), before);
    stand.server.take_reports();
    stand.server.device().pass();
    assert_ne!(git::tip(&stand.server.repository(), "status"), before, "it is reported");
}

fn host_key_changed(stand: &mut Stand<'_>) {
    stand.server.change_host_key();
    let greeting = stand.greet();
    assert!(!stand.once());
    assert_eq!(stand.trouble().as_deref(), Some("Stalled SshHostKeyChanged"));
    assert!(!stand.runs(&greeting), "it isn't asked");
    let key = stand.server.host_key();
    stand.join(|join| join["hostKeys"] = json!([key]));
    stand.comes_to(&greeting);
}

#[test]
fn plain_openssh_with_every_fault() {
    every_fault(&mut SshSite::new(repo_testkit::sshd::Options::default()));
}

#[test]
fn a_customers_gitolite_with_every_fault() {
    every_fault(&mut Customer::new());
}

#[test]
fn our_own_host_with_every_fault() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    every_fault(&mut hosted);
}
