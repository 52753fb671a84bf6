//! A Git host that is reached by SSH and isn't ours: stock OpenSSH with plain Git, on a free port of this machine.
//!
//! It runs as the current user, who is the only one that it lets in, with keys, settings and a log of its own in a
//! temporary directory; nothing of the machine's sshd is touched. Tests change its settings, stop it, freeze it and start it
//! again on the same port; it is gone when dropped, with all that it started. A failing test prints the end of its log.

mod agent;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use agent::SshAgent;

use crate::git;
use crate::ports::start_on_free_port;
use crate::ssh_key::{keygen, public};

/// How long sshd may take to answer after its start.
const START: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// It lets clients say which version of Git's protocol they want (`AcceptEnv GIT_PROTOCOL`).
    pub accept_env: bool,
    /// Kinds of its own keys, as `ssh-keygen -t` names them.
    pub host_keys: Vec<String>,
    /// What it runs instead of any command (`ForceCommand`).
    pub force_command: Option<String>,
    /// More lines of its configuration, e.g. `KexAlgorithms …`.
    pub lines: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { accept_env: true, host_keys: vec!["ed25519".to_owned()], force_command: None, lines: Vec::new() }
    }
}

#[derive(Debug)]
pub struct Sshd {
    dir: TempDir,
    port: u16,
    user: String,
    options: Options,
    server: Option<Child>,
}

/// Makes `/run/sshd`, without which sshd doesn't start as root: on a machine on which Debian's service never ran nobody did.
///
/// # Panics
/// If root may not make it.
pub fn make_runtime_directory() {
    if rustix::process::geteuid().is_root() {
        fs::create_dir_all("/run/sshd").expect("root may do that");
    }
}

impl Sshd {
    /// A running server that lets nobody in yet.
    ///
    /// # Panics
    /// If OpenSSH's server isn't installed or doesn't start.
    pub fn start(options: Options) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        fs::create_dir(dir.path().join("repositories")).expect("made");
        make_runtime_directory();
        let user = run(Command::new("id").arg("-un"));
        let mut host = Self { dir, port: 0, user, options, server: None };
        host.write("authorized_keys", "", 0o600);
        start_on_free_port("sshd", |port| {
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

    /// Kills it and all that it runs at once, as losing the machine does.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
            // A killed process may listen for a moment longer.
            let begin = Instant::now();
            while TcpStream::connect(self.address()).is_ok() && begin.elapsed() < START {
                sleep(Duration::from_millis(2));
            }
        }
    }

    /// Kills it if it runs, and starts it on the same port.
    pub fn restart(&mut self) {
        self.kill();
        let started = self.try_start();
        assert!(started.is_ok(), "sshd does not start again: {started:?}");
    }

    /// Stops it and all that it runs in their tracks; connections stay.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets all go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the commands of clients, and leaves the server and its connections alone.
    pub fn kill_commands(&self, name: &str) -> usize {
        let of_name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        let found: Vec<_> = self.processes().into_iter().filter(of_name).collect();
        found.iter().for_each(|pid| signal(*pid, Signal::KILL));
        found.len()
    }

    /// Gives it new keys of its own, and starts it again.
    pub fn change_host_keys(&mut self) {
        for kind in self.options.host_keys.clone() {
            let _ = fs::remove_file(self.path(&format!("host_{kind}")));
        }
        self.restart();
    }

    /// Makes an empty repository at `<path>.git`, as an administrator of such a host does.
    pub fn create(&self, path: &str) -> PathBuf {
        let repository = self.repository(path);
        fs::create_dir_all(&repository).expect("made");
        git::git(&repository, &["init", "--quiet", "--bare", "--template="]);
        git::git(&repository, &["config", "gc.auto", "0"]);
        repository
    }

    /// Where the repository `<path>.git` lies.
    pub fn repository(&self, path: &str) -> PathBuf {
        self.path("repositories").join(format!("{path}.git"))
    }

    /// Makes a key of this kind (as `ssh-keygen -t` names it) that the server doesn't know. Returns the file with its
    /// secret half; the public one is beside it.
    pub fn key(&self, name: &str, kind: &str, passphrase: &str) -> PathBuf {
        let path = self.path(name);
        keygen(&path, kind, passphrase);
        path
    }

    /// Lets in whoever has this key, from the next connection on.
    pub fn authorize(&self, key: &Path) {
        self.authorize_line(&public(key));
    }

    /// Adds a line to its authorized keys.
    pub fn authorize_line(&self, line: &str) {
        let path = self.path("authorized_keys");
        let known = fs::read_to_string(&path).expect("written at its start");
        self.write("authorized_keys", &format!("{known}{}\n", line.trim()), 0o600);
    }

