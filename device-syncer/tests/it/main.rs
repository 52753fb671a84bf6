//! The syncer as a program, against device repositories that a shell script made from the contract alone.
//!
//! Most tests use the stand-in for docker; those in `docker` the real one, and those in `helm` real Helm. All need the registry of
//! `MARGO_TEST_REGISTRY`, and fail without it.
#![allow(clippy::disallowed_methods, reason = "tests write and remove their own files")]

mod admission;
mod adoption;
mod approval;
mod archives;
mod asks;
mod certificate;
mod clocks;
mod commands;
mod damage;
mod disks;
mod docker;
mod docker_accounts;
mod docker_drift;
mod docker_events;
mod docker_eviction;
mod docker_gone;
mod docker_health;
mod docker_hostile;
mod docker_images;
mod docker_mirrors;
mod docker_ports;
mod docker_restart;
mod docker_restart_requests;
mod doctor;
mod drift;
mod exit_codes;
mod from_fleet;
mod full;
mod helm;
mod hold;
mod hook;
mod https;
mod layout;
mod moving;
mod objects;
mod our_host;
mod output;
mod questions;
mod refused;
mod removals;
mod resilience;
mod restart;
mod rhythm;
mod rollback;
mod service;
mod site;
mod ssh;
mod windows;
mod world;
