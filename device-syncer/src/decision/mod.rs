//! The decision: pure functions over what is desired, what is kept and what was observed.
//!
//! Nothing in here knows I/O, a clock or the environment.

pub mod backoff;
pub mod conditions;
pub mod desired;
pub mod device_state;
pub mod health;
pub mod message;
pub mod plan;
pub mod status;
