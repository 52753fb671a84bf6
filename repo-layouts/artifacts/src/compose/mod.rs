//! What a compose archive may say, before anything resolves it and after: the rules that every device has in common,
//! whatever its site allows. A device holds archives against them before it runs anything of them; `app push` before
//! a tag is given to bytes that every device would refuse.

mod allowed;
mod characters;
mod raw;
mod refused;
mod variables;

pub use allowed::violations;
pub use raw::check;
pub use refused::refused;
pub use variables::{check_env_file, check_variable};

/// Beginnings of labels that are the syncer's and Compose's own.
pub const RESERVED_LABELS: &[&str] = &["device-syncer.", "com.docker."];

/// Log drivers that neither send anything elsewhere nor take the log from the device.
pub const LOG_DRIVERS: &[&str] = &["json-file", "local", "none"];

#[cfg(test)]
mod testing;
