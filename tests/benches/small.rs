//! A device with 512 MiB: what the syncer takes there with all that it starts, while it installs and updates with two jobs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cgroup::ControlGroup;
use crate::containers::{Label, containers, real};
use crate::cost::Running;
use crate::site::Site;
use crate::stage::Stage;
use crate::{Line, shown};

/// All memory of such a device, in bytes. What runs, the engine and the system have to have room in it, too.
const DEVICE: u64 = 512 << 20;

/// Deployments beside the first one, of one container each, that come with one commit.
const MORE: usize = 8;

/// How often it is looked at.
const TICK: Duration = Duration::from_millis(20);

/// How long is waited at most for what shall run.
const LOST: Duration = Duration::from_secs(300);

/// The most that was seen at once.
#[derive(Default)]
struct Most {
    processes: usize,
    /// Of the processes, without page cache, in bytes.
    memory: u64,
}

/// Watches the group until `done`.
fn watch(group: &ControlGroup, done: impl Fn() -> bool) -> (Most, Duration) {
    let (mut most, start) = (Most::default(), Instant::now());
    while !done() {
        assert!(start.elapsed() < LOST, "it doesn't come to its end");
        for _ in 0..10 {
            most.processes = most.processes.max(group.processes());
            most.memory = most.memory.max(group.memory());
            std::thread::sleep(TICK);
        }
    }
    (most, start.elapsed())
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let site = Site::new(stage, "small", "serve", "", &real("docker"));
    let label = Label::of(&site);
    let group = ControlGroup::of_memory("small", DEVICE);
    let mut syncer = group.command(&site.device.command(&["run"]));
    let running = Running(syncer.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
    let ids = || containers(&label.0).into_iter().map(|one| one["Id"].to_string()).collect::<Vec<_>>();
    site.want_more(MORE, "hello");
    let (install, took) = watch(&group, || ids().len() == MORE + 1);
    let before = ids();
    site.want_more(MORE, "good morning");
    let (update, _) = watch(&group, || ids().iter().filter(|id| before.contains(id)).count() == 1);
    let pss = running.process().pss();
    let megabytes = |bytes: u64| format!("{:.0} MB", bytes as f64 / 1e6);
    let name = format!("on 512 MiB, {MORE} deployments at once by two jobs");
    let line = |what: &str, most: &Most| {
        let value = format!("{}, {} processes", megabytes(most.memory), most.processes);
        Line::new(format!("{name}: {what}: most memory of all processes, most processes"), value, 1)
    };
    vec![
        line("installed", &install),
        line("updated", &update),
        Line::new("  installed within", shown(took), 1),
        Line::new("  with page cache, at the most", megabytes(group.most_memory()), 1).goal("≤ 512 MiB"),
        Line::new("  killed for want of memory", group.killed().to_string(), 1).goal("0"),
        Line::new("  the syncer's own memory in the end (PSS)", megabytes(pss * 1024), 1),
    ]
}
