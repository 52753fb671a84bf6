//! The programs where only root can write, as a package installs them: sshd runs nothing from anywhere else.

use std::path::{Path, PathBuf};

use repo_testkit::program;
use tempfile::TempDir;

/// Copies of both programs; gone when dropped.
pub(crate) struct Installed(TempDir);

impl Installed {
    /// Below the tests' cache, which is the user's own up to the root of the file system.
    pub(crate) fn new() -> Self {
        let cache =
            std::env::var_os("MARGO_TEST_CACHE").expect("MARGO_TEST_CACHE is set: run the tests by `./justw test`");
        let dir = TempDir::with_prefix_in("programs-", cache).expect("a directory");
        for name in ["wfm-git-publisher", "device-syncer"] {
            std::fs::copy(program(name), dir.path().join(name)).expect("copied");
        }
        Self(dir)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn publisher(&self) -> PathBuf {
        self.dir().join("wfm-git-publisher")
    }
}
