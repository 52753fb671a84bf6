//! What an operator chooses: where the host listens, what it is called, and which certificate it shows.

use std::net::SocketAddr;
use std::path::PathBuf;

use repo_model::DeviceId;

use crate::limits::Limits;
use crate::user::{self, UserError};

/// How repositories are served over HTTPS: the section `serve:` of `publisher.yaml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub listen: SocketAddr,
    /// The names and addresses that clients use, at least one; the first one goes into join files.
    pub names: Vec<String>,
    /// What clients call this host, without a path, where that is not the first name and the port.
    pub url: Option<String>,
    /// The operator's own certificate, its chain after it, in PEM; without one the fleet's own authority is used.
    pub certificate: Option<PathBuf>,
    /// The certificate's key; there is one exactly if there is a certificate.
    pub key: Option<PathBuf>,
    /// The authority behind the operator's certificate; none if it is a public one.
    pub ca_file: Option<PathBuf>,
    /// How clients come over SSH; they don't if absent.
    pub ssh: Option<SshSettings>,
    /// How much clients may take up, all together and each.
    pub limits: Limits,
}

/// How clients come over SSH: the section `ssh:` of `serve:`. At least one of `listen` and `url` is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SshSettings {
    /// Where the host's own sshd accepts connections; none if another sshd is in front.
    pub listen: Option<SocketAddr>,
    /// What clients call this host, `ssh://user@name:port`, where that is not the user, the first name and the port.
    pub url: Option<String>,
    /// The user as whom sshd lets clients in, whose processes may use the socket; by default the one that runs the host.
    pub user: Option<String>,
    /// The socket of the running host, by default `host.sock` beside the host keys.
    pub socket: Option<PathBuf>,
}

impl Settings {
    /// Where clients find this host, without a slash at the end.
    pub fn base_url(&self) -> String {
        if let Some(url) = &self.url {
            return url.clone();
        }
        let host = self.host();
        match self.listen.port() {
            443 => format!("https://{host}"),
            port => format!("https://{host}:{port}"),
        }
    }

    /// The URL of a device's repository.
    pub fn device_url(&self, device: &DeviceId) -> String {
        format!("{}/{}", self.base_url(), path(device))
    }

    /// Where clients find this host over SSH, without a slash at the end; `None` if they don't.
    pub fn ssh_base_url(&self) -> Result<Option<String>, UserError> {
        let Some(ssh) = &self.ssh else { return Ok(None) };
        if let Some(url) = &ssh.url {
            return Ok(Some(url.clone()));
        }
        let user = user::name(ssh.user.as_deref())?;
        let port = ssh.listen.map_or(22, |listen| listen.port());
        let port = if port == 22 { String::new() } else { format!(":{port}") };
        Ok(Some(format!("ssh://{user}@{}{port}", self.host())))
    }

    /// The URL of a device's repository over SSH; `None` if there is no SSH here.
    pub fn ssh_device_url(&self, device: &DeviceId) -> Result<Option<String>, UserError> {
        Ok(self.ssh_base_url()?.map(|base| format!("{base}/{}", path(device))))
    }

    /// The first name, as URLs write it.
    fn host(&self) -> String {
        let name = self.names.first().map(String::as_str).unwrap_or("localhost");
        if name.contains(':') { format!("[{name}]") } else { name.to_owned() }
    }
}

fn path(device: &DeviceId) -> String {
    format!("devices/{}.git", device.repository_name())
}
