//! What something costs: CPU time, memory and wake-ups, as the kernel counts them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::stage::run;

/// CPU time of the calling thread so far.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or(0))
}

/// Wall-clock and CPU time of one of `times` calls in a row, in this thread.
pub(crate) fn of_calls(times: u32, mut call: impl FnMut()) -> (Duration, Duration) {
    let (start, before) = (Instant::now(), thread_cpu());
    (0..times).for_each(|_| call());
    (start.elapsed() / times, (thread_cpu() - before) / times)
}

/// Wall-clock and CPU time of one of `times` calls in a row, with what the other threads of this process take meanwhile.
pub(crate) fn of_calls_in_process(times: u32, mut call: impl FnMut()) -> (Duration, Duration) {
    let cpu = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or(0))
    };
    let (start, before) = (Instant::now(), cpu());
    (0..times).for_each(|_| call());
    (start.elapsed() / times, (cpu() - before) / times)
}

/// Wall-clock and CPU time of one of `times` runs of a command in a row, with all that it starts.
pub(crate) fn of_runs(times: u32, command: &Command) -> (Duration, Duration) {
    let mut bash = Command::new("bash");
    bash.args([
        "-c",
        r#"TIMEFORMAT='%3R %3U %3S'; n=$1; shift; time for ((i = 0; i < n; i++)); do "$@" >&2 || exit; done"#,
    ]);
    // Like the command itself, it sees nothing of the environment but what it is given.
    bash.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    bash.arg("bash").arg(times.to_string()).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bash.env(name, value),
            None => bash.env_remove(name),
        };
    }
    let said = String::from_utf8_lossy(&run(&mut bash).stderr).into_owned();
    let line = said.lines().last().expect("three times");
    let times_of = |text: &str| Duration::from_secs_f64(text.parse().expect("seconds"));
    let all: Vec<_> = line.split(' ').map(times_of).collect();
    (all[0] / times, (all[1] + all[2]) / times)
}

/// A process that is there.
#[derive(Clone, Copy)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// CPU time so far, with that of its children that ended; counted in hundredths of a second.
    pub(crate) fn cpu(self) -> Duration {
        let stat = self.read("stat");
        let fields = stat.rsplit(") ").next().expect("what follows the name");
        let ticks: u64 = fields.split(' ').skip(11).take(4).map(|ticks| ticks.parse::<u64>().expect("ticks")).sum();
        Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32
    }

    /// CPU time of its children that ended.
    fn cpu_of_children(self) -> Duration {
        let stat = self.read("stat");
        let fields = stat.rsplit(") ").next().expect("what follows the name");
        let ticks: u64 = fields.split(' ').skip(13).take(2).map(|ticks| ticks.parse::<u64>().expect("ticks")).sum();
        Duration::from_millis(1000 * ticks / rustix::param::clock_ticks_per_second())
    }

    /// Proportional memory in KiB.
    pub(crate) fn pss(self) -> u64 {
        field(&self.read("smaps_rollup"), "Pss:")
    }

    /// Memory that only it has and that was written to, in KiB.
    pub(crate) fn private_dirty(self) -> u64 {
        field(&self.read("smaps_rollup"), "Private_Dirty:")
    }

    /// How often its threads went to sleep so far, and so were woken.
    pub(crate) fn wakes(self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0)).expect("it runs");
        let status = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
        status.map(|status| field(&status, "voluntary_ctxt_switches:")).sum()
    }

    /// What its program is called; `None` if it has gone.
    pub(crate) fn name(self) -> Option<String> {
        Some(std::fs::read_to_string(format!("/proc/{}/comm", self.0)).ok()?.trim().to_owned())
    }

    /// It and what it started, as far as that is there.
    pub(crate) fn tree(self) -> Vec<Self> {
        // Each thread has the children that it started.
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0)).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<_> = lists
            .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
            .collect();
        std::iter::once(self).chain(children.into_iter().map(Self).flat_map(Self::tree)).collect()
    }

    fn read(self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.0)).expect("it runs")
    }
}

/// Proportional memory in KiB of a process that may have gone meanwhile.
pub(crate) fn pss_if_there(process: Process) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", process.0)).ok()?;
    text.contains("Pss:").then(|| field(&text, "Pss:"))
}

fn field(text: &str, key: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(key)).expect("a line");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Wall-clock time, CPU time and highest memory in KiB of a command that must succeed. The memory is looked at every few
/// milliseconds, so that the last of it may be missed.
pub(crate) fn of_run(command: &mut Command) -> (Duration, Duration, u64) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let before = Process(std::process::id()).cpu_of_children();
    let (start, mut highest) = (Instant::now(), 0);
    let mut child = command.spawn().expect("it can be started");
    let ended = loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        if status.contains("VmHWM:") {
            highest = highest.max(field(&status, "VmHWM:"));
        }
        match child.try_wait().expect("it is waited for") {
            Some(ended) => break ended,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let took = start.elapsed();
    // 3: a plan that found differences.
    assert!(matches!(ended.code(), Some(0 | 3)), "{command:?}: {ended}");
    (took, Process(std::process::id()).cpu_of_children() - before, highest)
}

/// What a directory takes on the disk, in bytes.
pub(crate) fn disk(path: &Path) -> u64 {
    let said = crate::stage::text(Command::new("du").args(["-s", "--block-size=1"]).arg(path));
    said.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

/// A child that ends with this.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn process(&self) -> Process {
        Process(self.0.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
