//! The Git host that this device talks to: the way there, what is fetched and believed, and what is pushed.

pub mod account;
pub mod connection;
pub mod connectivity;
pub mod verify;
pub mod wait;
