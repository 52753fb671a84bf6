//! The decision: pure functions over what is desired, what is kept and what was observed.
//!
//! Nothing in here knows I/O, a clock or the environment.

pub mod backoff;
pub mod capabilities;
pub mod component;
pub mod conditions;
pub mod deployment;
pub mod desired;
pub mod device_state;
pub mod failure;
pub mod health;
pub mod heartbeat;
pub mod message;
pub mod observation;
pub mod plan;
pub mod status;