    /// Makes a key and lets it in.
    pub fn client(&self, name: &str) -> PathBuf {
        let key = self.key(name, "ed25519", "");
        self.authorize(&key);
        key
    }

    /// Lets nobody in any more, from the next connection on.
    pub fn forget_clients(&self) {
        self.write("authorized_keys", "", 0o600);
    }

    /// The user whom it lets in.
    pub fn user(&self) -> &str {
        &self.user
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The repository `<path>.git`, there or through a proxy.
    pub fn url(&self, at: SocketAddr, path: &str) -> String {
        format!("ssh://{}@{at}{}", self.user, self.repository(path).display())
    }

    /// Its own public key of this kind, as one line.
    pub fn host_key(&self, kind: &str) -> String {
        public(&self.path(&format!("host_{kind}")))
    }

    /// What sshd logged since its first start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// How many sessions it let in since its beginning.
    pub fn sessions(&self) -> usize {
        self.log().lines().filter(|line| line.contains("Accepted publickey")).count()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.path(name);
        fs::File::create(&path).and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    }

    /// Its configuration. With that `SHLVL` a bash doesn't read what the user has set up for logging in.
    fn config(&self) -> String {
        let dir = self.dir.path().display();
        let mut text = format!(
            "ListenAddress 127.0.0.1:{}\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nLogLevel VERBOSE\n\
             AuthorizedKeysFile {dir}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PrintMotd no\nSetEnv GIT_CONFIG_GLOBAL=/dev/null SHLVL=5\n",
            self.port
        );
        for kind in &self.options.host_keys {
            text += &format!("HostKey {dir}/host_{kind}\n");
        }
        if self.options.accept_env {
            text += "AcceptEnv GIT_PROTOCOL\n";
        }
        if let Some(command) = &self.options.force_command {
            text += &format!("ForceCommand {command}\n");
        }
        text + &self.options.lines.iter().map(|line| format!("{line}\n")).collect::<String>()
    }

    fn try_start(&mut self) -> Result<(), String> {
        for kind in &self.options.host_keys {
            let key = self.path(&format!("host_{kind}"));
            if !key.exists() {
                keygen(&key, kind, "");
            }
        }
        self.write("sshd_config", &self.config(), 0o600);
        // Killed with the test: it then waits for the end of its input no more.
        let mut guard = Command::new("sh");
        guard.args(["-c", "/usr/sbin/sshd -D -f \"$1\" -E \"$2\" & server=$!; read -r _; kill -9 $server", "sh"]);
        guard.args([self.path("sshd_config"), self.path("log")]).process_group(0);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let before = self.log().len();
        self.server = Some(guard.spawn().expect("sh is installed"));
        let begin = Instant::now();
        while TcpStream::connect(self.address()).is_err() {
            if begin.elapsed() > START || self.has_ended(before) {
                self.kill();
                let said = self.log();
                return Err(format!("is openssh-server installed? (./justw setup base)\n{said}"));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether it said that it can't go on, behind so many bytes of its log.
    fn has_ended(&self, before: usize) -> bool {
        let log = self.log();
        let said = log.get(before..).unwrap_or_default();
        ["Cannot bind", "Bad configuration", "fatal:"].iter().any(|words| said.contains(words))
            || !Path::new("/usr/sbin/sshd").exists()
    }

    /// All processes that it began, and those that they began: connections are in groups of their own.
    fn processes(&self) -> BTreeSet<i32> {
        let Some(server) = &self.server else { return BTreeSet::new() };
        let parents: Vec<(i32, i32)> = fs::read_dir("/proc").expect("there is /proc").filter_map(parent).collect();
        let mut found = BTreeSet::from([server.id() as i32]);
        loop {
            let more = parents.iter().filter(|(_, parent)| found.contains(parent)).map(|(pid, _)| *pid);
            let all: BTreeSet<_> = found.iter().copied().chain(more).collect();
            if all.len() == found.len() {
                break;
            }
            found = all;
        }
        found.remove(&(server.id() as i32));
        found
    }

    fn signal(&self, which: Signal) {
        // What begins meanwhile is found by the second look.
        for _ in 0..2 {
            self.processes().into_iter().for_each(|pid| signal(pid, which));
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.thaw();
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<_> = log.lines().rev().take(40).collect();
            eprintln!("--- log of sshd, newest first ---\n{}", tail.join("\n"));
        }
    }
}

/// A process and its parent.
fn parent(entry: std::io::Result<fs::DirEntry>) -> Option<(i32, i32)> {
    let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    Some((pid, parent))
}

fn signal(pid: i32, which: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, which);
    }
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}
