//! What this crate writes, as stock Git, libgit2 and ssh-keygen see it, and what it makes of theirs.
#![allow(clippy::disallowed_methods, reason = "tests damage files on purpose")]

mod bundle;
mod child;
mod consolidate;
mod fetch;
mod https;
mod https_trouble;
mod power;
mod push;
mod recover;
mod refs;
mod salvage;
mod signatures;
mod ssh;
mod ssh_kept;
mod ssh_keys;
mod ssh_trouble;
mod store;
mod support;
mod trees;
