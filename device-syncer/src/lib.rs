//! The device's half: applies what its repository asks for and reports what happened.

pub mod artifacts;
pub mod cli;
pub mod config;
pub mod decision;
pub mod error;
pub mod home;
pub mod host;
pub mod reconcile;
pub mod runtimes;
pub mod state;
#[cfg(test)]
mod testing;
