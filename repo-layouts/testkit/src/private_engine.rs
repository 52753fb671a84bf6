//! A Docker Engine of a test's own, with the settings that a test is about: its proxy, and the authorities of its registries. It
//! makes no network and changes none of the machine's; what it keeps is in memory, and goes with it.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{comes_within, in_namespaces, terminate};

/// For machines under load; it takes half a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has its directories in a mount namespace of its own: `/etc/docker` is another one there than that of the machine.
const SCRIPT: &str = "mount --bind \"$1/etc\" /etc/docker && mount -t tmpfs tmpfs \"$1/root\" && exec dockerd \
     --data-root=\"$1/root/data\" --exec-root=\"$1/root/exec\" --pidfile=\"$1/root/pid\" --host=\"unix://$1/socket\" \
     --storage-driver=vfs --bridge=none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false \
     --shutdown-timeout=1";

/// A running engine; it ends when dropped.
#[derive(Debug)]
pub struct PrivateEngine {
    dockerd: Child,
    dir: PathBuf,
}

impl PrivateEngine {
    /// An engine below this directory, whose path has to be short enough for a socket's, that asks registries by this proxy if
    /// there is one.
    ///
    /// # Panics
    /// If none can be had, as without root.
    pub fn start(dir: &Path, proxy: Option<&str>) -> Self {
        ["etc", "root"].iter().for_each(|name| fs::create_dir_all(dir.join(name)).expect("made"));
        let log = File::create(dir.join("log")).expect("made");
        let mut dockerd = Command::new("unshare");
        dockerd.args(["--mount", "sh", "-c", SCRIPT, "sh"]).arg(dir).stdin(Stdio::null());
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"] {
            dockerd.env_remove(name).env_remove(name.to_lowercase());
        }
        dockerd.envs(proxy.map(|proxy| ("HTTPS_PROXY", proxy)));
        let dockerd = dockerd.stdout(Stdio::null()).stderr(log).spawn().expect("unshare is there");
        let mut engine = Self { dockerd, dir: dir.to_owned() };
        let answers = || UnixStream::connect(dir.join("socket")).is_ok();
        comes_within(PATIENCE, || answers() || !engine.runs());
        assert!(engine.runs() && answers(), "{}", fs::read_to_string(dir.join("log")).unwrap_or_default());
        engine
    }

    fn runs(&mut self) -> bool {
        self.dockerd.try_wait().expect("it is ours").is_none()
    }

    /// Its `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.join("socket").display())
    }

    /// What is `/etc/docker` where it is.
    pub fn settings(&self) -> PathBuf {
        self.dir.join("etc")
    }

    /// The same program with the same arguments and variables, where `/etc/docker` is this engine's; the rest of the command is to be
    /// said anew.
    pub fn beside(&self, command: &Command) -> Command {
        in_namespaces(self.dockerd.id(), &["--mount"], command)
    }
}

impl Drop for PrivateEngine {
    fn drop(&mut self) {
        if self.runs() {
            // It ends its containerd, if it is let.
            terminate(&self.dockerd);
        }
        if !comes_within(PATIENCE, || !self.runs()) {
            let _ = self.dockerd.kill();
            let _ = self.dockerd.wait();
        }
    }
}
