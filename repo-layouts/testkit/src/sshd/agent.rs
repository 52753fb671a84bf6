//! An ssh-agent of a test's own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running agent; it ends when dropped.
#[derive(Debug)]
pub struct SshAgent {
    dir: TempDir,
    agent: Child,
}

impl SshAgent {
    /// An agent without keys.
    ///
    /// # Panics
    /// If OpenSSH isn't installed.
    pub fn start() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let socket = dir.path().join("agent");
        let mut command = Command::new("ssh-agent");
        command.arg("-D").arg("-a").arg(&socket).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let agent = command.spawn().expect("ssh-agent is installed");
        let begin = Instant::now();
        while !socket.exists() {
            assert!(begin.elapsed() < Duration::from_secs(10), "ssh-agent does not start");
            sleep(Duration::from_millis(2));
        }
        Self { dir, agent }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("agent")
    }

    /// Gives it a key without a passphrase.
    pub fn add(&self, key: &Path) {
        let mut command = Command::new("ssh-add");
        let added = command.arg("-q").arg(key).env("SSH_AUTH_SOCK", self.socket()).status();
        assert!(added.is_ok_and(|status| status.success()), "ssh-add {}", key.display());
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}
