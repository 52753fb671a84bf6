//! What a site puts between its devices and the rest: an HTTP proxy, a pinned key, tokens, registries with accounts.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use repo_model::Digest;
use repo_testkit::faults::connect_proxy::ConnectProxy;
use repo_testkit::ports::free_port;
use tempfile::TempDir;

use crate::hosted::{Hosted, ID};
use repo_testkit::device::Device;
use repo_testkit::fleet::Fleet;
use repo_testkit::text;

/// A pass that must fail for this reason, and says nothing secret.
fn cut_off(hosted: &Hosted, reason: &str, secrets: &[&str]) {
    let output = hosted.device.once().env("DEVICE_SYNCER_LOG", "trace").output().expect("the syncer runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{reason}: {said}");
    assert_eq!(hosted.trouble().as_deref(), Some(reason), "{said}");
    for secret in secrets {
        assert!(!said.contains(secret) && !said.contains(&BASE64_STANDARD.encode(secret)), "{said}");
    }
}

#[test]
fn a_proxy_makes_tunnels_to_our_host_with_its_own_account_but_for_what_is_excepted() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    let authorization = format!("Basic {}", BASE64_STANDARD.encode("line-2:pr0xy-canary"));
    let proxy = ConnectProxy::start(Some(&authorization));
    let settings = |proxy: &ConnectProxy, more: &str| format!("{{proxy: {{url: \"{}\"{more}}}}}", proxy.url());
    hosted.device.set("host", &settings(&proxy, ""));
    cut_off(&hosted, "Unreachable ProxyFailed", &[]);
    let account = ", user: line-2, password: {file: proxy-password}";
    hosted.device.set("host", &settings(&proxy, account));
    let output = hosted.device.syncer(&["once"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("home/proxy-password`"), "{said}");
    hosted.device.keep("proxy-password", "wr0ng-canary\n");
    cut_off(&hosted, "Unreachable ProxyFailed", &["wr0ng-canary"]);
    hosted.device.keep("proxy-password", "pr0xy-canary\n");
    hosted.adopt_first();
    let asked = proxy.asked();
    let connect = format!("CONNECT {} HTTP/1.1", hosted.address);
    assert!(asked.iter().all(|head| head.starts_with(&connect) && !head.contains(ID)), "{asked:?}");

    // A device that runs waits through the same proxy, and hears of a publish at once.
    let device = hosted.start_device();
    hosted.fleet.change(repo_testkit::fleet::DEPLOYMENT, "hello from the press", "through the tunnel");
    hosted.until("the change runs", |hosted| hosted.runs("through the tunnel"));
    hosted.end(device);

    let unasked = ConnectProxy::start(None);
    hosted.device.set("host", &settings(&unasked, ", except: [\".example\", 127.0.0.1]"));
    hosted.device.pass();
    assert_eq!(unasked.asked(), [""; 0], "an excepted host was asked for through the proxy");
}

#[test]
fn a_pinned_key_of_our_host_outlives_its_restart_and_no_other_is_believed() {
    let mut hosted = Hosted::new();
    let host = hosted.start_host();
    hosted.until("the host answers", |hosted| hosted.device.syncer(&["once"]).status.success());
    let pem = std::fs::read_to_string(hosted.fleet.home().join("ca/server.key")).expect("the host's key");
    let pin =
        Digest::of(&rcgen::PublicKeyData::subject_public_key_info(&rcgen::KeyPair::from_pem(&pem).expect("a key")));
    hosted.device.set("host", &format!("{{pin: \"{}\"}}", Digest::of(b"another key")));
    cut_off(&hosted, "Stalled CertificateWrongKey", &[]);
    hosted.device.set("host", &format!("{{pin: \"{pin}\"}}"));
    hosted.device.pass();
    hosted.end(host);
    hosted.start_host();
    hosted.until("the same key is believed", |hosted| hosted.device.syncer(&["once"]).status.success());
}

