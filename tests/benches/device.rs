//! What an idle device costs, on the stand-in for docker.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use repo_testkit::device::Device;

use crate::cost::{Process, Running};
use crate::fleet::made;
use crate::stage::{Stage, run};
use crate::{Line, median};

const PASSES: usize = 20;
const SAMPLES: usize = 10;

/// A device that runs the example, with nothing left to do.
struct UpToDate(Device);

impl UpToDate {
    fn new(stage: &Stage) -> Self {
        let fleet = made(stage, "device", &[]);
        let device = Device::join(&fleet, "press-01", &fleet.root().join("press-01"));
        fleet.run(&["publish"]);
        device.pass();
        Self(device)
    }

    /// Wall-clock and CPU time of a pass that finds nothing to do, its children's included, in milliseconds.
    fn pass(&self) -> (u64, u64) {
        let mut bash = Command::new("bash");
        let once = self.0.once();
        bash.args(["-c", "TIMEFORMAT='%3R %3U %3S'; time \"$@\" 2>/dev/null", "bash"]).arg(once.get_program());
        let output = run(bash.args(once.get_args()));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said.lines().last().expect("three times");
        let times: Vec<u64> =
            line.split(' ').map(|time| time.replace('.', "").parse().expect("milliseconds")).collect();
        (times[0], times[1] + times[2])
    }

    /// Proportional and private memory of a syncer that polls each second, in KiB.
    fn memory(&self) -> (u64, u64) {
        let child = self.0.command(&["run"]).stderr(Stdio::null()).spawn().expect("it runs");
        let running = Running(child);
        std::thread::sleep(Duration::from_secs(4));
        let sample = |of: fn(Process) -> u64| {
            let all: Vec<_> = (0..SAMPLES)
                .map(|_| {
                    std::thread::sleep(Duration::from_millis(130));
                    of(running.process())
                })
                .collect();
            median(&all)
        };
        (sample(Process::pss), sample(Process::private_dirty))
    }
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let device = UpToDate::new(stage);
    let passes: Vec<_> = (0..PASSES).map(|_| device.pass()).collect();
    let (wall, cpu): (Vec<u64>, Vec<u64>) = passes.into_iter().unzip();
    let (pss, dirty) = device.memory();
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len()) as f64 / 1e6;
    vec![
        Line::new(
            "device-syncer: a pass that finds nothing to do, wall-clock",
            format!("{} ms", median(&wall)),
            PASSES,
        ),
        Line::new("device-syncer: the same, CPU with git's and docker's", format!("{} ms", median(&cpu)), PASSES),
        Line::new("device-syncer run, idle: memory (PSS)", format!("{:.1} MiB", pss as f64 / 1024.0), SAMPLES),
        Line::new("device-syncer run, idle: private dirty", format!("{:.1} MiB", dirty as f64 / 1024.0), SAMPLES),
        Line::new("wfm-git-publisher, size", format!("{:.1} MB", size(&stage.publisher)), 1),
        Line::new("device-syncer, size", format!("{:.1} MB", size(&stage.syncer)), 1),
    ]
}
