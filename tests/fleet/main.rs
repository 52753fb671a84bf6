//! Both programs together: what a crash, a power cut or a stranger's repository must not break.
#![allow(clippy::disallowed_methods, reason = "tests write their own files as they like")]

mod account_crash;
mod account_secrets;
mod alternate;
mod charts;
mod clocks;
mod crash;
mod docker_fleet;
mod documents;
mod draft;
mod edge;
mod elsewhere;
mod end_to_end;
mod foreign_host;
mod hand_made;
mod helm_crash;
mod host_crash;
mod hosted;
mod house;
mod https;
mod images;
mod invariants;
mod mirror_crash;
mod offline;
mod operator_words;
mod publish_crash;
mod renew_crash;
mod secrets;
mod site;
mod surroundings;
mod trouble;
mod walkthrough;
