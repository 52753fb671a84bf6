//! A device that waits, over HTTPS: memory and wake-ups, beside others that poll.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cost::{Process, Running, pss_if_there};
use crate::host::Place;
use crate::site::{Docker, Site};
use crate::stage::Stage;
use crate::{Line, RUNS, median, shown};

/// Until everyone is at rest, and how long they are watched each time: two polls of those that poll.
const BEGIN: Duration = Duration::from_secs(20);
const WATCH: Duration = Duration::from_secs(30);

/// What one takes while nothing happens.
struct Idle {
    /// In KiB, each with all that it started.
    pss: u64,
    dirty: u64,
    wakes_per_minute: u64,
    /// For each second; the mean, because the kernel counts in hundredths of a second.
    cpu: Duration,
}

fn start(mut command: Command) -> Running {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Running(command.spawn().expect("it starts"))
}

/// Asks each 15 s, as a shell script does.
fn shell(place: &Place, stage: &Stage) -> Command {
    let git = place.ls_remote(stage.dir.path());
    let mut shell = Command::new("sh");
    shell.args(["-c", "while :; do \"$@\"; sleep 15; done", "sh"]).arg(git.get_program()).args(git.get_args());
    for (name, value) in git.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell.env_remove("GIT_SSL_CAINFO");
    shell
}

/// One that is watched, what it had taken when it was last looked at, and what it took each time since.
struct Watched {
    process: Process,
    wakes: u64,
    cpu: Duration,
    all: Vec<Idle>,
}

impl Watched {
    fn begin(process: Process) -> Self {
        Self { process, wakes: process.wakes(), cpu: process.cpu(), all: Vec::new() }
    }

    fn sample(&mut self) {
        let started = self.process.tree().into_iter().skip(1).filter_map(pss_if_there);
        let (wakes, cpu) = (self.process.wakes(), self.process.cpu());
        self.all.push(Idle {
            pss: self.process.pss() + started.sum::<u64>(),
            dirty: self.process.private_dirty(),
            wakes_per_minute: (wakes - self.wakes) * 60 / WATCH.as_secs(),
            cpu: (cpu - self.cpu) / WATCH.as_secs() as u32,
        });
        (self.wakes, self.cpu) = (wakes, cpu);
    }

    fn end(self) -> Idle {
        fn of<T: Copy + Ord>(all: &[Idle], what: fn(&Idle) -> T) -> T {
            median(&all.iter().map(what).collect::<Vec<_>>())
        }
        Idle {
            pss: of(&self.all, |one| one.pss),
            dirty: of(&self.all, |one| one.dirty),
            wakes_per_minute: of(&self.all, |one| one.wakes_per_minute),
            cpu: self.all.iter().map(|one| one.cpu).sum::<Duration>() / RUNS as u32,
        }
    }
}

fn watch(processes: [Process; 3]) -> [Idle; 3] {
    std::thread::sleep(BEGIN);
    let mut all = processes.map(Watched::begin);
    for _ in 0..RUNS {
        std::thread::sleep(WATCH);
        all.iter_mut().for_each(Watched::sample);
    }
    all.map(Watched::end)
}

/// The most memory that a poll by git takes while it lasts, in KiB.
fn peak(command: &mut Command) -> u64 {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("git runs");
    let mut most = 0;
    while child.try_wait().expect("it is ours").is_none() {
        most = most.max(Process(child.id()).tree().into_iter().filter_map(pss_if_there).sum());
    }
    most
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let site = Site::new(stage, "idle", "serve", "", &Docker::Fake);
    let place = site.place();
    let (ours, go) = (start(site.device.command(&["run"])), start(place.go_git("poll", &["1000", "15"])));
    let shell = start(shell(&place, stage));
    let all = watch([ours.process(), go.process(), shell.process()]);
    let peaks: Vec<_> = (0..RUNS).map(|_| peak(&mut place.ls_remote(stage.dir.path()))).collect();
    let names = ["device-syncer, waiting", "go-git program, poll each 15 s", "git in a shell loop, poll each 15 s"];
    let mut lines = Vec::new();
    for (name, idle) in names.into_iter().zip(all) {
        lines.extend(idle.lines(name));
    }
    let first = lines.remove(0).goal("≤ 6 MB");
    lines.insert(0, first);
    lines.push(Line::new("idle, git in a shell loop: memory during its poll (PSS)", megabytes(median(&peaks)), RUNS));
    lines
}

fn megabytes(kib: u64) -> String {
    format!("{:.1} MB", kib as f64 * 1024.0 / 1e6)
}

impl Idle {
    fn lines(&self, who: &str) -> Vec<Line> {
        vec![
            Line::new(format!("idle, {who}: memory (PSS)"), megabytes(self.pss), RUNS),
            Line::new(format!("idle, {who}: private dirty"), megabytes(self.dirty), RUNS),
            Line::new(format!("idle, {who}: wake-ups each minute"), self.wakes_per_minute.to_string(), RUNS),
            Line::new(format!("idle, {who}: CPU with its children, each second (mean)"), shown(self.cpu), RUNS),
        ]
    }
}
