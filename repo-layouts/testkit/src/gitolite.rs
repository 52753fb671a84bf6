//! A customer's host: real gitolite 3 behind a real OpenSSH server, with a home of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::ssh_client::SshClient;
use crate::ssh_key::public;
use crate::sshd::{Options, Sshd};

#[derive(Debug)]
pub struct Gitolite {
    home: TempDir,
    sshd: Sshd,
    admin: SshClient,
}

impl Gitolite {
    /// A host with nothing but the repository of its administrator, who is called `admin`.
    ///
    /// # Panics
    /// If gitolite isn't installed or can't be set up.
    pub fn start() -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let user = Command::new("id").arg("-un").output().expect("id is installed");
        let user = String::from_utf8_lossy(&user.stdout).trim().to_owned();
        let place = home.path().display();
        // gitolite keeps the keys itself, and writes the file anew with each change; its users have its home, not ours.
        let keys = format!(
            r#"/usr/bin/sed "s|^command=|environment=\"HOME={place}\",command=|" {place}/.ssh/authorized_keys"#
        );
        let lines = vec![
            format!("AuthorizedKeysCommand {keys}"),
            format!("AuthorizedKeysCommandUser {user}"),
            "PermitUserEnvironment HOME".to_owned(),
        ];
        let sshd = Sshd::start(Options { lines, ..Options::default() });
        let key = sshd.key("admin", "ed25519", "");
        let public_key = home.path().join("admin.pub");
        fs::write(&public_key, public(&key) + "\n").expect("written");
        let mut setup = Command::new("gitolite");
        setup.args(["setup", "-pk"]).arg(&public_key).env("HOME", home.path()).current_dir(home.path());
        setup.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
        for role in ["AUTHOR", "COMMITTER"] {
            setup.env(format!("GIT_{role}_NAME"), "host").env(format!("GIT_{role}_EMAIL"), "host@example.invalid");
        }
        let output = setup.output().expect("gitolite3 is installed (./justw setup stack)");
        assert!(output.status.success(), "gitolite setup: {}", String::from_utf8_lossy(&output.stderr));
        let admin = SshClient::new(&sshd, &key);
        Self { home, sshd, admin }
    }

    /// The server in front.
    pub fn sshd(&self) -> &Sshd {
        &self.sshd
    }

    /// The server in front, to stop it or to change it.
    pub fn sshd_mut(&mut self) -> &mut Sshd {
        &mut self.sshd
    }

    pub fn admin(&self) -> &SshClient {
        &self.admin
    }

    /// Where the repository `<name>.git` lies.
    pub fn repository(&self, name: &str) -> PathBuf {
        self.home.path().join(format!("repositories/{name}.git"))
    }

    /// The URL of a repository.
    pub fn url(&self, name: &str) -> String {
        format!("ssh://{}@{}/{name}.git", self.sshd.user(), self.sshd.address())
    }
}
