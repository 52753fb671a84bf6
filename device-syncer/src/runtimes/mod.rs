//! What runs components: one trait, one directory per tool that does it, and all of a device's tools together.
//!
//! Only this module and what is below it names `docker` or `helm`. Everything blocks; time is used only to wait.

mod all;
pub mod capabilities;
mod client;
pub mod command;
pub mod compose;
mod error;
pub mod helm;
mod labels;
pub mod policy;
mod redact;
pub mod sandbox;

use std::time::Duration;

use crate::decision::component::Component;
use crate::decision::observation::Observed;

pub use all::{Ready, Runtimes};
pub use compose::{ComposeRuntime, ComposeSettings};
pub use error::RuntimeError;
pub use helm::{HelmRuntime, HelmSettings};
pub use policy::SitePolicy;
pub use redact::Redactor;
pub use repo_model::report::LockedImage;
pub use sandbox::SandboxSettings;

/// A tool that runs components of one type.
pub trait Runtime: Send {
    /// A component that is checked and ready to be applied.
    type Prepared;

    /// Finds what is ours by the labels of this fleet and device, and by what is noted on the device.
    ///
    /// Few calls of the tool, however much there is.
    fn observe(&self) -> Result<Vec<Observed>, RuntimeError>;

    /// Makes everything ready that needs the network, and checks it: archive or chart, rules, policy, images.
    ///
    /// Changes nothing that runs; idempotent, and quick when all is cached.
    fn prefetch(&self, component: &Component, cancel: &dyn Fn() -> bool) -> Result<Self::Prepared, RuntimeError>;

    /// Makes it run, waits for its health, and notes the input. A second apply of the same input touches nothing that
    /// runs.
    fn apply(&self, prepared: &Self::Prepared, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError>;

    /// Ends and removes what `apply` made; volumes and the application's own files stay. Idempotent.
    fn remove(&self, project: &str, timeout: Duration, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError>;
}

/// A file of ours can't be read or written: the disk is full, or something else.
fn files_failed(doing: &'static str, path: &std::path::Path) -> impl Fn(std::io::Error) -> RuntimeError + use<> {
    let path = path.to_owned();
    move |source| match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            RuntimeError::DiskFull { reason: format!("can't {doing} `{}`", path.display()) }
        }
        _ => RuntimeError::Files { doing, path: path.clone(), source },
    }
}
