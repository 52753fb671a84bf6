//! A fleet that is hosted over HTTPS by the real publisher, and a real device that joined there.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use repo_testkit::faults::fault_proxy::FaultProxy;
use repo_testkit::faults::lossy_link::LossyLink;
use repo_testkit::ports::free_port;
use repo_testkit::{comes_within, terminate};
use serde_json::Value;
use tempfile::TempDir;

use crate::site::registry_name;
use repo_testkit::device::{Device, fake_docker};
use repo_testkit::fleet::Fleet;

pub(crate) const ID: &str = "press-01";

/// The fleet, its device, and the programs that run for it.
pub(crate) struct Hosted {
    pub(crate) dir: TempDir,
    pub(crate) fleet: Fleet,
    pub(crate) device: Device,
    pub(crate) running: Vec<Child>,
    pub(crate) address: SocketAddr,
}

impl Hosted {
    pub(crate) fn new() -> Self {
        Self::with(free(), "")
    }

    /// The same with a device that comes with a certificate.
    pub(crate) fn by_certificate() -> Self {
        Self::joined(free(), "", |fleet, root| {
            fleet.run(&["device", "add", ID, "--credentials", "certificate"]);
            let (device, lines) = Device::init(ID, root, &fake_docker(&root.join("docker")), &fleet.join_file(ID));
            fleet.run(&["device", "enroll", ID, &lines]);
            device
        })
    }

    /// The same with a proxy that breaks things between device and host, and with these lines under `serve:`.
    pub(crate) fn behind_a_proxy(lines: &str) -> (Self, FaultProxy) {
        let address = free();
        let proxy = FaultProxy::start(address);
        let hosted = Self::with(address, &format!("  url: https://{}\n{lines}", proxy.address()));
        (hosted, proxy)
    }

    fn with(address: SocketAddr, lines: &str) -> Self {
        Self::joined(address, lines, |fleet, root| Device::join(fleet, ID, root))
    }

    fn joined(address: SocketAddr, lines: &str, join: impl FnOnce(&Fleet, &Path) -> Device) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let fleet = Fleet::init(dir.path(), &registry_name(dir.path()));
        fleet.push_application();
        let settings = format!("poll: 1s\nserve:\n  names: [127.0.0.1]\n  listen: {address}\n{lines}");
        std::fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        let root = dir.path().join(ID);
        std::fs::create_dir(&root).expect("made");
        let device = join(&fleet, &root);
        Self { dir, fleet, device, running: Vec::new(), address }
    }

    /// Starts the publisher with its host; publishes whatever is committed.
    pub(crate) fn start_host(&mut self) -> usize {
        self.start(self.fleet.command(&["run"]), Stdio::null())
    }

    pub(crate) fn start_device(&mut self) -> usize {
        self.start(self.device.command(&["run"]), self.device_log())
    }

    /// Starts both at this link, where they reach each other alone; the host publishes nothing there.
    pub(crate) fn start_at(&mut self, link: &LossyLink) -> [usize; 2] {
        let host = self.start(link.inside(&self.fleet.command(&["serve"])), Stdio::null());
        [host, self.start(link.inside(&self.device.command(&["run"])), self.device_log())]
    }

    fn device_log(&self) -> Stdio {
        std::fs::File::create(self.dir.path().join("device.log")).expect("a log").into()
    }

    fn start(&mut self, mut command: Command, log: Stdio) -> usize {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.running.push(command.spawn().expect("the program starts"));
        self.running.len() - 1
    }

    pub(crate) fn end(&mut self, number: usize) {
        terminate(&self.running[number]);
        self.running[number].wait().expect("it ends");
    }

    pub(crate) fn runs(&self, greeting: &str) -> bool {
        self.device.environments().iter().any(|environment| environment.contains(greeting))
    }

    /// Passes of the device until it has adopted what is published first, which may take its host a while.
    pub(crate) fn adopt_first(&self) {
        self.until("it is installed", |hosted| {
            hosted.device.syncer(&["once"]).status.success() && hosted.runs("hello from the press")
        });
    }

    /// Why the device can't reach its host.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble: Value =
            serde_json::from_slice(&std::fs::read(self.device.home().join("contact.json")).ok()?).ok()?;
        Some(format!("{} {}", trouble["type"].as_str()?, trouble["reason"].as_str()?))
    }

    pub(crate) fn account(&self) -> Value {
        read(&self.device.home().join("account.json"))
    }

    pub(crate) fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let came = comes_within(Duration::from_secs(300), || so(self));
        let log = || std::fs::read_to_string(self.dir.path().join("device.log")).unwrap_or_default();
        assert!(came, "{what}: {}", log());
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("there")).expect("JSON")
}

/// An address that nobody listens on now.
fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}
