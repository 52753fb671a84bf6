//! The host as devices, operators and strangers meet it: the real program, real TLS, stock git on the other side.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

mod abuse;
mod certificates;
mod clients;
mod epochs;
mod large;
mod limits;
mod parked;
mod pushes;
mod reads;
mod site;
mod ssh;
mod ssh_abuse;
mod ssh_audit;
mod ssh_crowd;
mod trouble;
mod waits;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use jiff::Timestamp;
use repo_git::SigningKey;
use repo_model::DeviceId;
use repo_testkit::git;
use repo_testkit::host::Host;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned};
use wfm_git_host::accounts::{Role, Store};
use wfm_git_host::ca;
use wfm_git_publisher::config::Config;

use crate::support::{Lab, PROGRAM};

/// A fleet with two devices whose host runs.
pub(crate) struct Site {
    // First, so that it is gone before its files are.
    server: Host,
    pub(crate) lab: Lab,
    pub(crate) address: String,
    /// The authority's certificate, PEM.
    pub(crate) ca: PathBuf,
}

/// A connection to the host, with TLS.
pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Name and secret of an account.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) name: String,
    pub(crate) secret: String,
}

/// An answer, read by hand.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) const DEVICE: &str = "press-01";
pub(crate) const OTHER: &str = "packer-01";

impl Site {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With these lines under `serve:`.
    pub(crate) fn with(settings: &str) -> Self {
        let lab = Lab::with(&[DEVICE, OTHER]);
        lab.publish_all();
        Self::on(lab, settings)
    }

    /// On a machine where the file system tells nothing: all its watches are taken.
    pub(crate) fn unwatched() -> Self {
        let lab = Lab::with(&[DEVICE, OTHER]);
        lab.publish_all();
        let script = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"";
        Self::started(lab, "", &["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"])
    }

    /// On a machine with these IPv6 addresses, and no other machine beside it.
    pub(crate) fn alone_at(addresses: &[&str], settings: &str) -> Self {
        let lab = Lab::with(&[DEVICE, OTHER]);
        lab.publish_all();
        let add = |address: &&str| format!("ip -6 addr add {address}/128 dev lo nodad && ");
        let script: String = addresses.iter().map(add).collect();
        let script = format!("ip link set lo up && {script}exec \"$@\"");
        let settings = format!("  listen: \"[::]:0\"\n{settings}");
        Self::started(lab, &settings, &["unshare", "--user", "--map-root-user", "--net", "sh", "-c", &script, "sh"])
    }

    /// Where an epoch of `status` has 60 commits, so that the host lets one end after 6.
    pub(crate) fn with_short_epochs() -> Self {
        let lab = Lab::with(&[DEVICE, OTHER]);
        lab.publish_all();
        Self::started(lab, "", &["env", "SYNC_EPOCH_COMMITS=60"])
    }

    pub(crate) fn on(lab: Lab, settings: &str) -> Self {
        Self::started(lab, settings, &[])
    }

    fn started(lab: Lab, settings: &str, by: &[&str]) -> Self {
        let ca = Self::prepare(&lab, settings);
        let mut server = start(&lab, by);
        let address = server.address();
        Self { lab, address, ca, server }
    }

    /// Writes the settings, and gives the file with the authority that the host will have.
    fn prepare(lab: &Lab, settings: &str) -> PathBuf {
        let listen =
            if settings.lines().any(|line| line.starts_with("  listen:")) { "" } else { "  listen: 127.0.0.1:0\n" };
        let config = format!("serve:\n  names: [127.0.0.1, localhost]\n{listen}{settings}");
        std::fs::write(lab.home.config(), &config).unwrap();
        let serve = Config::parse("publisher.yaml", config.as_bytes()).unwrap().serve.unwrap();
        let ca = lab.dir().join("ca.pem");
        std::fs::write(&ca, ca::trusted(&lab.home.ca(), &serve).unwrap().unwrap()).unwrap();
        ca
    }

    pub(crate) fn login(&self, name: &str, role: Role, device: Option<&str>) -> Login {
        let device = device.map(|device| device.parse::<DeviceId>().unwrap());
        let store = Store::new(self.lab.home.accounts());
        let issued = store.add(&name.parse().unwrap(), role, device, None, Timestamp::now()).unwrap();
        Login { name: issued.name.to_string(), secret: issued.secret.reveal().to_owned() }
    }

    pub(crate) fn device(&self) -> Login {
        self.login("dev-1", Role::Device, Some(DEVICE))
    }

    pub(crate) fn url(&self, repository: &str) -> String {
        format!("https://{}/{repository}", self.address)
    }

