//! The Git host that this device talks to: the way there, what is fetched and believed, and what is pushed.

pub mod account;
pub mod client;
pub mod connection;
pub mod connectivity;
pub mod fetch;
pub mod heartbeat;
pub mod refs;
pub mod status;
pub mod status_push;
pub mod verify;
pub mod wait;
