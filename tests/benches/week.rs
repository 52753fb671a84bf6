//! A device that looks each 15 s, 15 times faster than it is delivered: its passes, waits and heartbeats each come 15
//! times as often. What it takes is measured, and what a day and a week take is that, as often as it comes in them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use repo_testkit::git;

use crate::cgroup::ControlGroup;
use crate::containers::{Label, real};
use crate::cost::{Running, disk};
use crate::site::Site;
use crate::stage::Stage;
use crate::{Line, RUNS, median, shown};

/// How much faster all of it is: 1 s between two passes, 20 s of a wait and between two heartbeats.
const FASTER: u32 = 15;
const SETTINGS: &str = "poll: 1s\nreport: 20s\n";
const LIMITS: &str = "waitSeconds: 20";

/// Passes of a day and of a week, each 15 s.
const DAY: u32 = 24 * 3600 / 15;
const WEEK: u32 = 7 * DAY;

/// Deployments beside the first one, of one container each.
const MORE: usize = 3;

/// Until it is at rest, and how long it is watched each time.
const BEGIN: Duration = Duration::from_secs(25);
const WATCH: Duration = Duration::from_secs(20);

/// What the device took, so far or meanwhile.
#[derive(Clone, Copy)]
struct Taken {
    cpu: Duration,
    /// That it had written to the disk, by the kernel's count.
    written: u64,
    disk: u64,
}

impl Taken {
    fn since(self, before: Self) -> Self {
        let (written, disk) = (self.written - before.written, self.disk.saturating_sub(before.disk));
        Self { cpu: self.cpu - before.cpu, written, disk }
    }
}

/// What it took in each stretch of time, and its memory in KiB at the beginning and in the end.
struct Watched {
    stretches: Vec<Taken>,
    pss: [u64; 2],
    dirty: [u64; 2],
    /// How often something was synced to the disk in as much time as all stretches take, after them.
    syncs: u64,
    /// Of one change: fetched, verified, applied, reported.
    changes: Vec<Taken>,
}

fn written(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).expect("a number")
}

/// How often a process and its threads ask the kernel to sync something to the disk, in so much time.
fn syncs(process: u32, log: &Path, time: Duration) -> u64 {
    let mut strace = Command::new("timeout");
    // As `timeout` ends it by a signal, the process goes on as before.
    strace.arg(time.as_secs().to_string()).args(["strace", "--follow-forks", "--quiet=all", "--signal=none"]);
    strace.arg("--trace=fsync,fdatasync,msync,sync,syncfs,sync_file_range").arg("--output").arg(log);
    strace.args(["--attach", &process.to_string()]);
    let status = strace.status().expect("strace is there");
    assert!(status.code().is_some_and(|code| code == 0 || code == 124), "strace watches: {status}");
    let text = std::fs::read_to_string(log).expect("a log");
    text.lines().filter(|line| line.contains("sync")).count() as u64
}

fn watch(site: &Site, log: &Path) -> Watched {
    let group = ControlGroup::new("week");
    let mut syncer = group.command(&site.device.command(&["run"]));
    let running = Running(syncer.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
    let process = running.process();
    let taken = || Taken { cpu: group.cpu(), written: written(process.0), disk: disk(&site.device.clone_dir()) };
    let stretch = |time| {
        let before = taken();
        std::thread::sleep(time);
        taken().since(before)
    };
    std::thread::sleep(BEGIN);
    let (pss, dirty) = (process.pss(), process.private_dirty());
    let stretches = (0..RUNS).map(|_| stretch(WATCH)).collect();
    let (pss, dirty) = ([pss, process.pss()], [dirty, process.private_dirty()]);
    let syncs = syncs(process.0, log, WATCH * RUNS as u32);
    let change = |number| {
        let before = taken();
        site.change(number);
        site.publish();
        std::thread::sleep(Duration::from_secs(6));
        taken().since(before)
    };
    let changes = (0..RUNS).map(change).collect();
    Watched { stretches, pss, dirty, syncs, changes }
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let site = Site::new(stage, "week", "serve", LIMITS, &real("docker"));
    let _label = Label::of(&site);
    site.deploy_more(MORE);
    let path = site.device.home().join("device.yaml");
    let settings = std::fs::read_to_string(&path).expect("settings");
    std::fs::write(path, settings + SETTINGS).expect("written");
    let watched = watch(&site, &stage.dir.path().join("syncs.log"));
    let watched_passes = WATCH.as_secs() as u32;
    let of = |all: &[Taken], part: fn(&Taken) -> u64| median(&all.iter().map(part).collect::<Vec<_>>());
    let mean = |part: fn(&Taken) -> u64| watched.stretches.iter().map(part).sum::<u64>() / RUNS as u64;
    let idle = Duration::from_nanos(mean(|taken| taken.cpu.as_nanos() as u64)) / watched_passes;
    let change = Duration::from_nanos(of(&watched.changes, |taken| taken.cpu.as_nanos() as u64));
    let day = |each: u64| each * u64::from(DAY / watched_passes);
    let kilobytes = |bytes: u64| format!("{:.0} KB", bytes as f64 / 1e3);
    let mib = |kib: u64| format!("{:.2} MiB", kib as f64 / 1024.0);
    let each = |of: [u64; 2]| format!("{} → {}", mib(of[0]), mib(of[1]));
    let passes = watched_passes * RUNS as u32;
    let status = git::git(&site.device.clone_dir(), &["rev-list", "--count", "status"]);
    vec![
        Line::new(
            format!("{FASTER} times faster, {} containers: CPU of a pass, with waits and heartbeats (mean)", MORE + 1),
            shown(idle),
            RUNS,
        ),
        Line::new("  a week of 40,320 passes, scaled: CPU", shown(idle * WEEK), RUNS),
        Line::new(format!("  after {passes} passes: memory (PSS)"), each(watched.pss), 1),
        Line::new(format!("  after {passes} passes: private dirty"), each(watched.dirty), 1),
        Line::new("  an idle day, scaled: written to the disk", kilobytes(day(mean(|taken| taken.written))), RUNS)
            .goal("≤ 1 MiB"),
        Line::new("  an idle day, scaled: syncs", (day(watched.syncs) / RUNS as u64).to_string(), 1).goal("≤ 50"),
        Line::new("  an idle day, scaled: growth of the clone", kilobytes(day(mean(|taken| taken.disk))), RUNS),
        Line::new("  one change: CPU, with all it starts", shown(change), RUNS),
        Line::new("  one change: written to the disk", kilobytes(of(&watched.changes, |taken| taken.written)), RUNS),
        Line::new(
            format!("  the clone, with {status} commits of `status`"),
            kilobytes(disk(&site.device.clone_dir())),
            1,
        )
        .goal("≤ 2 MB"),
    ]
}
