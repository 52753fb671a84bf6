//! A Git host that isn't ours: stock `git http-backend` behind lighttpd with TLS, on a free port of this machine.
//!
//! It has no hooks and no reflogs, allows forced pushes, and speaks every protocol version that stock Git does. Tests
//! change its settings, stop it and start it again on the same port; it is gone when dropped, with all that it started,
//! and when the test dies. A failing test prints the ends of its logs.

mod config;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::git;
use crate::pki::{Authority, Identity, Validity};
use crate::ports::start_on_free_port;

/// How long lighttpd may take to answer after its start.
const START: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The only account, by HTTP Basic; anybody may do anything without one.
    pub account: Option<(String, String)>,
    /// Whether a client needs a certificate of the host's authority.
    pub client_certificate: bool,
    /// What every request gets instead of Git's answer.
    pub answer: Option<Answer>,
    pub certificate: Shown,
    /// It hears nobody's wish for a newer protocol version than 0.
    pub oldest_protocol: bool,
}

/// A fixed answer to every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status, e.g. 429.
    pub status: u16,
    /// Header lines, e.g. `Retry-After: 1`.
    pub headers: Vec<String>,
    pub body: String,
}

/// The certificate that a host shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shown {
    #[default]
    Good,
    /// One that ended yesterday.
    Expired,
    /// One for another name.
    OtherName,
    /// One of an authority that nobody trusts.
    OtherAuthority,
}

#[derive(Debug)]
pub struct ForeignHost {
    dir: TempDir,
    port: u16,
    options: Options,
    authority: Authority,
    others: Authority,
    server: Option<Server>,
}

/// lighttpd and what it started, one process group.
#[derive(Debug)]
struct Server {
    /// Waits for the end of its input, then kills the group: nothing outlives a test that was killed.
    guard: Child,
}

