//! All of a host that is there for SSH: the socket, and the port if the host accepts connections itself.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::front::Front;
use super::host_keys::{self, HostKeyError};
use super::socket::{self, Socket, SocketError};
use super::sshd::{Parts, Sshd, SshdError};
use crate::settings::SshSettings;
use crate::shared::Host;
use crate::user::{self, UserError};

/// The host can't be there for SSH.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// The host's key can't be used.
    #[error("cannot use the host's SSH key")]
    HostKey(#[from] HostKeyError),
    /// The user as whom clients come isn't there.
    #[error("cannot tell as whom clients come")]
    User(#[from] UserError),
    /// What sshd's helpers ask can't be opened.
    #[error("cannot open the socket for sshd")]
    Socket(#[from] SocketError),
    /// sshd can't be started as it is needed.
    #[error("cannot start sshd")]
    Sshd(#[from] SshdError),
    /// The address can't be listened on.
    #[error("cannot listen on `{address}`")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// Refuses settings with which sshd's user could never reach the host; of a user of another machine nothing is known here.
/// `keys` is the directory of the host keys.
pub fn check(settings: &SshSettings, keys: &Path) -> Result<(), SshError> {
    let user = match user::of(settings.user.as_deref()) {
        Ok(user) => user,
        Err(UserError::Name(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    Ok(socket::is_open_to(&user, &absolute(&socket::place(settings.socket.as_deref(), keys))?)?)
}

/// What a host listens on for SSH.
#[derive(Debug)]
pub(crate) struct Ssh {
    socket: Socket,
    pub(crate) front: Option<Front>,
    /// As whom clients come.
    pub(crate) user: String,
}

impl Ssh {
    /// Opens what the settings ask for. `keys` is the directory of the host keys, `search` where programs are found.
    pub(crate) async fn bind(settings: &SshSettings, keys: &Path, search: &OsStr) -> Result<Self, SshError> {
        let host_key = host_keys::ensure(keys)?;
        let user = user::of(settings.user.as_deref())?;
        let place = socket::place(settings.socket.as_deref(), keys);
        socket::is_open_to(&user, &absolute(&place)?)?;
        let front = match settings.listen {
            None => None,
            Some(listen) => {
                let program = std::env::current_exe();
                let program = program.map_err(|source| SshdError::Io { path: "/proc/self/exe".into(), source })?;
                let parts = Parts {
                    helper: &program,
                    socket: &absolute(&place)?,
                    host_key: &absolute(&host_key)?,
                    user: &user.name,
                    shell: &user.shell,
                };
                let sshd = Sshd::prepare(keys, &parts, search)?;
                let failed = |source| SshError::Listen { address: listen, source };
                Some(Front::bind(listen, sshd).await.map_err(failed)?)
            }
        };
        Ok(Self { socket: Socket::bind(place, user.id)?, front, user: user.name })
    }

    /// Accepts helpers and connections until the host stops.
    pub(crate) async fn accept(&self, host: &Host) {
        let front = async {
            if let Some(front) = &self.front {
                front.accept(host).await;
            }
        };
        tokio::join!(self.socket.accept(host), front);
    }
}

impl fmt::Display for Ssh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.front {
            Some(front) => front.address.fmt(f),
            None => f.write_str("behind an sshd"),
        }
    }
}

fn absolute(path: &Path) -> Result<std::path::PathBuf, SshdError> {
    std::path::absolute(path).map_err(|source| SshdError::Io { path: path.to_owned(), source })
}
