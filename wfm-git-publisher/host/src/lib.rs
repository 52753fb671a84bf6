//! The Git host that devices come to: one port with TLS, stock Git on the other side of it.
//!
//! A request comes in through `connection`, is let in and routed by `http` and `access`, and answered apart from the HTTP
//! that asked for it (`in_flight`), so that a connection whose request only waits is parked without one. Over SSH it comes
//! in through stock sshd and the host's socket ([`ssh`]); from there on both are the same `call`. What devices ask
//! all day is answered from the object store (`fetch`, `repos`) or waits for a change (`wait`); fetches and pushes are rare
//! and go to stock `git upload-pack` and `git receive-pack`, bounded by `process`; a large answer is kept on the disk
//! (`spool`) until its client has taken it. A push (`receive`) is judged by [`judge`] while stock git keeps its objects in
//! quarantine, and answered when it is on the disk. [`wire`] reads what strangers send, as pure functions.
//!
//! The host knows repositories, accounts and certificates. What only a fleet can answer it asks of its [`Publisher`], and what
//! people ask about the fleet ([`api`]) of this very program, as a process of its own.

// Who comes.
pub mod accounts;
pub mod ca;
pub mod enrolment;

// What an operator chooses, and what the publisher has to say.
mod limits;
mod publisher;
mod settings;
pub mod user;

// A connection, and the requests on it.
mod access;
mod account;
mod accounting;
mod admission;
mod answer;
mod arrivals;
mod body;
mod call;
mod connection;
mod http;
mod in_flight;
mod logged;
mod paced;
mod request;
mod turns;

// Repositories: read, waited for, and pushed to.
mod calls;
mod certificate;
mod epochs;
mod fetch;
mod hooks;
mod janitor;
pub mod judge;
mod process;
mod receive;
mod repos;
mod spool;
mod wait;
mod watch;
pub mod wire;

// Questions about the fleet.
pub mod api;

// Over SSH.
pub mod ssh;

// The host as a whole.
mod lock;
mod metrics;
mod server;
mod shared;

pub use hooks::HOOK;
pub use limits::Limits;
pub use publisher::{AuditIndex, FleetFigures, Places, PolicyError, Publisher, ReadmitError, Reason};
pub use server::{ServeError, Server};
pub use settings::{Settings, SshSettings};
