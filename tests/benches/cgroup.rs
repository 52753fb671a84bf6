//! A control group: what all that runs in it takes together. Needs root, and the controllers `cpuacct` and `memory` of
//! version 1, or version 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";

/// Removed with this, when nothing runs in it any more.
pub(crate) struct ControlGroup {
    /// Of version 1, one for each controller.
    directories: Vec<PathBuf>,
    is_unified: bool,
}

impl ControlGroup {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("bench-{}-{name}", std::process::id());
        let is_unified = Path::new(ROOT).join("cgroup.controllers").exists();
        let controllers: &[&str] = if is_unified { &[""] } else { &["cpuacct", "memory"] };
        let directories: Vec<_> = controllers.iter().map(|one| Path::new(ROOT).join(one).join(&name)).collect();
        if is_unified {
            let _ = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+cpu +memory");
        }
        for directory in &directories {
            fs::create_dir(directory).expect("control groups need root");
        }
        Self { directories, is_unified }
    }

    /// One that has no more memory than this, in bytes; page cache counts.
    pub(crate) fn of_memory(name: &str, bytes: u64) -> Self {
        let group = Self::new(name);
        let limit = group.file("memory/memory.limit_in_bytes", "memory.max");
        fs::write(limit, bytes.to_string()).expect("a limit of memory");
        group
    }

    /// The most memory that was in use at once, in bytes, with the page cache of what it read and wrote.
    pub(crate) fn most_memory(&self) -> u64 {
        number(&self.file("memory/memory.max_usage_in_bytes", "memory.peak"))
    }

    /// The memory of its processes alone, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.of("memory/memory.stat", "memory.stat", if self.is_unified { "anon" } else { "rss" })
    }

    /// How often something was killed for want of memory.
    pub(crate) fn killed(&self) -> u64 {
        self.of("memory/memory.oom_control", "memory.events", "oom_kill")
    }

    /// The same command, with all that it starts, in this group.
    pub(crate) fn command(&self, command: &Command) -> Command {
        let join: Vec<_> =
            self.directories.iter().map(|one| format!("echo $$ >{}/cgroup.procs", one.display())).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{}; exec \"$@\"", join.join("; ")), "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell
    }

    /// CPU time of all that ran in it so far.
    pub(crate) fn cpu(&self) -> Duration {
        if self.is_unified {
            return Duration::from_micros(self.of("", "cpu.stat", "usage_usec"));
        }
        Duration::from_nanos(number(&self.file("cpuacct/cpuacct.usage", "")))
    }

    /// How many processes are in it now.
    pub(crate) fn processes(&self) -> usize {
        let text = fs::read_to_string(self.file("memory/cgroup.procs", "cgroup.procs"));
        text.map_or(0, |text| text.lines().count())
    }

    /// The number behind a key, in the file of either version.
    fn of(&self, first: &str, second: &str, key: &str) -> u64 {
        let text = fs::read_to_string(self.file(first, second)).expect("a controller's file");
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).expect("a number")
    }

    /// A file of version 1, with its controller, or of version 2.
    fn file(&self, first: &str, second: &str) -> PathBuf {
        if self.is_unified {
            return self.directories[0].join(second);
        }
        let (controller, file) = first.split_once('/').expect("a controller");
        let of = |path: &&PathBuf| path.starts_with(Path::new(ROOT).join(controller));
        self.directories.iter().find(of).expect("a controller").join(file)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for directory in &self.directories {
            // What was killed may need a moment.
            let is_gone = || fs::remove_dir(directory).is_ok();
            let _ = (0..50).any(|_| {
                is_gone() || {
                    std::thread::sleep(Duration::from_millis(100));
                    false
                }
            });
        }
    }
}

fn number(file: &Path) -> u64 {
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).expect("a number")
}
