//! Application packages: brought into the fleet as they are, and taken out of it.

mod add;
mod error;
mod origin;
mod read;
mod remove;

pub use add::{AddedApp, add_app, check_app};
pub use error::AppError;
pub use origin::{InvalidOrigin, Origin, Version};
pub use read::{Got, get};
pub use remove::{RemovedApp, remove_app};
