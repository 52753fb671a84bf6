//! Both programs with our own host between them, over SSH: real sshd, kept sessions, waits, and what ends a key.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use repo_testkit::device::{Device, fake_docker};
use repo_testkit::fleet::Fleet;
use repo_testkit::ports::free_port;
use repo_testkit::ssh_key::keygen;
use repo_testkit::sshd::{Options, Sshd};
use repo_testkit::{comes_within, copy, terminate, text};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::audit::findings;
use crate::clocks::{drill, lay_out};
use crate::installed::Installed;
use crate::site::registry_name;
use crate::ssh_faults::Server;

const ID: &str = "press-01";

/// How many bytes a device's repository may have.
const FULL: usize = 8 << 20;

/// A fleet on our own host, whose device asks over SSH.
pub(crate) struct HostedOverSsh {
    dir: TempDir,
    installed: Installed,
    fleet: Fleet,
    device: Device,
    /// Where the host is over SSH.
    ssh: SocketAddr,
    running: Vec<Child>,
    /// An sshd that isn't the host's own.
    _front: Option<Sshd>,
}

impl HostedOverSsh {
    /// Joined and enrolled; the host doesn't run yet.
    pub(crate) fn new() -> Self {
        let ssh = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let settings = format!("{{listen: \"{ssh}\"}}");
        Self::with(|_, _| (ssh, settings, None))
    }

    /// The same with this sshd in front, which lets in whom the host knows.
    fn behind(options: Options) -> Self {
        Self::with(|fleet, installed| {
            let place = fleet.home().join("ssh");
            let (key, socket) = (place.join("ssh_host_ed25519_key"), place.join("host.sock"));
            std::fs::create_dir_all(&place).expect("made");
            keygen(&key, "ed25519", "");
            let user = text(Command::new("id").arg("-un").output().expect("id is installed"));
            let program = installed.publisher();
            let lines = vec![
                format!("HostKey {}", key.display()),
                format!("AuthorizedKeysCommand {} ssh-auth {} %t %k", program.display(), socket.display()),
                format!("AuthorizedKeysCommandUser {}", user.trim()),
            ];
            let front = Sshd::start(Options { host_keys: Vec::new(), lines, ..options });
            let settings = format!("{{url: \"ssh://{}@{}\"}}", front.user(), front.address());
            (front.address(), settings, Some(front))
        })
    }

    /// With what this says of SSH: where that is, how `serve: ssh:` says so, and the sshd in front.
    fn with(ssh: impl FnOnce(&Fleet, &Installed) -> (SocketAddr, String, Option<Sshd>)) -> Self {
        let (dir, installed) = (TempDir::new().expect("a temporary directory"), Installed::new());
        let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
        fleet.push_application();
        let (https, (ssh, over_ssh, front)) = (free_port(), ssh(&fleet, &installed));
        let settings = format!(
            "poll: 1s\nserve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:{https}\n  ssh: {over_ssh}\n  limits: {{repositoryBytes: {FULL}}}\n"
        );
        std::fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        let root = dir.path().join(ID);
        std::fs::create_dir(&root).expect("made");
        fleet.run(&["device", "add", ID, "--over", "ssh"]);
        let (device, lines) = Device::init(ID, &root, &fake_docker(&root.join("docker")), &fleet.join_file(ID));
        fleet.run(&["device", "enroll", ID, &lines]);
        Self { dir, installed, fleet, device, ssh, running: Vec::new(), _front: front }
    }

    /// Starts the publisher with its host, from where sshd may run it; publishes whatever is committed.
    pub(crate) fn start_host(&mut self) -> usize {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("host.log"));
        let mut command = Command::new(self.installed.publisher());
        command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.arg("-C").arg(self.fleet.dir()).arg("run").stdin(Stdio::null()).stdout(Stdio::null());
        self.running.push(command.stderr(log.expect("a log")).spawn().expect("the publisher starts"));
        self.running.len() - 1
    }

    fn start_device(&mut self) -> usize {
        let log = std::fs::File::create(self.dir.path().join("device.log")).expect("a log");
        self.running.push(self.device.command(&["run"]).stderr(log).spawn().expect("the syncer starts"));
        self.running.len() - 1
    }

    fn end(&mut self, number: usize) {
        terminate(&self.running[number]);
        self.running[number].wait().expect("it ends");
    }

    fn runs(&self, greeting: &str) -> bool {
        self.device.environments().iter().any(|environment| environment.contains(greeting))
    }

    /// Passes of the device until it runs this.
    fn comes_to(&self, greeting: &str) {
        self.until("it is applied", |hosted| hosted.device.syncer(&["once"]).status.success() && hosted.runs(greeting));
    }

    fn is_reported(&self) -> bool {
        let status = self.fleet.status(ID);
        status["deployments"][0]["state"] == "installed" && status["adoptedSerial"] == status["desiredSerial"]
    }

    fn host_key_file(&self) -> PathBuf {
        self.fleet.home().join("ssh/ssh_host_ed25519_key")
    }

    /// Why the device can't reach its host.
    fn trouble(&self) -> Option<String> {
        let text = std::fs::read(self.device.home().join("contact.json")).ok()?;
        let trouble: Value = serde_json::from_slice(&text).ok()?;
        Some(format!("{} {}", trouble["type"].as_str()?, trouble["reason"].as_str()?))
    }

    fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let came = comes_within(Duration::from_secs(120), || so(self));
        let log = |name: &str| std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        assert!(came, "{what}: {:?}\n{}\n{}", self.trouble(), log("device.log"), log("host.log"));
    }
}

