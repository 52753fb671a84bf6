//! The publisher against real Git repositories, as a library and as the program that operators run.

mod accounts;
mod by_url;
mod capabilities;
mod cli;
mod crash;
mod explain;
mod follow;
mod full;
mod golden;
mod guards;
mod history;
mod hosted;
mod meaning;
mod registry;
mod remote;
mod removal;
mod reports;
mod restore;
mod schemas;
mod secrets;
mod serve;
mod support;
mod traps;
