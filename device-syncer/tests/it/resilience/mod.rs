//! What is lost, gone, full, killed or there twice.

mod away;
mod clone;
mod ending;
mod epochs;
mod processes;
mod status_branch;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use repo_testkit::{comes_within, git, terminate};
use rustix::fs::{Mode, OFlags};

use crate::world::{App, World, command, finish, kill, syncer, text, until};

/// Puts the host out of reach, and back.
struct Away(PathBuf, PathBuf);

impl Away {
    fn take(world: &World) -> Self {
        let (here, away) = (world.hand.repository(), world.path("away.git"));
        fs::rename(&here, &away).expect("moved");
        Self(here, away)
    }

    fn back(self) {
        fs::rename(self.1, self.0).expect("moved");
    }
}

/// A copy of the device's disk: home, and a docker of its own.
pub(crate) fn clone_disk(world: &World) -> PathBuf {
    let (home, docker) = (world.path("copied-home"), world.path("copied-docker"));
    for (from, to) in [(world.home(), &home), (world.fake.dir().to_owned(), &docker)] {
        text(Command::new("cp").arg("-a").arg(from).arg(to).output().unwrap());
    }
    let settings = fs::read_to_string(home.join("device.yaml")).unwrap();
    let settings = settings.replace(&world.fake.host(), &format!("fake://{}", docker.display()));
    fs::write(home.join("device.yaml"), settings).unwrap();
    home
}

/// The processes that keep a file open.
fn holders(path: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|one| one.file_name().to_str()?.parse().ok());
    pids.filter(|pid| holds(*pid, path)).collect()
}

/// Whether a process keeps a file open.
fn holds(pid: u32, path: &Path) -> bool {
    let mut files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|target| target == path))
}