impl Server for HostedOverSsh {
    fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn address(&self) -> SocketAddr {
        self.ssh
    }

    fn host_key(&self) -> String {
        repo_testkit::ssh_key::public(&self.host_key_file())
    }

    fn repository(&self) -> PathBuf {
        self.fleet.repository(ID)
    }

    /// It does so by itself.
    fn publish(&mut self) {}

    /// Kills it, which started first.
    fn kill(&mut self) {
        self.running[0].kill().expect("killed");
        self.running[0].wait().expect("it ends");
    }

    fn start(&mut self) {
        let again = self.start_host();
        self.running.swap(0, again);
        self.until("it listens", |hosted| TcpStream::connect(hosted.ssh).is_ok());
    }

    fn change_host_key(&mut self) {
        self.kill();
        std::fs::remove_file(self.host_key_file()).expect("removed");
        std::fs::remove_file(self.host_key_file().with_extension("pub")).expect("removed");
        self.start();
    }

    fn refuse_key(&mut self) {
        let file = format!("devices/{ID}.yaml");
        let before = self.fleet.read(&file);
        std::fs::write(self.dir.path().join("with-its-key.yaml"), &before).expect("kept");
        let line = before.lines().skip_while(|line| *line != "sshKeys:").nth(1).expect("a key").to_owned();
        self.fleet.write(&file, &before.replace(&format!("sshKeys:\n{line}\n"), ""));
        self.fleet.commit("without it");
    }

    fn admit_key(&mut self) {
        let before = std::fs::read_to_string(self.dir.path().join("with-its-key.yaml")).expect("kept");
        self.fleet.write(&format!("devices/{ID}.yaml"), &before);
        self.fleet.commit("with it");
    }

    /// Its repository is full.
    fn refuse_reports(&mut self) {
        let file = std::fs::File::create(self.fleet.repository(ID).join("objects/full")).expect("made");
        file.set_len(FULL as u64).expect("as large as that");
    }

    fn take_reports(&mut self) {
        std::fs::remove_file(self.fleet.repository(ID).join("objects/full")).expect("removed");
    }
}

impl Drop for HostedOverSsh {
    fn drop(&mut self) {
        for child in &mut self.running {
            if matches!(child.try_wait(), Ok(None)) {
                terminate(child);
            }
            let _ = child.wait();
        }
    }
}

#[test]
fn a_device_joins_applies_reports_and_waits_at_our_own_host() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    hosted.until("it is reported", HostedOverSsh::is_reported);
    assert_eq!(hosted.fleet.status(ID)["doubts"], json!([]));

    // It asks each hour only; what wakes it is the wait.
    hosted.device.set("poll", "1h");
    let device = hosted.start_device();
    for (from, to) in [("hello from the press", "one"), ("one", "two"), ("two", "three")] {
        hosted.fleet.change("deployments/hello.yaml", from, to);
        hosted.until("the wait ends, and it is applied", |hosted| hosted.runs(to));
    }
    hosted.until("it is reported", HostedOverSsh::is_reported);
    hosted.end(device);
}

#[test]
fn behind_an_sshd_that_refuses_the_protocols_version_a_device_is_served_all_the_same() {
    let mut hosted = HostedOverSsh::behind(Options { accept_env: false, ..Options::default() });
    hosted.start_host();
    hosted.comes_to("hello from the press");
    hosted.fleet.change("deployments/hello.yaml", "hello from the press", "servus");
    hosted.comes_to("servus");
    hosted.until("it is reported", |hosted| {
        hosted.device.syncer(&["once"]);
        hosted.is_reported()
    });
}

#[test]
fn a_key_that_the_fleet_lists_no_more_ends_and_comes_back_with_its_line() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    hosted.refuse_key();
    hosted.until("the key ends", |hosted| {
        hosted.device.syncer(&["once"]);
        hosted.trouble().as_deref() == Some("Stalled SshKeyRefused")
    });
    assert!(hosted.runs("hello from the press"), "what runs keeps running");
    hosted.admit_key();
    hosted.until("it is let in", |hosted| hosted.device.syncer(&["once"]).status.success());
    assert_eq!(hosted.trouble(), None);
}

