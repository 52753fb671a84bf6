//! How a host is reached over SSH: what `device.yaml` says under `host` with `ssh…`, `knownHosts` and `pin`.

use std::path::{Path, PathBuf};

use repo_http::Source;

use super::invalid::InvalidValue;
use super::secret::Secret;

/// What a fingerprint of a host's key begins with, as `ssh-keygen -l` prints it.
const FINGERPRINT: &str = "SHA256:";

/// With which key the host is asked, and which key it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshSettings {
    /// The key with which the device is let in.
    pub identity: SshIdentity,
    /// Files in OpenSSH's format, in place of the join file's keys.
    pub known_hosts: Vec<PathBuf>,
    /// The fingerprint of the host's key, `SHA256:…`, in place of the join file's keys.
    pub fingerprint: Option<String>,
}

/// A key to be let in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshIdentity {
    /// The device's own, which `init --join` makes: this file.
    Own(PathBuf),
    /// One that the site gives.
    File {
        path: PathBuf,
        /// Where its passphrase is, if it has one.
        passphrase: Option<Source>,
    },
    /// Those of an ssh-agent, by its socket.
    Agent(PathBuf),
}

/// The keys of `device.yaml`, as written.
#[derive(Debug)]
pub(super) struct SshFragment {
    pub(super) key: Option<PathBuf>,
    pub(super) passphrase: Option<Secret>,
    pub(super) agent: Option<PathBuf>,
    pub(super) known_hosts: Vec<PathBuf>,
    pub(super) fingerprint: Option<String>,
}

impl SshFragment {
    /// Made whole in the home at `root`, whose own key is `own`; with the files that it is made of, and those of secrets.
    pub(super) fn make(
        self,
        root: &Path,
        own: PathBuf,
        (files, secrets): (&mut Vec<PathBuf>, &mut Vec<PathBuf>),
    ) -> Result<SshSettings, InvalidValue> {
        let identity = match (self.key, self.passphrase, self.agent) {
            (Some(_), _, Some(_)) => {
                return Err(InvalidValue::at("host.sshAgent", "`host.sshKey` and `host.sshAgent` exclude each other"));
            }
            (None, Some(_), _) => {
                return Err(InvalidValue::at(
                    "host.sshKeyPassphrase",
                    "it is that of `host.sshKey`, which isn't there",
                ));
            }
            (None, None, Some(socket)) => SshIdentity::Agent(root.join(socket)),
            (Some(path), passphrase, None) => SshIdentity::File {
                path: root.join(path),
                passphrase: passphrase.map(|secret| secret.source(root, secrets)),
            },
            (None, None, None) => SshIdentity::Own(own),
        };
        let known_hosts: Vec<_> = self.known_hosts.into_iter().map(|path| root.join(path)).collect();
        files.extend(identity.key_file().map(Path::to_owned).into_iter().chain(known_hosts.iter().cloned()));
        Ok(SshSettings { identity, known_hosts, fingerprint: self.fingerprint })
    }
}

impl SshSettings {
    /// Whether these settings say which key the host has, whatever a join file says.
    pub fn names_host_key(&self) -> bool {
        self.fingerprint.is_some() || !self.known_hosts.is_empty()
    }
}

impl SshIdentity {
    /// The file of the key, where it is in one.
    pub fn key_file(&self) -> Option<&Path> {
        match self {
            Self::Own(path) | Self::File { path, .. } => Some(path),
            Self::Agent(_) => None,
        }
    }
}

/// Whether a text is a fingerprint of a key, as `ssh-keygen -l` prints it.
pub(super) fn is_fingerprint(text: &str) -> bool {
    let is_base64 = |c: u8| c.is_ascii_alphanumeric() || c == b'+' || c == b'/';
    text.strip_prefix(FINGERPRINT).is_some_and(|hash| hash.len() == 43 && hash.bytes().all(is_base64))
}
