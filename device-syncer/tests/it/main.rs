//! The syncer as a program, against device repositories that a shell script made from the contract alone.
//!
//! Most tests use the stand-in for docker; those in `docker` the real one, and those in `helm` real Helm. All need the registry of
//! `MARGO_TEST_REGISTRY`, and fail without it.
#![allow(clippy::disallowed_methods, reason = "tests write and remove their own files")]

mod adoption;
mod archives;
mod clocks;
mod commands;
mod damage;
mod disks;
mod docker;
mod docker_health;
mod docker_hostile;
mod docker_images;
mod docker_restart;
mod exit_codes;
mod full;
mod helm;
mod https;
mod objects;
mod our_host;
mod refused;
mod resilience;
mod rhythm;
mod ssh;
mod world;
