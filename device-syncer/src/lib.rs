//! The device's half: applies what its repository asks for, and reports what happened.
//!
//! A pass ([`reconcile::pass`]) asks the host where its branches stand ([`host::refs`]), fetches and verifies what is new
//! ([`host::fetch`], [`host::verify`]), puts it in force ([`state::floor`] first, then [`state::store`]), resolves what is
//! desired on this device ([`decision::desired`]), observes what runs ([`runtimes`]), plans ([`decision::plan`]), applies
//! the plan ([`reconcile::apply`]) and pushes `status` and `heartbeat` ([`host::status`], [`host::heartbeat`]).
//!
//! Each module imports only from those that stand above it here.

/// The core: pure functions over what is desired, kept and observed. A new gate or rule goes here.
pub mod decision;

/// What `device.yaml` says, where a device's files lie, and who the device is. A new setting goes here.
pub mod config;

/// What lasts from pass to pass: the clone with the device state, the floor, and what a person asked for.
pub mod state;

/// The Git host: connection, account, fetching, verifying, waiting and pushing. A new transport goes here.
pub mod host;

/// Archives and charts by digest, as registries have them.
pub mod artifacts;

/// What runs components: Docker Compose and Helm. A new runtime goes here.
pub mod runtimes;

/// The loop: pass after pass makes actual equal desired.
pub mod reconcile;

/// A device's home: made once from a join file, and opened by one syncer at a time.
pub mod home;

/// How an error is shown, and its exit code.
pub mod error;

/// The command line. A new command goes here.
pub mod cli;

#[cfg(test)]
mod testing;
