//! What runs components: one trait, one directory per tool that does it, and all of a device's tools together.
//!
//! Only this module and what is below it names `docker` or `helm`. Everything blocks, but for the thread that hears what
//! the engine tells; time is used only to wait, and to say since when nothing needs an image.

mod cancel;
pub mod capabilities;
mod client;
pub mod command;
pub mod compose;
mod device;
mod error;
pub mod helm;
mod labels;
mod lines;
mod redact;
pub mod sandbox;

use std::collections::BTreeMap;
use std::time::Duration;

use repo_model::margo::ProfileType;

use crate::decision::component::Component;
use crate::decision::observation::Observed;
use crate::decision::restart::Started;

pub use cancel::Cancel;
pub use compose::{ComposeRuntime, ComposeSettings, Lasting, Watch};
pub use device::{Asked, DeviceRuntimes, Facts, Ready};
pub use error::RuntimeError;
pub use helm::{HelmRuntime, HelmSettings};
pub use lines::Lines;
pub use redact::Redactor;
pub use repo_model::report::LockedImage;
pub use sandbox::SandboxSettings;

/// Where what a component needs may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Anywhere,
    /// The cache and the engine's store: nobody else is asked, and what isn't there is [`RuntimeError::NotHere`].
    Here,
}

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
    fn prefetch(
        &self,
        component: &Component,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Self::Prepared, RuntimeError>;

    /// Makes it run, waits for its health, and notes the input. A second apply of the same input touches nothing that
    /// runs.
    fn apply(&self, prepared: &Self::Prepared, cancel: &Cancel<'_>) -> Result<(), RuntimeError>;

    /// Ends and removes what `apply` made; volumes and the application's own files stay. Idempotent.
    fn remove(&self, project: &str, timeout: Duration, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError>;
}

/// What an actor uses of the [runtimes](crate::runtimes::Runtimes): a test's runtimes prepare something of their own.
pub trait Runtimes {
    /// What `prefetch` gives, and `apply` takes.
    type Ready;
    /// See [`Runtime::prefetch`].
    fn prefetch(
        &self,
        component: &Component,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Self::Ready, RuntimeError>;
    /// The images that were locked by that, by service: nobody had locked them before.
    fn first_use(&self, _ready: &Self::Ready) -> BTreeMap<String, LockedImage> {
        BTreeMap::new()
    }
    /// See [`Runtime::apply`].
    fn apply(&self, ready: &Self::Ready, cancel: &Cancel<'_>) -> Result<(), RuntimeError>;
    /// Restores what was applied and doesn't run, and touches nothing else of it.
    fn restore(&self, component: &Component, cancel: &Cancel<'_>) -> Result<(), RuntimeError>;
    /// The containers of what was applied, in the order in which they are restarted.
    fn containers(&self, component: &Component) -> Result<Vec<Started>, RuntimeError>;
    /// Restarts these containers of it as they are, and touches nothing else of it.
    fn restart(
        &self,
        component: &Component,
        containers: &[String],
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError>;
    /// See [`Runtime::remove`].
    fn remove(
        &self,
        kind: ProfileType,
        project: &str,
        timeout: Duration,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError>;
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
