//! The host as it is delivered, in a process of its own, with one account for each device of a fleet.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use repo_git::Remote;
use repo_http::{Agent, Credential, Credentials, Settings, Url};
use repo_model::Digest;
use repo_testkit::git;

use crate::cost::{Process, Running};
use crate::fleet::{Fleet, id};

/// What thousands of devices at one address need beside the defaults.
pub(crate) const LIMITS: &str = "  limits: {connectionsPerAddress: 20000, strangersPerAddress: 20000}\n";

/// How long a host may take to listen.
const START: Duration = Duration::from_secs(30);

pub(crate) struct Host {
    running: Running,
    pub(crate) address: SocketAddr,
    pub(crate) ca: PathBuf,
}

/// A repository for one device: where it is, and what is needed to get there.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) login: Login,
    pub(crate) ca: PathBuf,
}

/// What a device's account shows.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) secret: String,
}

impl Host {
    /// Serves a fleet whose first `devices` have accounts.
    pub(crate) fn start(fleet: &Fleet, devices: usize) -> Self {
        make_accounts(fleet, devices);
        let settings = format!("serve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:0\n{LIMITS}");
        fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        Self::spawn(fleet.command(&["serve"]), fleet.home().join("ca/ca.pem"))
    }

    /// Runs `serve`, which prints where it listens.
    pub(crate) fn spawn(mut command: Command, ca: PathBuf) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running(command.spawn().expect("it starts"));
        let mut line = String::new();
        let output = running.0.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("https://").and_then(|address| address.parse().ok());
        Self { running, address: address.unwrap_or_else(|| panic!("the host doesn't start: {line}")), ca }
    }

    /// Runs `run`, which listens at an address that is known.
    pub(crate) fn spawn_at(mut command: Command, address: SocketAddr, ca: PathBuf) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let running = Running(command.spawn().expect("it starts"));
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < START, "the host doesn't start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { running, address, ca }
    }

    /// A device's way to its repository through an address.
    pub(crate) fn place(&self, through: SocketAddr, number: usize) -> Place {
        let url = format!("https://{through}/devices/{}.git", id(number));
        Place { url, login: Login::of(number), ca: self.ca.clone() }
    }

    pub(crate) fn process(&self) -> Process {
        self.running.process()
    }

    pub(crate) fn authority(&self) -> String {
        fs::read_to_string(&self.ca).expect("its authority")
    }
}

fn make_accounts(fleet: &Fleet, devices: usize) {
    let record = |login: &Login| {
        let secret = Digest::of(login.secret.as_bytes());
        serde_json::json!({ "sha256": secret, "created": CREATED, "confirmed": CREATED })
    };
    for number in 0..devices {
        write_account(fleet, number, "secrets", &record(&Login::of(number)));
    }
}

/// When all accounts were made.
pub(crate) const CREATED: &str = "2026-01-01T00:00:00Z";

/// An account with this one way to come, written by hand: a program for each of thousands would take minutes.
pub(crate) fn write_account(fleet: &Fleet, number: usize, list: &str, way: &serde_json::Value) {
    let (dir, user) = (fleet.home().join("accounts"), id(number));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).expect("made");
    let mut account = serde_json::json!({ "layout": 1, "name": user, "role": "device", "device": user, "secrets": [] });
    account[list] = serde_json::json!([way]);
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(dir.join(format!("{user}.json")));
    file.and_then(|mut file| file.write_all(account.to_string().as_bytes())).expect("written");
}

impl Login {
    pub(crate) fn of(number: usize) -> Self {
        Self { user: id(number), secret: Digest::of(format!("secret of {number}").as_bytes()).hex() }
    }

    /// The value of `Authorization`.
    pub(crate) fn header(&self) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", self.user, self.secret)))
    }

    pub(crate) fn credential(&self) -> Credential {
        Credential::Basic { user: self.user.clone(), secret: self.secret.clone() }
    }
}

/// The syncer's own agent, which trusts this authority.
pub(crate) fn agent(authority: String) -> Agent {
    let user_agent = concat!("device-syncer/", env!("CARGO_PKG_VERSION")).to_owned();
    Agent::new(&Settings { authorities: vec![authority], user_agent, ..Settings::default() }).expect("an agent")
}

impl Place {
    pub(crate) fn authority(&self) -> String {
        fs::read_to_string(&self.ca).expect("its authority")
    }

    /// The syncer's own way.
    pub(crate) fn remote(&self) -> Remote {
        let credential = self.login.credential();
        let credentials = Credentials::of(move || Ok(credential.clone()));
        Remote::https(Url::parse(&self.url).expect("a URL"), agent(self.authority()), credentials)
    }

    /// By stock git.
    pub(crate) fn ls_remote(&self, directory: &Path) -> Command {
        let mut command = git::command(directory);
        command.args(["-c", &format!("http.sslCAInfo={}", self.ca.display())]);
        command.args(["-c", &format!("http.extraHeader=Authorization: {}", self.login.header())]);
        command.args(["ls-remote", &self.url]);
        command
    }

    /// By the program on go-git; `verb` is `list` or `poll`.
    pub(crate) fn go_git(&self, verb: &str, arguments: &[&str]) -> Command {
        let program = std::env::var("MARGO_TEST_GO_GIT").expect("MARGO_TEST_GO_GIT is set: measure by `./justw bench`");
        let mut command = Command::new(program);
        command.env("CA_FILE", &self.ca).env("USER_NAME", &self.login.user).env("USER_SECRET", &self.login.secret);
        command.args([verb, &self.url]).args(arguments);
        command
    }
}
