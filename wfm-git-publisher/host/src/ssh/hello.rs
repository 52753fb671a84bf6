//! What the helpers of sshd say to the host: one line of JSON. An answer to it is one byte.

use serde::{Deserialize, Serialize};

/// The longest line; a key and a command are much shorter.
pub(super) const MAX_BYTES: usize = 16 << 10;

/// The answer if the key is somebody's.
pub(super) const KNOWN: u8 = b'y';

/// The answer if it is nobody's.
pub(super) const UNKNOWN: u8 = b'n';

/// What a helper asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Hello {
    /// Whether this key is somebody's: `<algorithm> <base64>`.
    Auth { key: String },
    /// A session, whose input and output come with this line. The answer is the exit status, once it has ended.
    Serve(Serve),
}

/// A session that shall be served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// The key by which sshd let the client in.
    pub key: String,
    /// What the client asked for: `SSH_ORIGINAL_COMMAND`.
    pub command: String,
    /// What the client wants to speak: `GIT_PROTOCOL`.
    pub protocol: Option<String>,
    /// Where the client is, as `SSH_CONNECTION` begins: address and port.
    pub client: Option<String>,
}
