//! The device's half: applies what its repository asks for, and reports what happened.
//!
//! A pass ([`reconcile::pass`]) asks the host where its branches stand ([`host::refs`]), fetches and verifies what is new
//! ([`host::fetch`], [`host::verify`]), puts it in force ([`state::floor`] first, then [`state::store`]), resolves what is
//! desired on this device ([`decision::desired`]), observes what runs ([`runtimes`]), plans ([`decision::plan`]) and begins
//! jobs that apply the plan ([`reconcile::jobs`]) and go on beside the passes that follow. Each transition is one short
//! transaction with its `status` commit ([`state::shared`]), which [`host::status_push`] pushes beside the work; what is left of `status`, and `heartbeat`, follow at the end
//! ([`host::status`], [`host::heartbeat`]).
//!
//! Each module imports only from those that stand above it here.

/// The core: pure functions over what is desired, kept and observed. A gate over state, which can be told from these three
/// (suspended, unmet, held), goes into the table of [`decision::gates`], and [`decision::plan`] shows what it closes;
/// the words for health are in [`decision::health`].
pub mod decision;

/// What `device.yaml` says, where a device's files lie, and who the device is. A new setting goes here.
pub mod config;

/// What lasts from pass to pass: the clone with the device state, the floor, and what a person asked for.
/// A transaction of [`state::shared`] makes a transition durable together with the `status` commit that tells it.
pub mod state;

/// The Git host: connection, account, fetching, verifying, waiting and pushing. [`host::connection`] chooses the transport by
/// the URL of the join file; the transports themselves are in [`repo_git::remote`].
pub mod host;

/// Archives and charts by digest, as registries have them.
pub mod artifacts;

/// What runs components: Docker Compose and Helm. A new runtime goes here: a directory that implements
/// [`runtimes::Runtime`]. It also judges whether what runs is healthy.
pub mod runtimes;

/// The loop: pass after pass makes actual equal desired. A gate over progress, which depends on how far others came or on what
/// failed before (`dependsOn`, back-off), goes here.
pub mod reconcile;

/// A device's home: made once from a join file, and opened by one syncer at a time.
pub mod home;

/// How an error is shown, and its exit code.
pub mod error;

/// The command line. A new command is a file here, and a row of `docs/exit-codes.md`.
pub mod cli;

#[cfg(test)]
mod testing;
