//! This test binary once more, as a process of its own that may be killed or given another environment.

use std::path::{Path, PathBuf};
use std::process::Command;

use repo_git::durable::Group;
use repo_git::{FetchLimits, Remote, Repo};
use repo_testkit::deltas::high_water;

use crate::{power, support};

/// A command that performs a task of [`task`] in a process of its own.
pub(crate) fn command(task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its path"));
    command.args(["child::task", "--exact", "--nocapture"]).env("CHILD_TASK", task);
    command
}

/// A path from the environment.
pub(crate) fn path(variable: &str) -> PathBuf {
    std::env::var_os(variable).expect(variable).into()
}

/// Does what `CHILD_TASK` says, and nothing in an ordinary test run.
#[test]
fn task() {
    match std::env::var("CHILD_TASK").as_deref() {
        Ok("scenario") => power::scenario(&path("CHILD_ROOT"), &path("CHILD_UPSTREAM"), &path("CHILD_PROGRESS")),
        // Each sync is one of the whole file system, as with many threads side by side.
        Ok("scenario in a group") => Group::new(&path("CHILD_ROOT"), 0).expect("a group").within(|| {
            power::scenario(&path("CHILD_ROOT"), &path("CHILD_UPSTREAM"), &path("CHILD_PROGRESS"));
        }),
        Ok("fetch") => fetch(&path("CHILD_ROOT"), &path("CHILD_UPSTREAM")),
        _ => {}
    }
}

/// Fetches `CHILD_WANT` by whatever `git` is in `PATH`, within a megabyte and `CHILD_SECONDS`, and prints how it ended and
/// how much memory it took.
fn fetch(into: &Path, upstream: &Path) {
    let remote = Remote::open(&upstream.display().to_string()).expect("a remote");
    let seconds = std::env::var("CHILD_SECONDS").expect("set").parse().expect("a number");
    let timeout = std::time::Duration::from_secs(seconds);
    let limits = FetchLimits { bytes: 1 << 20, timeout, ..FetchLimits::default() };
    let want = std::env::var("CHILD_WANT").unwrap_or("1".repeat(40)).parse().expect("an id");
    let repo = Repo::open(into).expect("opened");
    let before = support::listing(into);
    let result = remote.fetch(&repo, &[want], &[], false, &limits);
    assert_eq!(support::listing(into), before, "{result:?}");
    println!("RESULT {result:?}");
    println!("PEAK {}", high_water("/proc/self/status").expect("told"));
}