#[test]
fn a_host_that_is_killed_and_comes_back_is_found_again() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    hosted.start_device();
    for (from, to) in [("hello from the press", "one"), ("one", "two")] {
        hosted.kill();
        hosted.start();
        hosted.fleet.change("deployments/hello.yaml", from, to);
        hosted.until("it is applied", |hosted| hosted.runs(to));
    }
}

#[test]
fn a_device_changes_from_https_to_ssh_and_back() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    let init = |hosted: &HostedOverSsh| {
        let join = hosted.fleet.join_file(ID).display().to_string();
        let output = hosted.device.syncer(&["init", "--join", &join]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    hosted.fleet.run(&["device", "join", ID, "--over", "https"]);
    assert_eq!(init(&hosted).lines().count(), 1);
    hosted.fleet.change("deployments/hello.yaml", "hello from the press", "over https");
    hosted.comes_to("over https");
    hosted.fleet.run(&["device", "join", ID, "--over", "ssh"]);
    let again = hosted.fleet.run(&["device", "enroll", ID, &init(&hosted)]);
    assert!(again.contains("already"), "the same keys: {again}");
    hosted.fleet.change("deployments/hello.yaml", "over https", "over ssh");
    hosted.comes_to("over ssh");
}

#[test]
fn a_device_at_work_gets_new_keys_to_sign_and_to_ask_with_and_the_old_ones_let_nobody_in() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    hosted.until("it is reported", HostedOverSsh::is_reported);
    let thief = hosted.dir.path().join("thief");
    copy(&hosted.device.home(), &thief.join("home"));
    let keys = |hosted: &HostedOverSsh| {
        ["status.key", "ssh.key"].map(|name| std::fs::read(hosted.device.home().join(name)).expect("a key"))
    };
    let old = keys(&hosted);
    hosted.device.set("poll", "1s");
    hosted.start_device();

    let shown: Value =
        serde_json::from_slice(&hosted.device.syncer(&["rekey", "--output", "json"]).stdout).expect("JSON");
    assert_eq!(shown["state"], "toEnroll", "{shown}");
    let [line, ssh] = ["enrolmentLine", "sshLine"].map(|name| shown[name].as_str().expect("a line"));
    // Whether the host knows the new one already is no matter.
    hosted.fleet.change("deployments/hello.yaml", "hello from the press", "by the old ones");
    hosted.until("it is reported by the old ones", |hosted| hosted.runs("by the old ones") && hosted.is_reported());
    hosted.fleet.run(&["device", "enroll", ID, &format!("{line}\n{ssh}\n"), "--replace"]);
    hosted.until("it has new keys", |hosted| {
        let now = keys(hosted);
        let left =
            ["status.key.next", "ssh.key.next", "rekey.json"].map(|name| hosted.device.home().join(name).exists());
        now[0] != old[0] && now[1] != old[1] && left == [false, false, false]
    });
    hosted.fleet.change("deployments/hello.yaml", "by the old ones", "by the new ones");
    hosted.until("it is reported by the new ones", |hosted| hosted.runs("by the new ones") && hosted.is_reported());
    assert_eq!(hosted.fleet.status(ID)["doubts"], json!([]));
    assert_eq!(findings(&hosted.fleet), [""; 0], "the history of both is one");

    let thief = Device::at(ID, &thief);
    assert_eq!(thief.syncer(&["once"]).status.code(), Some(1));
    let trouble = std::fs::read_to_string(thief.home().join("contact.json")).expect("it can't ask");
    assert!(trouble.contains("SshKeyRefused"), "{trouble}");
}

#[test]
fn the_drill_for_the_hosts_ssh_key() {
    let mut hosted = HostedOverSsh::new();
    hosted.start_host();
    hosted.comes_to("hello from the press");
    let (dir, key) = (hosted.dir.path(), hosted.host_key_file());
    let old = std::fs::read(&key).expect("a key");
    let stick = dir.join("stick");
    std::fs::create_dir(&stick).expect("made");
    lay_out(dir, &hosted.fleet, &hosted.device);
    hosted.fleet.run(&["trust", "offline", &stick.display().to_string()]);
    drill("ssh-host-key.md", dir);
    hosted.fleet.change("deployments/hello.yaml", "hello from the press", "by the new key");
    hosted.comes_to("by the new key");
    let new = std::fs::read(&key).expect("a key");
    assert_ne!(new, old);
    // Whoever has the old key is no host of this device's any more.
    let show = |bytes: &[u8]| repo_git::durable::replace_file(&key, bytes, 0o600).expect("written");
    show(&old);
    assert_eq!(hosted.device.syncer(&["once"]).status.code(), Some(1));
    assert_eq!(hosted.trouble().as_deref(), Some("Stalled SshHostKeyChanged"));
    assert!(hosted.runs("by the new key"), "what runs keeps running");
    show(&new);
    hosted.until("it is asked again", |hosted| hosted.device.syncer(&["once"]).status.success());
}