    /// Stock git with this account's credentials.
    pub(crate) fn git(&self, dir: &Path, login: Option<&Login>) -> Command {
        let mut command = git::command(dir);
        command.args(["-c", &format!("http.sslCAInfo={}", self.ca.display()), "-c", "credential.helper="]);
        command.env("GIT_TERMINAL_PROMPT", "0");
        if let Some(login) = login {
            command.args(["-c", &format!("http.extraHeader=Authorization: Basic {}", login.basic())]);
        }
        command
    }

    pub(crate) fn run(&self, dir: &Path, login: &Login, args: &[&str]) -> Output {
        self.git(dir, Some(login)).args(args).output().unwrap()
    }

    /// A clone of a repository, for this account.
    pub(crate) fn clone(&self, login: &Login, repository: &str, name: &str) -> PathBuf {
        let dir = self.lab.dir().join(name);
        let cloned = self.run(self.lab.dir(), login, &["clone", "-q", &self.url(repository), name]);
        assert!(cloned.status.success(), "{}", said(&cloned));
        dir
    }

    /// The device's first `status` commit, made in its clone and pushed nowhere.
    pub(crate) fn first_status(&self, clone: &Path, text: &str) -> String {
        self.first_status_of(clone, text.as_bytes())
    }

    /// The same with any bytes in it.
    pub(crate) fn first_status_of(&self, clone: &Path, bytes: &[u8]) -> String {
        let key = Lab::device_key(DEVICE);
        let report = Report { device: DEVICE, kind: "status", parents: &[], signer: Some(&key) };
        report.commit_file(self, clone, "syncer.json", bytes)
    }

    /// A new connection with TLS.
    pub(crate) fn connect(&self) -> Stream {
        self.connect_as(&Arc::new(self.trusting().with_no_client_auth()))
    }

    /// What a client's TLS begins with: it believes this host.
    pub(crate) fn trusting(&self) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        config.with_root_certificates(roots)
    }

    /// A new connection of this client.
    pub(crate) fn connect_as(&self, client: &Arc<ClientConfig>) -> Stream {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        StreamOwned::new(ClientConnection::new(Arc::clone(client), name).unwrap(), stream)
    }

    /// A new connection on which this was sent.
    pub(crate) fn say(&self, said: impl AsRef<[u8]>) -> Stream {
        let mut stream = self.connect();
        stream.write_all(said.as_ref()).unwrap();
        stream.flush().unwrap();
        stream
    }

    /// Where a device waits that knows all that was published for it.
    pub(crate) fn wait_path(&self) -> String {
        let tip = |branch| self.lab.tip(DEVICE, branch).unwrap();
        format!("/devices/{DEVICE}.git/wait?desired={}&freshness={}", tip("desired"), tip("freshness"))
    }

    pub(crate) fn waiters(&self, auditor: &Login) -> i64 {
        self.metric("wfm_waiting", auditor)
    }

    /// One request by hand, on a connection of its own.
    pub(crate) fn request(&self, head: &str, login: Option<&Login>, body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let login = login.map(Login::header).unwrap_or_default();
        let length = body.len();
        let head = format!("{head}\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{login}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Answer::parse(&answer)
    }

    pub(crate) fn get(&self, path: &str, login: Option<&Login>) -> Answer {
        self.request(&format!("GET {path} HTTP/1.1"), login, b"")
    }

    pub(crate) fn metric(&self, name: &str, login: &Login) -> i64 {
        let text = self.get("/metrics", Some(login)).text();
        let figure = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        figure.and_then(|figure| figure.trim().parse().ok()).unwrap_or_else(|| panic!("{name} is not in {text}"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.child.id()
    }

    /// Ends the host in good order, and gives its log.
    pub(crate) fn stop(self) -> (Lab, String) {
        let Self { lab, server, .. } = self;
        (lab, server.stop())
    }

    /// Tells the host to end.
    pub(crate) fn terminate(&self) {
        repo_testkit::terminate(&self.server.child);
    }

    /// Kills the host without a word.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again as another copy of the program, which the test may do with as it likes.
    pub(crate) fn restart_as(&mut self, program: &Path) {
        self.kill();
        std::fs::copy(PROGRAM, program).unwrap();
        self.server = start_as(&self.lab, program);
        self.address = self.server.address();
    }

    /// Kills the host without a word, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.server = start(&self.lab, &[]);
        self.address = self.server.address();
    }
}

/// Starts the host, by another program if one is named.
fn start(lab: &Lab, by: &[&str]) -> Host {
    let mut command = lab.command(&["serve"]);
    if let [program, args @ ..] = by {
        let mut wrapped = Command::new(program);
        wrapped.args(args).arg(command.get_program()).args(command.get_args()).env_clear();
        wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        wrapped.current_dir(&lab.fleet).stdin(Stdio::null());
        command = wrapped;
    }
    logging(command)
}

/// Starts another copy of the host.
fn start_as(lab: &Lab, program: &Path) -> Host {
    let usual = lab.command(&["serve"]);
    let mut command = Command::new(program);
    command.env_clear().args(usual.get_args()).current_dir(usual.get_current_dir().unwrap());
    command.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    logging(command)
}

fn logging(mut command: Command) -> Host {
    command.env("RUST_LOG", "info,access=info");
    Host::start(command)
}

impl Login {
    pub(crate) fn basic(&self) -> String {
        use base64ct::Encoding;
        base64ct::Base64::encode_string(format!("{}:{}", self.name, self.secret).as_bytes())
    }

    /// The line of a request's head that shows it.
    pub(crate) fn header(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.secret)
    }

    /// The head of a request by this account, on a connection that stays.
    pub(crate) fn ask(&self, path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\n{}\r\n", self.header())
    }
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
        let headers = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let status = headers.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Self { status, headers, body: bytes.get(end + 4..).unwrap_or_default().to_vec() }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let prefix = format!("{name}: ");
        self.headers.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
    }
}

