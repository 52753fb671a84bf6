//! One device and its host, joined over HTTPS as the join file says.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use repo_model::join::Join;
use repo_testkit::device::fake_docker;
use repo_testkit::faults::fault_proxy::FaultProxy;
use repo_testkit::git;

use crate::host::{Host, Login, Place};
use crate::stage::{Stage, run, text};

const ID: &str = "press-01";

/// What the device runs containers with, and the lines of `device.yaml` for it.
pub(crate) enum Docker {
    /// The stand-in.
    Fake,
    /// By these settings.
    Real(String),
}

/// A fleet with one device.
pub(crate) struct Site<'a> {
    stage: &'a Stage,
    name: &'static str,
    pub(crate) host: Host,
    /// The device goes through it, so that what it sends is counted.
    pub(crate) proxy: FaultProxy,
    pub(crate) join: Join,
}

impl<'a> Site<'a> {
    /// The device runs the example and has nothing to do. The publisher does `verb`: `serve` or `run`; `limits` are its.
    pub(crate) fn new(stage: &'a Stage, name: &'static str, verb: &str, limits: &str, docker: &Docker) -> Self {
        let (address, dir) = (free_address(), stage.dir.path().join(name));
        let mut init = Command::new(&stage.publisher);
        init.arg("init").arg(&dir).args(["--registry", &stage.registry_for(name), "--image", &stage.image()]);
        run(init.args(["--host", "127.0.0.1", "--listen", &address.to_string()]));
        let publisher = |args: &[&str]| text(Command::new(&stage.publisher).arg("-C").arg(&dir).args(args));
        publisher(&["app", "push", "applications/hello/1.0.0"]);
        publisher(&["device", "add", ID]);
        let wfm = stage.dir.path().join(format!("{name}.wfm"));
        let config = std::fs::read_to_string(wfm.join("publisher.yaml")).expect("settings");
        let config = config.replace("\nserve:\n", &format!("\nserve:\n  limits: {{{limits}}}\n"));
        std::fs::write(wfm.join("publisher.yaml"), config).expect("written");
        let mut command = Command::new(&stage.publisher);
        command.arg("-C").arg(&dir).arg(verb);
        let host = Host::spawn_at(command, address, wfm.join("ca/ca.pem"));
        let proxy = FaultProxy::start(address);
        let path = wfm.join(format!("join/{ID}.json"));
        let file = std::fs::read_to_string(&path).expect("a join file");
        let file = file.replace(&address.to_string(), &proxy.address().to_string());
        std::fs::write(&path, &file).expect("written");
        let join: Join = serde_json::from_str(&file).expect("a join file");
        let site = Self { stage, name, host, proxy, join };
        let line = text(site.syncer(&["init", "--join"]).arg(path));
        publisher(&["device", "enroll", ID, &line]);
        if verb != "run" {
            publisher(&["publish"]);
        }
        site.configure(docker);
        site.settle();
        site
    }

    fn configure(&self, docker: &Docker) {
        let docker = match docker {
            Docker::Fake => fake_docker(&self.root().join("docker")),
            Docker::Real(settings) => settings.clone(),
        };
        std::fs::write(self.home().join("device.yaml"), format!("docker: {docker}\n")).expect("written");
    }

    /// Passes until all is as wanted; a publisher that runs may still be publishing.
    fn settle(&self) {
        let good = || {
            let runs = self.syncer(&["once"]).output().is_ok_and(|output| output.status.success());
            runs && git::tip(&self.repository(), "desired").is_some()
        };
        assert!(
            (0..20).any(|_| good() || {
                std::thread::sleep(std::time::Duration::from_millis(200));
                false
            }),
            "it settles"
        );
    }

    fn root(&self) -> PathBuf {
        self.stage.dir.path().join(format!("{}-device", self.name))
    }

    /// The device's home.
    pub(crate) fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    pub(crate) fn fleet(&self) -> PathBuf {
        self.stage.dir.path().join(self.name)
    }

    /// The device's repository on the host.
    pub(crate) fn repository(&self) -> PathBuf {
        self.stage.dir.path().join(format!("{}.wfm/devices/{ID}.git", self.name))
    }

    pub(crate) fn syncer(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.stage.syncer);
        command.arg("--home").arg(self.home()).args(args);
        command
    }

    pub(crate) fn publish(&self) {
        run(Command::new(&self.stage.publisher).arg("-C").arg(self.fleet()).arg("publish"));
    }

    /// Commits another greeting, and gives it.
    pub(crate) fn change(&self, number: usize) -> String {
        let greeting = format!("change {number}");
        set_line(
            &self.fleet().join("deployments/hello.yaml"),
            "  greeting: hello from the press",
            "  greeting: change",
            &greeting,
        );
        git::git(&self.fleet(), &["commit", "--quiet", "--all", "--message", &greeting]);
        greeting
    }

    /// The device's own way to the host, past the proxy.
    pub(crate) fn place(&self) -> Place {
        let account = self.join.account.as_ref().expect("an account");
        let login = Login { user: account.user.clone(), secret: account.secret.clone() };
        let url = format!("https://{}/devices/{ID}.git", self.host.address);
        Place { url, login, ca: self.host.ca.clone() }
    }
}

/// Sets the greeting in the line that begins like one of these.
fn set_line(path: &Path, first: &str, later: &str, greeting: &str) {
    let old = std::fs::read_to_string(path).expect("a deployment");
    let line = old.lines().find(|line| line.starts_with(first) || line.starts_with(later)).expect("a greeting");
    std::fs::write(path, old.replacen(line, &format!("  greeting: {greeting}"), 1)).expect("written");
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}
