//! Both programs together: what a crash, a power cut or a stranger's repository must not break.
#![allow(clippy::disallowed_methods, reason = "tests write their own files as they like")]

mod account_crash;
mod alternate;
mod by_hand;
mod crash;
mod device;
mod docker_fleet;
mod docker_walkthrough;
mod draft;
mod elsewhere;
mod end_to_end;
mod foreign_host;
mod host_crash;
mod https;
mod invariants;
mod plant;
mod publish_crash;
mod secrets;
mod site;
mod stand;