/// What a program said on its standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Waits until something is so, for at most 90 seconds.
pub(crate) fn eventually(is_so: impl FnMut() -> bool) -> bool {
    repo_testkit::comes_within(std::time::Duration::from_secs(90), is_so)
}

/// A push of `status` from nowhere to a commit, as its bytes.
pub(crate) fn push_of(commit: &str, pack: &[u8]) -> Vec<u8> {
    let line = format!("{} {commit} refs/heads/status\0report-status\n", "0".repeat(40));
    [format!("{:04x}{line}0000", line.len() + 4).as_bytes(), pack].concat()
}

/// A pack of exactly these objects.
pub(crate) fn pack(site: &Site, clone: &Path, objects: &str) -> Vec<u8> {
    let list = site.lab.dir().join("objects");
    std::fs::write(&list, format!("{objects}\n")).unwrap();
    let input = std::fs::File::open(&list).unwrap();
    let output = git::command(clone).args(["pack-objects", "-q", "--stdout"]).stdin(input).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    output.stdout
}

/// What a device would say, committed in a clone without any code of ours.
pub(crate) struct Report<'a> {
    pub(crate) device: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) parents: &'a [&'a str],
    pub(crate) signer: Option<&'a SigningKey>,
}

impl Report<'_> {
    /// Makes the commit in a clone and gives its id.
    pub(crate) fn commit(&self, site: &Site, clone: &Path, text: &str) -> String {
        self.commit_file(site, clone, "syncer.json", text.as_bytes())
    }

    pub(crate) fn commit_file(&self, site: &Site, clone: &Path, path: &str, bytes: &[u8]) -> String {
        let file = site.lab.dir().join("content");
        std::fs::write(&file, bytes).unwrap();
        let blob = git::git(clone, &["hash-object", "-w", &file.display().to_string()]);
        std::fs::write(&file, format!("100644 blob {blob}\t{path}\n")).unwrap();
        let input = std::fs::File::open(&file).unwrap();
        let tree = git::command(clone).arg("mktree").stdin(input).output().unwrap();
        self.commit_tree(site, clone, &printed(&tree))
    }

    pub(crate) fn commit_tree(&self, site: &Site, clone: &Path, tree: &str) -> String {
        let fleet = site.lab.json(DEVICE, "desired", "envelope.json")["fleet"].as_str().unwrap().to_owned();
        let message = format!("report\n\nKind: {}\nFleet: {fleet}\nDevice: {}", self.kind, self.device);
        let key = site.lab.dir().join("signer.key");
        let mut args = vec!["commit-tree".to_owned(), tree.to_owned(), "-m".to_owned(), message];
        for parent in self.parents {
            args.extend(["-p".to_owned(), (*parent).to_owned()]);
        }
        let mut command = git::command(clone);
        if let Some(signer) = self.signer {
            let _ = std::fs::remove_file(&key);
            signer.save(&key).unwrap();
            command.args(["-c", "gpg.format=ssh", "-c", &format!("user.signingkey={}", key.display())]);
            args.push("-S".to_owned());
        }
        printed(&command.args(args).output().unwrap())
    }
}
