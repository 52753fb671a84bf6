//! The roster in use: its next version is proposed here, signed by the roots wherever their keys are, and published.
//!
//! A proposal lies in the home under its own name, `trust/<n>.json`, with its signatures beside it, until it is in
//! `control.git`. From there `publish` brings it to the devices. Each step can be cut off and done again.

mod authority;
mod changes;
mod emergency;
mod error;
mod host;
mod key;
mod offline;
mod proposal;
mod propose;
mod publish;
mod sign;

use std::time::Duration;

pub use authority::{authorities, switch_authority};
pub use changes::{certificates, changes};
pub use emergency::{Emergency, publish_in_emergency};
pub use error::TrustError;
pub use host::HostChanges;
pub use offline::{Offline, offline};
pub use proposal::{Proposal, SignedBy};
pub use propose::{Changes, LIFE, NotAfter, propose};
pub use publish::{PublishedRoster, publish_roster};
pub use sign::{Signing, sign};

/// How long a command waits for a publisher that is at work.
const LOCK_WAIT: Duration = Duration::from_secs(30);
