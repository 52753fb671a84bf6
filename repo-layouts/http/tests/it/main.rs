//! The agent against real TLS on loopback: what it sends, whom it believes, and what it calls each kind of trouble.

mod answers;
mod host;
mod pki;
mod proxy;
mod trouble;
mod trust;
