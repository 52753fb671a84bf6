//! What an operator chooses: where the host listens, what it is called, and which certificate it shows.

use std::net::SocketAddr;
use std::path::PathBuf;

use repo_model::DeviceId;

use crate::limits::Limits;

/// How repositories are served over HTTPS: the section `serve:` of `publisher.yaml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where connections are accepted.
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
    /// What clients may use.
    pub limits: Limits,
}

impl Settings {
    /// Where clients find this host, without a slash at the end.
    pub fn base_url(&self) -> String {
        if let Some(url) = &self.url {
            return url.clone();
        }
        let name = self.names.first().map(String::as_str).unwrap_or("localhost");
        let host = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
        match self.listen.port() {
            443 => format!("https://{host}"),
            port => format!("https://{host}:{port}"),
        }
    }

    /// The URL of a device's repository.
    pub fn device_url(&self, device: &DeviceId) -> String {
        format!("{}/devices/{}.git", self.base_url(), device.repository_name())
    }
}
