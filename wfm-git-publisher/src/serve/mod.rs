//! The host: what clients ask for over HTTPS.

pub mod account;