impl ForeignHost {
    /// A running host.
    ///
    /// # Panics
    /// If lighttpd isn't installed or doesn't start.
    pub fn start(options: Options) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        for part in ["repositories", "tls", "tmp"] {
            fs::create_dir(dir.path().join(part)).expect("made");
        }
        let (authority, others) = (Authority::new("foreign host's authority"), Authority::new("unknown authority"));
        let mut host = Self { dir, port: 0, options, authority, others, server: None };
        host.write("tls/ca.pem", host.authority.certificate().as_bytes());
        start_on_free_port("lighttpd", |port| {
            host.port = port;
            host.try_start()
        });
        host
    }

    /// Changes its settings and starts it again; open connections end.
    pub fn set(&mut self, change: impl FnOnce(&mut Options)) {
        change(&mut self.options);
        self.restart();
    }

    /// Stops it; its port then refuses connections.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.end(Signal::TERM, self.address());
        }
    }

    /// Kills it and all Git processes of its own at once, as losing the machine does.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.end(Signal::KILL, self.address());
        }
    }

    /// Stops it if it runs, and starts it on the same port.
    pub fn restart(&mut self) {
        self.stop();
        let started = self.try_start();
        assert!(started.is_ok(), "lighttpd does not start again: {started:?}");
    }

    /// Makes an empty repository at `<path>.git`, as an administrator of such a host does.
    pub fn create(&self, path: &str) -> PathBuf {
        let repository = self.repository(path);
        fs::create_dir_all(&repository).expect("made");
        git::git(&repository, &["init", "--quiet", "--bare", "--template="]);
        for (key, value) in [("http.receivepack", "true"), ("gc.auto", "0")] {
            git::git(&repository, &["config", key, value]);
        }
        repository
    }

    /// Where the repository `<path>.git` lies.
    pub fn repository(&self, path: &str) -> PathBuf {
        self.dir.path().join("repositories").join(format!("{path}.git"))
    }

    pub fn repositories(&self) -> PathBuf {
        self.dir.path().join("repositories")
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Where repositories are: append `<path>.git`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The same place through a proxy at this address.
    pub fn url_by(&self, proxy: SocketAddr) -> String {
        format!("https://{proxy}")
    }

    /// The file with the certificate of its authority.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("tls/ca.pem")
    }

    /// The public key of the certificate that it shows now (`SubjectPublicKeyInfo`, DER), for pins.
    pub fn public_key(&self) -> Vec<u8> {
        fs::read(self.dir.path().join("tls/server.pub.der")).expect("written at its start")
    }

    /// A certificate for a client of this name, of the host's own authority.
    pub fn client(&self, name: &str) -> Identity {
        self.authority.client(name)
    }

    /// Stock Git that trusts it, run in a directory.
    pub fn git(&self, directory: &Path) -> Command {
        let mut command = git::command(directory);
        command.env("GIT_SSL_CAINFO", self.ca()).env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
        command
    }

    /// What it wrote about requests (`access`) or errors (`error`, `cgi`).
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.log_file(name)).unwrap_or_default()
    }

    /// How many requests it answered since its beginning, by method and the end of their path. It writes its log at its
    /// leisure, so it is stopped and started for this.
    pub fn requests(&mut self, method: &str, path_end: &str) -> usize {
        self.restart();
        let log = self.log("access");
        let asked = log.lines().filter_map(|line| line.split_once(' '));
        let path = |rest: &str| rest.split(' ').next().is_some_and(|path| path.ends_with(path_end));
        asked.filter(|(of, rest)| *of == method && path(rest)).count()
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::File::create(&path).and_then(|mut file| file.write_all(bytes)).expect("written");
        path
    }

    fn try_start(&mut self) -> Result<(), String> {
        let identity = match self.options.certificate {
            Shown::Good => self.authority.server(&["127.0.0.1", "localhost"], Validity::Now),
            Shown::Expired => self.authority.server(&["127.0.0.1", "localhost"], Validity::Past),
            Shown::OtherName => self.authority.server(&["elsewhere.example"], Validity::Now),
            Shown::OtherAuthority => self.others.server(&["127.0.0.1", "localhost"], Validity::Now),
        };
        self.write("tls/server.pub.der", &identity.public);
        self.write("tls/server.pem", format!("{}{}", identity.certificate, identity.key).as_bytes());
        if let Some((user, password)) = &self.options.account {
            self.write("accounts", format!("{user}:{password}\n").as_bytes());
        }
        if let Some(answer) = &self.options.answer {
            let script = self.write("answer", config::script(answer).as_bytes());
            fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("set");
        }
        let text = config::text(self.dir.path(), self.port, &self.options);
        let config = self.write("lighttpd.conf", text.as_bytes());
        let mut server = Server::spawn(&config);
        let ready = server.wait_until_ready(self.address());
        match ready {
            Ok(()) => self.server = Some(server),
            Err(_) => server.end(Signal::KILL, self.address()),
        }
        ready.map_err(|said| format!("{said}\n{}", self.log("error")))
    }
}

impl Server {
    fn spawn(config: &Path) -> Self {
        let mut guard = Command::new("sh");
        guard.args(["-c", "lighttpd -D -f \"$1\" & read -r _; kill -9 0", "sh"]);
        guard.arg(config).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Debian keeps it in sbin, which users' PATH leaves out.
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
        let guard = guard.env_clear().env("PATH", path).spawn().expect("sh is installed");
        Self { guard }
    }

    fn wait_until_ready(&mut self, address: SocketAddr) -> Result<(), String> {
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            if begin.elapsed() > START {
                return Err(format!("it does not answer at {address}; is lighttpd installed? (./justw setup stack)"));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Ends all of the group, and waits until the port is closed.
    fn end(mut self, signal: Signal, address: SocketAddr) {
        // Not waited for before the end, so that the group's number can't be another's.
        let group = Pid::from_raw(self.guard.id() as i32).expect("a process has a number");
        let _ = kill_process_group(group, signal);
        let begin = Instant::now();
        while TcpStream::connect(address).is_ok() && begin.elapsed() < START {
            sleep(Duration::from_millis(2));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.guard.wait();
    }
}

impl Drop for ForeignHost {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            for name in ["access", "error", "cgi"] {
                let log = self.log(name);
                let tail: Vec<_> = log.lines().rev().take(40).collect();
                eprintln!("--- {name} log of the foreign host, newest first ---\n{}", tail.join("\n"));
            }
        }
    }
}
