//! Over SSH: stock sshd speaks it, and asks the running host.
//!
//! sshd calls this program twice ([`helper`]): as `ssh-auth`, to learn whether a key is somebody's, and as `ssh-serve` in
//! the place of the command that a client asks for. Both only ask the host's socket (`socket`), of which the other end is
//! believed if it is this very user, root, or the user as whom sshd lets clients in. `ssh-serve` hands its standard input
//! and output over and waits, so that the host itself talks with the client: a `session` reads its requests and answers
//! them by the `call` that HTTPS uses. Which account that is, the host looks up by the key, each time anew.
//!
//! Where the settings say so, the host accepts the connections itself (`front`) and starts an `sshd -i` for each
//! (`sshd`); otherwise an sshd of the machine is in front of it.

pub mod helper;
pub mod host_keys;

mod channel;
mod front;
mod heard;
mod hello;
mod listening;
mod session;
mod short;
mod socket;
mod sshd;

pub(crate) use listening::Ssh;
pub use listening::{SshError, check};
pub use socket::{SOCKET, SocketError};
pub use sshd::SshdError;
