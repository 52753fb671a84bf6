//! Turns a fleet repository into one signed Git repository per device.
//!
//! Operators commit YAML ([`fleet`]); [`render`] makes typed Margo documents of it for each device; [`plan`] compares
//! them with the verified tip of the device's repository, which is data and changes nothing; [`publish`] carries the
//! plan out, durably and one device at a time; [`controller`] does that for each new commit. What devices report comes
//! back through [`status`], believed only as far as its signatures reach; [`audit`] proves the whole history of it.
//!
//! `fleet`, `coverage`, `render`, `plan`, `rollout`, `explain` and `signature` are pure: no files, no clock, no environment. [`repos`] reaches the
//! outside world, [`operator`] edits the operators' own repository, and only [`cli`] prints and reads the
//! environment. The Git host is the crate `wfm_git_host`; [`hosting`] answers what it asks about the fleet.
//!
//! Where something new goes: a key of the operators' files into [`fleet`] and its `schema`, and what it makes of a device
//! into [`render`]; a rule that holds a change back until a person says so into [`plan`] (`guard`); what a device gets besides,
//! such as another branch, into [`publish`]; when a change comes to which device into [`rollout`]; a setting of the machine into [`config`]; another kind of host elsewhere into
//! [`repos`] (`remote`), used by [`mirror`]; what people see of devices into [`status`], and what somebody is told of without asking into [`alerts`]; a command into a file of [`cli`], with
//! its exit codes in `docs/exit-codes.md`.

pub mod alerts;
pub mod audit;
pub mod cli;
pub mod config;
pub mod controller;
pub mod coverage;
mod duration;
pub mod error;
pub mod explain;
pub mod fleet;
pub mod hosting;
pub mod mirror;
pub mod operator;
mod parallel;
pub mod plan;
mod program;
pub mod publish;
pub mod render;
pub mod repos;
pub mod rollout;
pub mod signature;
pub mod status;
mod words;
