//! One device and its host, joined over HTTPS as the join file says.

use std::net::SocketAddr;

use repo_model::join::Join;
use repo_testkit::device::{Device, fake_docker};
use repo_testkit::faults::fault_proxy::FaultProxy;
use repo_testkit::fleet::{DEPLOYMENT, Fleet};
use repo_testkit::{git, ports};

use crate::fleet::{greet, made};
use crate::host::{Host, Login, Place};
use crate::stage::{Stage, text};

const ID: &str = "press-01";

/// What the device runs containers with, and the lines of `device.yaml` for it.
pub(crate) enum Docker {
    /// The stand-in.
    Fake,
    /// By these settings.
    Real(String),
}

/// A fleet with one device.
pub(crate) struct Site {
    pub(crate) fleet: Fleet,
    pub(crate) device: Device,
    pub(crate) host: Host,
    /// The device goes through it, so that what it sends is counted.
    pub(crate) proxy: FaultProxy,
    pub(crate) join: Join,
}

impl Site {
    /// The device runs the example and has nothing to do. The publisher does `verb`: `serve` or `run`; `limits` are its.
    pub(crate) fn new(stage: &Stage, name: &str, verb: &str, limits: &str, docker: &Docker) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free_port()));
        let fleet = made(stage, name, &["--host", "127.0.0.1", "--listen", &address.to_string()]);
        fleet.run(&["device", "add", ID]);
        let settings = fleet.home().join("publisher.yaml");
        let config = std::fs::read_to_string(&settings).expect("settings");
        let config = config.replace("\nserve:\n", &format!("\nserve:\n  limits: {{{limits}}}\n"));
        std::fs::write(settings, config).expect("written");
        let host = Host::spawn_at(fleet.command(&[verb]), address, fleet.home().join("ca/ca.pem"));
        let proxy = FaultProxy::start(address);
        let path = fleet.join_file(ID);
        let file = std::fs::read_to_string(&path).expect("a join file");
        let file = file.replace(&address.to_string(), &proxy.address().to_string());
        std::fs::write(&path, &file).expect("written");
        let join: Join = serde_json::from_str(&file).expect("a join file");
        let device = Device::at(ID, &fleet.root().join("device"));
        let line = text(device.command(&["init", "--join"]).arg(path));
        fleet.run(&["device", "enroll", ID, &line]);
        let site = Self { fleet, device, host, proxy, join };
        if verb != "run" {
            site.publish();
        }
        let docker = match docker {
            Docker::Fake => fake_docker(&site.device.docker_dir()),
            Docker::Real(settings) => settings.clone(),
        };
        std::fs::write(site.device.home().join("device.yaml"), format!("docker: {docker}\n")).expect("written");
        site.converge();
        site
    }

    /// Passes until all is as wanted; a publisher that runs may still be publishing.
    fn converge(&self) {
        let good = || {
            let runs = self.device.syncer(&["once"]).status.success();
            runs && git::tip(&self.fleet.repository(ID), "desired").is_some()
        };
        assert!(
            (0..20).any(|_| good() || {
                std::thread::sleep(std::time::Duration::from_millis(200));
                false
            }),
            "it converges"
        );
    }

    /// The device's repository on the host.
    pub(crate) fn repository(&self) -> std::path::PathBuf {
        self.fleet.repository(ID)
    }

    pub(crate) fn publish(&self) {
        self.fleet.run(&["publish"]);
    }

    /// Commits another greeting, and gives it.
    pub(crate) fn change(&self, number: usize) -> String {
        let greeting = format!("change {number}");
        greet(&self.fleet, DEPLOYMENT, &greeting);
        greeting
    }

    /// Gives the device so many deployments more, alike but for their ids, and waits until they run.
    pub(crate) fn deploy_more(&self, count: usize) {
        self.want_more(count, "hello");
        self.converge();
    }

    /// Publishes so many deployments more, or the same with another greeting.
    pub(crate) fn want_more(&self, count: usize, greeting: &str) {
        for number in 0..count {
            let text = format!(
                "id: more-{number}\napplication: {{id: hello, version: 1.0.0}}\ntargets: [{{devices: [{ID}]}}]\n\
                 parameters: {{greeting: {greeting}}}\n"
            );
            self.fleet.write(&format!("deployments/more-{number}.yaml"), &text);
        }
        self.fleet.commit("more");
        self.publish();
    }

    /// The device's own way to the host, past the proxy.
    pub(crate) fn place(&self) -> Place {
        let account = self.join.account.as_ref().expect("an account");
        let login = Login { user: account.user.clone(), secret: account.secret.clone() };
        let url = format!("https://{}/devices/{ID}.git", self.host.address);
        Place { url, login, ca: self.host.ca.clone() }
    }
}
