//! Stock `ssh` as a client of a [`Sshd`], with files of its own: nothing of anybody's home is read or written.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::sshd::Sshd;

/// A configuration for `ssh -F`, and the known hosts that it names.
#[derive(Debug)]
pub struct SshClient {
    dir: TempDir,
}

impl SshClient {
    /// A client that logs in with this key, and knows the host as it is now.
    pub fn new(host: &Sshd, key: &Path) -> Self {
        let client = Self { dir: TempDir::new().expect("a temporary directory") };
        let lines = format!(
            "IdentityFile {}\nIdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile {}\nGlobalKnownHostsFile none\n\
             StrictHostKeyChecking yes\n",
            key.display(),
            client.known_hosts().display()
        );
        fs::write(client.config(), lines).expect("written");
        client.know(host, host.address());
        client
    }

    /// From now on it knows the host's key as it is now, at this address, and no other one.
    pub fn know(&self, host: &Sshd, at: SocketAddr) {
        let line = format!("[{}]:{} {}\n", at.ip(), at.port(), host.host_key("ed25519"));
        fs::write(self.known_hosts(), line).expect("written");
    }

    /// From now on it knows no host.
    pub fn know_nobody(&self) {
        fs::write(self.known_hosts(), "").expect("written");
    }

    /// The file for `ssh -F`.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    /// The file that it knows hosts by.
    pub fn known_hosts(&self) -> PathBuf {
        self.dir.path().join("known_hosts")
    }

    /// Stock Git that uses it, run in a directory.
    pub fn git(&self, directory: &Path) -> Command {
        let mut command = crate::git::command(directory);
        command.env("GIT_SSH_COMMAND", format!("ssh -F {}", self.config().display())).stdin(Stdio::null());
        command
    }
}
