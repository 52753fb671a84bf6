//! What a look at the device costs that finds nothing to do: the syncer as a service, at its own pace, on real Docker.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cgroup::ControlGroup;
use crate::containers::{Label, containers, real};
use crate::cost::{Running, of_runs};
use crate::site::Site;
use crate::stage::Stage;
use crate::{Line, RUNS, median, shown};

/// Deployments beside the first one, of one container each.
const MORE: usize = 3;

/// How long a pass is over at the latest, and less than what lies between two.
const OVER: Duration = Duration::from_secs(5);

/// How long the next pass is waited for.
const LOST: Duration = Duration::from_secs(60);

/// The first passes find out what the machine has.
const WARM: usize = 3;

/// What passes took, each with all that it started.
struct Watched {
    cpu: Vec<Duration>,
    /// In KiB, after the last one.
    pss: u64,
    dirty: u64,
}

/// How many passes began, by the log.
fn passes(log: &Path) -> usize {
    let text = std::fs::read_to_string(log).expect("a log");
    text.lines().filter(|line| line.contains("a pass begins")).count()
}

fn watch(site: &Site, log: &Path) -> Watched {
    let group = ControlGroup::new("quiet");
    let mut syncer = group.command(&site.device.command(&["run"]));
    syncer.env("DEVICE_SYNCER_LOG", "info,device_syncer::reconcile::agent=debug");
    let running =
        Running(syncer.stdin(Stdio::null()).stderr(File::create(log).expect("a log")).spawn().expect("it runs"));
    let next = |number: usize| {
        let start = Instant::now();
        while passes(log) < number {
            assert!(start.elapsed() < LOST, "no pass begins");
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(OVER);
        group.cpu()
    };
    let mut before = next(WARM);
    let mut cpu = Vec::new();
    for number in 1..=RUNS {
        let after = next(WARM + number);
        cpu.push(after - before);
        before = after;
    }
    assert_eq!(group.processes(), 1, "it started nothing that stays");
    Watched { cpu, pss: running.process().pss(), dirty: running.process().private_dirty() }
}

/// What looking by docker's own commands costs: one lists, the other inspects what is listed.
fn by_commands(label: &Label) -> Duration {
    let ids: Vec<_> = containers(&label.0).iter().map(|one| one["Id"].as_str().expect("an id").to_owned()).collect();
    let mut list = Command::new("docker");
    list.args(["ps", "--all", "--no-trunc", "--format", "json", "--filter", &format!("label={}", label.0)]);
    let mut inspect = Command::new("docker");
    inspect.arg("inspect").args(ids);
    for variable in ["DOCKER_HOST", "DOCKER_CONFIG"] {
        let value = std::env::var(variable).unwrap_or_default();
        list.env(variable, &value);
        inspect.env(variable, value);
    }
    [list, inspect].iter().map(|command| of_runs(RUNS as u32, command).1).sum()
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let site = Site::new(stage, "quiet", "serve", "", &real("docker"));
    let label = Label::of(&site);
    site.deploy_more(MORE);
    let watched = watch(&site, &stage.dir.path().join("quiet.log"));
    let (cpu, commands) = (median(&watched.cpu), by_commands(&label));
    let name = format!("a quiet pass each 15 s, {} containers on real Docker", MORE + 1);
    let megabytes = |kib: u64| format!("{:.1} MB", kib as f64 * 1024.0 / 1e6);
    vec![
        Line::of_times(format!("{name}: CPU, with all it starts"), &watched.cpu).goal("≤ 2 ms"),
        Line::new(format!("{name}: the dearest of them"), shown(*watched.cpu.iter().max().expect("some")), RUNS),
        Line::new("  `docker ps` and `docker inspect` of the same containers: CPU", shown(commands), RUNS),
        Line::new("  as many times as our pass", format!("{:.1} ×", commands.as_secs_f64() / cpu.as_secs_f64()), RUNS),
        Line::new(format!("{name}: memory (PSS)"), megabytes(watched.pss), 1),
        Line::new(format!("{name}: private dirty"), megabytes(watched.dirty), 1),
    ]
}
