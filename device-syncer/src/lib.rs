//! The device's half: applies what its repository asks for and reports what happened.
//!
//! A pass, told in order by [`reconcile`]: [`update`] polls and fetches; [`verify`] says what is believed; [`desired`]
//! resolves what is wanted on this device; [`plan`] decides, as data; [`act`] carries the plan out through a
//! [`runtime`]; [`tell`] pushes [`status`] and heartbeat. What lasts from pass to pass is the [`memory`], one commit in
//! the clone that [`store`] moves atomically, and the [`floor`] beside it. [`agent`] makes pass after pass.
//!
//! `desired`, `plan`, `health`, `status`, `conditions`, `memory`, `message` and `backoff` know no I/O, clock or environment.

pub mod account;
pub mod act;
pub mod agent;
pub mod artifacts;
pub mod backoff;
pub mod capabilities;
pub mod cli;
pub mod conditions;
pub mod config;
pub mod contact;
pub mod desired;
pub mod error;
pub mod failure;
pub mod floor;
pub mod health;
pub mod hints;
pub mod home;
pub mod link;
pub mod lost;
pub mod memory;
pub mod message;
pub mod plan;
pub mod reconcile;
pub mod requests;
pub mod restores;
pub mod retries;
pub mod runtime;
pub mod schedule;
pub mod status;
pub mod store;
pub mod tell;
#[cfg(test)]
mod testing;
pub mod update;
pub mod verify;
pub mod waiter;