#[test]
fn a_token_from_a_file_the_environment_or_systemd_is_shown_to_our_host() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.until("the host answers", |hosted| hosted.device.syncer(&["once"]).status.success());
    let secret = hosted.account()["current"]["secret"].as_str().expect("a secret").to_owned();
    let with = |name: &str, value: &str| {
        let output = hosted.device.once().env(name, value).output().expect("the syncer runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains(&secret), "{said}");
        (output.status.success(), said)
    };
    hosted.device.set("host", "{bearer: {env: WFM_TOKEN}}");
    assert!(with("WFM_TOKEN", &secret).0);
    assert!(!with("WFM_TOKEN", "guess").0);
    assert_eq!(hosted.trouble().as_deref(), Some("Stalled Unauthorized"));
    hosted.device.set("host", "{bearer: {systemd: token}}");
    hosted.device.keep("token", &secret);
    assert!(with("CREDENTIALS_DIRECTORY", &hosted.device.home().display().to_string()).0);
    hosted.device.set("host", "{bearer: {file: token}}");
    assert!(with("X", "").0);
    assert_eq!(hosted.trouble(), None);
}

/// Debian's registry on a port of its own, ended when dropped.
struct Registry {
    process: Child,
    address: SocketAddr,
}

impl Registry {
    /// Serves what is below `dir`; with the only account `fleet` if there is a password file for it.
    fn start(dir: &Path, accounts: Option<&Path>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let auth = accounts.map(|path| format!("auth: {{htpasswd: {{realm: fleet, path: {}}}}}\n", path.display()));
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{address}\"}}\n{}",
            dir.join("data").display(),
            auth.unwrap_or_default()
        );
        let path = dir.join(format!("{}.yml", address.port()));
        std::fs::write(&path, config).expect("written");
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let registry = Self { process: command.spawn().expect("docker-registry is installed: ./justw setup"), address };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(30), "the registry doesn't answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// bcrypt of `r3gistry-canary`; nothing on a bare machine makes one.
const PLANT: &str = "fleet:$2b$04$6ejN9axYJAeW.YA81rL1du8OWS.fpoHlZW6HrSkCadQvixc8x4cGC\n";

#[test]
fn a_registry_that_wants_an_account_gets_it_from_both_programs_and_nobody_else_does() {
    let dir = TempDir::new().expect("a temporary directory");
    let htpasswd = dir.path().join("htpasswd");
    std::fs::write(&htpasswd, PLANT).expect("written");
    let registry = Registry::start(dir.path(), Some(&htpasswd));
    let place = registry.address.to_string();
    let fleet = Fleet::at(dir.path());
    text(fleet.init_at(&format!("{place}/fleet")).output().expect("the publisher runs"));
    let password = fleet.home().join("registry-password");
    let settings = |more: &str| {
        let text = format!("registries:\n  \"{place}\": {{plainHttp: true{more}}}\n");
        std::fs::write(fleet.home().join("publisher.yaml"), text).expect("written");
    };

    let failed = |args: &[&str]| {
        let output = fleet.command(args).env("RUST_LOG", "trace").output().expect("the publisher runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !said.contains("canary"), "{said}");
        said
    };
    settings("");
    let said = failed(&["app", "push", "applications/hello/1.0.0"]);
    assert!(said.contains("401"), "{said}");
    settings(&format!(", user: fleet, passwordFile: {}", password.display()));
    std::fs::write(&password, "r3gistry-canary\n").expect("written");
    let said = failed(&["app", "push", "applications/hello/1.0.0"]);
    assert!(said.contains("chmod 600"), "{said}");
    text(Command::new("chmod").arg("600").arg(&password).output().expect("chmod runs"));
    fleet.push_application();

    let root = dir.path().join(ID);
    std::fs::create_dir(&root).expect("made");
    let device = Device::join(&fleet, ID, &root);
    fleet.run(&["publish"]);
    let once = |good: bool| {
        let output = device.once().env("DEVICE_SYNCER_LOG", "trace").output().expect("the syncer runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() == good && !said.contains("canary"), "{said}");
    };
    let account = |more: &str| {
        let accounts = format!("accounts: {{\"{place}\": {{user: fleet, password: {{file: registry-password}}}}}}");
        device.set("registries", &format!("{{plainHttp: [\"{place}\"]{more}}}").replace("ACCOUNTS", &accounts));
    };
    account("");
    once(false);
    let status = fleet.status(ID);
    assert_eq!(status["deployments"][0]["state"], "pending", "{status}");
    account(", ACCOUNTS");
    device.keep("registry-password", "wr0ng-canary\n");
    device.syncer(&["retry"]);
    once(false);
    device.keep("registry-password", "r3gistry-canary\n");
    device.syncer(&["retry"]);
    once(true);
    assert!(device.environments()[0].contains("hello from the press"));
}
