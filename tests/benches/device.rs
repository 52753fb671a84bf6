//! What an idle device costs, on the stand-in for docker.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use repo_testkit::device::fake_docker;

use crate::cost::{Process, Running};
use crate::stage::{Stage, run, text};
use crate::{Line, median};

const PASSES: usize = 20;
const SAMPLES: usize = 10;

/// A device that runs the example, with nothing left to do.
struct Device<'a> {
    stage: &'a Stage,
    home: PathBuf,
}

impl<'a> Device<'a> {
    fn new(stage: &'a Stage) -> Self {
        let (fleet, root) = (stage.dir.path().join("site"), stage.dir.path().join("device"));
        let device = Self { stage, home: root.join("home") };
        let registry = stage.registry_for("device");
        let mut init = Command::new(&stage.publisher);
        run(init.arg("init").arg(&fleet).args(["--registry", &registry, "--image", &stage.image()]));
        let publisher = |args: &[&str]| text(Command::new(&stage.publisher).arg("-C").arg(&fleet).args(args));
        publisher(&["app", "push", "applications/hello/1.0.0"]);
        publisher(&["device", "add", "press-01"]);
        let join = stage.dir.path().join("site.wfm/join/press-01.json");
        let line = text(device.command(&["init", "--join"]).arg(join));
        publisher(&["device", "enroll", "press-01", &line]);
        publisher(&["publish"]);
        let settings = format!("docker: {}\npoll: 1s\n", fake_docker(&root.join("docker")));
        std::fs::write(device.home.join("device.yaml"), settings).expect("written");
        run(&mut device.command(&["once"]));
        device
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.stage.syncer);
        command.arg("--home").arg(&self.home).args(args);
        command
    }

    /// Wall-clock and CPU time of a pass that finds nothing to do, its children's included, in milliseconds.
    fn pass(&self) -> (u64, u64) {
        let mut bash = Command::new("bash");
        bash.args(["-c", "TIMEFORMAT='%3R %3U %3S'; time \"$@\" 2>/dev/null", "bash"]).arg(&self.stage.syncer);
        let output = run(bash.arg("--home").arg(&self.home).arg("once"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said.lines().last().expect("three times");
        let times: Vec<u64> =
            line.split(' ').map(|time| time.replace('.', "").parse().expect("milliseconds")).collect();
        (times[0], times[1] + times[2])
    }

    /// Proportional and private memory of a syncer that polls each second, in KiB.
    fn memory(&self) -> (u64, u64) {
        let child = self.command(&["run"]).stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
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
    let device = Device::new(stage);
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
