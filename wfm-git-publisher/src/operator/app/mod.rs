//! Application packages: brought into the fleet as they are, and taken out of it.

mod add;
mod error;
mod git;
mod git_origin;
mod oci;
mod origin;
mod read;
mod remove;

pub use add::{AddedApp, add_app, check_app};
pub use error::AppError;
pub use git_origin::{GitOrigin, InvalidOrigin};
pub use origin::{Origin, Version};
pub use read::{Got, Places, find_app, get, of_fleet};
pub use remove::{RemovedApp, remove_app};
